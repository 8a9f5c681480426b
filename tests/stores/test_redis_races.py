"""Two processes that write to one session at once: whoever is first, both agree on how it stands, and so do indexes."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import redis as redis_py

from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    SessionBusy,
    UnknownInterrupt,
)
from adjourn.stores import Claimed, Committed, Head, Input, RedisStore, Renewed, SessionRef
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    GetHead,
    GiveAnswers,
    ListDue,
    ListInputs,
    ListSessions,
    Submit,
    Withdraw,
)
from adjourn.testing.suite.bench import Drive, question, yes
from tests.servers import redis

ROUNDS = 40


class Race:
    """Two stores on one server, each with connections of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.one = RedisStore(url)
        self.two = RedisStore(url)
        self.chance = random.Random(7)

    async def run(self, *calls: Callable[[], Awaitable[object]]) -> list[object]:
        """What calls return or raise that are made at about the same time, in any order."""

        async def soon(call: Callable[[], Awaitable[object]]) -> object:
            await asyncio.sleep(self.chance.choice([0, 0, 0.0003, 0.0006, 0.001, 0.002]))
            try:
                return await call()
            except AdjournError as error:
                return error

        tasks = [soon(call) for call in calls]
        order = self.chance.sample(range(len(tasks)), len(tasks))
        found = await asyncio.gather(*[tasks[each] for each in order])
        return [found[order.index(each)] for each in range(len(tasks))]

    def indexes(self) -> dict[bytes, set[bytes]]:
        with cast("Any", redis_py.Redis).from_url(self.url) as own:
            keys = [key for key in own.scan_iter("adj:*", _type="zset") if b"{" not in key]
            return {key: set(own.zrange(key, 0, -1)) for key in keys}

    async def check(self) -> None:
        """Indexes say what the rows say."""
        before = self.indexes()
        await self.one.repair()
        assert self.indexes() == before


@pytest.fixture
async def race() -> AsyncIterator[Race]:
    made = Race(redis().fresh())
    for store in (made.one, made.two):
        await store.read(GetHead(SessionRef("none")))
    yield made
    await made.check()
    await made.one.close()
    await made.two.close()


async def test_an_answer_and_a_pause(race: Race):  # rule R3
    """The owner either sees the answer and goes on, or the session is due."""
    seen: set[bool] = set()
    for number in range(20 * ROUNDS):
        if number >= ROUNDS and len(seen) == 2:
            break
        run = Drive(race.one, f"s{number}")
        await run.start(run.next(asks=(question("q"),)))
        pause = run.next(status="waiting")
        committed, answered = await race.run(
            lambda run=run, pause=pause: race.one.write(
                Commit(lease=run.held, writes=(pause,), after="b.0", release=True)
            ),
            lambda run=run: race.two.write(GiveAnswers(ref=run.ref, answers=[yes("q")])),
        )
        assert isinstance(committed, Committed)
        assert isinstance(answered, Head)
        assert committed.released == (not committed.answers)
        seen.add(committed.released)
        due = [each.why for each in await race.two.read(ListDue()) if each.session == run.session]
        assert due == (["answer"] if committed.released else [])
    assert seen == {True, False}


async def test_two_answers(race: Race):  # rule R3
    for number in range(ROUNDS):
        run = Drive(race.one, f"s{number}")
        await run.start()
        await run.pause(question("q"), question("r"))
        found = await race.run(
            lambda run=run: race.one.write(GiveAnswers(ref=run.ref, answers=[yes("q", b"1")])),
            lambda run=run: race.two.write(GiveAnswers(ref=run.ref, answers=[yes("q", b"2"), yes("r", b"2")])),
            lambda run=run: race.two.write(GiveAnswers(ref=run.ref, answers=[yes("r", b"3")])),
        )
        entries = {each.id: each.value for each in await race.two.read(Audit(run.ref))}
        if isinstance(found[1], Head):  # all of its answers, or none
            assert entries == {"q": b"2", "r": b"2"}
            assert [type(each) for each in (found[0], found[2])] == [AlreadyResumed] * 2
        else:
            assert isinstance(found[1], AlreadyResumed)
            wins = [isinstance(each, Head) for each in found]
            assert entries == {"q": b"1" if wins[0] else None, "r": b"3" if wins[2] else None}
            assert any(wins)


async def test_a_withdrawal_and_the_beginning_of_the_turn(race: Race):  # rule V11
    for number in range(ROUNDS):
        run = Drive(race.one, f"s{number}")
        await run.start()
        await run.end()
        await race.two.write(Submit(ref=run.ref, input=Input(id="i", body=b"1")))
        await race.two.write(Submit(ref=run.ref, input=Input(id="j", body=b"2")))
        claimed, withdrawn = await race.run(
            lambda run=run: race.one.write(
                Claim(ref=run.ref, owner="ann", ttl=10, after="b.1", write=run.next(input="i"))
            ),
            lambda run=run: race.two.write(Withdraw(run.ref, "i")),
        )
        assert [each.id for each in await race.two.read(ListInputs(run.ref))] == ["j"]
        assert isinstance(claimed, Claimed) == (withdrawn is False)
        assert isinstance(claimed, Claimed | Conflict)
        head = await race.two.read(GetHead(run.ref))
        assert head is not None
        assert head.inputs == 1


async def test_the_same_input_is_submitted_twice(race: Race):  # rule V11
    for number in range(ROUNDS):
        ref = SessionRef(f"s{number}")
        other = Input(id="i", body=b"2")
        found = await race.run(
            lambda ref=ref: race.one.write(Submit(ref=ref, input=Input(id="i", body=b"1"))),
            lambda ref=ref: race.two.write(Submit(ref=ref, input=Input(id="i", body=b"1"))),
            lambda ref=ref, other=other: race.one.write(Submit(ref=ref, input=other)),
        )
        (kept,) = await race.two.read(ListInputs(ref))
        head = await race.two.read(GetHead(ref))
        assert head is not None
        assert head.inputs == 1
        expected = [Head, Head, Conflict] if kept.body == b"1" else [Conflict, Conflict, Head]
        assert [type(each) for each in found] == expected


async def test_submissions_while_turns_begin_and_end(race: Race):  # rules V11, R3
    """The owner is never made to try again, and no input is lost."""
    run = Drive(race.one)
    await run.start()
    await run.end()

    async def submit() -> None:
        for number in range(ROUNDS):
            await race.two.write(Submit(ref=run.ref, input=Input(id=f"i{number}", body=b"1")))

    submitting, begun = asyncio.create_task(submit()), 0
    while begun < ROUNDS:
        waiting = await race.one.read(ListInputs(run.ref, limit=1))
        if waiting:
            await run.claim(run.next(input=waiting[0].id))
            await run.commit()
            await run.end()
            begun += 1
    await submitting
    assert await race.two.read(ListInputs(run.ref)) == []
    assert [each.session for each in await race.two.read(ListSessions(status="done"))] == ["s"]
    assert await race.two.read(ListDue()) == []


async def test_a_takeover_and_a_renewal(race: Race):  # rule C6
    """One of them has the lease, never both."""
    seen: set[bool] = set()
    for number in range(20 * ROUNDS):
        if number >= ROUNDS and True in seen:
            break
        run = Drive(race.one, f"s{number}", ttl=0.02)
        await run.start()
        await asyncio.sleep(0.02 - 0.002 * race.chance.random())
        renewed, taken = await race.run(
            lambda run=run: race.one.renew([run.held]),
            lambda run=run: race.two.write(Claim(ref=run.ref, owner="bob", ttl=10, after="b.0")),
        )
        assert isinstance(renewed, list)
        (lease,) = cast("list[Renewed]", renewed)
        assert isinstance(taken, Claimed | SessionBusy)
        head = await race.two.read(GetHead(run.ref))
        assert head is not None
        if isinstance(taken, Claimed):
            assert (head.owner, head.fence) == ("bob", 2)
            assert isinstance((await race.run(run.commit))[0], Conflict)
        else:
            assert not lease.lost
            assert head.fence == 1
        seen.add(lease.lost)
    assert True in seen


async def test_a_removal_and_a_commit(race: Race):  # rules C1, C7
    """A session that is run is not removed; one that is removed takes nothing more."""
    for number in range(ROUNDS):
        run = Drive(race.one, f"s{number}")
        await run.start()
        await run.pause(question("q"))
        claimed, removed = await race.run(
            lambda run=run: race.one.write(Claim(ref=run.ref, owner="ann", ttl=10, after="b.1", write=run.next())),
            lambda run=run: race.two.write(Delete(run.ref)),
        )
        if isinstance(claimed, Claimed):
            assert isinstance(removed, SessionBusy)
            assert await race.two.read(GetHead(run.ref)) is not None
        else:
            assert isinstance(claimed, CheckpointNotFound)
            assert removed is True
            assert await race.two.read(GetHead(run.ref)) is None


async def test_a_removal_and_an_answer_and_a_submission(race: Race):  # rule C7
    for number in range(ROUNDS):
        run = Drive(race.one, f"s{number}")
        await run.start()
        await run.pause(question("q"))
        removed, answered, submitted = await race.run(
            lambda run=run: race.one.write(Delete(run.ref)),
            lambda run=run: race.two.write(GiveAnswers(ref=run.ref, answers=[yes("q")])),
            lambda run=run: race.two.write(Submit(ref=run.ref, input=Input(id="i", body=b"1"))),
        )
        assert removed is True
        assert isinstance(answered, Head | CheckpointNotFound | UnknownInterrupt)  # the latter of a new session
        assert isinstance(submitted, Head)
        head = await race.two.read(GetHead(run.ref))
        assert head is None or (head.checkpoint, head.inputs) == ("", 1)


async def test_two_who_begin_a_session(race: Race):  # rule C1
    for number in range(ROUNDS):
        runs = [Drive(store, f"s{number}", owner) for store, owner in ((race.one, "ann"), (race.two, "bob"))]
        found = await race.run(
            lambda runs=runs: runs[0].start(runs[0].next(b"ann's")),
            lambda runs=runs: runs[1].start(runs[1].next(b"bob's")),
        )
        head = await race.two.read(GetHead(runs[0].ref))
        assert head is not None
        (winner,) = [run for run, each in zip(runs, found, strict=True) if isinstance(each, Claimed)]
        assert (head.owner, head.claims) == (winner.owner, 1)


async def test_all_at_once(race: Race):  # rules C6, R3
    """Whatever happens, the indexes say what the rows say."""
    for number in range(ROUNDS):
        run = Drive(race.one, f"s{number}")
        await run.start(run.next(asks=(question("q"), question("r", expires=1e10))))
        pause = run.next(status="waiting")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda run=run, pause=pause: race.one.write(
                Commit(lease=run.held, writes=(pause,), after="b.0", release=True)
            ),
            lambda run=run: race.two.write(GiveAnswers(ref=run.ref, answers=[yes("q")])),
            lambda run=run: race.one.write(GiveAnswers(ref=run.ref, answers=[yes("r")])),
            lambda run=run: race.two.write(Submit(ref=run.ref, input=Input(id="i", body=b"1"))),
            lambda run=run: race.one.write(Submit(ref=run.ref, input=Input(id="j", body=b"1"))),
            lambda run=run: race.two.write(Withdraw(run.ref, "i")),
            lambda run=run: race.two.write(Cancel(run.ref, "now")),
            lambda run=run: race.two.renew([run.held]),
            lambda run=run: race.two.write(Claim(ref=run.ref, owner="bob", ttl=10, after="b.1")),
        ]
        await race.run(*race.chance.sample(calls, 6))
    await race.check()
