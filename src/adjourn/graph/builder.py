"""StateGraph: collects nodes and edges until they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast, overload

from adjourn._calls.caller import (
    CALLS_PER_ANSWER,
    ON_ERROR,
    InstructionFunction,
    OnError,
    OnUnknown,
    check_on_unknown,
)
from adjourn._checks import is_count, is_positive
from adjourn._engine.program import Program
from adjourn._engine.retry import Retry
from adjourn._generics import Defaulted, S
from adjourn._habits import OF_RUNNERS, check_known, checks_options
from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.models import ChatModel
from adjourn.tools import Tool

from ._compile import Breakpoints, ConditionDraft, Draft, EdgeDraft, compile_plan, is_listing
from ._options import NodeOptions, NodeSettings, is_retry, read_options
from .commands import END, START
from .compiled import CompiledGraph, Options
from .nodes.agent import AgentNode
from .nodes.function import FunctionNode
from .nodes.llm import ANSWERED, CALLED, LLMNode, went_on
from .nodes.program import SubgraphNode
from .nodes.tools import ToolsNode
from .schema import StateSchema

Function = Callable[..., Any]
OfState = Callable[[S], Any]
NodeFunction = (
    Callable[[S], Any]
    | Callable[[S, RunContext[Any]], Any]
    | Callable[[RunContext[Any], S], Any]
    | Callable[[RunContext[Any]], Any]
    | Callable[[], Any]
)
"""A function of the state, sync or async; it may also take a `RunContext`, or that alone."""


class StateGraph(Draft, Defaulted, Generic[S]):
    """A graph under construction. Updates are applied in the order in which their nodes were added."""

    @overload
    def __init__(self, schema: type[S], *, name: str | None = None) -> None: ...
    @overload
    def __init__(self: StateGraph[dict[str, Any]], schema: StateSchema, *, name: str | None = None) -> None: ...
    @checks_options
    def __init__(self, schema: Any, *, name: str | None = None) -> None:
        super().__init__(name or getattr(schema, "__name__", "graph"))
        self.schema = schema

    def __repr__(self) -> str:
        return f"<uncompiled graph {self.name}: {', '.join(node.name for node in self.nodes)}>"

    if not TYPE_CHECKING:  # For a type checker every attribute would exist.

        def __getattr__(self, name: str) -> Any:
            is_run = name in OF_RUNNERS or hasattr(CompiledGraph, name)
            hint = " It is not compiled yet: call .compile() first." if is_run else ""
            raise AttributeError(f"a StateGraph has no {name!r}.{hint}", name=name, obj=self)

    def add_node(
        self,
        name_or_fn: str | NodeFunction[S],
        fn: NodeFunction[S] | CompiledGraph | None = None,
        *,
        thread: bool = True,
        **options: Unpack[NodeOptions],
    ) -> Self:
        """Add a node: a function of the state, sync or async, or a compiled graph; `options` are those of all nodes.

        A sync function runs in a thread unless `thread=False`. A thread cannot be killed: after a timeout, its late
        result is dropped and its slot in the pool stays occupied until it ends.
        """
        name = name_or_fn if isinstance(name_or_fn, str) else getattr(name_or_fn, "__name__", "")
        runs = fn if isinstance(name_or_fn, str) else name_or_fn
        settings = read_options("add_node", options)
        if isinstance(runs, CompiledGraph):
            self.nodes.append(SubgraphNode(name, runs, settings))
        else:
            self.nodes.append(FunctionNode(name, runs, settings, thread=thread))
        return self

    def add_sequence(self, *nodes: str | NodeFunction[S]) -> Self:
        """Add edges from each node to the next, adding those that are functions as nodes first."""
        names: list[str] = []
        for node in nodes:
            if isinstance(node, str):
                names.append(node)
            else:
                self.add_node(node)
                names.append(self.nodes[-1].name)
        for source, target in pairwise(names):
            self.add_edge(source, target)
        return self

    def add_subgraph(
        self,
        name: str,
        graph: CompiledGraph,
        *,
        input: OfState[S] | None = None,
        output: OfState[Any] | None = None,
        **options: Unpack[NodeOptions],
    ) -> Self:
        """Add a compiled graph as a node: it shares the fields that both schemas have, unless they are mapped.

        `input` maps the parent's state to the subgraph's input; `output` maps its final state to the parent's update.
        """
        settings = read_options("add_subgraph", options)
        self.nodes.append(SubgraphNode(name, graph, settings, input=input, output=output))
        return self

    def add_llm_node(
        self,
        name: str,
        model: str | ChatModel,
        instruction: str | InstructionFunction = "",
        tools: Sequence[Tool | Function] = (),
        *,
        user_input_key: str = "user_input",
        middleware: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
        **node_options: Unpack[NodeOptions],
    ) -> Self:
        """Add a node that asks a model, with one-shot messages, the history and the user's input, or the history alone.

        New input and the answer go to `messages`; the answer's text also goes to `last_response` and
        `node_responses`. `instruction` may contain session values, such as `{user}`, or it is a function of the context
        that returns a text. The model can call the tools, but a tools node has to run them. `options`
        are passed to the provider; `node_options` are those of all nodes.
        """
        settings = read_options("add_llm_node", node_options)
        self.nodes.append(LLMNode(name, model, instruction, tools, user_input_key, middleware, options, settings))
        return self

    def add_tools_node(
        self,
        name: str,
        tools: Sequence[Tool | Function],
        *,
        sequential: bool = False,
        on_tool_error: OnError = "tell",
        on_unknown_tool: OnUnknown | None = None,
        middleware: Sequence[Any] = (),
        max_calls: int | None = CALLS_PER_ANSWER,
        **options: Unpack[NodeOptions],
    ) -> Self:
        """Add a node that runs the tool calls of the newest message, in parallel unless `sequential`.

        Only the first `max_calls` of them run, and the model is told about the others; None is no limit. A call of a
        tool that does not exist is answered with what there is, or fails the node if errors of tools do;
        `on_unknown_tool` says otherwise: "tell", "raise", or a function of the `ToolCall` that returns a result.
        """
        if max_calls is not None and not is_count(max_calls):
            raise UsageError(f"Tools node '{name}': max_calls={max_calls!r}. Give 1 or more, or None for no limit.")
        if on_tool_error not in ON_ERROR:
            known = ", ".join(ON_ERROR)
            raise UsageError(f"Tools node '{name}': on_tool_error={on_tool_error!r}. Use one of: {known}.")
        if on_unknown_tool is None:
            on_unknown_tool = "raise" if on_tool_error == "raise" else "tell"
        check_on_unknown(on_unknown_tool, f"Tools node '{name}'")
        node = ToolsNode(
            name,
            tools,
            read_options("add_tools_node", options),
            sequential=sequential,
            on_error=on_tool_error,
            on_unknown=on_unknown_tool,
            middleware=middleware,
            max_calls=max_calls,
        )
        self.nodes.append(node)
        return self

    def add_tools_conditional_edges(self, llm_node: str, tools_node: str, fallback: str) -> Self:
        """Add edges from a model to its tools if it called any, otherwise to `fallback`."""
        return self.add_conditional_edges(llm_node, went_on, {CALLED: tools_node, ANSWERED: fallback})

    def add_agent_node(
        self,
        name: str,
        agent: Program,
        *,
        input: OfState[S] | None = None,
        output: OfState[Any] | None = None,
        isolated: bool = False,
        **options: Unpack[NodeOptions],
    ) -> Self:
        """Add an agent as a node. It sees the conversation with `user_input` at its end, and its messages join it.

        An `isolated` agent only sees the user's input, and only its final text joins; with `input`, nothing joins.
        `input` maps the state to the agent's input; `output` maps its report, which has `output`, `value` and
        `messages`, to the update.
        """
        settings = read_options("add_agent_node", options)
        self.nodes.append(AgentNode(name, agent, settings, input=input, output=output, isolated=isolated))
        return self

    def add_edge(self, source: str | Iterable[str], target: str) -> Self:
        """Add an edge from one node to another; with several sources, it is taken when all of them have finished."""
        sources = tuple(source) if is_listing(source) else (cast("str", source),)
        self.edges.append(EdgeDraft(sources=sources, target=target))
        return self

    def add_conditional_edges(
        self,
        source: str,
        fn: NodeFunction[S],
        mapping: Mapping[Any, str] | Sequence[str] | None = None,
        *,
        name: str | None = None,
    ) -> Self:
        """Add edges from a node to the result of `fn(state)`: one name or several, looked up in `mapping` first.

        A stored session knows the condition by `name`, by default that of the function: keep it when you change the
        graph while sessions wait.
        """
        self.conditions.append(ConditionDraft(source=source, fn=fn, mapping=mapping, given_name=name))
        return self

    def set_entry_point(self, name: str) -> Self:
        """Start with this node."""
        return self.add_edge(START, name)

    def set_finish_point(self, name: str) -> Self:
        """End after this node."""
        return self.add_edge(name, END)

    def compile(
        self,
        *,
        interrupt_before: Sequence[str] = (),
        interrupt_after: Sequence[str] = (),
        max_steps: int = 100,
        step_timeout: float | None = None,
        node_timeout: float | None = None,
        run_timeout: float | None = None,
        retry: Retry | Sequence[Retry] | None = None,
        strict: bool = False,
        check_updates: bool = True,
        **options: Unpack[Options],
    ) -> CompiledGraph[S]:
        """Check everything at once and return a graph that is ready to run; `options` are those of `Runner`.

        interrupt_before, interrupt_after: names of nodes before or after which every run pauses.
        max_steps: the number of supersteps that one turn may take.
        step_timeout, node_timeout: seconds that a superstep, or a node without its own timeout, may take.
        run_timeout: seconds that the graph may work from a start, resume or recovery to its next pause or its end.
        retry: how often to try nodes without their own policy again, and after which errors.
        strict: whether a node that cannot be reached is an error.
        check_updates: whether what nodes return must have the types of the fields; it is never converted.

        Raises:
            GraphError: listing every problem.
            UsageError: an option is invalid.
        """
        known = (*(StateGraph.compile.__kwdefaults__ or ()), *Options.__annotations__)
        check_known("compile", options, known, {"timeout": "node_timeout=..., or run_timeout=..."})
        if not is_count(max_steps):
            raise UsageError(f"max_steps={max_steps!r}: give a whole number; a graph needs at least one superstep.")
        timeouts = {"step_timeout": step_timeout, "node_timeout": node_timeout, "run_timeout": run_timeout}
        for option, seconds in timeouts.items():
            if seconds is not None and not is_positive(seconds):
                raise UsageError(f"{option}={seconds!r}: give seconds above zero, or None for no limit.")
        if not is_retry(retry):
            raise UsageError(f"retry={retry!r}: give a Retry, or several.")
        breakpoints = Breakpoints(
            before=_names("interrupt_before", interrupt_before), after=_names("interrupt_after", interrupt_after)
        )
        for option, value in (("strict", strict), ("check_updates", check_updates)):
            if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
                raise UsageError(f"{option}={value!r}: give True or False.")
        graph: CompiledGraph[S] = CompiledGraph(
            self.name,
            self.schema,
            max_steps=max_steps,
            step_timeout=step_timeout,
            run_timeout=run_timeout,
            check_updates=check_updates,
            options=options,
        )
        compile_plan(self, graph, NodeSettings(retry=retry, timeout=node_timeout), breakpoints, strict=strict)
        return graph


def _names(option: str, given: object) -> frozenset[str]:
    names: list[Any] = list(cast("Iterable[Any]", given)) if is_listing(given) else [None]  # Any: users pass anything
    if all(isinstance(name, str) for name in names):
        return frozenset(names)
    raise UsageError(f"{option}={given!r}: give a list of node names.")
