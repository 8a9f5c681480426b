"""Charts: what a drawing shows, before it has a form.

It has plain edges, joins, where conditions and commands may lead, what kind of node each is, which ones pause or come
last, and the graphs inside. A node that nothing leads on from leads to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from adjourn.graph._plan import Plan
from adjourn.graph.commands import END

if TYPE_CHECKING:
    from adjourn.graph._spec import Join, NodeSpec

Shape = Literal["end", "node", "llm", "tools", "agent", "choice", "join"]
MOST_TOOLS = 4
"""So many tools are named; of more, the others are counted."""


class Node(Struct, frozen=True, kw_only=True):
    """Something with a name, and perhaps a chart inside; the id is its own within its chart."""

    id: str
    title: str
    shape: Shape = "node"
    marks: tuple[str, ...] = ()
    pauses: bool = False
    defers: bool = False
    inner: Chart | None = None


class Edge(Struct, frozen=True, kw_only=True):
    """A way from one node to another; one that is not `certain` is a condition's or a command's choice."""

    source: str
    target: str
    label: str = ""
    certain: bool = True


class Chart(Struct, frozen=True, kw_only=True):
    """Nodes, in the order in which they were added, and the ways between them."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


class Lead(NamedTuple):
    """Where a node may lead by a condition or a command; `target` is None for "anywhere"."""

    target: str | None
    label: str = ""


# What a node tells of itself


def choices(spec: NodeSpec) -> list[Lead]:
    """Where conditions and commands of a node may lead, each place once.

    A condition without a mapping may lead to any node. Edges to all of them would say nothing, so it leads to where
    the node's `destinations` are, and without those to one "anywhere".
    """
    labels: dict[str | None, list[str]] = {}
    for condition in spec.conditions:
        for key, name in (condition.mapping or {}).items():
            labels.setdefault(name, []).extend([str(key)] if str(key) != name else [])
    plain = {target.name for target in spec.targets}
    for name, label in spec.destinations.items():
        if name not in plain or label:
            labels.setdefault(name, []).extend([label] if label else [])
    if not spec.destinations and not all(condition.mapping for condition in spec.conditions):
        labels[None] = []
    return [Lead(target, ", ".join(texts)) for target, texts in labels.items()]


def ends(spec: NodeSpec) -> bool:
    """Whether nothing leads on from a node."""
    return not (spec.targets or spec.joins or spec.conditions or spec.destinations)


def marks(spec: NodeSpec) -> list[str]:
    """What a node is, and what is special about when it runs."""
    found = {
        "pauses before": spec.interrupt_before,
        "pauses after": spec.interrupt_after,
        "deferred": spec.defer,
    }
    return [*_kind(spec), *(mark for mark, holds in found.items() if holds)]


def _kind(spec: NodeSpec) -> list[str]:
    match spec.role:
        case "llm":
            return ["LLM", *tool_names(getattr(spec.call, "tools", ()))]
        case "tools":
            return tool_names(getattr(spec.call, "tools", ())) or ["tools"]
        case "agent":
            assert spec.graph is not None
            return [f"agent {spec.graph.name}" if spec.graph.name != spec.name else "agent"]
        case "":
            return []


def tool_names(tools: Iterable[Any]) -> list[str]:
    """One line that names the tools, or none if there are none."""
    names = [str(tool.name) for tool in tools]
    if len(names) > MOST_TOOLS:
        names[MOST_TOOLS:] = [f"{len(names) - MOST_TOOLS} more"]
    return [f"tools: {', '.join(names)}"] if names else []


def inside(spec: NodeSpec) -> Plan | None:
    """The graph in a node: a subgraph, or the graph that its agent is."""
    held = getattr(spec.graph, "graph", None) if spec.role == "agent" else spec.graph
    return held if isinstance(held, Plan) else None


# Charts of graphs


def chart_of(plan: Plan, *, is_inner: bool = False) -> Chart:
    """What there is to draw of a graph. Inside another one it has an end in any case: ways lead on from there."""
    specs = [plan.start, *plan.specs.values()]
    joins = list({join.id: join for spec in plan.specs.values() for join in spec.joins}.values())
    nodes = [Node(id="s", title="start", shape="end"), *map(_node, plan.specs.values())]
    nodes += [Node(id=f"q{s.order + 1}", title="?", shape="choice") for s in specs if Lead(None) in choices(s)]
    nodes += [Node(id=f"j{number}", title="all", shape="join") for number in range(len(joins))]
    edges = [edge for spec in specs for edge in _edges(plan, spec)]
    edges += [edge for number, join in enumerate(joins) for edge in _joining(plan, join, f"j{number}")]
    if is_inner or any(edge.target == "e" for edge in edges):
        nodes.append(Node(id="e", title="end", shape="end"))
    return Chart(nodes=nodes, edges=edges)


def _node(spec: NodeSpec) -> Node:
    inner = inside(spec)
    return Node(
        id=f"n{spec.order}",
        title=spec.name,
        shape=spec.role or "node",
        marks=tuple(marks(spec)),
        pauses=spec.interrupt_before or spec.interrupt_after,
        defers=spec.defer,
        inner=None if inner is None else chart_of(inner, is_inner=True),
    )


def _edges(plan: Plan, spec: NodeSpec) -> Iterator[Edge]:
    source = "s" if spec is plan.start else f"n{spec.order}"
    for target in spec.targets:
        yield Edge(source=source, target=f"n{target.order}")
    if ends(spec):
        yield Edge(source=source, target="e")
    for lead in choices(spec):
        target = f"q{spec.order + 1}" if lead.target is None else _id(plan, lead.target)
        yield Edge(source=source, target=target, label=lead.label, certain=False)


def _joining(plan: Plan, join: Join, id: str) -> Iterator[Edge]:
    for name in plan.specs:
        if name in join.sources:
            yield Edge(source=_id(plan, name), target=id)
    yield Edge(source=id, target=f"n{join.target.order}")


def _id(plan: Plan, name: str) -> str:
    return "e" if name == END else f"n{plan.specs[name].order}"
