"""Charts: what a drawing shows, independent of its format.

A chart has plain edges, joins, the possible targets of conditions and commands, the kind of each node, which nodes
pause or are deferred, and nested graphs. A node without any outgoing edge leads to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from adjourn.graph import _node as compiled
from adjourn.graph._node import Join, Plan
from adjourn.graph.commands import END

Shape = Literal["end", "node", "llm", "tools", "agent", "choice", "join"]


class Node(Struct, frozen=True, kw_only=True):
    """A node of a chart, possibly with a chart inside; its id is unique within its chart."""

    id: str
    title: str
    shape: Shape = "node"
    marks: tuple[str, ...] = ()
    pauses: bool = False
    defers: bool = False
    inner: Chart | None = None


class Edge(Struct, frozen=True, kw_only=True):
    """An edge from one node to another; if it is not `certain`, a condition or a command decides whether to take it."""

    source: str
    target: str
    label: str = ""
    certain: bool = True


class Chart(Struct, frozen=True, kw_only=True):
    """Nodes, in the order in which they were added, and the edges between them."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


class Lead(NamedTuple):
    """A possible target of a node's conditions or commands; `target` is None for "anywhere"."""

    target: str | None
    label: str = ""


# Describing one node


def choices(node: compiled.Node) -> list[Lead]:
    """Return the possible targets of a node's conditions and commands, each once.

    A condition without a mapping may lead to any node. Drawing edges to all of them would be noise, so it leads to
    the node's `destinations`, or to a single "anywhere" if there are none.
    """
    labels: dict[str | None, list[str]] = {}
    for condition in node.conditions:
        for key, name in (condition.mapping or {}).items():
            labels.setdefault(name, []).extend([str(key)] if str(key) != name else [])
    plain = {target.name for target in node.targets}
    for name, label in node.destinations.items():
        if name not in plain or label:
            labels.setdefault(name, []).extend([label] if label else [])
    if not node.destinations and not all(condition.mapping for condition in node.conditions):
        labels[None] = []
    return [Lead(target, ", ".join(texts)) for target, texts in labels.items()]


def ends(node: compiled.Node) -> bool:
    """Return whether a node has no outgoing edges."""
    return not (node.targets or node.joins or node.conditions or node.destinations)


def marks(node: compiled.Node) -> list[str]:
    """Return labels for the kind of a node and for anything special about when it runs."""
    found = {
        "pauses before": node.options.interrupt_before,
        "pauses after": node.options.interrupt_after,
        "deferred": node.options.defer,
    }
    return [*node.marks(), *(mark for mark, holds in found.items() if holds)]


# Charts of graphs


def chart_of(plan: Plan, *, is_inner: bool = False) -> Chart:
    """Return the chart of a graph. An inner chart always has an end, because edges of the outer graph start there."""
    starts = [plan.start, *plan.nodes.values()]
    joins = list({join.id: join for node in plan.nodes.values() for join in node.joins}.values())
    nodes = [Node(id="s", title="start", shape="end"), *map(_node, plan.nodes.values())]
    nodes += [Node(id=f"q{s.order + 1}", title="?", shape="choice") for s in starts if Lead(None) in choices(s)]
    nodes += [Node(id=f"j{number}", title="all", shape="join") for number in range(len(joins))]
    edges = [edge for node in starts for edge in _edges(plan, node)]
    edges += [edge for number, join in enumerate(joins) for edge in _joining(plan, join, f"j{number}")]
    if is_inner or any(edge.target == "e" for edge in edges):
        nodes.append(Node(id="e", title="end", shape="end"))
    return Chart(nodes=nodes, edges=edges)


def _node(node: compiled.Node) -> Node:
    inner, options = node.inner, node.options
    return Node(
        id=f"n{node.order}",
        title=node.name,
        shape=node.shape,
        marks=tuple(marks(node)),
        pauses=options.interrupt_before or options.interrupt_after,
        defers=options.defer,
        inner=None if inner is None else chart_of(inner, is_inner=True),
    )


def _edges(plan: Plan, node: compiled.Node) -> Iterator[Edge]:
    source = "s" if node is plan.start else f"n{node.order}"
    for target in node.targets:
        yield Edge(source=source, target=f"n{target.order}")
    if ends(node):
        yield Edge(source=source, target="e")
    for lead in choices(node):
        target = f"q{node.order + 1}" if lead.target is None else _id(plan, lead.target)
        yield Edge(source=source, target=target, label=lead.label, certain=False)


def _joining(plan: Plan, join: Join, id: str) -> Iterator[Edge]:
    for name in plan.nodes:
        if name in join.sources:
            yield Edge(source=_id(plan, name), target=id)
    yield Edge(source=id, target=f"n{join.target.order}")


def _id(plan: Plan, name: str) -> str:
    return "e" if name == END else f"n{plan.nodes[name].order}"
