"""Small programs that ask, for tests of pausing and resuming."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from adjourn import Run, RunResult
from adjourn.events import Event
from adjourn.graph import START, CompiledGraph, StateGraph, append

Node = Callable[[Any], Any]


class Log(TypedDict):
    """What nodes have said, in task order."""

    log: Annotated[list[Any], append]


def nothing(state: Any) -> None:
    """A node that does nothing."""


def said(state: Any) -> dict[str, Any]:
    """A node that leaves a sign."""
    return {"log": ["said"]}


def lone(node: Node, *, name: str = "g", thread: bool = True, **options: Any) -> CompiledGraph:
    """A graph of the single node "ask"."""
    return StateGraph(Log, name=name).add_node("ask", node, thread=thread).add_edge(START, "ask").compile(**options)


def chain(*nodes: Node, name: str = "g", **options: Any) -> CompiledGraph:
    """A graph of nodes one after the other, named after their functions."""
    graph = StateGraph(Log, name=name).add_sequence(*nodes)
    return graph.set_entry_point(nodes[0].__name__).compile(**options)


def together(nodes: dict[str, Node], *, name: str = "g", **options: Any) -> CompiledGraph:
    """A graph of nodes that run in one superstep."""
    graph = StateGraph(Log, name=name)
    for each, fn in nodes.items():
        graph.add_node(each, fn).add_edge(START, each)
    return graph.compile(**options)


def ids(result: RunResult) -> list[str]:
    """The ids of the open questions."""
    return [interrupt.id for interrupt in result.interrupts]


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for what becomes true in a store, where nobody is told; gives what `holds` gave at last."""
    while not (found := await holds()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    return found


async def events_of(run: Run) -> list[Event]:
    """All events of a run that does not fail."""
    return [event async for event in run]


async def events_until_error(run: Run) -> tuple[list[Event], Exception | None]:
    """All events of a run, and what it failed with."""
    events: list[Event] = []
    try:
        async for event in run:
            events.append(event)  # noqa: PERF401  # those before the error count
    except Exception as error:  # noqa: BLE001  # the test looks at it
        return events, error
    return events, None
