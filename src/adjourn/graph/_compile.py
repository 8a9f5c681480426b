"""Compiling: finding every problem of a graph, then linking its nodes to one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from adjourn._checks import is_positive
from adjourn._engine.retry import Retry
from adjourn.errors import GraphError

from ._node import Condition, Join, Node, Plan, policies
from .commands import END, START, Cache
from .nodes.function import adapt, is_async

RESERVED = (START, END)


class EdgeDraft(msgspec.Struct, kw_only=True):
    """An edge as it was added; several sources make it a join."""

    sources: tuple[str, ...]
    target: str
    is_join: bool = False


class ConditionDraft(msgspec.Struct, kw_only=True):
    """A conditional edge as it was added."""

    source: str
    fn: Any
    mapping: Mapping[Any, str] | Sequence[str] | None = None


class Draft:
    """A graph under construction: its nodes, not yet placed, and the edges between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.edges: list[EdgeDraft] = []
        self.conditions: list[ConditionDraft] = []


def compile_plan(draft: Draft, plan: Plan, before: frozenset[str], after: frozenset[str], strict: bool) -> None:
    """Fill `plan` from the draft.

    Raises:
        GraphError: listing every problem.
    """
    problems = [
        *plan.schema.problems,
        *_node_problems(draft),
        *(problem for node in draft.nodes for problem in _problems_of(node, plan)),
        *_edge_problems(draft),
        *_interrupt_problems(draft, before | after),
        *(_reach_problems(draft) if strict else ()),
    ]
    if problems:
        raise GraphError(draft.name, problems)
    _link(draft, plan, before, after)


def _node_problems(draft: Draft) -> Iterable[str]:
    if not draft.nodes:
        yield "it has no nodes: add one with add_node(name, function)"
    for name, count in Counter(node.name for node in draft.nodes).items():
        if not name:
            yield "a node has no name: add_node('name', function)"
        if name in RESERVED:
            yield f"node name '{name}' is reserved"
        if not _is_text(name):
            yield f"node name {name!r} has characters that cannot be stored"
        if count > 1:
            yield f"node '{name}' is added {count} times"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problems_of(node: Node, plan: Plan) -> Iterable[str]:
    yield from _option_problems(node)
    yield from node.problems(plan.schema)


def _option_problems(node: Node) -> Iterable[str]:
    options = node.options
    if options.timeout is not None and not is_positive(options.timeout):
        yield f"the timeout of node '{node.name}' is {options.timeout!r}: give seconds above zero, or None for no limit"
    if not all(isinstance(policy, Retry) for policy in policies(options.retry)):
        yield f"the retry of node '{node.name}' is {options.retry!r}: give a Retry, or several"
    if not isinstance(options.cache, Cache | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        yield f"the cache of node '{node.name}' is {options.cache!r}: give a Cache"
    for option in ("interrupt_before", "interrupt_after", "defer"):
        if not isinstance(getattr(options, option), bool):
            yield f"the option {option} of node '{node.name}' is {getattr(options, option)!r}: give True or False"
    if not isinstance(options.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        yield f"the description of node '{node.name}' is {options.description!r}: give a string"
    if options.destinations is not None and not is_listing(options.destinations):
        yield f"the destinations of node '{node.name}' are {options.destinations!r}: give a list of names"


def _edge_problems(draft: Draft) -> Iterable[str]:
    names = {node.name for node in draft.nodes}
    sources = names | {START}
    targets = names | {END}
    for edge in draft.edges:
        if not edge.sources:
            yield f"an edge to '{edge.target}' has no sources"
        for source in edge.sources:
            if source not in sources:
                yield f"an edge leads from the unknown node '{source}' to '{edge.target}'"
        if edge.target not in targets:
            yield f"an edge leads from '{', '.join(edge.sources)}' to the unknown node '{edge.target}'"
        if edge.is_join and START in edge.sources:
            yield f"the join into '{edge.target}' has START among its sources"
    for condition in draft.conditions:
        yield from _condition_problems(condition, sources, targets)
    yield from _destination_problems(draft, targets)
    if (
        draft.nodes
        and not any(START in edge.sources for edge in draft.edges)
        and not any(c.source == START for c in draft.conditions)
    ):
        yield "it has no entry point: add_edge(START, name) or set_entry_point(name)"


def _destination_problems(draft: Draft, targets: set[str]) -> Iterable[str]:
    for node in draft.nodes:
        for name in _destinations(node):
            if not _is_name(name) or name not in targets:
                yield f"node '{node.name}' has the unknown destination '{name}'"


def is_listing(given: object) -> bool:
    """Return whether this can hold several names; a string is one name, even though it is iterable."""
    return isinstance(given, Iterable) and not isinstance(given, str)


def _is_name(given: object) -> bool:
    return isinstance(given, str)


def _destinations(node: Node) -> Iterable[str]:
    named = node.options.destinations
    return (named or ()) if is_listing(named) else ()


def _condition_problems(condition: ConditionDraft, sources: set[str], targets: set[str]) -> Iterable[str]:
    if condition.source not in sources:
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
        for source in edge.sources:
            leads.setdefault(source, set()).add(edge.target)
    for condition in draft.conditions:
        targets = mapped(condition.mapping).values() if condition.mapping else names
        leads.setdefault(condition.source, set()).update(filter(_is_name, targets))
    for node in draft.nodes:
        leads[node.name].update(filter(_is_name, _destinations(node)))
    reached, todo = {START}, [START]
    while todo:
        new = leads.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    for name in sorted(names - reached):
        yield f"no path leads to node '{name}' (strict=True)"


def _link(draft: Draft, plan: Plan, before: frozenset[str], after: frozenset[str]) -> None:
    for order, node in enumerate(draft.nodes):
        plan.nodes[node.name] = node.placed(
            order, before=node.name in before, after=node.name in after, node_timeout=plan.node_timeout
        )
    nodes = {**plan.nodes, START: plan.start}
    for edge in draft.edges:
        if edge.target == END:
            continue
        target = plan.nodes[edge.target]
        if edge.is_join:
            _link_join([nodes[source] for source in sorted(set(edge.sources))], target)
        else:
            source = nodes[edge.sources[0]]
            if target not in source.targets:
                source.targets += (target,)
    for condition in draft.conditions:
        _link_condition(plan, nodes[condition.source], condition)
    options = [node.options for node in plan.nodes.values()]
    plan.has_breakpoints = any(each.interrupt_before or each.interrupt_after for each in options)
    plan.defers = any(each.defer for each in options)


def _link_join(sources: list[Node], target: Node) -> None:
    # Arrivals are stored under this name, so it must not change when edges are added elsewhere in the graph.
    name = ";".join(source.segment for source in sources) + ">" + target.segment
    if any(join.id == name for join in sources[0].joins):
        return  # Added twice.
    join = Join(name, frozenset(source.name for source in sources), target)
    for source in sources:
        source.joins += (join,)


def _link_condition(plan: Plan, node: Node, draft: ConditionDraft) -> None:
    mapping = mapped(draft.mapping)
    condition = Condition(node, len(node.conditions), adapt(draft.fn), is_async(draft.fn), mapping)
    resolved = {name: plan.nodes.get(target) for name, target in mapping.items() if isinstance(name, str)}
    condition.known = {**plan.nodes, END: None, **resolved}
    node.conditions += (condition,)
