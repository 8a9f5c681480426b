"""Compiling: finding every mistake of a graph, then linking its nodes to one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from adjourn._checks import is_positive
from adjourn._engine.address import segment_text
from adjourn._engine.retry import Retry
from adjourn.errors import GraphError

from ._running import adapt, is_async
from ._spec import Condition, Join, NodeSpec
from .commands import END, START, Cache
from .compiled import CompiledGraph
from .nodes._problems import conversation_problems
from .nodes.agent import AgentNode

if TYPE_CHECKING:
    from .builder import ConditionDraft, NodeDraft, StateGraph

RESERVED = (START, END)


def compile_graph(
    draft: StateGraph, graph: CompiledGraph, before: frozenset[str], after: frozenset[str], strict: bool
) -> None:
    """Fill `graph` from what was drafted.

    Raises:
        GraphError: listing every mistake.
    """
    problems = [
        *graph.schema.problems,
        *_node_problems(draft),
        *conversation_problems(draft.nodes, graph.schema),
        *_edge_problems(draft),
        *_interrupt_problems(draft, before | after),
        *(_reach_problems(draft) if strict else ()),
    ]
    if problems:
        raise GraphError(draft.name, problems)
    _link(draft, graph, before, after)


def _node_problems(draft: StateGraph) -> Iterable[str]:
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
    for node in draft.nodes:
        yield from _function_problems(node)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _function_problems(node: NodeDraft) -> Iterable[str]:
    yield from _option_problems(node)
    if isinstance(node.fn, CompiledGraph):
        yield from _subgraph_problems(node)
    elif isinstance(node.fn, AgentNode):
        return  # It is looked at together with the state.
    elif node.is_subgraph:
        yield f"subgraph '{node.name}' is no compiled graph: {node.fn!r}"
    elif not callable(node.fn):
        yield f"node '{node.name}' is no function: {node.fn!r}"
    else:
        try:
            adapt(node.fn)
        except TypeError as error:
            yield f"node '{node.name}' cannot be called: {error}"


def _option_problems(node: NodeDraft) -> Iterable[str]:
    if node.timeout is not None and not is_positive(node.timeout):
        yield f"the timeout of node '{node.name}' is {node.timeout!r}: give seconds above zero, or None for no limit"
    if not all(isinstance(policy, Retry) for policy in _policies(node.retry)):
        yield f"the retry of node '{node.name}' is {node.retry!r}: give a Retry, or several"
    if not isinstance(node.cache, Cache | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        yield f"the cache of node '{node.name}' is {node.cache!r}: give a Cache"
    for option in ("interrupt_before", "interrupt_after", "defer", "thread"):
        if not isinstance(getattr(node, option), bool):
            yield f"the option {option} of node '{node.name}' is {getattr(node, option)!r}: give True or False"
    if not isinstance(node.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        yield f"the description of node '{node.name}' is {node.description!r}: give a text"
    if node.destinations is not None and not is_listing(node.destinations):
        yield f"the destinations of node '{node.name}' are {node.destinations!r}: give a list of names"


def _policies(retry: Any) -> list[Any]:
    if retry is None:
        return []
    return list(cast("Sequence[Any]", retry)) if isinstance(retry, list | tuple) else [retry]


def _subgraph_problems(node: NodeDraft) -> Iterable[str]:
    if node.cache is not None:
        yield f"node '{node.name}' is a subgraph, whose result is not cached: cache nodes inside it"
    for what, fn in (("input", node.input), ("output", node.output)):
        if fn is not None and not callable(fn):
            yield f"the {what} of subgraph '{node.name}' is no function: {fn!r}"
        elif fn is not None and is_async(fn):
            yield f"the {what} of subgraph '{node.name}' is async: it only maps, so make it a plain function"


def _edge_problems(draft: StateGraph) -> Iterable[str]:
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
            yield f"the join into '{edge.target}' has the start among its sources"
    for condition in draft.conditions:
        yield from _condition_problems(condition, sources, targets)
    yield from _destination_problems(draft, targets)
    if (
        draft.nodes
        and not any(START in edge.sources for edge in draft.edges)
        and not any(c.source == START for c in draft.conditions)
    ):
        yield "it has no entry point: add_edge(START, name) or set_entry_point(name)"


def _destination_problems(draft: StateGraph, targets: set[str]) -> Iterable[str]:
    for node in draft.nodes:
        for name in _destinations(node):
            if not _is_name(name) or name not in targets:
                yield f"node '{node.name}' has the unknown destination '{name}'"


def is_listing(given: object) -> bool:
    """Whether it can hold several names; a text is one name, whatever Python can do with it."""
    return isinstance(given, Iterable) and not isinstance(given, str)


def _is_name(given: object) -> bool:
    return isinstance(given, str)


def _destinations(node: NodeDraft) -> Iterable[str]:
    return (node.destinations or ()) if is_listing(node.destinations) else ()


def _condition_problems(condition: ConditionDraft, sources: set[str], targets: set[str]) -> Iterable[str]:
    if condition.source not in sources:
        yield f"a conditional edge leads from the unknown node '{condition.source}'"
    if not callable(condition.fn):
        yield f"the condition of '{condition.source}' is no function: {condition.fn!r}"
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
    """A condition's mapping; a list of names stands for itself."""
    if mapping is None or not is_listing(mapping):
        return {}
    return dict(mapping) if isinstance(mapping, Mapping) else {name: name for name in mapping}


def _interrupt_problems(draft: StateGraph, names: frozenset[str]) -> Iterable[str]:
    known = {node.name for node in draft.nodes}
    for name in sorted(names - known):
        yield f"interrupt_before or interrupt_after names the unknown node '{name}'"


def _reach_problems(draft: StateGraph) -> Iterable[str]:
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


def _link(draft: StateGraph, graph: CompiledGraph, before: frozenset[str], after: frozenset[str]) -> None:
    for order, node in enumerate(draft.nodes):
        graph.specs[node.name] = _spec(node, order, node.name in before, node.name in after)
    specs = {**graph.specs, START: graph.start}
    for edge in draft.edges:
        if edge.target == END:
            continue
        target = graph.specs[edge.target]
        if edge.is_join:
            _link_join([specs[source] for source in sorted(set(edge.sources))], target)
        else:
            source = specs[edge.sources[0]]
            if target not in source.targets:
                source.targets += (target,)
    for condition in draft.conditions:
        _link_condition(graph, specs[condition.source], condition)
    nodes = graph.specs.values()
    for spec in nodes:
        spec.is_plain = not spec.retry and spec.timeout is None and graph.node_timeout is None
    graph.halts = any(spec.interrupt_before or spec.interrupt_after for spec in nodes)
    graph.defers = any(spec.defer for spec in nodes)


def _link_join(sources: list[NodeSpec], target: NodeSpec) -> None:
    # What has arrived is stored under this name: it must not change when edges are added elsewhere in the graph.
    name = ";".join(source.segment for source in sources) + ">" + target.segment
    if any(join.id == name for join in sources[0].joins):
        return  # The same one again.
    join = Join(name, frozenset(source.name for source in sources), target)
    for source in sources:
        source.joins += (join,)


def _link_condition(graph: CompiledGraph, spec: NodeSpec, draft: ConditionDraft) -> None:
    mapping = mapped(draft.mapping)
    condition = Condition(spec, len(spec.conditions), adapt(draft.fn), is_async(draft.fn), mapping)
    resolved = {name: graph.specs.get(target) for name, target in mapping.items() if isinstance(name, str)}
    condition.known = {**graph.specs, END: None, **resolved}
    spec.conditions += (condition,)


def _spec(node: NodeDraft, order: int, before: bool, after: bool) -> NodeSpec:
    if isinstance(node.fn, CompiledGraph):
        spec = NodeSpec(node.name, order, "graph")
        spec.graph, spec.input, spec.output = node.fn, node.input, node.output
    elif isinstance(node.fn, AgentNode):
        agent = node.fn.agent
        spec = NodeSpec(node.name, order, "graph")
        spec.graph, spec.begin, spec.hand_up = agent, node.fn.begin, node.fn.hand_up
        spec.inside = segment_text(agent.kind, agent.name)
    else:
        kind = "async" if is_async(node.fn) else "sync" if node.thread else "inline"
        spec = NodeSpec(node.name, order, kind, adapt(node.fn))
    spec.role = node.role
    spec.retry = _policies(node.retry)
    spec.timeout, spec.cache, spec.defer = node.timeout, node.cache, node.defer
    spec.interrupt_before = node.interrupt_before or before
    spec.interrupt_after = node.interrupt_after or after
    named = node.destinations or ()
    spec.destinations = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, "")
    spec.description = node.description
    return spec
