"""Cancel: in its modes, from near and far; what finished is kept, and the rest can be recovered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from adjourn import (
    ChatModelAgent,
    CheckpointNotFound,
    Retry,
    Run,
    Runner,
    ToolCall,
    UsageError,
    current,
    interrupt,
    once,
    tool,
    workflow,
)
from adjourn.events import Cancelled
from adjourn.graph import START, StateGraph
from adjourn.stores import MemoryStore, Store
from adjourn.stores.kit import Load, StoreQuery, StoreRequest
from adjourn.testing import FaultStore, ScriptedModel

from .programs import (
    FINAL,
    Gate,
    Path,
    asking,
    begin,
    events_of,
    held,
    line,
    side_by_side,
    step,
    steps,
    turns,
)

T = TypeVar("T")
MODES: list[Any] = ["now", "after_model", "after_tools", "after_step"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_run_ends_in_one_event_and_can_be_recovered(store: Store, mode: Any):  # rule A12
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    reading = asyncio.create_task(events_of(run))
    await gate.reached.wait()
    cancelling = asyncio.create_task(run.cancel(mode))
    await turns()
    gate.opened.set()
    await cancelling
    events = await reading
    assert [event for event in events if isinstance(event, FINAL)] == [events[-1]]
    assert isinstance(events[-1], Cancelled)
    assert events[-1].mode == mode
    result = await run
    assert (result.status, result.interrupts) == ("cancelled", ())
    assert result.state["done"] == (["a"] if mode == "now" else ["a", "b"])
    status = await graph.status("s")
    assert (status.status, status.owner, status.checkpoint_id) == ("cancelled", None, result.checkpoint_id)
    assert (await graph.history("s"))[0].source == "cancel"
    assert (await graph.recover("s")).state["done"] == ["a", "b", "c"]


async def test_a_mode_that_does_not_exist_is_refused(store: Store):
    graph = steps("a", store=store)
    with pytest.raises(UsageError, match="after_step"):
        await graph.cancel("s", "soon")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="after_step"):
        await graph.run({}).cancel("soon")  # pyright: ignore[reportArgumentType]


async def test_a_mild_cancel_becomes_a_hard_one_after_its_timeout(store: Store):  # rule A12
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel("after_step", timeout=0.01)  # the gate stays closed
    assert (await waiting).status == "cancelled"
    assert (await graph.state("s"))["done"] == ["a"]


async def test_finished_siblings_are_kept(store: Store):  # rule A12
    gate, ran = Gate(), list[str]()

    async def quick(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append("quick")
        return {"done": ["quick"]}

    graph = side_by_side(("quick", quick), ("slow", held("slow", gate)), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await turns()
    await run.cancel()
    await waiting
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["quick", "slow", "end"]
    assert ran == ["quick"]


async def test_a_finished_once_call_is_kept(store: Store):  # rule A12
    gate, charged = Gate(), list[int]()

    @once
    async def charge() -> int:
        charged.append(1)
        return 1

    async def pays(state: Mapping[str, Any]) -> dict[str, Any]:
        await charge()
        await gate.wait()
        return {"done": ["paid"]}

    graph = line(("pay", pays), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel()
    await waiting
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["paid"]
    assert charged == [1]


async def test_open_questions_stay_open(store: Store):  # rule A12
    gate = Gate()

    async def asks(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"done": [interrupt("Well?", key="well")]}

    graph = side_by_side(("asks", asks), ("slow", held("slow", gate)), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await turns()
    await run.cancel()
    assert [asked.key for asked in (await waiting).interrupts] == ["well"]
    assert [asked.key for asked in await graph.pending("s")] == ["well"]
    gate.opened.set()
    result = await graph.resume("s", {"well": "yes"})  # a mapping also goes on with what was cut off
    assert result.state["done"] == ["yes", "slow", "end"]


async def test_cancelling_a_session_that_waits_leaves_its_questions_open(store: Store):  # rule A12
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    assert await graph.cancel("s") is True
    assert (await graph.status("s")).status == "cancelled"
    assert [asked.key for asked in await graph.pending("s")] == ["go"]
    assert (await graph.recover("s")).status == "interrupted"
    assert (await graph.resume("s", {"go": 1})).status == "done"


async def test_a_cancelled_session_that_waited_can_be_answered_at_once(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.cancel("s")
    assert (await graph.resume("s", {"go": 1})).status == "done"


async def test_cancelling_what_has_ended_does_nothing(store: Store):
    graph = steps("a", store=store)
    run = graph.run({}, session_id="s")
    await run
    await run.cancel()
    assert await graph.cancel("s") is False
    assert (await graph.status("s")).status == "done"
    with pytest.raises(CheckpointNotFound):
        await graph.cancel("nobody")


async def test_cancelling_twice_is_like_once(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await asyncio.gather(run.cancel(), run.cancel("after_step"), run.cancel())
    assert (await waiting).status == "cancelled"
    assert await graph.cancel("s") is False


async def test_cancel_reaches_nested_graphs_and_what_they_finished_is_kept(store: Store):  # rule A12
    gate, ran = Gate(), list[str]()

    async def first(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append("first")
        return {"done": ["first"]}

    inner = line(("first", first), ("second", held("second", gate)), name="inner")
    outer = StateGraph(Path, name="outer").add_subgraph("in", inner).add_edge(START, "in").compile(store=store)
    run = outer.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel()
    await waiting
    gate.opened.set()
    assert (await outer.recover("s")).state["done"] == ["first", "second"]
    assert ran == ["first"]


async def test_cancel_reaches_children_of_a_workflow(store: Store):  # rule A12
    gate = Gate()
    child = line(("a", step("a")), ("b", held("b", gate)), name="child")

    @workflow
    async def parent(_: Any) -> Any:
        return (await current().run(child, {}))["done"]

    runner = Runner(parent, store=store)
    run = runner.run(None, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel()
    assert (await waiting).status == "cancelled"
    gate.opened.set()
    assert (await runner.recover("s")).value == ["a", "b"]


async def test_a_mild_cancel_stops_a_workflow_between_its_kept_calls(store: Store):  # rule A12
    gate, ran = Gate(), list[str]()

    @once
    async def work(name: str) -> str:
        ran.append(name)
        if name == "a":
            await gate.wait()
        return name

    @workflow
    async def works(_: Any) -> list[str]:
        return [await work("a"), await work("b")]

    runner = Runner(works, store=store)
    run = runner.run(None, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    cancelling = asyncio.create_task(run.cancel("after_step"))
    await turns()
    gate.opened.set()
    await cancelling
    assert (await waiting).status == "cancelled"
    assert ran == ["a"]
    assert (await runner.recover("s")).value == ["a", "b"]
    assert ran == ["a", "b"]


async def test_tasks_that_wait_for_a_slot_do_not_start_after_a_cancel(store: Store):  # rule A12
    gates = {name: Gate() for name in "abc"}
    nodes = [(name, held(name, gate)) for name, gate in gates.items()]
    graph = side_by_side(*nodes, store=store, max_concurrency=1)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gates["a"].reached.wait()
    await run.cancel()
    assert (await waiting).status == "cancelled"
    assert not gates["b"].reached.is_set()
    assert not gates["c"].reached.is_set()


async def test_a_sync_node_in_a_thread_is_left_behind_and_cannot_write(store: Store):
    started, opened, outcome = threading.Event(), threading.Event(), list[Any]()

    def blocks(state: Mapping[str, Any]) -> dict[str, Any]:
        started.set()
        opened.wait(120)
        try:
            interrupt("Too late?")
        except BaseException as error:
            outcome.append(error)
            raise
        finally:
            finished.set()
        return {"done": ["late"]}

    finished = threading.Event()
    graph = line(("a", blocks), thread=True, store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await asyncio.to_thread(started.wait, 10)
    await run.cancel()
    assert (await waiting).status == "cancelled"
    opened.set()
    await asyncio.to_thread(finished.wait, 10)
    assert isinstance(outcome[0], Exception)  # its call into the run was refused
    assert await graph.pending("s") == []
    assert (await graph.state("s")).get("done", []) == []


async def test_code_that_swallows_the_cancel_keeps_its_result_and_nothing_more_starts(store: Store):
    gate = Gate()

    async def stubborn(state: Mapping[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
        return {"done": ["stubborn"]}

    graph = line(("a", stubborn), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel()
    result = await waiting
    assert (result.status, result.state["done"]) == ("cancelled", ["stubborn"])
    assert (await graph.recover("s")).state["done"] == ["stubborn", "b"]


async def test_cancel_during_a_retry_does_not_wait_for_the_delay(store: Store):
    failed = asyncio.Event()

    async def flaky(state: Mapping[str, Any]) -> None:
        failed.set()
        raise ConnectionError

    graph = StateGraph(Path, name="flaky").add_node("a", flaky, retry=Retry(attempts=3, backoff=lambda _: 3600.0))
    compiled = graph.add_edge(START, "a").compile(store=store)
    run = compiled.run({}, session_id="s")
    waiting = begin(run)
    await failed.wait()
    await run.cancel()
    assert (await waiting).status == "cancelled"


# From elsewhere


@pytest.mark.parametrize("mode", MODES)
async def test_another_runner_on_the_same_store_can_cancel(timed: Store, mode: Any):  # rule A12
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=timed, lease_ttl=0.3)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    other = steps("a", "b", "c", store=timed)
    assert await other.cancel("s", mode) is True
    if mode != "now":
        gate.opened.set()
    result = await waiting
    assert (result.status, result.state["done"]) == ("cancelled", ["a"] if mode == "now" else ["a", "b"])
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["a", "b", "c"]


async def test_a_cancel_from_elsewhere_does_not_wait_for_the_lease_to_be_renewed(store: Store):  # rule A12
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store, lease_ttl=3600)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    assert await steps("a", "b", "c", store=store).cancel("s", "now") is True
    assert (await waiting).status == "cancelled"  # The lease is renewed after twenty minutes; this test has one.
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["a", "b", "c"]


async def test_the_same_runner_can_cancel_by_session(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    assert await graph.cancel("s") is True
    assert (await waiting).status == "cancelled"


async def test_a_cancel_can_come_from_another_thread(store: Store):  # rule A14
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    assert await asyncio.to_thread(lambda: asyncio.run(graph.cancel("s"))) is True
    assert (await waiting).status == "cancelled"


async def test_a_cancel_of_one_turn_does_not_reach_the_next(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.cancel("s")
    assert (await graph.recover("s")).status == "interrupted"
    assert (await graph.resume("s", {"go": 1})).status == "done"
    assert (await graph.run({}, session_id="s")).status == "interrupted"


async def test_a_hard_cancel_from_elsewhere_cuts_all_tasks_at_once(store: Store):
    """It may be noticed with a commit of one task while another is in the middle of its code."""
    gates = [Gate(), Gate()]
    graph = side_by_side(("a", held("a", gates[0])), ("b", held("b", gates[1])), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await asyncio.gather(*[gate.reached.wait() for gate in gates])
    assert await Runner(graph, store=store).cancel("s") is True
    gates[0].opened.set()  # its end is committed, and the commit tells of the cancel
    async with asyncio.timeout(5):
        assert (await waiting).status == "cancelled"
    assert gates[1].passed == 0


# When the loop ends around a run


def test_a_run_whose_loop_is_closed_can_be_recovered_at_once(tmp_path: Any):
    graph = steps("a", "b", store=f"sqlite:///{tmp_path}/s.db")

    async def leave_it() -> None:
        gate = Gate()
        run = line(("a", step("a")), ("b", held("b", gate)), store=graph.store).run({}, session_id="s")
        run.detach()
        running = begin(run)
        await gate.reached.wait()
        del running

    asyncio.run(leave_it())
    status = asyncio.run(graph.status("s"))
    assert (status.status, status.owner) == ("cancelled", None)
    assert graph.recover_sync("s").state["done"] == ["a", "b"]


async def timed_out_at(gate: Gate, run: Run) -> None:
    """Await a run until it has come to its gate: a limit in seconds might end before, on a busy machine."""
    async with asyncio.timeout(None) as limit:
        ending = asyncio.create_task(_end_at(gate, limit))
        try:
            await run
        finally:
            await ending


async def _end_at(gate: Gate, limit: asyncio.Timeout) -> None:
    await gate.reached.wait()
    limit.reschedule(0)


async def test_a_timeout_around_a_run_leaves_a_recoverable_session(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    with pytest.raises(TimeoutError):
        await timed_out_at(gate, graph.run({}, session_id="s"))
    status = await graph.status("s")
    assert (status.status, status.owner) == ("cancelled", None)


# While the run is being opened


class Slow(FaultStore):
    """A store whose loads, or whose claims, are held up until the test lets them through."""

    def __init__(self, inner: Store, what: str) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.what = what
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def _hold(self, what: str) -> None:
        if self.what == what:
            self.reached.set()
            await self.opened.wait()

    async def read(self, query: StoreQuery[T]) -> T:
        asked: object = query
        if isinstance(asked, Load):
            await self._hold("load")
        return await super().read(query)

    async def write(self, request: StoreRequest[T]) -> T:
        await self._hold("write")
        return await super().write(request)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["load", "write"])
async def test_a_run_is_cancelled_while_it_is_being_opened(store: Store, what: str, mode: Any):  # rule A12
    ran: list[str] = []

    async def notes(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append("a")
        return {"done": ["a"]}

    slow = Slow(store, what)
    run = line(("a", notes), store=slow).run({}, session_id="s")
    waiting = begin(run)
    await slow.reached.wait()
    cancelling = asyncio.create_task(run.cancel(mode))
    await turns()
    slow.opened.set()
    await cancelling
    assert (await waiting).status == "cancelled"
    assert ran == []
    assert (await line(("a", notes), store=store).recover("s")).state["done"] == ["a"]


async def test_a_resume_is_cancelled_while_it_is_being_opened(store: Store):  # rules A12, R4
    await asking(store=store).run({}, session_id="s")
    slow = Slow(store, "write")
    run = asking(store=slow).resume("s", {"go": "yes"})
    reading = asyncio.create_task(events_of(run))
    await slow.reached.wait()
    cancelling = asyncio.create_task(run.cancel())
    await turns()
    slow.opened.set()
    await cancelling
    assert isinstance((await reading)[-1], Cancelled)
    assert (await asking(store=store).recover("s")).state["answer"] == "yes"  # the answer stands


async def test_a_workflow_is_cancelled_while_it_is_being_opened(store: Store):  # rule A12
    ran: list[str] = []

    @workflow
    async def notes(name: str) -> str:
        ran.append(name)
        return name

    slow = Slow(store, "write")
    run = Runner(notes, store=slow).run("x", session_id="s")
    waiting = begin(run)
    await slow.reached.wait()
    cancelling = asyncio.create_task(run.cancel())
    await turns()
    slow.opened.set()
    await cancelling
    assert (await waiting).status == "cancelled"
    assert ran == []


async def test_cancelling_a_run_that_cannot_be_opened_does_nothing(store: Store):
    slow = Slow(store, "load")
    run = steps("a", store=slow).resume("s", {"go": "yes"})
    waiting = begin(run)
    await slow.reached.wait()
    cancelling = asyncio.create_task(run.cancel())
    await turns()
    slow.opened.set()
    await cancelling
    with pytest.raises(CheckpointNotFound):
        await waiting


async def test_a_run_that_was_cancelled_before_its_task_began_does_not_run(store: Store):  # rule A12
    ran: list[str] = []

    async def notes(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append("a")
        return {"done": ["a"]}

    run = line(("a", notes), store=store).run({}, session_id="s")
    waiting = begin(run)  # the event loop has not come to it yet
    await run.cancel()
    assert (await waiting).status == "cancelled"
    assert ran == []


async def test_a_loop_can_be_closed_at_any_moment() -> None:  # rule A12
    @tool
    async def note() -> str:
        """Note."""
        await asyncio.sleep(0)
        return "noted"

    async def go(made: Runner) -> None:
        await made.run("go", session_id="s")

    turn = 0
    for turn in itertools.count(1):
        calls = [ToolCall(id=f"c{n}", name="note", arguments={}) for n in range(2)]
        made = Runner(ChatModelAgent("A", model=ScriptedModel([calls, "done"]), tools=[note]), store=MemoryStore())
        before = asyncio.all_tasks()
        run = asyncio.create_task(go(made))
        for _ in range(turn):
            await asyncio.sleep(0)
        if run.done():
            break
        # As `asyncio.run` does at its end, which waits for all of them.
        tasks = asyncio.all_tasks() - before
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=5)
        assert (turn, left) == (turn, set())
    assert turn > 5
