"""The store on a Redis server: the suite, and what its server, its keys and its scripts promise."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
import redis as redis_py
from redis.crc import key_slot

from adjourn import ChatModelAgent, Runner, interrupt, workflow
from adjourn.errors import CheckpointNotFound
from adjourn.models import DemoModel
from adjourn.stores import EncryptedStore, Input, Question, QuestionFilter, RedisStore, SessionRef, Store
from adjourn.stores._logging import what_is_left_out
from adjourn.stores.kit import (
    Cancel,
    CountQuestions,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    ListDue,
    ListQuestions,
    ListSessions,
    Submit,
    Withdraw,
)
from adjourn.stores.redis._keys import document_key, session_keys
from adjourn.testing import FakeClock, ScriptedModel, StoreSuite
from adjourn.testing.suite.bench import Drive, S, paused, question, refused, yes
from tests.servers import redis
from tests.stores.booking import book_ticket

ROOT = Path(__file__).parents[2]


class TestRedisStore(StoreSuite):
    shared = True
    url: str

    async def make_store(self, clock: FakeClock) -> Store:
        self.url = redis().fresh()
        return RedisStore(self.url, clock=clock)

    async def reopen(self, clock: FakeClock) -> Store:
        return RedisStore(self.url, clock=clock)


@pytest.fixture
def url() -> str:
    return redis().fresh()


def client(url: str) -> Any:  # Any: redis-py's types say little
    return cast("Any", redis_py.Redis).from_url(url, decode_responses=True)


# Trips


async def test_sessions_are_found_by_their_status_without_reading_others(url: str):  # rule K1
    store = RedisStore(url)
    await asyncio.gather(
        *[store.write(Submit(ref=SessionRef(f"q{each}"), input=Input(id="i", body=b"{}"))) for each in range(500)]
    )
    await paused(store, "q", session="waiting")
    with client(url) as own:

        def reads() -> int:
            found = own.info("commandstats")
            return sum(found.get(f"cmdstat_{each}", {}).get("calls", 0) for each in ("hgetall", "hmget", "evalsha"))

        before = reads()
        assert [head.session for head in await store.read(ListSessions(status="waiting", limit=10))] == ["waiting"]
        assert reads() - before == 2  # the time, and the row
        assert await store.read(ListSessions(status="done")) == []
        assert reads() - before == 3
    await store.close()


@pytest.mark.parametrize(("of_ann", "waiting"), [(300, 3), (3, 300)])
async def test_sessions_of_a_user_with_a_status_are_found_without_reading_others(  # rule K1
    url: str, of_ann: int, waiting: int
):
    store = RedisStore(url)
    queued = [
        store.write(Submit(ref=SessionRef(f"a{each}", user="ann"), input=Input(id="i", body=b"{}")))
        for each in range(of_ann)
    ]
    await asyncio.gather(*queued, *[paused(store, "q", session=f"b{each}") for each in range(waiting)])
    for each in range(2):
        run = Drive(store, f"both{each}")
        await run.start(user="ann")
        await run.pause(question("q"))
    with client(url) as own:

        def rows_read() -> int:
            return own.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0)

        for limit in (None, 1, 10):
            before = rows_read()
            found = await store.read(ListSessions(user="ann", status="waiting", limit=limit))
            assert [head.session for head in found] == ["both1", "both0"][:limit]
            assert rows_read() - before <= 2
        before = rows_read()
        assert await store.read(ListSessions(user="ann", status="failed")) == []
        assert rows_read() == before
        (first,) = await store.read(ListSessions(user="ann", status="waiting", limit=1))
        rest = await store.read(ListSessions(user="ann", status="waiting", after=first.cursor))
        assert [head.session for head in rest] == ["both0"]
    await store.close()


async def test_sessions_that_wait_are_not_read_to_remove_those_that_have_ended(url: str):  # rule C7
    store = RedisStore(url)
    await asyncio.gather(*[paused(store, "q", session=f"w{each}") for each in range(50)])
    for each in range(3):
        run = Drive(store, f"d{each}")
        await run.start()
        await run.commit(run.next(status="done"), release=True)
    with client(url) as own:

        def rows_read() -> int:
            return own.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0)

        before = rows_read()
        gone = await store.write(DeleteIdle(ttl=-1.0, statuses=["done", "failed"], limit=2))
        assert [ref.id for ref in gone] == ["d0", "d1"]
        assert rows_read() - before < 10
    await store.close()


async def test_a_session_that_does_not_wait_for_anybody_is_not_read_for_those_that_are_due(url: str):  # rule K1
    store = RedisStore(url)
    for each in range(20):
        await paused(store, "q", session=f"s{each}")
    await store.write(GiveAnswers(ref=SessionRef("s7"), answers=[yes("q")]))
    with client(url) as own:
        before = own.info("commandstats")["cmdstat_hgetall"]["calls"]
        assert [each.session for each in await store.read(ListDue())] == ["s7"]
        assert own.info("commandstats")["cmdstat_hgetall"]["calls"] - before == 1
    await store.close()


async def test_a_session_is_listed_under_one_status_at_a_time(url: str):  # rule K1
    store, run = RedisStore(url), Drive(RedisStore(url))

    def listed() -> list[tuple[str, float]]:
        with client(url) as own:
            keys = own.keys("adj:adjourn:sessions=*")
            return [(key.rpartition("=")[2], own.zscore(key, "s")) for key in keys]

    async def updated() -> float:
        head = await store.read(GetHead(S))
        return 0.0 if head is None else head.updated

    await store.write(Submit(ref=S, input=Input(id="one", body=b"{}")))
    assert listed() == [("queued", await updated())]
    await run.start(run.next(input="one"))
    assert listed() == [("running", await updated())]
    await run.pause(question("q"))
    assert listed() == [("waiting", await updated())]
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    await run.claim(run.next(takes=("q",)))
    await run.end()
    assert listed() == [("done", await updated())]
    await store.write(Submit(ref=S, input=Input(id="two", body=b"{}")))
    assert listed() == [("queued", await updated())]
    await store.write(Withdraw(S, "two"))
    assert listed() == [("done", await updated())]
    await store.write(Delete(S))
    assert listed() == []
    for each in (store, run.store):
        await each.close()


async def test_a_live_owner_commits_in_one_trip_and_others_write_in_two(url: str):  # rules K1, R3
    store, other = RedisStore(url), RedisStore(url)
    run = Drive(store)
    await run.start(run.next(asks=(question("q"),)))
    await other.read(GetHead(S))

    async def trips(*calls: Any) -> int:
        with client(url) as own:
            before = own.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
            for call in calls:
                await call
            return own.info("commandstats")["cmdstat_evalsha"]["calls"] - before

    assert await trips(run.commit(), run.commit(), run.commit()) == 3
    assert await trips(other.write(GiveAnswers(ref=S, answers=[yes("q")]))) == 2
    assert await trips(other.write(Cancel(S, "after_step"))) == 2
    assert await trips(other.write(Submit(ref=S, input=Input(id="i", body=b"{}")))) == 2
    assert await trips(run.commit(run.next(takes=("q",)))) == 2  # it must read what others have answered
    assert await trips(run.commit()) == 1
    assert await trips(run.loaded()) == 1
    assert await trips(run.pause(question("r"))) == 1
    assert await trips(run.claim(run.next(), yes("r"))) == 1
    fresh = Drive(store, "fresh")
    assert await trips(fresh.start()) == 1
    await store.close()
    await other.close()


async def test_leases_are_renewed_and_cancels_seen_in_one_trip(url: str):
    store = RedisStore(url)
    runs = [Drive(store, f"s{number}") for number in range(20)]
    for run in runs:
        await run.start()
    leases = [run.held for run in runs]
    assert await store.write(Cancel(runs[3].ref, "now"))
    with client(url) as own:
        assert [each.cancel for each in await store.renew(leases)] == [None] * 3 + ["now"] + [None] * 16
        assert await store.cancels(leases) == [None] * 3 + ["now"] + [None] * 16
        # Commands of one client that do not wait for one another are one trip, and it took one connection.
        assert len([each for each in own.client_list() if each["db"] == url.rpartition("/")[2]]) == 3
    await store.close()


async def test_scripts_that_the_server_forgot_are_sent_again(url: str):
    store = RedisStore(url)
    runs = [Drive(store, f"s{number}") for number in range(3)]
    for run in runs:
        await run.start()
    with client(url) as own:
        own.script_flush()
        await runs[0].commit()
        own.script_flush()
        assert [each.lost for each in await store.renew([run.held for run in runs])] == [False] * 3
        own.script_flush()
        assert [each.session for each in await store.read(ListSessions())] == ["s0", "s2", "s1"]
    await store.close()


# Keys


async def test_all_keys_of_a_session_are_in_one_slot(url: str):  # rule K1
    store = RedisStore(url)
    names = [("adjourn", "s"), ("shop", "user:42"), ("a:b", "{x}"), ("", ""), ("{", "}{"), ("é", "%7B"), ("~own", "~")]
    for app, name in names:
        run = Drive(store, name)
        await run.start(run.next(asks=(question("q"),), events=b"[1]", event_count=1), app=app)
        await store.write(Submit(ref=run.ref, input=Input(id="i", body=b"{}")))
        await run.commit(run.next(status="waiting"), release=True)
    documents = {document_key(app, name) for app, name in names}
    assert len(documents) == len(names)
    for app, name in names:
        keys = session_keys(app, name)
        assert {key_slot(key.encode()) for key in keys} == {key_slot(document_key(app, name).encode())}
    with client(url) as own:
        of_sessions = {key for key in own.scan_iter() if "checkpoint" in key}
        assert of_sessions <= {key for app, name in names for key in session_keys(app, name)}
        assert documents <= of_sessions
    assert document_key("adjourn", "user:42") == "checkpoint:user:42"
    assert document_key("shop", "s") == "checkpoint@shop:s"
    await store.close()


async def test_a_deleted_session_leaves_nothing(url: str):
    store = RedisStore(url)
    run = Drive(store)
    await run.start(run.next(asks=(question("q", expires=1e10),), events=b"[1]", event_count=1), user="ann")
    await store.write(Submit(ref=S, input=Input(id="i", body=b"{}")))
    await run.pause(question("r"))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    with client(url) as own:
        assert len(own.keys()) > 10
        await store.write(Delete(S))
        assert set(own.keys()) == {"adj:apps", "adj:layout", "adj:serial"}
    await store.close()


# Time to live


async def test_a_time_to_live_is_on_all_keys_and_never_shorter_than_a_lease(url: str):  # rule K1
    store = RedisStore(url, ttl=100)
    run = Drive(store, ttl=500)
    await run.start(run.next(asks=(question("q", expires=1e10),), events=b"[1]", event_count=1))

    def left() -> list[int]:
        with client(url) as own:
            return [own.pttl(key) for key in own.scan_iter() if "{checkpoint" in key or key.startswith("checkpoint")]

    assert min(left()) > 400_000
    await run.pause(question("r"))
    assert 90_000 < min(left()) <= 100_000
    with client(url) as own:
        own.pexpire(session_keys("adjourn", "s")[0], 5_000)
    head = await store.read(GetHead(S))
    assert head is not None
    assert head.removed_after == head.touched + 100
    assert {each.removed_after for each in await store.read(ListQuestions())} == {head.removed_after}
    other = RedisStore(url)
    await other.write(GiveAnswers(ref=S, answers=[yes("q")]))  # somebody without the option prolongs it, too
    assert min(left()) > 90_000
    await store.close()
    await other.close()


async def test_a_session_that_has_run_out_is_nowhere(url: str):
    store, other = RedisStore(url, ttl=100), RedisStore(url)
    for name in ("s", "t"):
        run = Drive(store, name)
        await run.start(user="ann")
        await run.pause(question("q", expires=1e10))
        await store.write(GiveAnswers(ref=run.ref, answers=[]))
    kept = await paused(other, "q", session="kept")
    with client(url) as own:
        for key in [key for key in own.scan_iter() if "checkpoint:s" in key and not key.endswith(":listed")]:
            own.delete(key)  # as the server does when the time is up
        own.zadd("adj:ends", {session_keys("adjourn", "s")[0]: 1.0})
        assert [each.session for each in await store.read(ListQuestions())] == ["t", "kept"]
        assert await store.read(CountQuestions()) == 2
        assert [each.session for each in await store.read(ListSessions())] == ["kept", "t"]
        assert [each.session for each in await store.read(ListSessions(user="ann"))] == ["t"]
        assert await store.read(ListDue()) == []
        assert await store.read(GetHead(S)) is None
        await refused(CheckpointNotFound, store.write(GiveAnswers(ref=S, answers=[yes("q")])))
        assert not [key for key in own.scan_iter() if "checkpoint:s" in key]
        # What the server removed in its own way, as when its memory is full, is dropped when it is met.
        own.delete(session_keys("adjourn", "kept")[0])
        assert [each.session for each in await store.read(ListSessions())] == ["t"]
        assert own.zscore("adj:adjourn:sessions", "kept") is None
        assert [each.session for each in await store.read(ListQuestions())] == ["t"]
    del kept
    await store.close()
    await other.close()


# The document


def child(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.stores.booking", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=100).stdout


def test_the_document_reads_well(url: str):  # rule K1
    assert child(url, "trip").startswith("interrupted")
    with client(url) as own:
        text = own.get("checkpoint:trip")
    assert text.startswith('{\n  "session": "trip",\n  "app": "adjourn",\n  "status": "waiting",\n  "updated": "20')
    shown = json.loads(text)
    assert (shown["agent"], shown["reason"], shown["message_count"]) == ("TicketBooker", "need_approval", 2)
    assert shown["tool_call_stack"][0] == "agent:TicketBooker"
    assert shown["tool_call_stack"][1].startswith("tool:book_ticket:")
    (asked,) = shown["questions"]
    assert asked["token"]
    assert asked["info"]["arguments"]["passenger_name"] == "Martin"
    assert shown["messages"][0]["content"] == "Book a ticket for Martin to Beijing, phone 555-0100"
    # It goes on in another process.
    assert "booked" in child(url, "trip", "yes")
    with client(url) as own:
        shown = json.loads(own.get("checkpoint:trip"))
    assert (shown["status"], shown["questions"], shown["reason"]) == ("done", [], None)


async def test_the_document_has_the_servers_time(url: str):
    for seconds, shown in ((0.0, "1970-01-01T00:00:00Z"), (951_782_399.9, "2000-02-28T23:59:59Z")):
        store = RedisStore(redis().fresh(), clock=FakeClock(seconds))
        run = Drive(store)
        await run.start()
        await run.end()
        with client(str(store)[len("RedisStore('") : -2]) as own:
            assert json.loads(own.get("checkpoint:s"))["updated"] == shown
        await store.close()


async def test_what_is_long_is_shown_in_part(url: str):
    runner = Runner(ChatModelAgent("Talker", model=ScriptedModel(["yes"] * 31)), store=url)
    await runner.run("x" * 100_000, session_id="long")
    for turn in range(30):
        await runner.run(f"turn {turn}", session_id="long")
    with client(url) as own:
        shown = json.loads(own.get("checkpoint:long"))
    assert shown["message_count"] == 62
    assert len(shown["messages"]) == 50
    assert len(json.dumps(shown)) < 20_000
    await runner.store.close()


async def test_the_document_is_small_and_has_nothing_that_a_terminal_obeys(url: str):
    odd = "\x1b[31m\x00\x7f\x9b31m\u202e\u2028"

    @workflow
    async def ask(_: str) -> str:
        many = {f"k{number}": list(range(100)) for number in range(100)}
        info = {"long": list(range(200_000)), "table": many, "odd": [odd]}
        return interrupt(info, key="k", prompt=odd, schema=str)

    runner = Runner(ask, store=url)
    await runner.run("", session_id=odd)
    with client(url) as own:
        text = own.get(f"checkpoint:{odd}")
    assert len(text) < 10_000
    assert not set(odd[1:]) & set(text) - set("[31m")
    shown = json.loads(text)
    assert shown["session"] == shown["questions"][0]["prompt"] == odd
    assert "200000 in all" in shown["questions"][0]["info"]
    await runner.store.close()


async def test_the_document_of_an_encrypted_session_shows_nothing_of_it(url: str):  # rule K4
    store = EncryptedStore(RedisStore(url), {"k1": b"k" * 32})
    runner = Runner(ChatModelAgent("TicketBooker", model=DemoModel(), tools=[book_ticket]), store=store)
    result = await runner.run("Book a ticket for Martin to Beijing, phone 555-0100", session_id="trip")
    assert result.status == "interrupted"
    with client(url) as own:
        shown = json.loads(own.get("checkpoint:trip"))
        assert set(shown) == {"session", "app", "status", "updated", "checkpoint", "records", "events"}
        assert shown["status"] == "waiting"
    await store.close()


async def test_the_few_that_expire_soon_are_not_damage_in_order_of_expiry(url: str):
    store = RedisStore(url)
    run = Drive(store)
    await run.start()
    now = time.time()
    for number in range(30):
        expires = now + (1_000.0 if number == 7 else 2_000.0)
        await run.commit(run.next(asks=(Question(id=f"q{number}", body=b"{}", expires=expires, asked=now),)))
    with what_is_left_out() as damaged:
        wanted = QuestionFilter(expires_before=now + 1_500.0)
        assert [each.id for each in await store.read(ListQuestions(filter=wanted, order="expiry"))] == ["q7"]
    assert damaged == []
    await store.close()
