"""A store that is away: nothing is reported that was not stored, and after it is back the session goes on.

Every write of a workload is made to fail, one after the other, in every way that a write can fail.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from adjourn import current, interrupt, once
from adjourn.errors import StoreUnavailable
from adjourn.events import Event, Failed, NodeEnd
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.runner import Options
from adjourn.stores import MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Audit, Delete, GetHead
from adjourn.testing import FakeClock, FaultStore
from tests.effort import amount
from tests.passing import AwayStore

from .programs import FINAL, Path, awaited, begin, events_of, line, step, steps

MODES: list[Any] = ["before", "after", "hang"]
DURABILITIES: list[Any] = ["step", "pause", "async"]

PATIENCE = 1.0
"""Seconds that a run waits for its store; they need not pass outside of the event loop."""

EXPECTED = ["left", "right", "inner one", "charged yes", "inner two", "end"]


class Ledger:
    """Every side effect of the workload: what was done, with which key."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def enter(self, what: str) -> None:
        self.entries.append((what, current().idempotency_key))

    def count(self, what: str) -> int:
        return sum(1 for entry, _ in self.entries if entry == what)


def workload(ledger: Ledger, **options: Any) -> CompiledGraph:
    """Siblings, a nested graph with a kept call and a question in it, and an end."""

    @once
    async def charge() -> str:
        ledger.enter("charge")
        return "charged"

    def node(name: str) -> Any:
        async def run(state: dict[str, Any]) -> dict[str, Any]:
            ledger.enter(name)
            return {"done": [name]}

        return run

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        charged = await charge()
        answer = interrupt("Go on?", key="go", schema=str)
        ledger.enter("asks")
        return {"done": [f"{charged} {answer}"]}

    given: Options = options  # pyright: ignore[reportAssignmentType]  # each test gives its own
    inner = line(("inner one", node("inner one")), ("asks", asks), ("inner two", node("inner two")), name="inner")
    graph = StateGraph(Path, name="work").add_node("left", node("left")).add_node("right", node("right"))
    graph.add_subgraph("in", inner).add_node("end", node("end"))
    graph.add_edge(START, "left").add_edge(START, "right").add_edge(["left", "right"], "in").add_edge("in", "end")
    return graph.compile(**given)


async def play(graph: CompiledGraph, told: list[Event]) -> None:
    """The whole workload: run, answer, end."""
    async for event in graph.run({}, session_id="s"):
        told.append(event)  # noqa: PERF401  # what came before an error counts
    async for event in graph.resume("s", {"go": "yes"}, by="ann"):
        told.append(event)  # noqa: PERF401


async def finish(graph: CompiledGraph, told: list[Event]) -> None:
    """Bring a session to its end, from wherever a fault has left it."""
    for _ in range(10):
        head = await graph.store.read(GetHead(SessionRef("s")))
        status = None if head is None else (await graph.status("s")).status
        match status:
            case None:
                told += await events_of(graph.run({}, session_id="s"))
            case "failed" | "cancelled":
                told += await events_of(graph.recover("s"))
            case "waiting":
                told += await events_of(graph.resume("s", {"go": "yes"}, by="ann"))
            case _:
                return
    raise AssertionError("it does not come to its end")


async def check(graph: CompiledGraph, ledger: Ledger, told: list[Event], durability: str) -> None:
    """What must hold after every fault."""
    assert (await graph.state("s"))["done"] == EXPECTED
    keys: dict[str, set[str]] = {}
    for what, key in ledger.entries:
        keys.setdefault(what, set()).add(key)
    assert all(len(used) == 1 for used in keys.values()), keys  # a repeat has the key of the first time
    assert ledger.count("asks") <= 2
    history = await graph.history("s")
    for point in history:
        await graph.state("s", checkpoint_id=point.id)  # every checkpoint can be restored
    ids = {point.id for point in history}
    assert [point.source for point in history].count("end") == 1
    assert len(ids) == len(history)
    logged = await events_of(graph.attach("s"))
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
    (decision,) = await graph.store.read(Audit(SessionRef("s")))
    assert (decision.how, decision.by) == ("answered", "ann")
    if durability != "pause":
        # What was told is what is stored, and it was told at most once.
        numbered = [event for event in told if event.seq is not None]
        assert len({event.seq for event in numbered}) == len(numbered)
        assert all(logged[(event.seq or 0) - 1] == event for event in numbered)
        for node in ("left", "right", "end"):
            assert [type(event) for event in logged if getattr(event, "node", "") == node] == [NodeEnd]


def reported_before(told: list[Event]) -> set[str]:
    return {event.node for event in told if isinstance(event, NodeEnd)}


def make_store(kind: str, path: Any, clock: FakeClock) -> Store:
    return MemoryStore(clock=clock) if kind == "memory" else SQLiteStore(path, synchronous="NORMAL", clock=clock)


@pytest.mark.parametrize(
    ("kind", "durability"), [("memory", "step"), ("memory", "pause"), ("memory", "async"), ("sqlite", "step")]
)
@pytest.mark.parametrize("mode", MODES)
async def test_a_store_that_goes_away_at_any_write_and_comes_back(  # rule C11
    mode: Any, durability: Any, kind: str, tmp_path: Any
):
    # Memory answers at once; a busy disk must not be taken for a store that is away.
    fail_at, patience = 0, 0.08 if kind == "memory" else PATIENCE
    while True:
        fail_at += 1 if kind == "memory" else amount(default=7, proof=1, long=1)
        clock, ledger, told = FakeClock(), Ledger(), list[Event]()
        inner = make_store(kind, tmp_path / f"{fail_at}.db", clock)
        faulty = AwayStore(inner, fail_at, mode, times=1000, seconds=patience)
        error: Exception | None = None
        try:
            await play(workload(ledger, store=faulty, store_timeout=patience, durability=durability), told)
        except StoreUnavailable as away:
            error = away
        assert faulty.fired == (error is not None)
        if error is None:
            assert ledger.count("charge") == ledger.count("asks") == 1
            await check(workload(ledger, store=inner), ledger, told, durability)
            await inner.close()
            break
        assert all(
            isinstance(event, Failed) == (event is told[-1])
            for event in told
            if event.seq is None and isinstance(event, FINAL)
        )
        finished = reported_before(told)
        runs = {name: ledger.count(name) for name in finished}
        clock.advance(31)  # the lease of the run that failed is over
        graph = workload(ledger, store=inner, durability=durability)
        await finish(graph, told)
        await check(graph, ledger, told, durability)
        if durability != "pause":
            assert {name: ledger.count(name) for name in finished} == runs  # what was reported did not run again
        await inner.close()
    assert fail_at > 4


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_short_absence_at_any_write_is_not_even_noticed(mode: Any, durability: Any):  # rule C11, failures 32
    store = MemoryStore()
    fail_at, fired = 0, True
    while fired:
        fail_at += 1
        ledger, told = Ledger(), list[Event]()
        faulty = FaultStore(store, fail_at, mode)
        await play(workload(ledger, store=faulty, durability=durability), told)
        await check(workload(ledger, store=store), ledger, told, durability)
        assert len(ledger.entries) == 7  # nothing ran twice
        fired = faulty.fired
        await store.write(Delete(SessionRef("s")))
    assert fail_at > 4


async def test_the_same_commit_is_tried_again_until_the_timeout(store: Store):  # rule C11
    faulty = AwayStore(store, fail_at=2, times=10_000, seconds=PATIENCE / 4)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(StoreUnavailable):
        await steps("a", store=faulty, store_timeout=PATIENCE).run({}, session_id="s")
    assert loop.time() - started >= 0.9 * PATIENCE
    assert faulty.calls > 2


async def test_a_store_that_hangs_is_given_up_after_the_timeout(store: Store):  # rule C11
    loop = asyncio.get_running_loop()
    for fail_at in (1, 2, 3):
        started = loop.time()
        faulty = FaultStore(store, fail_at=fail_at, mode="hang", times=1000)
        with pytest.raises(StoreUnavailable):
            await steps("a", "b", store=faulty, store_timeout=0.1).run({}, session_id=f"s{fail_at}")
        assert loop.time() - started < 25  # it would be 30 by default


async def test_a_store_that_is_away_at_the_start_leaves_no_trace(store: Store):  # failures 16
    ledger = Ledger()
    faulty = FaultStore(store, fail_at=1, times=1000)
    with pytest.raises(StoreUnavailable):
        await workload(ledger, store=faulty, store_timeout=0.05).run({}, session_id="s")
    assert ledger.entries == []
    assert await store.read(GetHead(SessionRef("s"))) is None


async def test_an_answer_whose_outcome_was_not_heard_is_given_once(timed: Store, clock: FakeClock):  # failures 32
    graph = workload(Ledger(), store=timed)
    await graph.run({}, session_id="s")
    ledger = Ledger()
    faulty = AwayStore(timed, fail_at=1, mode="after", times=1000, seconds=PATIENCE)
    with pytest.raises(StoreUnavailable):
        await workload(ledger, store=faulty, store_timeout=PATIENCE).resume("s", {"go": "yes"})
    assert ledger.entries == []
    assert await graph.pending("s") == []  # it counts: a crash from there on must not ask the human again
    clock.advance(31)
    result = await workload(ledger, store=timed).recover("s")
    assert result.state["done"] == EXPECTED


async def test_a_run_that_lost_its_store_can_be_cancelled_meanwhile(store: Store):
    faulty = FaultStore(store, fail_at=2, mode="hang", times=1000)
    run = steps("a", "b", store=faulty, store_timeout=0.3).run({}, session_id="s")
    waiting = begin(run)
    while faulty.calls < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await run.cancel()
    with contextlib.suppress(StoreUnavailable):
        assert (await waiting).status == "cancelled"


async def test_other_sessions_on_the_same_graph_go_on(store: Store):
    faulty = FaultStore(store, fail_at=3, times=2)
    graph = line(("a", step("a")), ("b", step("b")), store=faulty)
    runs = [begin(graph.run({}, session_id=f"s{number}")) for number in range(10)]
    results = await asyncio.gather(*runs)
    assert {tuple(result.state["done"]) for result in results} == {("a", "b")}


@pytest.mark.parametrize("mode", MODES)
async def test_looking_at_sessions_works_while_writing_does_not(store: Store, mode: Any):
    await steps("a", store=store).run({}, session_id="s")
    graph = steps("a", store=FaultStore(store, fail_at=1, mode=mode, times=1000), store_timeout=0.05)
    assert (await graph.status("s")).status == "done"
    assert len(await graph.history("s")) == 2
    with pytest.raises(StoreUnavailable):
        await awaited(graph.run({}, session_id="s"))
