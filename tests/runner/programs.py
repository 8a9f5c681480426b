"""Small graphs and workflows that the tests of the runner run, and gates that hold them at a chosen point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, Unpack

from adjourn import Interrupt, Run, RunResult, interrupt
from adjourn.events import Cancelled, Done, Event, Failed, Interrupted
from adjourn.graph import END, START, CompiledGraph, StateGraph, append
from adjourn.runner import Options

FINAL = (Cancelled, Done, Failed, Interrupted)


class Path(TypedDict):
    """The state of most graphs here: where it has been, and what people said."""

    done: Annotated[list[str], append]
    answer: Any


Node = Callable[[Any], Any]


class Gate:
    """A point in user code where it waits until the test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.passed = 0

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()
        self.passed += 1


def step(name: str) -> Node:
    """A node that notes that it ran."""

    async def run(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"done": [name]}

    return run


def held(name: str, gate: Gate) -> Node:
    """A node that notes that it ran, after its gate was opened."""

    async def run(state: Mapping[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return {"done": [name]}

    return run


def ask(state: Mapping[str, Any]) -> dict[str, Any]:
    """A node that asks and notes the answer."""
    answer = interrupt("Go on?", key="go")
    return {"answer": answer, "done": ["ask"]}


def line(
    *nodes: tuple[str, Node], name: str = "line", thread: bool = False, **options: Unpack[Options]
) -> CompiledGraph:
    """A graph of nodes in line."""
    graph = StateGraph(Path, name=name)
    before = START
    for node, run in nodes:
        graph.add_node(node, run, thread=thread).add_edge(before, node)
        before = node
    return graph.add_edge(before, END).compile(**options)


def steps(*names: str, name: str = "line", **options: Unpack[Options]) -> CompiledGraph:
    """A graph of nodes in line that note their names."""
    return line(*[(node, step(node)) for node in names], name=name, **options)


def asking(**options: Unpack[Options]) -> CompiledGraph:
    """A graph that does something, asks, and does something more."""
    return line(("before", step("before")), ("ask", ask), ("after", step("after")), name="asking", **options)


def side_by_side(*nodes: tuple[str, Node], name: str = "wide", **options: Unpack[Options]) -> CompiledGraph:
    """A graph that runs its nodes in one superstep, then one called `end`."""
    graph = StateGraph(Path, name=name)
    for node, run in nodes:
        graph.add_node(node, run, thread=False).add_edge(START, node)
    graph.add_node("end", step("end"), thread=False)
    return graph.add_edge([node for node, _ in nodes], "end").compile(**options)


async def turns(count: int = 5) -> None:
    """Give the event loop a few turns, as it needs to close what a loop left behind."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(happened: Callable[[], Awaitable[object]]) -> None:
    """Give the event loop turns until something has happened that sends no signal; pytest's timeout ends it else."""
    while not await happened():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def awaited(run: Run) -> RunResult:
    return await run


def begin(run: Run) -> asyncio.Task[RunResult]:
    """Start a run in a task of its own."""
    return asyncio.create_task(awaited(run))


async def events_of(run: Run) -> list[Event]:
    """All events of a run that does not fail."""
    return [event async for event in run]


async def events_until_failure(run: Run) -> tuple[list[Event], Exception]:
    """All events of a run that fails, and its error."""
    events: list[Event] = []
    try:
        async for event in run:
            events.append(event)  # noqa: PERF401  # what came before the error counts
    except Exception as error:  # noqa: BLE001  # it is what the test looks at
        return events, error
    raise AssertionError(f"it did not fail: {events}")


def kinds(events: Sequence[Event]) -> list[str]:
    """What events are, in words."""
    return [type(event).__name__ for event in events]


def ids(interrupts: Sequence[Interrupt]) -> list[str]:
    return [interrupt.id for interrupt in interrupts]
