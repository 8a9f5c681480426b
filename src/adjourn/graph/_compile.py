"""Compiling: finding every problem of a graph, then linking its nodes to one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import msgspec

from adjourn._engine.address import segment_text
from adjourn.errors import GraphError

from ._node import Condition, Join, Node, Plan
from ._options import NodeSettings
from .commands import END, START
from .nodes.function import adapt, is_async

RESERVED = (START, END)


class EdgeDraft(msgspec.Struct, kw_only=True):
    """An edge as it was added; several sources make it a join."""

    sources: tuple[str, ...]
    target: str

    @property
    def is_join(self) -> bool:
        """Whether it leads from several nodes; the same one given twice is one."""
        return len(set(self.sources)) > 1


class ConditionDraft(msgspec.Struct, kw_only=True):
    """A conditional edge as it was added."""

    source: str
    fn: Any
    mapping: Mapping[Any, str] | Sequence[str] | None = None
    given_name: str | None = None

    @property
    def name(self) -> str:
        """The name that was given, or that of the function."""
        if self.given_name is not None:
            return self.given_name
        fn = self.fn
        while isinstance(fn, partial):
            fn = cast("Any", fn).func  # Any: users pass anything
        return getattr(fn, "__name__", None) or type(fn).__name__


class Draft:
    """A graph under construction: its nodes, not yet placed, and the edges between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.edges: list[EdgeDraft] = []
        self.conditions: list[ConditionDraft] = []


class Breakpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes before and after which every run pauses."""

    before: frozenset[str]
    after: frozenset[str]


def compile_plan(draft: Draft, plan: Plan, defaults: NodeSettings, breakpoints: Breakpoints, *, strict: bool) -> None:
    """Fill `plan` from the draft; `defaults` count for nodes that have no such option of their own.

    Raises:
        GraphError: listing every problem.
    """
    problems = [
        *plan.schema.problems,
        *_node_problems(draft),
        *(problem for node in draft.nodes for problem in _problems_of(node, plan)),
        *_edge_problems(draft),
        *_interrupt_problems(draft, breakpoints.before | breakpoints.after),
        *(_reach_problems(draft) if strict else ()),
    ]
    if problems:
        raise GraphError(draft.name, problems)
    _link(draft, plan, defaults, breakpoints)


def _node_problems(draft: Draft) -> Iterable[str]:
    if not draft.nodes:
        yield "it has no nodes: add one with add_node(name, function)"
    for name, times in Counter(node.name for node in draft.nodes).items():
        if not name:
            yield "a node has no name: add_node('name', function)"
        if name in RESERVED:
            yield f"node name '{name}' is reserved"
        if not _is_text(name):
            yield f"node name {name!r} has characters that cannot be stored"
        if times > 1:
            yield f"node '{name}' is added {times} times"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problems_of(node: Node, plan: Plan) -> Iterable[str]:
    yield from node.options.problems(node.name)
    yield from node.problems(plan.schema)


def _edge_problems(draft: Draft) -> Iterable[str]:
    names = {node.name for node in draft.nodes}
    sources = names | {START}
    targets = names | {END}
    for edge in draft.edges:
        yield from _end_problems(edge, sources, targets)
    for condition in draft.conditions:
        yield from _condition_problems(condition, sources, targets)
    yield from _condition_name_problems(draft.conditions)
    for node in draft.nodes:
        yield from node.options.lead_problems(node.name, targets)
    if (
        draft.nodes
        and not any(START in edge.sources for edge in draft.edges)
        and not any(c.source == START for c in draft.conditions)
    ):
        yield "it has no entry point: add_edge(START, name) or set_entry_point(name)"


def _end_problems(edge: EdgeDraft, sources: set[str], targets: set[str]) -> Iterable[str]:
    """Yield the problems of what an edge leads from and to; users pass anything."""
    if not edge.sources:
        yield f"an edge to '{edge.target}' has no sources"
    for source in edge.sources:
        if is_listing(source):
            yield f"an edge to '{edge.target}' has a list among its sources, {source!r}: give one list of names"
        elif source not in sources:
            yield f"an edge leads from the unknown node '{source}' to '{edge.target}'"
    leads = f"an edge leads from '{', '.join(map(str, edge.sources))}'"
    if is_listing(edge.target):
        yield f"{leads} to several nodes, {edge.target!r}: add one edge for each target"
    elif edge.target not in targets:
        yield f"{leads} to the unknown node '{edge.target}'"
    if START in edge.sources and any(source != START for source in edge.sources):
        yield f"the join into '{edge.target}' has START among its sources"


def is_listing(given: object) -> bool:
    """Return whether this can hold several names; a string is one name, even though it is iterable."""
    return isinstance(given, Iterable) and not isinstance(given, str)


def _is_name(given: object) -> bool:
    return isinstance(given, str)


def _condition_problems(condition: ConditionDraft, sources: set[str], targets: set[str]) -> Iterable[str]:
    if is_listing(condition.source):
        yield f"a condition leads from several nodes, {condition.source!r}: add it to each of them"
    elif condition.source not in sources:
        yield f"a conditional edge leads from the unknown node '{condition.source}'"
    if not callable(condition.fn):
        yield f"the condition of '{condition.source}' is not a function: {condition.fn!r}"
    else:
        try:
            adapt(condition.fn)
        except TypeError as error:
            yield f"the condition of '{condition.source}' cannot be called: {error}"
    if condition.mapping is not None and not is_listing(condition.mapping):
        yield f"the mapping of the condition of '{condition.source}' is {condition.mapping!r}: give a dict or a list"
    for name in mapped(condition.mapping).values():
        if not _is_name(name) or name not in targets:
            yield f"a conditional edge of '{condition.source}' leads to the unknown node '{name}'"


def _condition_name_problems(conditions: list[ConditionDraft]) -> Iterable[str]:
    counts = Counter((str(condition.source), str(condition.name)) for condition in conditions)
    for condition in conditions:
        name = condition.given_name
        if name is not None and (not _is_name(name) or not name or not _is_text(name)):
            yield f"a condition of '{condition.source}' has the name {name!r}: give a string that is not empty"
        elif name is not None and counts[str(condition.source), name] > 1:
            yield f"'{condition.source}' has several conditions named '{name}': give each its own name"


def mapped(mapping: Mapping[Any, str] | Sequence[str] | None) -> dict[Any, str]:
    """Return a condition's mapping; a list of names maps each name to itself."""
    if mapping is None or not is_listing(mapping):
        return {}
    return dict(mapping) if isinstance(mapping, Mapping) else {name: name for name in mapping}


def _interrupt_problems(draft: Draft, names: frozenset[str]) -> Iterable[str]:
    known = {node.name for node in draft.nodes}
    for name in sorted(names - known):
        yield f"interrupt_before or interrupt_after names the unknown node '{name}'"


def _reach_problems(draft: Draft) -> Iterable[str]:
    names = {node.name for node in draft.nodes}
    leads: dict[str, set[str]] = {name: set() for name in (*names, START)}
    for edge in draft.edges:
        for source in filter(_is_name, edge.sources):
            leads.setdefault(source, set()).update(filter(_is_name, [edge.target]))
    for condition in draft.conditions:
        targets = mapped(condition.mapping).values() if condition.mapping else names
        leads.setdefault(str(condition.source), set()).update(filter(_is_name, targets))
    for node in draft.nodes:
        leads[node.name].update(_leads(node))
    reached, todo = {START}, [START]
    while todo:
        new = leads.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    for name in sorted(names - reached):
        yield f"no path leads to node '{name}' (strict=True)"


def _leads(node: Node) -> Iterable[str]:
    """Return where commands of a node may go; with a problem in its options, nothing is known."""
    try:
        return filter(_is_name, node.options.leads)
    except (TypeError, ValueError, AttributeError):
        return ()


def _link(draft: Draft, plan: Plan, defaults: NodeSettings, breakpoints: Breakpoints) -> None:
    for order, node in enumerate(draft.nodes):
        before, after = node.name in breakpoints.before, node.name in breakpoints.after
        plan.nodes[node.name] = node.placed(order, node.options.placed(defaults, before=before, after=after))
    nodes = {**plan.nodes, START: plan.start}
    for edge in draft.edges:
        if edge.target == END:
            continue
        target = plan.nodes[edge.target]
        if edge.is_join:
            _link_join(plan, [nodes[source] for source in sorted(set(edge.sources))], target)
        else:
            source = nodes[edge.sources[0]]
            if target not in source.targets:
                source.targets += (target,)
    for condition in draft.conditions:
        _link_condition(plan, nodes[condition.source], condition)
    options = [node.options for node in plan.nodes.values()]
    plan.has_breakpoints = any(each.interrupt_before or each.interrupt_after for each in options)
    plan.defers = any(each.defer for each in options)


def _link_join(plan: Plan, sources: list[Node], target: Node) -> None:
    # Arrivals are stored under this name, so it must not change when edges are added elsewhere in the graph.
    name = ";".join(source.segment for source in sources) + ">" + target.segment
    if name in plan.joins:
        return  # Added twice.
    join = plan.joins[name] = Join(name, frozenset(source.name for source in sources), target)
    for source in sources:
        source.joins += (join,)


def _link_condition(plan: Plan, node: Node, draft: ConditionDraft) -> None:
    # A condition without a mapping of its own uses the names that the node has for where it leads.
    mapping = mapped(draft.mapping) or dict(node.options.ends or {})
    condition = Condition(node, _condition_segment(node, draft.name), adapt(draft.fn), is_async(draft.fn), mapping)
    resolved = {name: plan.nodes.get(target) for name, target in mapping.items() if isinstance(name, str)}
    condition.known = {**plan.nodes, END: None, **resolved}
    node.conditions += (condition,)


def _condition_segment(node: Node, name: str) -> str:
    """Return the segment of the next condition of a node; several without a name of their own are numbered."""
    taken = {condition.segment for condition in node.conditions}
    numbers = (None if number == 1 else str(number) for number in count(1))
    return next(segment for number in numbers if (segment := segment_text("branch", name, number)) not in taken)
