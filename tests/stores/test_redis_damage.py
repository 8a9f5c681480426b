"""Keys on a Redis server that are gone, or hold something else than Adjourn wrote."""

import asyncio
from typing import Any, cast

import pytest
import redis as redis_py

from adjourn import Runner, Worker, interrupt, workflow
from adjourn.errors import AlreadyResumed, CheckpointCorrupt, CheckpointNotFound, UnknownInterrupt
from adjourn.stores import Input, Question, QuestionFilter, RedisStore, SessionRef
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

INDEXES = ["adj:adjourn:sessions", "adj:adjourn:due", "adj:asked", "adj:inbox:all:"]
PARTS = ["log", "numbers", "asked", "ended", "open", "untaken", "expiring", "listed", "queue", "inputs"]


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
        error = await refused(CheckpointCorrupt, store.commit(run.held, write, after="b.0", release=True))
        assert error.session_id == ("s" if name in PARTS else None)
        assert {each: own.dump(each) for each in own.scan_iter()} == before
        own.delete(key)
        if kept is not None:
            own.restore(key, 0, kept)
    await store.commit(run.held, write, after="b.0", release=True)
    assert [each.id for each in await store.questions()] == ["q"]
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
    assert [each.session for each in await runner.store.due()] == ["s"]
    assert await runner.count_pending() == 0
    await runner.store.close()


async def test_an_answer_goes_through_where_the_inbox_cannot_be_read(url: str):
    store = RedisStore(url)
    await paused(store, "q")
    with client(url) as own:
        own.hset(parts()["listed"], "0.q", own.hget(parts()["listed"], "0.q")[:3])
    await store.answer(S, [yes("q")])
    assert [each.session for each in await store.due()] == ["s"]
    assert await store.questions() == []
    await store.close()


async def test_a_question_with_more_tags_than_a_script_can_unpack_is_listed(url: str):
    store = RedisStore(url)
    run = Drive(store)
    asked = Question(id="q", body=b"{}", tags=tuple(f"t{number}" for number in range(9000)))
    await run.start(run.next(asks=(asked,)))
    assert [each.id for each in await store.questions(filter=QuestionFilter(tag="t8999"))] == ["q"]
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
    await store.answer(SessionRef("other"), [yes("q")])
    live = Drive(store, "live")
    await live.start()
    for name in parts():
        run = Drive(store, f"s-{name}")
        await run.start(run.next(events=b"[1]", event_count=1))
        held = run.held
        await run.pause(question("q", expires=1e10), question("r"))
        await store.submit(run.ref, Input(id="i", body=b"{}"))
        await store.answer(run.ref, [yes("r")])
        with client(url) as own:
            spoil(own, parts(run.session)[name], how)
        assert "other" in [each.session for each in await store.due()], name
        assert {"other", "live"} <= {each.session for each in await store.sessions()}, name
        await store.questions()
        await store.find(run.session)
        lost = await store.renew([held, live.held])
        assert [each.lost for each in lost] == [True, False], name
        assert await store.cancels([held, live.held]) == [None, None]
        results: list[object] = await asyncio.gather(
            store.load(run.ref),
            store.audit(run.ref, all_branches=True),
            store.records(run.ref),
            store.checkpoints(run.ref),
            store.events(run.ref),
            store.inputs(run.ref),
            store.answer(run.ref, [yes("q")]),
            store.prune(run.ref, keep=1),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, CheckpointCorrupt):
                assert result.session_id == run.session, name
            elif isinstance(result, BaseException):
                assert isinstance(result, CheckpointNotFound | AlreadyResumed | UnknownInterrupt), name
        await store.delete(run.ref)
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
        spoil(own, parts("bad")["asked"], "cut")
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
    await store.submit(S, Input(id="i", body=b"{}"))
    assert await store.count_questions() == len(await store.questions()) == 0
    assert [each.session for each in await store.sessions()] == ["s"]
    await store.close()
