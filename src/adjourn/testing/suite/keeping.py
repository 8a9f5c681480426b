"""Branches, and what is kept: deleting, pruning and expiring."""

from __future__ import annotations

import msgspec

from adjourn.errors import AlreadyResumed, CheckpointNotFound, UnknownInterrupt
from adjourn.stores.kit import (
    Audit,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    ListAsked,
    ListBegun,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListQuestions,
    ListSessions,
    Load,
    Prune,
)
from adjourn.stores.protocol import Store
from adjourn.stores.types import Begun, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, record, refused, yes


async def _ids(store: Store, session: str = "s") -> list[str]:
    return [each.id for each in await store.read(ListCheckpoints(SessionRef(session)))]


class KeepingSuite(Bench):
    """Rules C4 and C7, and that of T6 which a store must keep."""

    async def test_what_began_is_kept_for_good(self) -> None:  # rule T6
        """Whatever becomes of the session and its records."""
        first, second = Begun("d", "p", 0), Begun("d", "p", 1)
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start(record(0, None, full=True, begins=(first,)))
            assert await store.read(ListBegun("d")) == [first]
            await run.commit(record(1, "b.0", begins=(second, Begun("e", "p", 1))))
            await run.commit(record(2, "b.1", full=True))
            await run.end()
            assert await store.write(Prune(S, keep=1))
            assert sorted(await store.read(ListBegun("d")), key=lambda each: each.number) == [first, second]
            await store.write(Delete(S))
            assert len(await store.read(ListBegun("d"))) == 2
            await run.start(record(0, None, full=True, begins=(Begun("d", "q", 0),)))
            await run.end()
            await self.pass_time(clock, 20 * self.tick)
            assert await store.write(DeleteIdle(ttl=10 * self.tick)) == [S]
            assert {each.place for each in await store.read(ListBegun("d"))} == {"p", "q"}
            assert await store.read(ListBegun("e")) == [Begun("e", "p", 1)]
            assert await store.read(ListBegun("f")) == []

    async def test_a_fork_leaves_the_old_branch_as_it_was(self) -> None:  # rule C4
        """It begins with a full record, after any checkpoint."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.steps(3)
            await run.commit(record(0, "b.1", branch="c"))
            await run.steps(2)
            head = await run.head()
            assert (head.checkpoint, head.branch) == ("c.2", "c")
            assert (await run.loaded()).rows == (b"c0", b"c1", b"c2")
            assert (await run.loaded("b.3")).rows == (b"b0", b"b1", b"b2", b"b3")
            assert (await run.loaded("c.0")).rows == (b"c0",)
            assert await _ids(store) == ["c.2", "c.1", "c.0", "b.3", "b.2", "b.1", "b.0"]
            assert (await store.read(ListCheckpoints(S)))[2].parent == "b.1"
            await refused(CheckpointNotFound, store.read(Load(S, "b.4")))
            await refused(CheckpointNotFound, store.read(Load(S, "c.3")))

    async def test_branches_may_begin_with_any_number(self) -> None:  # rule C4
        """Ids below it do not exist."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(record(5, None, full=True))
            await run.commit()
            await run.commit(record(7, "b.5", branch="c", full=True))
            await run.commit()
            assert await _ids(store) == ["c.8", "c.7", "b.6", "b.5"]
            for wrong in ("c.6", "c.5", "b.7", "b.4", "c.0"):
                await refused(CheckpointNotFound, store.read(Load(S, wrong)))
            assert (await run.loaded("b.6")).rows == (b"b5", b"b6")

    async def test_questions_are_facts_of_a_branch(self) -> None:  # rule C4
        """A fork asks anew; what was answered before stays so on its own branch."""
        async with self.fresh() as store:
            run = await paused(store, "q", "r")
            await store.write(GiveAnswers(ref=S, answers=[yes("q", b"1")]))
            await run.claim(record(0, "b.1", branch="c", status="waiting", asks=(question("q", b"new"),)))
            assert [(each.id, each.body) for each in await store.read(ListQuestions())] == [("q", b"new")]
            assert [each.how for each in await store.read(Audit(S))] == [None]
            assert (await run.loaded()).answers == ()
            await refused(UnknownInterrupt, store.write(GiveAnswers(ref=S, answers=[yes("r")])))
            await store.write(GiveAnswers(ref=S, answers=[yes("q", b"2")]))
            await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q", b"3")])))
            assert [answer.value for answer in (await run.loaded()).answers] == [b"2"]
            assert (await run.loaded("b.1")).answers == ()
            assert (await run.loaded("b.1")).rows == (b"b0", b"b1")

    async def test_questions_are_read_by_branch_and_id(self) -> None:  # rule I12
        """Whether they are open or have ended, also on a branch that the head has left; in the order of asking."""
        async with self.fresh() as store:
            run = await paused(store, "q", "r", "s")
            await store.write(GiveAnswers(ref=S, answers=[yes("r", b"1", by="eve")]))
            await run.claim(record(0, "b.1", branch="c", asks=(question("q", b"new"),)))
            found = await store.read(ListAsked(S, "b", ["s", "unknown", "r", "r"]))
            assert [(each.id, each.body, each.value, each.how, each.by) for each in found] == [
                ("r", b"{}", b"1", "answered", "eve"),
                ("s", b"{}", None, None, None),
            ]
            assert [(each.id, each.body) for each in await store.read(ListAsked(S, "c", ["q", "r"]))] == [("q", b"new")]
            assert await store.read(ListAsked(S, "c", [])) == []
            assert [each.id for each in await store.read(Audit(S, "b"))] == ["q", "r", "s"]
            assert [each.id for each in await store.read(Audit(S, "c"))] == ["q"]
            await refused(CheckpointNotFound, store.read(ListAsked(S, "d", ["q"])))
            await refused(CheckpointNotFound, store.read(Audit(S, "d")))
            await refused(CheckpointNotFound, store.read(ListAsked(SessionRef("no"), "b", ["q"])))

    async def test_a_branch_takes_ended_questions_along(self) -> None:  # rule I12
        """They have ended there, too: nobody is asked, and no answer waits to be taken."""
        async with self.fresh() as store:
            run = await paused(store, "q", "r")
            await store.write(GiveAnswers(ref=S, answers=[yes("q", b"1", by="eve")]))
            (given,) = (await run.loaded()).answers
            asks = (msgspec.structs.replace(question("q", b"old", 1.0), ended=given), question("r"))
            fork = record(0, "b.1", branch="c", status="waiting", asks=asks)
            await run.claim(fork)
            assert (await run.claim(fork)).lease is not None  # repeated
            (found,) = await store.read(ListAsked(S, "c", ["q"]))
            assert (found.body, found.value, found.how, found.by, found.at) == (
                b"old",
                b"1",
                "answered",
                "eve",
                given.at,
            )
            assert [each.how for each in await store.read(Audit(S))] == ["answered", None]
            assert [each.id for each in await store.read(ListQuestions())] == ["r"]
            assert (await run.loaded()).answers == ()
            await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q")])))
            await run.commit(run.next(status="waiting"), release=True)
            assert await store.read(ListDue()) == []

    async def test_pruning_leaves_questions(self) -> None:  # rules C7, I12
        """What is kept may name any of them."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await run.claim(run.next(full=True), yes("q", b"1"))
            await run.commit(run.next(full=True))
            assert await store.write(Prune(S, keep=1)) == 3
            assert [each.value for each in await store.read(ListAsked(S, "b", ["q"]))] == [b"1"]

    async def test_deleting(self) -> None:
        """Removes everything of one session, and nothing of another."""
        async with self.fresh() as store:
            await paused(store, "q")
            other = await paused(store, "q", session="t")
            kept = await other.loaded()
            await store.write(Delete(S))
            await store.write(Delete(S))
            assert await store.read(GetHead(S)) is None
            assert await store.read(Load(S)) is None
            assert [each.session for each in await store.read(ListQuestions())] == ["t"]
            assert [head.session for head in await store.read(ListSessions())] == ["t"]
            assert await other.loaded() == kept
            again = Drive(store)
            await again.start(record(0, None, b"new"))
            assert (await again.loaded()).rows == (b"new",)
            assert await store.read(Audit(S)) == []

    async def test_expiring(self) -> None:  # rule C7
        """Counts from the last commit, answer or renewal, and leaves what somebody runs."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await paused(store, "q", session="old")
            live = Drive(store, "live", ttl=100 * self.tick)
            await live.start()
            dead = Drive(store, "dead", ttl=self.tick)
            await dead.start()
            await self.pass_time(clock, 10 * self.tick)
            await paused(store, "q", session="young")
            assert await store.write(DeleteIdle(ttl=20 * self.tick)) == []
            assert sorted(gone.id for gone in await store.write(DeleteIdle(ttl=5 * self.tick))) == ["dead", "old"]
            assert {head.session for head in await store.read(ListSessions())} == {"live", "young"}
            assert await store.read(Load(SessionRef("old"))) is None
            await live.commit()

    async def test_expiring_by_status(self) -> None:  # rule C7
        """Spares what has another; a run whose owner died has failed."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await paused(store, "q", session="waiting")
            done, dead = Drive(store, "done"), Drive(store, "dead", ttl=self.tick)
            await done.start()
            await done.end()
            await dead.start()
            live = Drive(store, "live", ttl=100 * self.tick)
            await live.start()
            await self.pass_time(clock, 10 * self.tick)
            assert await store.write(DeleteIdle(ttl=5 * self.tick, statuses=("cancelled", "running"))) == []
            gone = await store.write(DeleteIdle(ttl=5 * self.tick, statuses=("done", "failed")))
            assert sorted(each.id for each in gone) == ["dead", "done"]
            assert [each.id for each in await store.write(DeleteIdle(ttl=5 * self.tick, statuses=("waiting",)))] == [
                "waiting"
            ]
            await live.commit()

    async def test_expiring_a_few_at_a_time(self) -> None:  # rule C7
        """Until there are none left."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for number in range(5):
                await paused(store, "q", session=f"s{number}")
            await self.pass_time(clock, 10 * self.tick)
            found = [await store.write(DeleteIdle(ttl=5 * self.tick, statuses=("waiting",), limit=2)) for _ in range(4)]
            assert [len(each) for each in found] == [2, 2, 1, 0]
            assert {each.id for batch in found for each in batch} == {f"s{number}" for number in range(5)}

    async def test_what_somebody_runs_takes_no_place_of_what_expires(self) -> None:  # rule C7
        """However long its owner has been silent."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for number in range(3):
                await Drive(store, f"live{number}", ttl=100 * self.tick).start()
            await Drive(store, "dead", ttl=self.tick).start()
            await paused(store, "q", session="idle")
            await self.pass_time(clock, 10 * self.tick)
            found = [await store.write(DeleteIdle(ttl=5 * self.tick, limit=1)) for _ in range(3)]
            assert sorted([[each.id for each in batch] for batch in found]) == [[], ["dead"], ["idle"]]

    async def test_answers_and_renewals_keep_a_session(self) -> None:  # rule C7
        """As commits do; a cancel does not, and what somebody runs stays in any case."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for name in ("answered", "silent"):
                await paused(store, "q", session=name)
            renewed, lost = Drive(store, "renewed", ttl=self.tick), Drive(store, "lost", ttl=self.tick)
            await renewed.start()
            await lost.start()
            await self.pass_time(clock, 10 * self.tick)
            await store.write(GiveAnswers(ref=SessionRef("answered"), answers=[yes("q")]))
            await store.renew([renewed.held])
            touched = {head.session for head in await store.read(ListSessions()) if head.touched > head.updated}
            assert touched == {"answered", "renewed"}
            await self.pass_time(clock, 4 * self.tick)
            assert sorted(gone.id for gone in await store.write(DeleteIdle(ttl=8 * self.tick))) == ["lost", "silent"]
            await self.pass_time(clock, 5 * self.tick)
            assert sorted(gone.id for gone in await store.write(DeleteIdle(ttl=8 * self.tick))) == [
                "answered",
                "renewed",
            ]

    async def test_pruning_keeps_the_last(self) -> None:  # rule C7
        """Restorable, with all records that they are folded from."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            for number in range(1, 10):
                await run.commit(run.next(full=number in (4, 7)))
            before = await run.loaded()
            assert await store.write(Prune(S, keep=3)) == 7
            assert await _ids(store) == ["b.9", "b.8", "b.7"]
            assert await run.loaded() == before
            assert (await run.loaded("b.8")).rows == (b"b7", b"b8")
            for gone in ("b.0", "b.4", "b.6"):
                await refused(CheckpointNotFound, store.read(Load(S, gone)))
                await refused(CheckpointNotFound, store.read(ListCheckpoints(S, before=gone)))
            assert await store.write(Prune(S, keep=3)) == 0
            await run.steps(1)
            assert (await run.loaded()).rows == (b"b7", b"b8", b"b9", b"b10")

    async def test_pruning_keeps_what_is_pending_on_any_branch(self) -> None:  # rule C7
        """A fork can go back to it."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await run.claim(record(0, "b.0", branch="c"))
            await run.commit(run.next(full=True))
            assert await store.write(Prune(S, keep=1)) == 1
            assert await _ids(store) == ["c.1", "b.1", "b.0"]

    async def test_events_of_what_is_kept_stay(self) -> None:
        """Those of pruned records go with them."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            for n in range(1, 9):
                await run.commit(run.next(full=True, events=b"[%d]" % n, event_count=1))
            await store.write(Prune(S, keep=3))
            assert [events.first for events in await store.read(ListEvents(S))] == [6, 7, 8]
            assert [events.first for events in await store.read(ListEvents(S, 6))] == [7, 8]
            assert (await run.head()).seq == 8
