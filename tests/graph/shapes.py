"""Graphs of the shapes that most tests need."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adjourn import Run
from adjourn.events import Event, NodeEnd, NodeStart
from adjourn.graph import START, CompiledGraph, StateGraph

Node = Callable[..., Any]


def chain(schema: Any, *nodes: Node, name: str = "g", **options: Any) -> CompiledGraph:
    """Nodes one after the other, named after their functions; sync ones run on the loop."""
    graph = StateGraph(schema, name=name)
    for node in nodes:
        graph.add_node(node.__name__, node, thread=False)
    return graph.add_sequence(START, *(node.__name__ for node in nodes)).compile(**options)


def together(
    schema: Any, nodes: Mapping[str, Any], *, then: Node | None = None, name: str = "g", **options: Any
) -> CompiledGraph:
    """Nodes in one superstep, and then perhaps one that follows on all of them."""
    graph = StateGraph(schema, name=name)
    for each, fn in nodes.items():
        graph.add_node(each, fn, thread=False).add_edge(START, each)
    if then is not None:
        graph.add_node("then", then, thread=False).add_edge(list(nodes), "then")
    return graph.compile(**options)


def giving(update: Any) -> Node:
    """A node that returns this."""

    def give(state: Any) -> Any:
        return update

    return give


def failing(error: Exception) -> Node:
    """A node that raises this."""

    def node(state: Any) -> None:
        raise error

    return node


async def events_of(run: Run) -> list[Event]:
    """All events of a run that does not fail."""
    return [event async for event in run]


def names(events: Iterable[Event], kind: type[NodeStart] | type[NodeEnd]) -> list[str]:
    """The nodes that events of one kind are about."""
    return [event.node for event in events if isinstance(event, kind)]
