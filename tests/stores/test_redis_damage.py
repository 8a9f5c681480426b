"""Keys on a Redis server that are gone, or hold something else than Adjourn wrote."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import redis as redis_py
from msgspec.structs import replace

from adjourn import Runner, Worker, interrupt, workflow
from adjourn.errors import AlreadyResumed, CheckpointCorrupt, CheckpointNotFound, UnknownInterrupt
from adjourn.stores import EncryptedStore, Input, Notice, Question, QuestionFilter, RedisStore, Repairs, SessionRef
from adjourn.stores.kit import (
    Audit,
    Commit,
    CountQuestions,
    Delete,
    DropNotices,
    FindSessions,
    GiveAnswers,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListInputs,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    Prune,
    Submit,
)
from adjourn.stores.redis._keys import session_keys
from adjourn.testing.suite.bench import Drive, S, paused, question, refused, yes
from tests.servers import redis


@pytest.fixture
def url() -> str:
    return redis().fresh()


def client(url: str) -> Any:  # Any: redis-py's types say little
    return cast("Any", redis_py.Redis).from_url(url)


def parts(session: str = "s") -> dict[str, str]:
    """The keys of a session, by what they hold."""
    row, document, *others = session_keys("adjourn", session)
    return {"document": document, **{key.rpartition(":")[2]: key for key in (row, *others)}}


@workflow
async def ask(name: str) -> str:
    return f"{name} {interrupt('?', key='k', schema=bool)}"


# All of a write, or nothing

INDEXES = ["adj:adjourn:sessions", "adj:adjourn:due", "adj:serial", "adj:inbox:all:"]
PARTS = ["log", "numbers", "questions", "waiting", "listed"]


@pytest.mark.parametrize("name", [*INDEXES, *PARTS])
async def test_a_commit_that_meets_a_foreign_key_writes_nothing(url: str, name: str):  # rule C8
    store = RedisStore(url)
    run = Drive(store)
    await run.start()
    write = run.next(asks=(question("q"),), status="waiting", events=b"[1]", event_count=1)
    key = parts().get(name, name)
    with client(url) as own:
        kept = own.dump(key)
        own.set(key, "xx")
        before = {each: own.dump(each) for each in own.scan_iter()}
        error = await refused(
            CheckpointCorrupt, store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True))
        )
        assert error.session_id == ("s" if name in PARTS else None)
        assert {each: own.dump(each) for each in own.scan_iter()} == before
        own.delete(key)
        if kept is not None:
            own.restore(key, 0, kept)
    await store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True))
    assert [each.id for each in await store.read(ListQuestions())] == ["q"]
    await store.close()


@pytest.mark.parametrize("name", ["adj:adjourn:due", "adj:serial", "inputs", "queue", "since"])
@pytest.mark.parametrize("what", ["submits", "begins", "ends"])
async def test_a_queue_that_meets_a_foreign_key_is_left_alone(url: str, name: str, what: str):  # rule C8
    store = RedisStore(url)
    run = Drive(store)
    await run.start()
    if what == "begins":
        await run.end()
        await store.write(Submit(ref=S, input=Input(id="i", body=b"{}")))
    key = parts().get(name, name)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "submits": lambda: store.write(Submit(ref=S, input=Input(id="j", body=b"{}"))),
        "begins": lambda: run.claim(run.next(input="i")),
        "ends": lambda: run.commit(run.next(status="done"), release=True),
    }
    is_used = what == "submits" or name in ("adj:adjourn:due", "since") or (what == "begins" and name != "adj:serial")
    with client(url) as own:
        kept = own.dump(key)
        own.set(key, "xx")
        before = {each: own.dump(each) for each in own.scan_iter()}
        if is_used:
            await refused(CheckpointCorrupt, calls[what]())
            assert {each: own.dump(each) for each in own.scan_iter()} == before
        own.delete(key)
        if kept is not None:
            own.restore(key, 0, kept)
    await calls[what]()
    await store.close()


async def test_an_answer_that_meets_a_foreign_key_can_be_given_again(url: str):  # rule R3
    runner = Runner(ask, store=url)
    await runner.run("a", session_id="s")
    with client(url) as own:
        own.rename("adj:inbox:all:", "kept")
        own.set("adj:inbox:all:", "x")
        await refused(CheckpointCorrupt, runner.answer("s", {"k": True}))
        own.rename("kept", "adj:inbox:all:")
    await runner.answer("s", {"k": True})
    assert [each.session for each in await runner.store.read(ListDue())] == ["s"]
    assert await runner.count_pending() == 0
    await runner.store.close()


async def test_an_answer_goes_through_where_the_inbox_cannot_be_read(url: str):
    store = RedisStore(url)
    await paused(store, "q")
    with client(url) as own:
        own.hset(parts()["listed"], "0.q", own.hget(parts()["listed"], "0.q")[:3])
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    assert [each.session for each in await store.read(ListDue())] == ["s"]
    assert await store.read(ListQuestions()) == []
    await store.close()


async def test_a_question_with_more_tags_than_a_script_can_unpack_is_listed(url: str):
    store = RedisStore(url)
    run = Drive(store)
    asked = Question(id="q", body=b"{}", tags=tuple(f"t{number}" for number in range(9000)))
    await run.start(run.next(asks=(asked,)))
    assert [each.id for each in await store.read(ListQuestions(filter=QuestionFilter(tag="t8999")))] == ["q"]
    await store.close()


# One damaged session, among others


def spoil(own: Any, key: str, how: str) -> None:
    """Remove a key, put something else there, or damage each of its values."""
    kind, copy = own.type(key), own.dump(key)
    own.delete(key)
    if how == "foreign":
        _ = own.lpush(key, "x") if kind == b"string" else own.set(key, "x")
    elif how != "gone":
        own.restore("copy", 0, copy)
        if kind == b"hash":
            own.hset(key, mapping={field: damaged(value, how) for field, value in own.hgetall("copy").items()})
        elif kind == b"list":
            own.rpush(key, *[damaged(each, how) for each in own.lrange("copy", 0, -1)])
        elif kind == b"zset":
            own.zadd(key, {damaged(each, how): score for each, score in own.zrange("copy", 0, -1, withscores=True)})
        own.delete("copy")


def damaged(value: bytes, how: str) -> bytes:
    return value[: len(value) // 2] if how == "cut" else b"\xc1\x00garbage"


@pytest.mark.parametrize("how", ["gone", "foreign", "cut", "garbage"])
async def test_a_damaged_session_is_named_and_others_go_on(url: str, how: str):  # rule C15
    store = RedisStore(url)
    await paused(store, "q", session="other")
    await store.write(GiveAnswers(ref=SessionRef("other"), answers=[yes("q")]))
    live = Drive(store, "live")
    await live.start()
    for name in parts():
        run = Drive(store, f"s-{name}")
        await run.start(run.next(events=b"[1]", event_count=1))
        held = run.held
        await run.pause(question("q", expires=1e10), question("r"))
        await store.write(Submit(ref=run.ref, input=Input(id="i", body=b"{}")))
        await store.write(GiveAnswers(ref=run.ref, answers=[yes("r")]))
        with client(url) as own:
            spoil(own, parts(run.session)[name], how)
        assert "other" in [each.session for each in await store.read(ListDue())], name
        assert {"other", "live"} <= {each.session for each in await store.read(ListSessions())}, name
        await store.read(ListQuestions())
        await store.read(FindSessions(run.session))
        lost = await store.renew([held, live.held])
        assert [each.lost for each in lost] == [True, False], name
        assert await store.cancels([held, live.held]) == [None, None]
        results: list[object] = await asyncio.gather(
            store.read(Load(run.ref)),
            store.read(Audit(run.ref, all_branches=True)),
            store.read(ListRecords(run.ref)),
            store.read(ListCheckpoints(run.ref)),
            store.read(ListEvents(run.ref)),
            store.read(ListInputs(run.ref)),
            store.write(GiveAnswers(ref=run.ref, answers=[yes("q")])),
            store.write(Prune(run.ref, keep=1)),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, CheckpointCorrupt):
                assert result.session_id == run.session, name
            elif isinstance(result, BaseException):
                assert isinstance(result, CheckpointNotFound | AlreadyResumed | UnknownInterrupt), name
        await store.write(Delete(run.ref))
        with client(url) as own:
            assert not [key for key in own.scan_iter() if run.session.encode() in key], name
            members = own.zrange("adj:adjourn:sessions", 0, -1) + own.zrange("adj:adjourn:due", 0, -1)
            assert run.session.encode() not in members, name
    await store.close()


async def test_a_worker_goes_on_past_a_damaged_session(url: str):  # rule C15
    runner = Runner(ask, store=url)
    for name in ("bad", "good"):
        await runner.run(name, session_id=name)
        await runner.answer(name, {"k": True})
    with client(url) as own:
        spoil(own, parts("bad")["questions"], "cut")
    async with Worker([runner], poll=0.01):
        while (await runner.status("good")).status != "done":  # noqa: ASYNC110  # the store has no event for it
            await asyncio.sleep(0.005)
    await runner.store.close()


# What is left of a session whose row is gone


async def test_a_new_session_has_nothing_of_an_old_one_of_its_id(url: str):
    runner = Runner(ask, store=url)
    await runner.run("old", session_id="s")
    await runner.answer("s", {"k": True})
    await runner.run("old", session_id="t")
    with client(url) as own:
        own.delete(parts("s")["row"], parts("t")["row"])  # as a server does that is full, and may lose data
    await runner.run("new", session_id="s")
    assert await runner.count_pending() == len(await runner.pending()) + 1 == 2  # the other is still there
    assert (await runner.resume("s", {"k": False})).value == "new False"
    assert len(await runner.audit("s")) == 1
    await runner.delete("t")
    assert await runner.count_pending() == 0
    with client(url) as own:
        assert not [key for key in own.scan_iter() if b"checkpoint:t" in key]
    await runner.store.close()


async def test_an_id_that_has_run_out_is_used_again(url: str):
    store = RedisStore(url, ttl=100)
    await paused(store, "q")
    with client(url) as own:
        for name, key in parts().items():
            if name != "listed":
                own.delete(key)  # as the server does when the time is up
    await store.write(Submit(ref=S, input=Input(id="i", body=b"{}")))
    assert await store.read(CountQuestions()) == len(await store.read(ListQuestions())) == 0
    assert [each.session for each in await store.read(ListSessions())] == ["s"]
    await store.close()


# Indexes


def indexes(url: str) -> dict[bytes, set[bytes]]:
    """The members of all indexes."""
    with client(url) as own:
        keys = [key for key in own.scan_iter("adj:*", _type="zset") if b"{" not in key]
        return {key: set(own.zrange(key, 0, -1)) for key in keys}


async def busy(store: RedisStore) -> None:
    """Sessions in every state."""
    live = Drive(store, "live")
    await live.start(user="ann")
    await live.commit(live.next(asks=(question("p"),)))
    await store.write(GiveAnswers(ref=live.ref, answers=[yes("p")]))
    await paused(store, "q", "r", session="paused")
    done = Drive(store, "done")
    await done.start(app="shop")
    await done.end()
    for ref in (SessionRef("new", user="ben"), done.ref, SessionRef("paused")):
        await store.write(Submit(ref=ref, input=Input(id="i", body=b"{}")))
    expiring = Drive(store, "expiring")
    await expiring.start()
    await expiring.pause(Question(id="q", body=b"{}", agent="A", tags=("t",), address="agent:A;tool:x", expires=1e10))
    answered = await paused(store, "q", session="answered")
    await store.write(GiveAnswers(ref=answered.ref, answers=[yes("q")]))


async def listings(store: RedisStore) -> list[object]:
    found: list[object] = [
        await store.read(ListSessions()),
        await store.read(ListQuestions()),
        await store.read(ListDue()),
        await store.read(FindSessions("done")),
    ]
    found += [
        await store.read(ListSessions(status="queued")),
        await store.read(ListSessions(user="ann")),
        await store.read(ListSessions(limit=2)),
    ]
    found += [
        await store.read(ListQuestions(filter=QuestionFilter(agent="A", tag="t"))),
        await store.read(ListQuestions(limit=1)),
    ]
    return found


@pytest.mark.parametrize(
    "foreign", [b"\xff\xfe", b"x:\xff", b"1:2:\xff", b"0000000000000001:7:99:adjourns\xff", b"\xff"]
)
async def test_a_foreign_member_of_an_index_is_left_out_and_others_are_listed(  # rule C15
    url: str, foreign: bytes, caplog: pytest.LogCaptureFixture
):
    store = RedisStore(url)
    await busy(store)
    expected, whole = await listings(store), indexes(url)
    with client(url) as own:
        for key in whole:
            own.zadd(key, {foreign: 1.0, foreign + b"1": 3e9})
        own.sadd("adj:apps", b"\xff")
    assert await listings(store) == expected
    assert "which is not one of Adjourn's. Run `adjourn repair`" in caplog.text
    assert await store.repair() == 6
    assert indexes(url) == whole
    with client(url) as own:
        assert own.smembers("adj:apps") == {b"adjourn", b"shop"}
    await store.close()


@pytest.mark.parametrize("name", ["adj:apps", "adj:adjourn:sessions", "adj:inbox:all:"])
async def test_a_key_that_is_no_index_any_more_is_named_with_what_mends_it(url: str, name: str):  # rule C15
    store = RedisStore(url)
    await busy(store)
    expected = await listings(store)
    with client(url) as own:
        own.delete(name)
        own.set(name, "x")
    with pytest.raises(CheckpointCorrupt, match="Run `adjourn repair`"):
        await listings(store)
    await store.repair()
    assert await listings(store) == expected
    await store.close()


@pytest.mark.parametrize("how", ["gone", "foreign", "member"])
async def test_what_says_when_sessions_end_is_rebuilt(url: str, how: str):  # rule C15
    store = RedisStore(url, ttl=1000)
    await busy(store)
    expected = await listings(store)
    with client(url) as own:
        whole = set(own.zrange("adj:ends", 0, -1))
        if how == "member":
            own.zadd("adj:ends", {b"\xff": 9e12, "x": 9e12})
        else:
            own.delete("adj:ends")
        if how == "foreign":
            own.set("adj:ends", "x")
            await refused(CheckpointCorrupt, store.read(ListSessions()))
        assert await store.repair() == 6
        assert await listings(store) == expected
        ends = dict(own.zrange("adj:ends", 0, -1, withscores=True))
        assert set(ends) == whole
        now = own.time()[0]
        assert all(now + 900 < end < now + 1100 for end in ends.values())
    await store.close()


async def test_a_foreign_receiver_of_notices_is_left_out(url: str, caplog: pytest.LogCaptureFixture):  # rule C15
    store = RedisStore(url)
    run = Drive(store)
    notice = Notice(id="n", to="a/b:c", body=b"{}")
    await run.start(replace(run.next(), notices=(notice,)))
    with client(url) as own:
        own.sadd("adj:adjourn:outbox", b"\xff")
        assert await store.write(DropNotices("adjourn", age=3600)) == 0
        assert "which is not one of Adjourn's. Run `adjourn repair`" in caplog.text
        await store.repair()
        assert own.smembers("adj:adjourn:outbox") == {b"a/b:c"}
        own.delete("adj:adjourn:outbox")
        own.set("adj:adjourn:outbox", "x")
        await store.repair()
    assert await store.write(DropNotices("adjourn", age=-3600)) == 1
    await store.close()


async def test_indexes_of_an_encrypted_store_are_rebuilt_without_its_keys(url: str):  # rules C15, K4
    inner = RedisStore(url)
    store = EncryptedStore(inner, {"k": EncryptedStore.generate_key()})
    run = Drive(store)
    await run.start()
    await run.pause(Question(id="q", body=b"{}", agent="A", tags=("t",), address="agent:A", expires=1e10))
    whole, by_tag = indexes(url), ListQuestions(filter=QuestionFilter(agent="A", tag="t"))
    expected = await store.read(by_tag)
    assert [each.id for each in expected] == ["q"]
    with client(url) as own:
        own.delete(*whole)
    assert await store.read(by_tag) == []
    assert isinstance(store, Repairs)
    assert await store.repair() == 1
    assert (indexes(url), await store.read(by_tag)) == (whole, expected)
    await store.close()


async def test_indexes_are_rebuilt_from_the_rows(url: str):
    store = RedisStore(url)
    await busy(store)
    expected, whole = await listings(store), indexes(url)
    assert await store.repair() == 6
    assert indexes(url) == whole
    with client(url) as own:
        for number, key in enumerate(sorted(whole)):
            own.delete(key)
            if number % 2:
                own.set(key, "x")
        own.delete("adj:apps")
    assert await store.repair() == 6
    assert indexes(url) == whole
    assert await listings(store) == expected
    assert await store.read(CountQuestions()) == 3
    await store.close()


async def test_indexes_are_rebuilt_while_others_write(url: str):
    store, other = RedisStore(url), RedisStore(url)
    run = Drive(other)
    await run.start()

    async def work() -> None:
        for number in range(50):
            await run.commit(run.next(asks=(question(f"q{number}"),)))
            await other.write(GiveAnswers(ref=S, answers=[yes(f"q{number}")]))

    working = asyncio.create_task(work())
    while not working.done():
        await store.repair()
    await working
    assert await store.read(ListQuestions()) == []
    assert [each.session for each in await store.read(ListSessions(status="running"))] == ["s"]
    before = indexes(url)
    await store.repair()
    assert indexes(url) == before
    await store.close()
    await other.close()
