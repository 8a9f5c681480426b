"""Guards: a write is made only if all that it was decided on still holds at that moment."""

from __future__ import annotations

import random
import unittest
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

from msgspec.structs import replace

from adjourn.errors import AdjournError
from adjourn.stores.kit import (
    Applied,
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    Effects,
    FactsWanted,
    GetHead,
    GiveAnswers,
    Guard,
    ListBegun,
    ListBranches,
    ListDecisions,
    ListDue,
    ListInputs,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    Mark,
    NotRead,
    Prune,
    RemoteStore,
    Renew,
    SessionRequest,
    SessionRow,
    StoreQuery,
    Submit,
    TakeNotices,
    Withdraw,
    holds,
)
from adjourn.stores.kit.effects import Room
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Begun, Input, Note, Notice, SessionRef, Write
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, More, S, paused, question, record, yes


def _remote(store: Store) -> RemoteStore:
    assert isinstance(store, RemoteStore)
    return store


async def apply(store: Store, effects: Effects) -> Applied | None:
    """Write effects that were decided before, if all that they expect holds."""
    return await _remote(store).apply(effects)


async def decided(store: Store, request: SessionRequest[Any]) -> Effects:
    """Decide a request from what the store has now, and write nothing."""
    wanted = request.wanted()
    while True:
        facts = await _remote(store).facts(wanted)
        facts.ttl = _remote(store).ttl
        try:
            effects, _ = request.decide(facts)
        except NotRead as more:
            wanted = wanted.widened(more.wanted)
        else:
            assert effects is not None
            return effects


async def everything(store: Store) -> list[object]:
    """Read all that a write to the session could have changed."""
    queries: list[StoreQuery[Any]] = [
        *(GetHead(S), Load(S), ListRecords(S), ListBranches(S), Audit(S, all_branches=True), ListInputs(S)),
        *(ListSessions(), ListQuestions(), ListDecisions(), ListDue(), ListBegun("d")),
    ]
    found: list[object] = []
    for query in queries:
        try:
            found.append(await store.read(query))
        except AdjournError as error:
            found.append(str(error))
    return [*found, sorted([each.id for each in await store.write(TakeNotices(S.app, ["desk"], 0.0))])]


def much(run: Drive, **more: Unpack[More]) -> Write:
    """The next record of a run, with rows for every table."""
    begins, notices = (Begun("d", "p", 0), Begun("d", "p", 1)), (Notice(id="n", to="desk", body=b"n"),)
    usual: More = {"asks": (question("new"), question("newer")), "begins": begins, "notices": notices}
    return run.next(**(usual | {"events": b"[1]", "event_count": 1} | more))


class GuardSuite(Bench):
    """What a store checks that reads in one trip and writes in another, while others write in between."""

    @asynccontextmanager
    async def guarded(self, clock: FakeClock | None = None) -> AsyncGenerator[Store, None]:
        """A store for one test; skips the test for a store that reads and writes under one lock."""
        async with self.fresh(clock) as store:
            if not isinstance(store, RemoteStore):
                raise unittest.SkipTest("this store reads and writes under one lock")
            yield store

    async def overtaken(self, store: Store, request: SessionRequest[Any], *others: Awaitable[object]) -> None:
        """Expect that nothing of a request is written if others have come first."""
        effects = await decided(store, request)
        for other in others:
            await other
        before = await everything(store)
        assert await apply(store, effects) is None
        assert await everything(store) == before

    async def test_a_guard_holds_as_the_kit_says(self) -> None:  # rules C1, C6
        """Each of its fields alone, and several of them together."""
        chance, clock = random.Random(3), FakeClock()
        async with self.guarded(clock) as store:
            refs = await self._sessions(store)
            await self.pass_time(clock, 3 * self.tick)
            for ref in refs:
                for guard in self._guards(chance, (await self._row(store, ref))[0]):
                    row, now = await self._row(store, ref)
                    after = replace(row, cancel="now" if row.cancel is None else None)
                    effects = Effects(ref=ref, guard=guard, before=row, after=after, forced=("cancel",))
                    applied = await apply(store, effects) is not None
                    assert applied == holds(guard, row, now), (guard, row)
                    assert (await self._row(store, ref))[0] == (after if applied else row), guard

    async def _sessions(self, store: Store) -> list[SessionRef]:
        """Make sessions in every state: with an owner, with a dead one, with none, done, and without any record."""
        live, dead = Drive(store, "live", ttl=1000 * self.tick), Drive(store, "dead", ttl=self.tick)
        done, bare = Drive(store, "done"), SessionRef("bare")
        for run in (live, dead, done):
            await run.start(run.next(asks=(question("q"), question("r"))))
        await store.write(GiveAnswers(dead.ref, [yes("q")]))
        await done.end()
        asked = await paused(store, "q", session="asked")
        await store.write(Mark(ref=live.ref, id="q", taker="ann"))
        await store.write(GiveAnswers(asked.ref, [yes("q")]))
        for ref in (live.ref, done.ref, bare):
            for name in "ij":
                await store.write(Submit(ref, Input(id=name, body=b"hello")))
        return [live.ref, dead.ref, asked.ref, done.ref, bare]

    async def _row(self, store: Store, ref: SessionRef) -> tuple[SessionRow, float]:
        facts = await _remote(store).facts(FactsWanted(ref=ref))
        assert facts.row is not None
        return facts.row, facts.now

    def _guards(self, chance: random.Random, row: SessionRow) -> Iterator[Guard]:
        inputs, size = row.inputs, row.input_bytes
        fields: dict[str, tuple[Any, ...]] = {
            "checkpoint": (row.checkpoint, f"{row.branch}.99", "c.0", ""),
            "branch": (row.branch, "other"),
            "fence": (row.fence, row.fence + 1),
            "owner": ("ann", "bob"),
            "waiting": (row.waiting, row.waiting + 1),
            "inputs": (row.inputs, row.inputs + 1),
            "marks": (row.marks, row.marks + 1),
            "room": (Room(inputs + 1, size), Room(inputs, size), Room(inputs + 1, size - 1)),
            "idle": (self.tick, 500 * self.tick),
        }
        owned: list[dict[str, Any]] = [
            {"live": live, "replaces": name} for live in (True, False) for name in (None, "ann", "bob")
        ]
        yield from (Guard(**each) for each in owned if each["replaces"] is None or not each["live"])
        yield from (Guard(**{name: value}) for name, values in fields.items() for value in values)
        for _ in range(10):
            right = {name: values[0] for name, values in fields.items() if name != "owner" or row.owner is not None}
            names = chance.sample(list(right), 4)
            yield Guard(**{name: right[name] for name in names})
            yield Guard(**{name: chance.choice(fields[name]) for name in names})

    # Requests that others overtake

    async def test_a_session_that_others_have_begun_is_not_begun_again(self) -> None:  # rule C1
        """Neither by a claim nor by an input."""
        async with self.guarded() as store:
            new, other = much(Drive(store)), Drive(store, owner="bob")
            submit = await decided(store, Submit(S, Input(id="i", body=b"")))
            await self.overtaken(store, Claim(ref=S, owner="ann", ttl=10, after=None, write=new), other.start())
            assert await apply(store, submit) is None
            assert await store.read(ListInputs(S)) == []

    async def test_a_session_that_is_gone_is_not_written(self) -> None:  # rule C1
        """Neither an answer, an input, a record nor the end of one."""
        async with self.guarded() as store:
            run = await paused(store, "q")
            await run.claim(run.next(full=True))
            commit = Commit(lease=run.held, writes=(much(run),), after=run.checkpoint)
            requests = (GiveAnswers(S, [yes("q")]), Submit(S, Input(id="i", body=b"")), Prune(S, keep=0), commit)
            effects = [await decided(store, each) for each in requests]
            await run.end()
            await store.write(Delete(S))
            before = await everything(store)
            assert [await apply(store, each) for each in effects] == [None] * 4
            assert await everything(store) == before

    async def test_a_session_that_is_another_users_by_now_is_not_written(self) -> None:  # rule C12
        """It has the same name and asks the same question."""
        async with self.guarded() as store:
            mine, run, other = SessionRef("s", user="ann"), Drive(store), Drive(store)
            await run.start(run.next(asks=(question("q"),)), user="ann")
            await run.end()
            requests = (GiveAnswers(mine, [yes("q")]), Delete(mine))
            effects = [await decided(store, each) for each in requests]
            await store.write(Delete(mine))
            await other.start(other.next(asks=(question("q"),)), user="bob")
            await other.end()
            assert [await apply(store, each) for each in effects] == [None, None]
            assert [each.user for each in await store.read(ListQuestions())] == ["bob"]

    async def test_a_run_that_has_not_seen_the_head_writes_nothing(self) -> None:  # rule C1
        """Nothing at all, in any table."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start(run.next(asks=(question("q"),)))
            write = much(run, closes=(Answer(id="q", value=b"", how="abandoned"),))
            commit = Commit(lease=run.held, writes=(write,), after=run.checkpoint)
            await self.overtaken(store, commit, run.commit())
            await self.overtaken(store, GiveAnswers(S, [yes("q")], after=run.checkpoint), run.commit())

    async def test_what_was_decided_on_a_branch_is_not_written_on_another(self) -> None:  # rules C4, C7
        """An answer belongs to the branch of its question, and what pruning spares depends on all branches."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start(run.next(asks=(question("q"),)))
            await run.commit(run.next(full=True))
            prune = await decided(store, Prune(S, keep=0))
            fork = record(0, "b.0", branch="c", asks=(question("q"),))
            await self.overtaken(store, GiveAnswers(S, [yes("q")]), run.commit(fork))
            assert await apply(store, prune) is None
            assert (await run.loaded("b.0")).rows == (b"b0",)

    async def test_an_owner_of_before_writes_nothing(self) -> None:  # rule C6
        """Another owner has the lease by now, even one of the same name; and a lease that was let go is not renewed."""
        async with self.guarded() as store:
            run, again = Drive(store), Drive(store)
            await run.start()
            again.branch, again.number, again.at = run.branch, run.number, run.at
            commit = Commit(lease=run.held, writes=(much(run),), after=run.checkpoint)
            await self.overtaken(store, commit, again.claim(replaces="ann"))
            await self.overtaken(store, Renew(lease=again.held), again.end())

    async def test_a_lease_is_over_or_is_held_at_the_time_of_writing(self) -> None:  # rules C6, R3
        """A takeover and a removal need that it is over, a cancel and answers for a live owner that it is held."""
        clock = FakeClock()
        async with self.guarded(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start(run.next(asks=(question("q"),)))
            claim = Claim(ref=S, owner="bob", ttl=10, after=run.at, write=much(run), answers=[yes("q")])
            for request in (claim, Cancel(S, "now")):
                await self.overtaken(store, request, self.pass_time(clock, 11 * self.tick))
                await store.renew([run.held])
            await self.pass_time(clock, 11 * self.tick)
            for request in (claim, Delete(S)):
                await self.overtaken(store, request, store.renew([run.held]))
                await self.pass_time(clock, 11 * self.tick)
            await store.renew([run.held])
            await self.overtaken(store, claim, run.commit(run.next(status="waiting"), release=True))

    async def test_a_pause_does_not_pass_an_answer_by(self) -> None:  # rule R3
        """An owner that has not seen it does not let go."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start(run.next(asks=(question("q"),)))
            pause = Commit(lease=run.held, writes=(much(run, status="waiting"),), after="b.0", release=True)
            await self.overtaken(store, pause, store.write(GiveAnswers(S, [yes("q")])))

    async def test_an_input_comes_before_what_must_wait_for_it(self) -> None:  # rule V11
        """A turn that does not overtake, and the removal of a session that had nothing else."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start()
            await run.end()
            waits = much(run, overtakes=False)
            claim = Claim(ref=S, owner="ann", ttl=10, after=run.at, write=waits)
            await self.overtaken(store, claim, store.write(Submit(S, Input(id="i", body=b""))))
            await store.write(Delete(S))
            await store.write(Submit(S, Input(id="i", body=b"")))
            await self.overtaken(store, Withdraw(S, "i"), store.write(Submit(S, Input(id="j", body=b""))))
            await store.write(Withdraw(S, "j"))
            await self.overtaken(store, Withdraw(S, "i"), Drive(store).start())

    async def test_a_queue_has_no_more_than_there_is_room_for(self) -> None:  # rule V16
        """In number and in bytes."""
        async with self.guarded() as store:
            first, second, third = (Input(id=each, body=b"x" * 50) for each in "ijk")
            await store.write(Submit(S, first))
            for bound in ({"max_inputs": 2}, {"max_bytes": 100}):
                await self.overtaken(store, Submit(S, third, **bound), store.write(Submit(S, second)))
                await store.write(Withdraw(S, "j"))

    async def test_a_session_that_was_used_meanwhile_is_not_idle(self) -> None:  # rule C7
        """It was idle when the store looked it up."""
        clock = FakeClock()
        async with self.guarded(clock) as store:
            await paused(store, "q")
            await self.pass_time(clock, 3 * self.tick)
            await self.overtaken(store, Delete(S, idle=2 * self.tick), store.write(GiveAnswers(S, [yes("q")])))

    # Rows that others have changed

    async def test_a_question_ends_once_and_in_time(self) -> None:  # rules R2, R3, R11
        """Of answers that come together, all are given or none."""
        clock = FakeClock()
        async with self.guarded(clock) as store:
            run = Drive(store)
            await run.start()
            soon = (await run.head()).created + 10 * self.tick
            await run.pause(*(question(each) for each in "pqr"), question("soon", expires=soon))
            both, call = [yes("p"), yes("soon")], replace(yes("p"), call="k")
            over = [Answer(id=each, value=b"", how="expired") for each in "pq"]
            claim = Claim(ref=S, owner="ann", ttl=10, after=run.at, write=much(run), answers=both)
            late = [await decided(store, each) for each in (claim, GiveAnswers(S, both))]
            await self.overtaken(store, GiveAnswers(S, over), store.write(GiveAnswers(S, over[1:])))
            await self.overtaken(store, GiveAnswers(S, [yes("p"), yes("r")]), store.write(GiveAnswers(S, [yes("r")])))
            await self.pass_time(clock, 11 * self.tick)
            before = await everything(store)
            assert [await apply(store, each) for each in late] == [None, None]
            assert await everything(store) == before
            await self.overtaken(store, GiveAnswers(S, [call]), store.write(Submit(S, Input(id="k", body=b""))))

    async def test_a_mark_is_made_on_what_others_have_marked_and_not_ended(self) -> None:
        """Otherwise it would undo their mark, or list what has ended."""
        async with self.guarded() as store:
            await paused(store, "p", "q", "r")
            marks = [Mark(ref=S, id=each, taker="ann", note=Note(kind="taken", by="ann")) for each in "pqr"]
            await self.overtaken(store, marks[0], store.write(marks[1]))
            await self.overtaken(store, marks[2], store.write(GiveAnswers(S, [yes("r")])))

    async def test_an_input_begins_one_turn_in_its_order(self) -> None:  # rule V11
        """Only the first that waits begins one, only one that waits is withdrawn, and an id is given once."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start()
            await run.end()
            first, second = (Input(id=each, body=b"hello") for each in "ij")
            for each in (first, second):
                await store.write(Submit(S, each))
            begin = Claim(ref=S, owner="ann", ttl=10, after=run.at, write=much(run, input="i"))
            await self.overtaken(store, begin, store.write(Withdraw(S, "i")))
            await self.overtaken(store, Submit(S, first), store.write(Submit(S, replace(first, body=b"other"))))
            begin = replace(begin, write=much(run, input="j"))
            await self.overtaken(store, begin, store.write(Withdraw(S, "j")), store.write(Submit(S, second)))
            await self.overtaken(store, Withdraw(S, "i"), run.claim(run.next(input="i")))
            await self.overtaken(store, Withdraw(S, "j"), run.commit(run.next(input="j")))
            await store.write(Submit(S, Input(id="k", body=b"")))
            await self.overtaken(store, Withdraw(S, "k"), store.write(Withdraw(S, "k")))

    async def test_what_has_begun_before_may_begin_again(self) -> None:  # rule T6
        """It is the one row that may be there already."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(run.next(begins=(Begun("d", "p", 0),)))
            await run.commit(much(run))
            found = await store.read(ListBegun("d"))
            assert sorted(each.number for each in found) == [0, 1]

    async def test_what_others_do_beside_a_run_does_not_make_its_write_fail(self) -> None:  # rule C1
        """Nothing of it is lost, and counters add up."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start(run.next(asks=(question("p"), question("q"))))
            await store.write(GiveAnswers(S, [yes("p")]))
            await store.write(Submit(S, Input(id="i", body=b"hi")))
            write = much(run, takes=("p",), input="i", program="ours")
            effects = await decided(store, Commit(lease=run.held, writes=(write,), after="b.0"))
            await store.write(GiveAnswers(S, [yes("q")]))
            await store.write(Submit(S, Input(id="j", body=b"hello", program="theirs")))
            await store.write(Cancel(S, "now"))
            await store.renew([run.held])
            applied = await apply(store, effects)
            assert applied is not None
            assert (applied.cancel, applied.inputs) == ("now", 1)
            row, _ = await self._row(store, S)
            assert (row.checkpoint, row.waiting, row.inputs, row.input_bytes) == ("b.1", 1, 1, 5)
            assert row.program == "theirs", "the first that is given stays"
            assert [each.id for each in (await run.loaded()).answers] == ["q"]
            assert [each.id for each in await store.read(ListInputs(S))] == ["j"]

    async def test_a_submission_is_due_whatever_its_session_did_meanwhile(self) -> None:  # rule V11
        """It is listed by how its session stands once it is written."""
        async with self.guarded() as store:
            run = Drive(store)
            await run.start()
            submit = [Submit(S, Input(id=each, body=b"")) for each in "ij"]
            effects = await decided(store, submit[0])
            await run.end()
            if await apply(store, effects) is None:
                await store.write(submit[0])
            assert [each.why for each in await store.read(ListDue())] == ["input"]
            assert len(await store.read(ListSessions(status="queued"))) == 1
            effects = await decided(store, submit[1])
            await run.claim(run.next(input="i"))
            if await apply(store, effects) is None:
                await store.write(submit[1])
            assert await store.read(ListDue()) == []
            assert len(await store.read(ListSessions(status="running"))) == 1
            assert await store.read(ListSessions(status="queued")) == []
