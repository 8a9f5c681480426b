"""The queue of a session: inputs that wait for their turn, and which sessions are due because of them."""

from __future__ import annotations

import asyncio

from adjourn.errors import CheckpointNotFound, Conflict, QueueFull, SessionBusy
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    HasInput,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListInputs,
    ListOpen,
    ListRecords,
    ListSessions,
    Load,
    Prune,
    Submit,
    Withdraw,
)
from adjourn.stores.protocol import Store
from adjourn.stores.types import Input, QueuedInput, SessionRef, Status
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, question, record, refused, yes


def hello(id: str = "i", body: bytes = b"hello", *, user: str | None = None, abandons: bool = False) -> Input:
    """An input to submit."""
    return Input(id=id, body=body, program="agent:A", user=user, abandons=abandons)


async def waiting(store: Store, ref: SessionRef = S) -> list[str]:
    """The ids of the inputs that wait."""
    return [each.id for each in await store.read(ListInputs(ref))]


async def due(store: Store) -> list[tuple[str, str]]:
    """The sessions that are due, and why."""
    return [(each.session, each.why) for each in await store.read(ListDue())]


async def begin(drive: Drive, id: str | None = None) -> None:
    """Begin the turn of an input, after whatever the session has."""
    head = await drive.store.read(GetHead(drive.ref))
    drive.at = None if head is None or not head.checkpoint else head.checkpoint
    await drive.claim(record(drive.number + 1, drive.at, input=id))


async def ended(drive: Drive, status: Status = "done") -> None:
    """End a turn in some way, and let go of the session."""
    await drive.commit(drive.next(status=status), release=True)


class QueueSuite(Bench):
    """Inputs that wait for their turn."""

    async def test_an_input_makes_a_session_that_is_queued(self) -> None:  # rule V11
        """A session may have inputs and no record."""
        async with self.fresh() as store:
            ref = SessionRef("s", user="ann")
            head = await store.write(Submit(ref=ref, input=hello(user="ann")))
            assert head == await store.read(GetHead(S))
            assert (head.status, head.inputs, head.checkpoint, head.owner) == ("queued", 1, "", None)
            assert (head.user, head.program) == ("ann", "agent:A")
            assert await store.read(Load(S)) is None
            assert await store.read(ListCheckpoints(S)) == []
            assert await store.read(ListEvents(S)) == []
            assert await store.read(Audit(S)) == await store.read(Audit(S, all_branches=True)) == []
            assert await store.read(ListRecords(S)) == []
            assert await store.read(ListOpen(S)) == []
            assert await store.write(Prune(S, keep=0)) == 0
            assert not await store.write(Cancel(S, "now"))
            assert [each.session for each in await store.read(ListSessions(status="queued"))] == ["s"]

    async def test_inputs_wait_in_order(self) -> None:  # rule V11
        """The first that came in is the first to begin."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for number in range(3):
                await store.write(Submit(ref=S, input=hello(f"i{number}", b"%d" % number, abandons=number == 1)))
                await self.pass_time(clock, self.tick)
            found = await store.read(ListInputs(S))
            assert [(each.id, each.body, each.abandons) for each in found] == [
                ("i0", b"0", False),
                ("i1", b"1", True),
                ("i2", b"2", False),
            ]
            assert found == sorted(found, key=lambda each: each.at)
            assert await store.read(ListInputs(S, limit=1)) == found[:1]
            assert isinstance(found[0], QueuedInput)

    async def test_the_same_input_again_adds_nothing(self) -> None:  # rule V11
        """Whoever did not get the reply can try again, even after a turn has begun."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello()))
            assert (await store.write(Submit(ref=S, input=hello()))).inputs == 1
            drive = Drive(store)
            await begin(drive, "i")
            await ended(drive)
            assert (await store.write(Submit(ref=S, input=hello()))).inputs == 0, "a turn has begun with it"
            assert await waiting(store) == []

    async def test_a_queue_is_bounded(self) -> None:  # rule V16
        """Of inputs that come in at once, as many are kept as there is room for; what leaves the queue makes room."""
        async with self.fresh() as store:
            inputs = [hello(f"i{number}", b"x" * 50) for number in range(10)]
            calls = [store.write(Submit(ref=S, input=each, max_bytes=120)) for each in inputs]
            results = await asyncio.gather(*calls, return_exceptions=True)
            full = [each for each in results if isinstance(each, QueueFull)]
            assert len(full) == 8
            assert {(each.inputs, each.size, each.more) for each in full} <= {(1, 50, 50), (2, 100, 50)}
            first, second = await waiting(store)
            again = next(each for each in inputs if each.id == first)
            assert (await store.write(Submit(ref=S, input=again, max_bytes=120))).inputs == 2
            await refused(QueueFull, store.write(Submit(ref=S, input=hello("j"), max_inputs=2)))
            assert await store.write(Withdraw(S, second))
            await store.write(Submit(ref=S, input=hello("j", b"x" * 70), max_bytes=120))
            await refused(QueueFull, store.write(Submit(ref=S, input=hello("k", b"x"), max_bytes=120)))
            await begin(Drive(store), first)
            assert (await store.write(Submit(ref=S, input=hello("k"), max_bytes=120))).inputs == 2

    async def test_a_turn_begins_with_the_first_input(self) -> None:  # rule V11
        """A record takes the first input along, and no other."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello("i")))
            await store.write(Submit(ref=S, input=hello("j")))
            drive = Drive(store)
            await refused(
                Conflict, store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=record(0, None, input="j")))
            )
            await refused(
                Conflict, store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=record(0, None, input="k")))
            )
            assert await store.read(Load(S)) is None
            await begin(drive, "i")
            assert await waiting(store) == ["j"]
            await ended(drive)
            await refused(
                Conflict, store.write(Claim(ref=S, owner="ann", ttl=10, after=drive.at, write=drive.next(input="i")))
            )
            await begin(drive, "j")
            assert await waiting(store) == []
            assert (await drive.head()).inputs == 0

    async def test_a_turn_that_did_not_wait_leaves_the_queue_alone(self) -> None:  # rule V11
        """Its inputs are still due when it has ended."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello()))
            drive = Drive(store)
            await begin(drive)
            await ended(drive)
            assert await waiting(store) == ["i"]
            assert await due(store) == [("s", "input")]

    async def test_inputs_come_in_while_a_turn_runs(self) -> None:  # rule V11
        """They make no commit fail, and whoever ends the turn learns of them."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start()
            await store.write(Submit(ref=S, input=hello("i")))
            await store.write(Submit(ref=S, input=hello("j")))
            assert (await drive.commit()).inputs == 2
            assert await due(store) == []
            committed = await drive.end()
            assert (committed.released, committed.inputs) == (True, 2)
            assert [each.status for each in await store.read(ListSessions())] == ["done"]
            assert [each.session for each in await store.read(ListSessions(status="queued"))] == ["s"]
            assert await store.read(ListSessions(status="done")) == []
            assert await due(store) == [("s", "input")]

    async def test_a_pause_holds_the_queue(self) -> None:  # rule V11
        """The turn has not ended."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start()
            await store.write(Submit(ref=S, input=hello(abandons=True)))
            await drive.pause(question("q"))
            assert await due(store) == []
            assert [each.session for each in await store.read(ListSessions(status="waiting"))] == ["s"]
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            assert await due(store) == [("s", "answer")]

    async def test_a_failed_or_cancelled_turn_holds_the_queue_unless_it_may_be_abandoned(self) -> None:  # rule V11
        """The first input in the queue decides."""
        async with self.fresh() as store:
            ends: list[Status] = ["failed", "cancelled"]
            for status in ends:
                for abandons in (False, True):
                    drive = Drive(store, f"{status} {abandons}")
                    await drive.start()
                    await store.write(Submit(ref=drive.ref, input=hello("i", abandons=abandons)))
                    await store.write(Submit(ref=drive.ref, input=hello("j", abandons=True)))
                    await ended(drive, status)
            assert sorted(await due(store)) == [("cancelled True", "input"), ("failed True", "input")]

    async def test_an_owner_that_died_is_due_before_its_queue(self) -> None:  # rule V11
        """Its turn comes first."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            drive = Drive(store, ttl=self.tick)
            await drive.start()
            await store.write(Submit(ref=S, input=hello()))
            await self.pass_time(clock, 2 * self.tick)
            assert await due(store) == [("s", "lease")]

    async def test_an_input_can_be_withdrawn_while_it_waits(self) -> None:  # rule V11
        """What has begun cannot be withdrawn."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start()
            for each in ("i", "j", "k"):
                await store.write(Submit(ref=S, input=hello(each)))
            assert await store.write(Withdraw(S, "j"))
            assert not await store.write(Withdraw(S, "j"))
            assert not await store.write(Withdraw(S, "unknown"))
            await drive.end()
            await begin(drive, "i")
            assert not await store.write(Withdraw(S, "i")), "its turn has begun"
            await ended(drive)
            await begin(drive, "k")
            assert (await drive.head()).inputs == 0
            await store.write(Submit(ref=S, input=hello("j", b"again")))

    async def test_the_ids_of_inputs_are_known_for_as_long_as_the_session(self) -> None:  # rule V11
        """Neither a turn that begins nor pruning makes a store forget one; withdrawing does."""
        async with self.fresh() as store:
            await refused(CheckpointNotFound, store.read(HasInput(S, "i")))
            drive = Drive(store)
            await drive.start()
            for each in ("i", "j", "k"):
                await store.write(Submit(ref=S, input=hello(each)))
            await drive.end()
            await begin(drive, "i")
            await ended(drive)
            await begin(drive, "j")
            await ended(drive)
            await store.write(Prune(S, keep=1))
            await store.write(Withdraw(S, "k"))
            known = {each: await store.read(HasInput(S, each)) for each in ("i", "j", "k", "unknown")}
            assert known == {"i": True, "j": True, "k": False, "unknown": False}

    async def test_withdrawing_all_that_a_session_has_removes_it(self) -> None:  # rule V11
        """A session without records and inputs is none."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello("i")))
            await store.write(Submit(ref=S, input=hello("j")))
            assert await store.write(Withdraw(S, "i"))
            assert await waiting(store) == ["j"]
            assert await store.write(Withdraw(S, "j"))
            assert await store.read(GetHead(S)) is None
            await refused(CheckpointNotFound, store.write(Withdraw(S, "j")))
            await refused(CheckpointNotFound, store.read(ListInputs(S)))
            await store.write(Submit(ref=S, input=hello("i", b"other")))
            assert await waiting(store) == ["i"]

    async def test_a_queue_goes_with_its_session(self) -> None:  # rule C7
        """A new session of the same id begins with nothing."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello()))
            await store.write(Delete(S))
            assert await store.read(GetHead(S)) is None
            await Drive(store).start()
            assert await waiting(store) == []
            assert (await store.write(Submit(ref=S, input=hello(body=b"other")))).inputs == 1

    async def test_a_submission_keeps_a_session_from_being_idle(self) -> None:  # rule C7
        """Somebody has used it."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            drive = Drive(store)
            await drive.start()
            await drive.end()
            await self.pass_time(clock, 2 * self.tick)
            await store.write(Submit(ref=S, input=hello()))
            assert await store.write(DeleteIdle(ttl=self.tick)) == []
            await self.pass_time(clock, 2 * self.tick)
            assert await store.write(DeleteIdle(ttl=self.tick, statuses=["done", "waiting"])) == []
            assert [ref.id for ref in await store.write(DeleteIdle(ttl=self.tick, statuses=["queued"]))] == ["s"]

    async def test_inputs_behind_a_failure_keep_a_session(self) -> None:  # rule C7
        """Nobody has begun them, so their session goes only together with what is queued."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            drive = Drive(store)
            await drive.start()
            await drive.commit(drive.next(status="failed"), release=True)
            await store.write(Submit(ref=S, input=hello(abandons=True)))
            await self.pass_time(clock, 2 * self.tick)
            assert await store.write(DeleteIdle(ttl=self.tick, statuses=["done", "failed", "cancelled"])) == []
            assert await store.write(DeleteIdle(ttl=self.tick, statuses=["queued"])) == []
            assert [ref.id for ref in await store.write(DeleteIdle(ttl=self.tick, statuses=["failed", "queued"]))] == [
                "s"
            ]

    async def test_submissions_at_once_are_all_kept(self) -> None:  # rule V11
        """Each of them once."""
        async with self.fresh() as store:
            ids = [f"i{number}" for number in range(20)]
            await asyncio.gather(*(store.write(Submit(ref=S, input=hello(each))) for each in ids for _ in range(2)))
            assert sorted(await waiting(store)) == sorted(ids)
            head = await store.read(GetHead(S))
            assert head is not None
            assert head.inputs == 20

    async def test_of_many_who_begin_one_input_one_does(self) -> None:  # rule V11
        """The others are refused."""
        async with self.fresh() as store:
            await store.write(Submit(ref=S, input=hello("i")))
            await store.write(Submit(ref=S, input=hello("j")))

            async def attempt(number: int) -> bool:
                try:
                    first = record(0, None, b"%d" % number, branch=f"b{number}", input="i")
                    await store.write(Claim(ref=S, owner=f"owner{number}", ttl=10, after=None, write=first))
                except (Conflict, SessionBusy):
                    return False
                return True

            assert sum(await asyncio.gather(*(attempt(number) for number in range(8)))) == 1
            assert await waiting(store) == ["j"]

    async def test_the_queue_is_shared(self) -> None:  # rule V11
        """Inputs from another process are as good as any."""
        clock = FakeClock()
        async with self.fresh(clock) as store, self.second(clock) as other:
            await store.write(Submit(ref=S, input=hello("i")))
            await other.write(Submit(ref=S, input=hello("j")))
            assert await waiting(store) == ["i", "j"]
            drive = Drive(store)
            await begin(drive, "i")
            await other.write(Submit(ref=S, input=hello("k")))
            assert (await drive.end()).inputs == 2
            assert await due(other) == [("s", "input")]

    # Which programs and users

    async def test_a_session_knows_its_program(self) -> None:  # rule V11
        """The first that is given stays."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start(record(0, None, program="agent:A"))
            await drive.commit(drive.next(program="agent:B"))
            assert (await drive.head()).program == "agent:A"
            await store.write(Submit(ref=S, input=Input(id="i", body=b"", program="agent:B")))
            assert (await drive.head()).program == "agent:A"

    async def test_what_is_due_is_selected_by_program_and_user(self) -> None:  # rule V11
        """A worker asks for what it can run."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for name, program, user in (("s", "agent:A", "ann"), ("t", "agent:B", "bob"), ("u", "agent:A", None)):
                await store.write(
                    Submit(ref=SessionRef(name, user=user), input=Input(id="i", body=b"", program=program))
                )
                await self.pass_time(clock, self.tick)
            found = await store.read(ListDue())
            assert [(each.session, each.program, each.user) for each in found] == [
                ("s", "agent:A", "ann"),
                ("t", "agent:B", "bob"),
                ("u", "agent:A", None),
            ]
            assert found == sorted(found, key=lambda each: each.since)
            assert found[0].ref == SessionRef("s", "adjourn", "ann")

            async def names(programs: list[str] | None = None, skip: tuple[str, ...] = ()) -> list[str]:
                return [each.session for each in await store.read(ListDue(programs=programs, skip_users=skip))]

            assert await names(["agent:A"]) == ["s", "u"]
            assert await names(["agent:A", "agent:B"]) == ["s", "t", "u"]
            assert await names([]) == []
            assert await names(skip=("ann", "carl")) == ["t", "u"]
            assert await names(["agent:A"], ("ann",)) == ["u"]
            assert [each.session for each in await store.read(ListDue(user="bob"))] == ["t"]
            assert [each.session for each in await store.read(ListDue(limit=2))] == ["s", "t"]

    async def test_what_is_due_is_listed_oldest_first_whatever_the_reason(self) -> None:  # rule V11
        """Nobody is overtaken for ever."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            asked = Drive(store, "asked")
            await asked.start()
            await asked.pause(question("q"))
            await store.write(Submit(ref=SessionRef("first"), input=hello()))
            await self.pass_time(clock, self.tick)
            await store.write(GiveAnswers(ref=asked.ref, answers=[yes("q")]))
            await self.pass_time(clock, self.tick)
            dead = Drive(store, "dead", ttl=self.tick)
            await dead.start()
            await self.pass_time(clock, 2 * self.tick)
            await store.write(Submit(ref=SessionRef("last"), input=hello()))
            assert await due(store) == [
                ("first", "input"),
                ("asked", "answer"),
                ("dead", "lease"),
                ("last", "input"),
            ]
