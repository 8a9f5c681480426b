"""Graphs, made from what a document says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from adjourn._text import a_type
from adjourn.errors import GraphError
from adjourn.graph import (
    END,
    START,
    CompiledGraph,
    MessagesState,
    StateGraph,
    StateSchema,
    append,
    last,
    merge,
    replace,
)
from adjourn.graph.schema import Schema
from adjourn.interrupts import interrupt

from . import _declared as declared
from ._declared import PYTHON
from ._fitting import WRONG, Path, meant_or_known
from ._middleware import make_middleware
from ._parts import Parts, items_of, retry_of

SPEC = ("spec",)
_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "list": list[Any],
    "object": dict[str, Any],
    "any": Any,
}
_REDUCERS = {"replace": replace, "last": last, "append": append, "merge": merge}
_ENDS = {"start": START, "end": END}
ELSE = "else"


def make_graph(parts: Parts, name: str, spec: declared.GraphSpec) -> Any:
    """Return the compiled graph, or `WRONG`; the parts know why."""
    before = len(parts.problems)
    schema = _schema(parts, name, spec)
    if spec.nodes is WRONG:
        return WRONG
    builder = _Builder(parts, spec, StateGraph(schema.source, name=name), schema)
    for each, node in spec.nodes.items():
        path = (*SPEC, "nodes", each)
        parts.attempt(path, lambda each=each, node=node, path=path: builder.add_node(each, node, path))
    for number, edge in enumerate(items_of(spec.edges)):
        path = (*SPEC, "edges", number)
        parts.attempt(path, lambda edge=edge, path=path: builder.add_edge(edge, path))
    builder.check_pauses()
    builder.check_ends()
    if len(parts.problems) == before and parts.fits(SPEC):
        builder.check_ways()
    if len(parts.problems) > before or not parts.fits(SPEC):
        return WRONG
    return parts.attempt((*SPEC, "nodes"), builder.compiled)


def _schema(parts: Parts, name: str, spec: declared.GraphSpec) -> Schema:
    """Return the state; if what the file says about it is wrong, one that may have any field."""
    unknown = Schema(StateSchema(extra="allow"))
    if spec.fields is WRONG:
        return unknown
    if spec.state is None:
        return Schema(_conversation(parts, spec.fields) if spec.fields else MessagesState)
    if spec.fields:
        parts.wrong((*SPEC, "fields"), "the state class has the fields", "Add them there, or remove 'state'.")
    made = parts.attempt((*SPEC, "state"), lambda: _checked(name, parts.python(cast("str", spec.state))))
    return unknown if made is WRONG else made


def _checked(name: str, state: Any) -> Schema:
    schema = Schema(state)
    if schema.problems:
        raise GraphError(name, schema.problems)
    return schema


def _conversation(parts: Parts, fields: Mapping[str, declared.FieldSpec]) -> StateSchema:
    """Return the state of a conversation with further fields; one that is wrong may hold anything."""
    schema = StateSchema()
    for field in Schema(MessagesState).fields:
        schema.add_field(field.name, field.type, reducer=field.reducer)
    for name, field in fields.items():
        path = (*SPEC, "fields", name)
        given = parts.attempt(path, lambda name=name, field=field: _field_options(parts, name, field))
        if given is WRONG:
            schema.add_field(name)
        else:
            schema.add_field(name, **given)
    return schema


def _field_options(parts: Parts, name: str, field: declared.FieldSpec) -> dict[str, Any]:
    options: dict[str, Any] = {"type": _TYPES[field.type], "required": field.required}
    if field.default is not None:
        options["default"] = field.default
    reducer = field.reducer
    if reducer is not None:
        options["reducer"] = parts.python(reducer) if reducer.startswith(PYTHON) else _REDUCERS[reducer]
    _checked(name, StateSchema().add_field(name, **options))
    return options


class _Builder:
    """Adds the nodes and edges of a document to a graph."""

    def __init__(self, parts: Parts, spec: declared.GraphSpec, graph: StateGraph[Any], schema: Schema) -> None:
        self._parts = parts
        self._spec = spec
        self._graph = graph
        self._schema = schema

    def compiled(self) -> CompiledGraph:
        spec = self._spec
        return self._graph.compile(
            interrupt_before=spec.interrupt_before,
            interrupt_after=spec.interrupt_after,
            max_steps=spec.max_steps,
            strict=True,
        )

    def check_pauses(self) -> None:
        """Check the names of nodes to pause at, and remember that the graph asks there."""
        for option in ("interrupt_before", "interrupt_after"):
            for number, name in enumerate(items_of(getattr(self._spec, option))):
                path = (*SPEC, option, number)
                if self._parts.fits(path) and self._node(name, path, ends=False) is not WRONG:
                    self._parts.asks.append((path, "every run pauses here"))

    def check_ends(self) -> None:
        """Check the fields that get the message and have the answer."""
        for option in ("input", "output"):
            name, path = getattr(self._spec, option), (*SPEC, option)
            if name is not None and self._parts.fits(path):
                self._field(name, path)

    def check_ways(self) -> None:
        """Check that the graph begins somewhere, and that each node can be reached."""
        ways: dict[str, set[str]] = {name: set() for name in (*self._spec.nodes, "start", "end")}
        for edge in self._spec.edges:
            to = set(self._spec.nodes) if edge.condition and isinstance(edge.to, str) else _names(edge.to)
            for source in _names(edge.source):
                ways[source] |= to | ({edge.tools} if edge.tools else set())
        for name, node in self._spec.nodes.items():
            ways[name] |= set(node.goes_to) if isinstance(node, declared.FunctionNodeSpec) else set()
        if not ways["start"]:
            hint = f"Add one: {{from: start, to: {next(iter(self._spec.nodes))}}}."
            self._parts.wrong((*SPEC, "edges"), "no edge begins at 'start'", hint)
            return
        reached, new = {"start"}, {"start"}
        while new := set[str]().union(*(ways[name] for name in new)) - reached:
            reached |= new
        for name in self._spec.nodes:
            if name not in reached:
                hint = "Add an edge, or name it in the 'goes_to' of the node whose commands go there."
                self._parts.wrong((*SPEC, "nodes", name), f"no way leads to the node '{name}'", hint)

    # Nodes

    def add_node(self, name: str, node: declared.AnyNode, path: Path) -> None:
        if name in (*_ENDS, ELSE):
            self._parts.wrong(path, f"a node cannot be called '{name}'", "Give it another name.")
            return
        options = self._options(node, path)
        match node:
            case declared.FunctionNodeSpec():
                targets = [self._node(each, (*path, "goes_to", at)) for at, each in enumerate(node.goes_to)]
                fn = self._function(node.ref, (*path, "ref"))
                if WRONG not in (fn, *targets):
                    self._graph.add_node(name, fn, **options, destinations=targets or None)
            case declared.LLMNodeSpec():
                self._add_llm(name, node, path, options)
            case declared.ToolsNodeSpec():
                self._add_tools(name, node, path, options)
            case declared.AgentNodeSpec():
                agent = self._parts.agent(node.agent, (*path, "agent"))
                if agent is not WRONG:
                    self._graph.add_agent_node(name, agent, isolated=node.isolated, **options)
            case declared.GraphNodeSpec():
                self._add_subgraph(name, node, path, options)
            case declared.AskNodeSpec():
                self._add_question(name, node, path, options)

    def _options(self, node: declared.NodeSpec, path: Path) -> dict[str, Any]:
        for option in ("interrupt_before", "interrupt_after"):
            if getattr(node, option):
                self._parts.asks.append(((*path, option), "every run pauses here"))
        return {
            "timeout": node.timeout_seconds,
            "retry": None if node.retry is None else retry_of(node.retry),
            "interrupt_before": node.interrupt_before,
            "interrupt_after": node.interrupt_after,
            "defer": node.defer,
            "description": node.description,
        }

    def _add_tools(self, name: str, node: declared.ToolsNodeSpec, path: Path, options: dict[str, Any]) -> None:
        tools = self._parts.tools(node.tools, (*path, "tools"))
        middleware = make_middleware(self._parts, node.middleware, (*path, "middleware"))
        if WRONG not in (*tools, *middleware):
            self._graph.add_tools_node(
                name,
                tools,
                sequential=node.sequential,
                on_tool_error=node.on_tool_error,
                middleware=middleware,
                **options,
            )

    def _function(self, ref: str, path: Path) -> Any:
        found = self._parts.python(ref)
        if callable(found):
            return found
        return self._parts.wrong(path, f"this is {a_type(found)}, not a function", "Name a function of the state.")

    def _add_subgraph(self, name: str, node: declared.GraphNodeSpec, path: Path, options: dict[str, Any]) -> None:
        graph = self._parts.python(node.ref)
        if isinstance(graph, CompiledGraph):
            self._graph.add_subgraph(name, cast("CompiledGraph", graph), **options)
        else:
            hint = "Name what .compile() returned."
            self._parts.wrong((*path, "ref"), f"this is {a_type(graph)}, not a compiled graph", hint)

    def _add_llm(self, name: str, node: declared.LLMNodeSpec, path: Path, options: dict[str, Any]) -> None:
        model = self._parts.model(node.model, (*path, "model"))
        tools = self._parts.tools(node.tools, (*path, "tools"))
        middleware = make_middleware(self._parts, node.middleware, (*path, "middleware"))
        self._field(node.user_input, (*path, "user_input"))
        if WRONG not in (model, *tools, *middleware):
            self._graph.add_llm_node(
                name,
                model,
                node.instruction,
                tools,
                user_input_key=node.user_input,
                middleware=middleware,
                **options,
            )

    def _add_question(self, name: str, node: declared.AskNodeSpec, path: Path, options: dict[str, Any]) -> None:
        self._parts.asks.append((path, "this node asks a person"))
        for number, field in enumerate(node.show):
            self._field(field, (*path, "show", number))
        if not self._field(node.save_to, (*path, "save_to")):
            return
        channel = self._schema.channels.get(node.save_to)
        wanted = None if channel is None else channel.type
        schema: Any = {"type": "string", "enum": node.choices} if node.choices else wanted
        self._graph.add_node(name, _asking(name, node, None if schema is Any else schema), **options)

    # Edges

    def add_edge(self, edge: declared.EdgeSpec, path: Path) -> None:
        ways = [name for name in ("condition", "field", "tools") if getattr(edge, name) is not None]
        if len(ways) > 1:
            self._parts.wrong((*path, ways[1]), f"the edge already has a '{ways[0]}'", "Remove one of them.")
            return
        sources = [edge.source] if isinstance(edge.source, str) else edge.source
        named = [
            self._node(each, (*path, "from") if isinstance(edge.source, str) else (*path, "from", number))
            for number, each in enumerate(sources)
        ]
        targets = self._targets(edge, (*path, "to"))
        if WRONG in (*named, *targets.values()):
            return
        if not ways:
            self._plain(edge, named, list(targets.values()), path)
        elif len(named) > 1:
            self._parts.wrong((*path, "from"), f"an edge with a '{ways[0]}' has one source", "Give one node.")
        else:
            self._conditional(edge, named[0], targets, path)

    def _plain(self, edge: declared.EdgeSpec, sources: list[str], targets: list[str], path: Path) -> None:
        if isinstance(edge.to, dict):
            hint = "Add a 'condition' or a 'field', or name just the next node."
            self._parts.wrong((*path, "to"), "nothing says which way to go", hint)
            return
        for target in targets:
            self._graph.add_edge(sources if isinstance(edge.source, list) else sources[0], target)

    def _conditional(self, edge: declared.EdgeSpec, source: str, targets: dict[str, str], path: Path) -> None:
        if edge.tools is not None:
            acting = self._node(edge.tools, (*path, "tools"), ends=False)
            if not isinstance(edge.to, str):
                self._parts.wrong((*path, "to"), "after tools there is one other way", "Name one node.")
            elif acting is not WRONG:
                self._graph.add_tools_conditional_edges(source, acting, targets[edge.to])
        elif edge.condition is not None:
            condition = self._function(edge.condition, (*path, "condition"))
            if condition is not WRONG:
                self._graph.add_conditional_edges(source, condition, None if isinstance(edge.to, str) else targets)
        elif not isinstance(edge.to, dict):
            hint = f"Write, for example, to: {{approved: pay, {ELSE}: end}}."
            self._parts.wrong((*path, "to"), "give a node for each value of the field", hint)
        elif self._field(cast("str", edge.field), (*path, "field")) and self._answers_lead_on(edge, path):
            fn = _by_field(cast("str", edge.field), targets)
            self._graph.add_conditional_edges(source, fn, targets, name=f"by {edge.field}")

    def _answers_lead_on(self, edge: declared.EdgeSpec, path: Path) -> bool:
        """Check that after a question each of its choices has a way, and each way is for one of them."""
        source = cast("str", edge.source)
        node = self._spec.nodes.get(source)
        if not isinstance(node, declared.AskNodeSpec) or not self._parts.fits((*SPEC, "nodes", source)):
            return True
        if node.save_to != edge.field or not node.choices:
            return True
        ways = cast("dict[str, str]", edge.to)
        before = len(self._parts.problems)
        for way in ways:
            if way not in (*node.choices, ELSE):
                hint = meant_or_known(way, node.choices)
                self._parts.wrong((*path, "to", way), f"'{way}' is not one of the choices", hint)
        lost = [choice for choice in node.choices if choice not in ways and ELSE not in ways]
        if lost:
            hint = f"Add {lost[0]}: NODE, or {ELSE}: NODE for all others."
            self._parts.wrong((*path, "to"), f"nothing follows the answer '{lost[0]}'", hint)
        return len(self._parts.problems) == before

    def _targets(self, edge: declared.EdgeSpec, path: Path) -> dict[str, Any]:
        """Return the names of results, with the nodes that they lead to."""
        match edge.to:
            case str():
                return {edge.to: self._node(edge.to, path)}
            case list():
                return {name: self._node(name, (*path, number)) for number, name in enumerate(edge.to)}
            case dict():
                return {result: self._node(name, (*path, result)) for result, name in edge.to.items()}

    # Names

    def _node(self, name: str, path: Path, *, ends: bool = True) -> Any:
        if name in self._spec.nodes:
            return name
        if ends and name in _ENDS:
            return _ENDS[name]
        known = [*self._spec.nodes, *(_ENDS if ends else ())]
        return self._parts.wrong(path, f"there is no node '{name}'", meant_or_known(name, known))

    def _field(self, name: str, path: Path) -> bool:
        known = self._schema.channels
        if name in known or self._schema.extra:
            return True
        self._parts.wrong(path, f"the state has no field '{name}'", meant_or_known(name, known))
        return False


def _names(given: str | list[str] | dict[str, str]) -> set[str]:
    return {given} if isinstance(given, str) else set(given.values() if isinstance(given, dict) else given)


def _read(state: Any, field: str) -> Any:
    return cast("Any", state).get(field) if isinstance(state, Mapping) else getattr(state, field, None)


def _asking(name: str, node: declared.AskNodeSpec, schema: Any) -> Callable[..., Any]:
    async def ask(state: Any) -> dict[str, Any]:
        shown = {field: _read(state, field) for field in node.show}
        answer = interrupt(
            shown or node.prompt,
            key=name,
            prompt=node.prompt,
            schema=schema,
            reason=node.reason,
            tags=node.tags,
            expires_in=node.expires_in_seconds,
        )
        return {node.save_to: answer}

    return ask


def _by_field(field: str, ways: Mapping[str, str]) -> Callable[..., Any]:
    def way(state: Any) -> str:
        value = _read(state, field)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return ELSE if text not in ways and ELSE in ways else text

    return way
