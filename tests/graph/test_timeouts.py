"""Timeouts: of nodes and of supersteps, for code that can be cancelled and for code that cannot."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import AdjournError, Retry, Run, current, interrupt, once
from adjourn._engine.concurrency import Threads
from adjourn.errors import NodeTimeout, RunTimeout
from adjourn.events import NodeEnd
from adjourn.graph import CompiledGraph, StateGraph, append
from adjourn.stores import Store
from tests.graph.shapes import Node, chain, giving, together
from tests.passing import pass_time

SOON = 0.02
"""For what never ends by itself."""

A_WHILE = 1.5
"""For what ends at once, or must have begun: a busy machine takes a moment. Nobody waits for it: see `pass_time`."""

LONG = 120.0


class Log(TypedDict):
    log: Annotated[list[Any], append]


def lone(node: Node, timeout: float | None = SOON, **options: Any) -> CompiledGraph:
    return StateGraph(Log, name="g").add_node("n", node, timeout=timeout).set_entry_point("n").compile(**options)


async def never(state: Any) -> None:
    await asyncio.Event().wait()


async def follow(run: Run, *, until_end_of: str) -> None:
    """Follow a run whose time is over once this node has ended."""
    async for event in run:
        if isinstance(event, NodeEnd) and event.node == until_end_of:
            await pass_time(A_WHILE)


class Gate:
    """Where a thread waits until the test lets it go on; afterwards it says how its calls went."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.ended = threading.Event()
        self.came_of_it: list[Any] = []

    def passed(self, *calls: Callable[[], Any]) -> None:
        """Wait, then make the calls and note what came of each."""
        self.reached.set()
        self.opened.wait(LONG)
        for call in calls:
            try:
                self.came_of_it.append(call())
            except BaseException as error:  # noqa: BLE001  # the test looks at it
                self.came_of_it.append(error)
        self.ended.set()

    async def pass_time_when_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, LONG)
        await pass_time(A_WHILE)

    async def open(self) -> None:
        self.opened.set()
        assert await asyncio.to_thread(self.ended.wait, LONG)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


# Code that can be cancelled


async def test_a_superstep_that_times_out_in_a_recovery_has_failed(store: Store) -> None:  # rules G11, G13
    is_broken = True

    def blocks(state: Any) -> dict[str, Any]:
        if is_broken:
            raise RuntimeError("broken")
        time.sleep(5 * SOON)  # It holds up the event loop for longer than the superstep may take.
        return {"log": ["blocks"]}

    def within(seconds: float) -> CompiledGraph:
        return together(Log, dict.fromkeys("abc", blocks), step_timeout=seconds, store=store)

    graph = within(SOON)
    with pytest.raises(RuntimeError):
        await graph.run({}, session_id="s")
    is_broken = False
    # The last one has not begun when the time is over.
    with pytest.raises(NodeTimeout, match="node:c"):
        await graph.recover("s")
    assert (await graph.status("s")).status == "failed"
    assert (await within(LONG).recover("s")).state["log"] == ["blocks"] * 3


async def test_a_node_that_takes_too_long_is_cancelled(store: Store) -> None:  # rule G13
    ended: list[str] = []

    async def slow(state: Any) -> None:
        try:
            await never(state)
        finally:
            ended.append("cleaned up")

    with pytest.raises(NodeTimeout) as caught:
        await lone(slow, store=store).run({}, session_id="s")
    assert (caught.value.address, caught.value.seconds) == ("runnable:g;node:n", SOON)
    assert ended == ["cleaned up"]
    assert (await lone(giving({"log": ["quick"]}), LONG, store=store).recover("s")).state["log"] == ["quick"]


async def test_what_the_node_started_is_cancelled_too() -> None:  # rule G13
    ended: list[str] = []

    async def left_behind() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("left behind")

    async def slow(state: Any) -> None:
        task = asyncio.ensure_future(left_behind())
        await asyncio.sleep(0)
        await asyncio.Event().wait()
        await task

    with pytest.raises(NodeTimeout):
        await lone(slow).invoke({})
    assert ended == ["left behind"]


async def test_a_timeout_of_the_nodes_own_is_its_own_error() -> None:  # rule G13
    async def own(state: Any) -> None:
        async with asyncio.timeout(0):
            await never(state)

    with pytest.raises(TimeoutError) as caught:
        await lone(own, LONG).invoke({})
    assert not isinstance(caught.value, AdjournError)


async def test_a_graph_has_a_timeout_for_all_its_nodes_that_a_node_may_change() -> None:  # rule G13
    with pytest.raises(NodeTimeout):
        await chain(Log, never, node_timeout=SOON).invoke({})

    async def breathes(state: Any) -> dict[str, Any]:
        await asyncio.sleep(2 * SOON)
        return {"log": ["done"]}

    assert (await lone(breathes, LONG, node_timeout=SOON).invoke({}))["log"] == ["done"]
    with pytest.raises(NodeTimeout):
        await lone(never, SOON, node_timeout=LONG).invoke({})


async def test_a_timeout_fails_its_task_alone(store: Store) -> None:  # rules G11, G13
    ran: list[str] = []

    def sibling(state: Any) -> dict[str, Any]:
        ran.append("sibling")
        return {"log": ["sibling"]}

    graph = together(Log, {"a": never, "b": sibling}, node_timeout=A_WHILE, store=store)
    with pytest.raises(NodeTimeout, match="node:a"):
        await follow(graph.run({}, session_id="s"), until_end_of="b")
    result = await together(Log, {"a": giving(None), "b": sibling}, store=store).recover("s")
    assert (ran, result.state["log"]) == (["sibling"], ["sibling"])


async def test_time_to_answer_is_not_the_nodes_time(store: Store) -> None:  # rule G13
    async def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    graph = lone(ask, A_WHILE, store=store)
    paused = await graph.run({}, session_id="s")
    await pass_time(1.5 * A_WHILE)
    assert (await graph.resume("s", {paused.interrupts[0].id: "late"})).state["log"] == ["late"]


async def test_a_subgraph_has_a_time_as_a_whole(store: Store) -> None:  # rules G13, G15
    def build(second: Node) -> CompiledGraph:
        inner = StateGraph(Log, name="inner").add_node("first", giving({"log": ["first"]})).add_node("second", second)
        sub = inner.add_sequence("__start__", "first", "second").compile()
        return (
            StateGraph(Log, name="g").add_node("sub", sub, timeout=A_WHILE).set_entry_point("sub").compile(store=store)
        )

    with pytest.raises(NodeTimeout, match=r"node:sub' did not end"):
        await follow(build(never).run({}, session_id="s"), until_end_of="first")
    assert (await build(giving({"log": ["second"]})).recover("s")).state["log"] == ["first", "second"]


# Supersteps


async def test_a_superstep_has_a_time_as_a_whole(store: Store) -> None:  # rule G13
    ran: list[str] = []

    def build(slow: Node) -> CompiledGraph:
        async def quick(state: Any) -> dict[str, Any]:
            ran.append("quick")
            return {"log": ["quick"]}

        return together(Log, {"a": slow, "b": quick, "c": slow}, step_timeout=A_WHILE, store=store)

    with pytest.raises(NodeTimeout, match="node:a") as caught:
        await follow(build(never).run({}, session_id="s"), until_end_of="b")
    assert "node:c" in "".join(caught.value.__notes__)

    async def late(state: Any) -> None:
        await pass_time(A_WHILE)
        await never(state)

    with pytest.raises(NodeTimeout, match="node:a"):
        await build(late).recover("s")
    assert (await build(giving({"log": ["mended"]})).recover("s")).state["log"] == ["mended", "quick", "mended"]
    assert ran == ["quick"]


async def test_the_time_of_a_superstep_holds_for_a_lone_node_and_starts_anew_for_each() -> None:  # rule G13
    with pytest.raises(NodeTimeout):
        await chain(Log, never, step_timeout=SOON).invoke({})

    async def one(state: Any) -> dict[str, Any]:
        await pass_time(0.6 * A_WHILE)
        return {"log": ["one"]}

    async def two(state: Any) -> dict[str, Any]:
        return await one(state)

    assert (await chain(Log, one, two, step_timeout=A_WHILE).invoke({}))["log"] == ["one", "one"]


async def test_a_pause_in_a_superstep_whose_time_runs_out_is_kept(store: Store) -> None:  # rules G13, I10
    asking = asyncio.Event()

    async def ask(state: Any) -> dict[str, Any]:
        asking.set()
        return {"log": [interrupt("?")]}

    async def late(state: Any) -> None:
        await asking.wait()
        await pass_time(A_WHILE)
        await never(state)

    with pytest.raises(NodeTimeout):
        await together(Log, {"a": ask, "b": late}, step_timeout=A_WHILE, store=store).run({}, session_id="s")
    graph = together(Log, {"a": ask, "b": giving({"log": ["b"]})}, store=store)
    (asked,) = await graph.pending("s")
    assert (await graph.resume("s", {asked.id: "a"})).state["log"] == ["a", "b"]


# Code that cannot be cancelled


async def test_a_thread_past_its_time_is_left_and_its_result_dropped(gate: Gate, store: Store) -> None:  # rule G13
    def slow(state: Any) -> dict[str, Any]:
        gate.passed()
        return {"log": ["late"]}

    running = asyncio.ensure_future(lone(slow, A_WHILE, store=store).run({}, session_id="s"))
    await gate.pass_time_when_reached()
    with pytest.raises(NodeTimeout):
        await running
    await gate.open()
    graph = lone(giving({"log": ["mended"]}), LONG, store=store)
    assert (await graph.state("s"))["log"] == []
    assert (await graph.recover("s")).state["log"] == ["mended"]


async def test_what_a_thread_past_its_time_calls_in_the_run_is_refused(gate: Gate, store: Store) -> None:  # rule G13
    @once
    def charge() -> str:
        return "charged"

    def write() -> None:
        current().values["key"] = "late"

    def slow(state: Any) -> None:
        gate.passed(lambda: interrupt("late?"), charge, write, lambda: current().emit("late"))

    running = asyncio.ensure_future(lone(slow, A_WHILE, store=store).run({}, session_id="s"))
    await gate.pass_time_when_reached()
    with pytest.raises(NodeTimeout):
        await running
    await gate.open()
    assert [isinstance(error, AdjournError) for error in gate.came_of_it] == [True] * 4, gate.came_of_it
    assert not await lone(slow, store=store).pending("s")


async def test_a_thread_of_an_earlier_attempt_cannot_reach_into_a_later_one(gate: Gate) -> None:  # rules G12, G13
    @once
    def charge(attempt: int) -> str:
        return f"charged by {attempt}"

    def write(attempt: int) -> None:
        current().values["who"] = attempt

    both_there = asyncio.Event()
    loop = asyncio.get_running_loop()
    second_may_end = threading.Event()

    def node(state: Any) -> dict[str, Any]:
        attempt = current().attempt
        if attempt == 1:
            gate.passed(lambda: write(1), lambda: charge(1), lambda: interrupt("from 1", key="one"))
            return {"log": ["from 1"]}
        write(2)
        loop.call_soon_threadsafe(both_there.set)
        second_may_end.wait(LONG)
        return {"log": [current().values["who"], charge(2)]}

    graph = StateGraph(Log).add_node("n", node, timeout=A_WHILE, retry=Retry(backoff=0)).set_entry_point("n").compile()
    running = asyncio.ensure_future(graph.invoke({}))
    await gate.pass_time_when_reached()
    await both_there.wait()
    await gate.open()
    second_may_end.set()
    assert (await running)["log"] == [2, "charged by 2"]
    assert [isinstance(error, AdjournError) for error in gate.came_of_it] == [True] * 3, gate.came_of_it


async def test_a_call_that_hangs_keeps_its_slot_in_the_pool(gate: Gate) -> None:  # rule G13
    pool = Threads(limit=1)
    hanging = asyncio.ensure_future(pool.run(gate.passed))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    waiting = asyncio.ensure_future(pool.run(lambda: "ran"))
    done, _ = await asyncio.wait([waiting], timeout=SOON)
    assert not done
    await gate.open()
    assert await waiting == "ran"


async def test_calls_wait_for_a_free_thread() -> None:  # rule G13
    pool = Threads(limit=3)
    running, most, lock = 0, 0, threading.Lock()

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return threading.get_ident()

    threads = await asyncio.gather(*(pool.run(work) for _ in range(50)))
    assert most <= 3
    assert len(set(threads)) <= 3


# Of a whole run


def working(*nodes: Node, seconds: float = SOON, **options: Any) -> CompiledGraph:
    return chain(Log, *nodes, run_timeout=seconds, **options)


def first(state: Any) -> dict[str, Any]:
    return {"log": ["first"]}


def last_of_all(state: Any) -> dict[str, Any]:
    return {"log": ["last"]}


async def test_a_run_that_takes_too_long_fails_and_goes_on_later(store: Store) -> None:  # rule G20
    with pytest.raises(RunTimeout, match=r"Graph 'g' did not end or pause within 0\.02 s") as caught:
        await working(first, never, store=store).run({}, session_id="s")
    assert (caught.value.graph, caught.value.seconds) == ("g", SOON)

    async def mended(state: Any) -> dict[str, Any]:
        return {"log": ["mended"]}

    mended.__name__ = "never"
    state = (await working(first, mended, seconds=LONG, store=store).recover("s")).state
    assert state["log"] == ["first", "mended"]


async def test_waiting_for_people_does_not_count(store: Store) -> None:  # rule G20
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?", key="q")]}

    graph = working(ask, last_of_all, seconds=A_WHILE, store=store)
    await graph.run({}, session_id="s")
    await asyncio.sleep(0)
    assert (await graph.resume("s", {"q": "yes"})).state["log"] == ["yes", "last"]


async def test_a_loop_that_never_waits_runs_out_of_time_too() -> None:  # rules G20, G17
    graph = StateGraph(Log, name="g").add_node("n", giving({}), thread=False).add_edge("n", "n").set_entry_point("n")
    with pytest.raises(RunTimeout):
        await graph.compile(run_timeout=SOON, max_steps=10**9).run({})


async def test_a_nested_graph_has_a_limit_of_its_own(store: Store) -> None:  # rule G20
    graph = StateGraph(Log, name="outer").add_subgraph("sub", working(first, never)).set_entry_point("sub")
    with pytest.raises(RunTimeout, match="Graph 'g'"):
        await graph.compile(store=store).run({}, session_id="s")


async def test_a_timeout_of_the_node_itself_is_not_that_of_the_run() -> None:  # rule G20
    async def node(state: Any) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await working(node, seconds=LONG).run({})


async def test_a_thread_past_the_limit_is_left_behind(store: Store) -> None:  # rules G20, G13
    opened = threading.Event()

    def node(state: Any) -> None:
        opened.wait(LONG)

    graph = StateGraph(Log, name="g").add_node("n", node).set_entry_point("n").compile(run_timeout=SOON, store=store)
    with pytest.raises(RunTimeout):
        await graph.run({}, session_id="s")
    opened.set()


def test_the_limit_is_a_number_of_seconds() -> None:
    with pytest.raises(AdjournError, match="run_timeout=0: give seconds above zero"):
        working(first, seconds=0)
