"""Leases: one owner at a time; who lost the session cannot write it, and a dead owner is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn import Runner, SessionBusy, UnfinishedRun, interrupt, once, workflow
from adjourn.errors import Conflict
from adjourn.events import Cancelled, Failed
from adjourn.runner._heartbeat import Heartbeat
from adjourn.runner._settings import Durability
from adjourn.stores import Lease, MemoryStore, Renewed, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Commit, GetHead, StoreRequest
from adjourn.testing import FakeClock, FaultStore
from tests.no_threads import no_more_threads

from .programs import Gate, asking, begin, events_of, held, line, side_by_side, step, steps, turns, until

T = TypeVar("T")

WAIT = 50.0

# One owner at a time


async def test_a_live_session_is_its_owners_alone(timed: Store, clock: FakeClock):  # rule C6
    gate = Gate()
    waiting = begin(line(("a", held("a", gate)), store=timed, lease_ttl=30).run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(29)
    other = steps("a", store=timed)
    with pytest.raises(SessionBusy) as busy:
        await other.recover("s")
    status = await other.status("s")
    assert (busy.value.owner, busy.value.owner_id) == (status.owner, status.owner_id)
    assert busy.value.expires == clock() + 1
    gate.opened.set()
    assert (await waiting).status == "done"


async def test_a_run_whose_lease_no_thread_can_renew_fails_and_can_be_recovered():  # rule C6
    """The system has no more threads for a while; nobody waits for ever, and later leases are renewed."""
    store, gate = MemoryStore(), Gate()
    async with asyncio.timeout(WAIT):
        with no_more_threads(), pytest.raises(RuntimeError, match="new thread"):
            await steps("a", store=store).run({}, session_id="s")
        assert (await steps("a", store=store).recover("s")).state["done"] == ["a"]
        waiting = begin(line(("a", held("a", gate)), store=store, lease_ttl=0.3).run({}, session_id="t"))
        await gate.reached.wait()
        await asyncio.sleep(0.6)
        assert (await steps("a", store=store).status("t")).status == "running"
        gate.opened.set()
        assert (await waiting).status == "done"


async def test_every_commit_renews_the_lease(timed: Store, clock: FakeClock):  # rule C6
    gates = [Gate(), Gate(), Gate()]
    nodes = [(f"n{number}", held("x", gate)) for number, gate in enumerate(gates)]
    waiting = begin(line(*nodes, store=timed, lease_ttl=30).run({}, session_id="s"))
    for gate in gates:
        await gate.reached.wait()
        clock.advance(29)
        gate.opened.set()
    assert (await waiting).status == "done"


async def test_the_lease_is_released_before_an_end_is_told(store: Store):  # rule C6
    graph = asking(store=store)
    for run in (graph.run({}, session_id="s"), graph.resume("s", {"go": 1})):
        last = (await events_of(run))[-1]
        assert last.seq is not None
        head = await store.read(GetHead(SessionRef("s")))
        assert head is not None
        assert (head.owner, head.seq) == (None, last.seq)


# Taking over


async def test_a_zombie_cannot_commit_and_stops_before_its_next_code(timed: Store, clock: FakeClock):  # rule C6
    gate, ran = Gate(), list[str]()

    async def next_code(state: dict[str, Any]) -> dict[str, Any]:
        ran.append("zombie")
        return {"done": ["zombie"]}

    zombie = line(("a", step("a")), ("b", held("zombie", gate)), ("c", next_code), store=timed)
    reading = asyncio.create_task(_events_and_error(zombie.run({}, session_id="s")))
    await gate.reached.wait()
    clock.advance(31)
    assert (await steps("a", "b", "c", store=timed).recover("s")).state["done"] == ["a", "b", "c"]
    before = await zombie.history("s")
    gate.opened.set()
    events, error = await reading
    assert isinstance(error, Conflict)
    assert isinstance(events[-1], Failed)  # its own reader is told, though nothing of it is stored
    assert ran == []
    assert await zombie.history("s") == before


async def _events_and_error(run: Any) -> tuple[list[Any], Exception | None]:
    events: list[Any] = []
    try:
        async for event in run:
            events.append(event)  # noqa: PERF401  # what came before the error counts
    except Exception as error:  # noqa: BLE001  # it is what the test looks at
        return events, error
    return events, None


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_a_zombies_end_is_refused_in_every_durability(timed: Store, clock: FakeClock, durability: Any):  # rule C6
    gate = Gate()
    zombie = line(("a", held("zombie", gate)), store=timed, durability=durability)
    waiting = begin(zombie.run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    await steps("a", store=timed).recover("s")
    gate.opened.set()
    with pytest.raises(Conflict):
        await waiting
    assert (await steps("a", store=timed).state("s"))["done"] == ["a"]
    assert (await steps("a", store=timed).run({}, session_id="s")).state["done"] == ["a", "a"]


async def test_a_zombies_kept_call_is_refused_before_it_goes_on(timed: Store, clock: FakeClock):  # rule C6
    gate, ran = Gate(), list[str]()

    @once
    async def charge() -> str:
        await gate.wait()
        return "zombie"

    @workflow
    async def pays(_: Any) -> Any:
        paid = await charge()
        ran.append(paid)
        return paid

    waiting = begin(Runner(pays, store=timed).run(None, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    gate_of_next = gate
    gate_of_next.reached.clear()
    recovering = begin(Runner(pays, store=timed).recover("s"))
    await gate.reached.wait()
    gate.opened.set()
    outcomes = await asyncio.gather(waiting, recovering, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Conflict", "RunResult"]
    assert ran == ["zombie"]  # the new owner's run alone went on after the call


async def test_a_zombies_question_is_not_asked(timed: Store, clock: FakeClock):  # rule C6
    gate = Gate()

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return {"answer": interrupt("Zombie?")}

    waiting = begin(line(("a", asks), store=timed).run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    await steps("a", store=timed).recover("s")
    gate.opened.set()
    with pytest.raises(Conflict):
        await waiting
    assert await steps("a", store=timed).pending() == []


async def test_a_zombie_is_told_by_the_heartbeat_and_the_new_owner_is_not(timed: Store, clock: FakeClock):  # rule C6
    """Both are in one process here, on one store object."""
    first, second = Gate(), Gate()
    zombie = begin(line(("a", held("zombie", first)), store=timed).run({}, session_id="s"))
    await first.reached.wait()
    clock.advance(31)
    owner = begin(line(("a", held("a", second)), store=timed, lease_ttl=0.1).recover("s"))
    await second.reached.wait()
    with pytest.raises(Conflict):
        await zombie  # cut in the middle of its code, at a gate that nobody opens
    await turns(20)
    assert not owner.done()
    second.opened.set()
    assert (await owner).state["done"] == ["a"]


async def test_a_run_whose_session_is_deleted_under_it_stops(timed: Store, clock: FakeClock):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=timed)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    await steps("a", store=timed).delete("s")
    gate.opened.set()
    with pytest.raises(Conflict):
        await waiting
    assert await timed.read(GetHead(SessionRef("s"))) is None


async def test_of_many_who_take_over_one_does(timed: Store, clock: FakeClock):  # rule C6
    gate, ran = Gate(), list[str]()

    async def counted(state: dict[str, Any]) -> dict[str, Any]:
        ran.append("x")
        await turns(3)
        return {"done": ["x"]}

    zombie = begin(line(("a", held("zombie", gate)), store=timed).run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    runs = [begin(line(("a", counted), store=timed).recover("s")) for _ in range(8)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert len(ran) == 1
    assert {type(outcome).__name__ for outcome in outcomes} <= {"RunResult", "SessionBusy", "Conflict"}
    gate.opened.set()
    await asyncio.gather(zombie, return_exceptions=True)


# What a run leaves behind


async def test_work_left_behind_after_a_pause_cannot_write(store: Store):  # rule C6, trap 1
    started, freed, ended = threading.Event(), threading.Event(), threading.Event()
    late: list[BaseException] = []

    @once
    def charge() -> str:
        return "late"

    def stubborn() -> None:
        started.set()
        freed.wait(120)
        try:
            charge()
        except Exception as error:
            late.append(error)
            raise
        finally:
            ended.set()

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        stray = asyncio.create_task(asyncio.to_thread(stubborn))
        await asyncio.to_thread(started.wait, 10)
        answer = interrupt("Well?", key="well")
        await stray
        return {"answer": answer}

    graph = line(("asks", asks), store=store)
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    before = await store.read(GetHead(SessionRef("s")))
    freed.set()
    await asyncio.to_thread(ended.wait, 120)
    assert late
    assert await store.read(GetHead(SessionRef("s"))) == before


# Renewal


@pytest.fixture(params=["memory", "sqlite"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "real.db")
    yield store
    asyncio.run(store.close())


@pytest.fixture(params=["memory", "sqlite"])
def timed_anywhere(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(tmp_path / "timed.db", clock=clock)
    yield store
    asyncio.run(store.close())


def test_a_node_that_blocks_the_loop_does_not_cost_the_lease(timed_anywhere: Store, clock: FakeClock):  # rule C6
    blocking, release = threading.Event(), threading.Event()

    def blocks(state: dict[str, Any]) -> dict[str, Any]:
        blocking.set()
        release.wait()
        return {"done": ["a"]}

    store = timed_anywhere
    graph = line(("a", blocks), thread=False, store=store, lease_ttl=0.3)
    results: list[Any] = []
    running = threading.Thread(target=lambda: results.append(graph.run_sync({}, session_id="s")))
    running.start()
    blocking.wait()
    for _ in range(3):  # longer than a whole lease, by the store's clock
        before = _head(store).expires
        clock.advance(0.2)
        while _head(store).expires == before:
            with pytest.raises(SessionBusy):
                steps("a", store=store).recover_sync("s")
    release.set()
    running.join()
    assert results[0].status == "done"


def _head(store: Store) -> Any:
    return asyncio.run(store.read(GetHead(SessionRef("s"))))


class Hiccups(FaultStore):
    """A store whose first renewals raise what no store should."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.renewals = 0

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        self.renewals += 1
        if self.renewals < 3:
            raise ConnectionResetError
        return await super().renew(leases)


async def test_trouble_in_one_renewal_does_not_end_them(timed: Store, clock: FakeClock):  # rule C6
    gate, hiccups = Gate(), Hiccups(timed)
    waiting = begin(line(("a", held("a", gate)), store=hiccups, lease_ttl=0.3).run({}, session_id="s"))
    await gate.reached.wait()
    first = await timed.read(GetHead(SessionRef("s")))
    assert first is not None
    clock.advance(0.1)
    await until(lambda: _renewed(timed, first.expires))
    gate.opened.set()
    assert (await waiting).status == "done"


class Silent(Hiccups):
    """A store whose first renewal gets no reply."""

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        self.renewals += 1
        if self.renewals == 1:
            await asyncio.Event().wait()
        return await FaultStore.renew(self, leases)


async def test_a_renewal_without_a_reply_is_given_up_while_there_is_time_for_another():  # rule C6, failures 53
    gate, store = Gate(), Silent(MemoryStore())
    waiting = begin(line(("a", held("a", gate)), store=store, lease_ttl=3).run({}, session_id="s"))
    await gate.reached.wait()
    first = await store.read(GetHead(SessionRef("s")))
    assert first is not None
    await until(lambda: _renewed(store, first.expires))
    gate.opened.set()
    assert (await waiting).status == "done"


async def _renewed(store: Store, before: float) -> bool:
    head = await store.read(GetHead(SessionRef("s")))
    return head is not None and head.expires > before


class Unheard(FaultStore):
    """A store whose release is heard of only when the heartbeat has found the lease given up."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.losses = 0

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        renewed = await super().renew(leases)
        self.losses += any(state.lost for state in renewed)
        return renewed

    async def write(self, request: StoreRequest[T]) -> T:
        done, asked = await super().write(request), request.plain
        if isinstance(asked, Commit):
            await asyncio.sleep(0.01)  # so that the last records gather behind others
            if asked.release:
                await until(self.was_told)
        return done

    async def was_told(self) -> bool:
        return self.losses > 1  # the first one has reached the run by then


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_a_lease_that_was_given_back_is_not_lost(timed: Store, durability: Durability):  # rule C6
    run = steps(*"abc", store=Unheard(timed), durability=durability, lease_ttl=0.1).run({}, session_id="s")
    assert (await run).status == "done"


def test_a_run_whose_loop_is_gone_is_not_renewed_for_ever(real: Store):
    """A loop that was stopped and thrown away cannot say so; its lease must run out."""
    loop = asyncio.new_event_loop()
    gate = Gate()
    graph = line(("a", held("a", gate)), store=real, lease_ttl=0.2)

    async def start() -> None:
        tasks.append(begin(graph.run({}, session_id="s")))
        await gate.reached.wait()

    tasks: list[asyncio.Task[Any]] = []
    loop.run_until_complete(start())
    assert _head(real).owner
    while _head(real).owner:
        loop.run_until_complete(_cancel_all(tasks))
    loop.close()
    assert steps("a", store=real).recover_sync("s").status == "done"


async def _cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Processes


@contextlib.contextmanager
def child_of(path: Path, how: str) -> Generator[subprocess.Popen[str]]:
    """A process that stands in its second node."""
    command = [sys.executable, "-m", "tests.runner.child", str(path), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        try:
            assert said(child) == "here"
            yield child
        finally:
            child.kill()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[SQLiteStore]:
    """A file with a session whose process was killed in its second node, with a lease for a thousand seconds."""
    path = tmp_path / "s.db"
    with child_of(path, "die") as child:
        assert child.wait() == -signal.SIGKILL
    store = SQLiteStore(path)
    yield store
    asyncio.run(store.close())


def test_a_live_process_is_named_for_people(tmp_path: Path):  # rule C6
    path = tmp_path / "s.db"
    with child_of(path, "hold") as child:
        store = SQLiteStore(path)
        graph = steps("a", "b", "c", store=store)
        with pytest.raises(SessionBusy, match=rf"is being run by process {child.pid} on this machine\. Follow") as busy:
            graph.recover_sync("s")
        status = asyncio.run(graph.status("s"))
        assert status.owner == f"process {child.pid} on this machine"
        assert status.owner_id == busy.value.owner_id
        assert f"/{child.pid}/" in busy.value.owner_id
        asyncio.run(store.close())


def test_a_dead_process_is_noticed_at_once(dead: SQLiteStore):  # rule C6
    graph = steps("a", "b", "c", store=dead)
    status = asyncio.run(graph.status("s"))
    assert (status.status, status.owner, status.owner_id) == ("failed", None, None)
    assert [found.owner for found in asyncio.run(graph.sessions())] == [None]
    with pytest.raises(UnfinishedRun):
        graph.run_sync({}, session_id="s")
    assert graph.recover_sync("s").state["done"] == ["a", "b", "c"]


def test_a_dead_process_does_not_keep_a_session_from_being_abandoned(dead: SQLiteStore):
    result = steps("a", "b", "c", store=dead).run_sync({}, session_id="s", on_pending="abandon")
    assert result.state["done"] == ["a", "a", "b", "c"]


def test_a_session_of_a_dead_process_can_be_cancelled(dead: SQLiteStore):
    graph = steps("a", "b", "c", store=dead)
    assert asyncio.run(graph.cancel("s")) is True
    status = asyncio.run(graph.status("s"))
    assert (status.status, status.owner) == ("cancelled", None)


def test_a_session_of_a_dead_process_can_be_deleted(dead: SQLiteStore):
    graph = steps("a", "b", "c", store=dead)
    asyncio.run(graph.delete("s"))
    assert asyncio.run(graph.sessions()) == []


def test_a_session_of_a_dead_process_can_be_edited(dead: SQLiteStore):
    graph = steps("a", "b", "c", store=dead)
    asyncio.run(graph.edit("s", {"done": ["edited"]}))
    assert graph.recover_sync("s").state["done"] == ["a", "edited", "b", "c"]


def test_a_follower_of_a_dead_process_does_not_wait_for_its_lease(dead: SQLiteStore):
    with pytest.raises(UnfinishedRun):
        list(steps("a", "b", "c", store=dead).attach("s"))


def test_a_frozen_process_is_taken_over_and_refused_when_it_wakes(tmp_path: Path):  # rule C6, failures 26
    graph = steps("a", "b", "c", store=SQLiteStore(tmp_path / "s.db"))
    with child_of(tmp_path / "s.db", "freeze") as child:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        result = None
        while result is None:
            with contextlib.suppress(SessionBusy):  # until its lease of one second is over
                result = graph.recover_sync("s")
        assert result.state["done"] == ["a", "b", "c"]
        before = asyncio.run(graph.history("s"))
        os.kill(child.pid, signal.SIGCONT)
        assert said(child) == "Conflict"
        assert child.wait() == 0
    assert asyncio.run(graph.history("s")) == before
    asyncio.run(graph.store.close())


def test_a_run_in_another_process_can_be_followed_and_cancelled(tmp_path: Path):  # rule A12
    graph = steps("a", "b", "c", store=SQLiteStore(tmp_path / "s.db"))

    async def stop() -> list[Any]:
        assert (await graph.status("s")).status == "running"
        follower = asyncio.create_task(events_of(graph.attach("s")))
        await turns()
        assert await graph.cancel("s") is True
        return await follower

    with child_of(tmp_path / "s.db", "wait") as child:
        assert isinstance(asyncio.run(stop())[-1], Cancelled)
        assert said(child) == "cancelled"
        assert child.wait() == 0
    assert graph.recover_sync("s").state["done"] == ["a", "b", "c"]
    asyncio.run(graph.store.close())


async def test_two_sessions_of_one_store_share_a_heartbeat_and_nothing_else(timed: Store):
    gates = [Gate(), Gate()]
    graphs = [line(("a", held("a", gate)), store=timed, lease_ttl=0.3) for gate in gates]
    runs = [begin(graph.run({}, session_id=f"s{number}")) for number, graph in enumerate(graphs)]
    await asyncio.gather(*[gate.reached.wait() for gate in gates])
    assert await side_by_side(("a", step("a")), store=timed).cancel("s0") is True
    assert (await runs[0]).status == "cancelled"
    assert not runs[1].done()
    gates[1].opened.set()
    assert (await runs[1]).status == "done"


class LoopStore(FaultStore):
    """Notes on which event loop it is asked to renew."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), fail_at=0)
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.seen = threading.Event()

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        self.loops.append(asyncio.get_running_loop())
        if len(self.loops) >= 3:
            self.seen.set()
        return await super().renew(leases)


async def test_all_renewals_of_a_store_are_made_on_one_loop():  # rule C6
    class Holder:
        is_gone = False

        def hear(self, lease: Lease, state: Renewed) -> None:
            pass

        def secure(self, lease: Lease, until: float) -> None:
            pass

    store, holder = LoopStore(), Holder()
    beat = Heartbeat.of(store)
    beat.add(holder, Lease(ref=SessionRef("s"), owner="ann", fence=1, ttl=0.03))
    assert await asyncio.to_thread(store.seen.wait, 30)
    beat.remove(holder)
    assert len(set(store.loops)) == 1
    assert store.loops[0] is not asyncio.get_running_loop()
    assert Heartbeat.of(store) is beat
