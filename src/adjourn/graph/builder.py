"""StateGraph: collects nodes and edges until they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Unpack, cast

from adjourn._calls.caller import CALLS_PER_ANSWER, ON_ERROR, OnError
from adjourn._checks import is_count, is_positive
from adjourn._engine.program import Program
from adjourn._engine.retry import Retry
from adjourn.errors import UsageError
from adjourn.models import ChatModel
from adjourn.tools import Tool

from ._compile import ConditionDraft, Draft, EdgeDraft, compile_plan, is_listing
from ._node import NodeOptions
from .commands import END, START, Cache
from .compiled import CompiledGraph, Options
from .nodes.agent import AgentNode
from .nodes.function import FunctionNode
from .nodes.llm import ANSWERED, CALLED, LLMNode, went_on
from .nodes.program import SubgraphNode
from .nodes.tools import ToolsNode

Function = Callable[..., Any]
OfState = Callable[[Any], Any]


class StateGraph(Draft):
    """A graph under construction. Updates are applied in the order in which their nodes were added."""

    def __init__(self, schema: Any, *, name: str | None = None) -> None:
        super().__init__(name or getattr(schema, "__name__", "graph"))
        self.schema = schema

    def __repr__(self) -> str:
        return f"<uncompiled graph {self.name}: {', '.join(node.name for node in self.nodes)}>"

    def __getattr__(self, name: str) -> Any:
        hint = " It is not compiled yet: call .compile() first." if hasattr(CompiledGraph, name) else ""
        raise AttributeError(f"a StateGraph has no {name!r}.{hint}", name=name, obj=self)

    def add_node(
        self,
        name_or_fn: str | Function,
        fn: Any = None,
        *,
        retry: Retry | Sequence[Retry] | None = None,
        timeout: float | None = None,
        cache: Cache | None = None,
        interrupt_before: bool = False,
        interrupt_after: bool = False,
        destinations: Sequence[str] | Mapping[str, str] | None = None,
        defer: bool = False,
        thread: bool = True,
        description: str = "",
    ) -> StateGraph:
        """Add a node: a function of the state, sync or async, or a compiled graph.

        A sync function runs in a thread unless `thread=False`. A thread cannot be killed: after a timeout, its late
        result is dropped and its slot in the pool stays occupied until it ends. `destinations` names the nodes that
        commands of this node may go to, for drawing and checking.
        """
        name = name_or_fn if isinstance(name_or_fn, str) else getattr(name_or_fn, "__name__", "")
        runs = fn if isinstance(name_or_fn, str) else name_or_fn
        options = NodeOptions(
            retry=retry,
            timeout=timeout,
            cache=cache,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            destinations=destinations,
            defer=defer,
            description=description,
        )
        if isinstance(runs, CompiledGraph):
            self.nodes.append(SubgraphNode(name, runs, options))
        else:
            self.nodes.append(FunctionNode(name, runs, options, thread=thread))
        return self

    def add_sequence(self, *nodes: str | Function) -> StateGraph:
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
        self, name: str, graph: CompiledGraph, *, input: OfState | None = None, output: OfState | None = None
    ) -> StateGraph:
        """Add a compiled graph as a node: it shares the fields that both schemas have, unless they are mapped.

        `input` maps the parent's state to the subgraph's input; `output` maps its final state to the parent's update.
        """
        self.nodes.append(SubgraphNode(name, graph, input=input, output=output))
        return self

    def add_llm_node(
        self,
        name: str,
        model: str | ChatModel,
        instruction: str = "",
        tools: Sequence[Tool | Function] = (),
        *,
        user_input_key: str = "user_input",
        middleware: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> StateGraph:
        """Add a node that asks a model, with one-shot messages, the history and the user's input, or the history alone.

        New input and the answer go to `messages`; the answer's text also goes to `last_response` and
        `node_responses`. `instruction` may contain session values: `{user}`. The model can call the tools, but a
        tools node has to run them. `options` are passed to the provider.
        """
        self.nodes.append(LLMNode(name, model, instruction, tools, user_input_key, middleware, options))
        return self

    def add_tools_node(
        self,
        name: str,
        tools: Sequence[Tool | Function],
        *,
        sequential: bool = False,
        on_tool_error: OnError = "tell",
        middleware: Sequence[Any] = (),
        max_calls: int | None = CALLS_PER_ANSWER,
    ) -> StateGraph:
        """Add a node that runs the tool calls of the newest message, in parallel unless `sequential`.

        Only the first `max_calls` of them run, and the model is told about the others; None is no limit.
        """
        if max_calls is not None and not is_count(max_calls):
            raise UsageError(f"Tools node '{name}': max_calls={max_calls!r}. Give 1 or more, or None for no limit.")
        if on_tool_error not in ON_ERROR:
            known = ", ".join(ON_ERROR)
            raise UsageError(f"Tools node '{name}': on_tool_error={on_tool_error!r}. Use one of: {known}.")
        node = ToolsNode(
            name, tools, sequential=sequential, on_error=on_tool_error, middleware=middleware, max_calls=max_calls
        )
        self.nodes.append(node)
        return self

    def add_tools_conditional_edges(self, llm_node: str, tools_node: str, fallback: str) -> StateGraph:
        """Add edges from a model to its tools if it called any, otherwise to `fallback`."""
        return self.add_conditional_edges(llm_node, went_on, {CALLED: tools_node, ANSWERED: fallback})

    def add_agent_node(
        self,
        name: str,
        agent: Program,
        *,
        input: OfState | None = None,
        output: OfState | None = None,
        isolated: bool = False,
    ) -> StateGraph:
        """Add an agent as a node. It sees the conversation with `user_input` at its end, and its messages join it.

        An `isolated` agent only sees the user's input, and only its final text joins; with `input`, nothing joins.
        `input` maps the state to the agent's input; `output` maps its report, which has `output`, `value` and
        `messages`, to the update.
        """
        self.nodes.append(AgentNode(name, agent, input=input, output=output, isolated=isolated))
        return self

    def add_edge(self, source: str | Iterable[str], target: str) -> StateGraph:
        """Add an edge from one node to another; with several sources, it is taken when all of them have finished."""
        sources = tuple(source) if is_listing(source) else (cast("str", source),)
        self.edges.append(EdgeDraft(sources=sources, target=target, is_join=len(set(sources)) > 1))
        return self

    def add_conditional_edges(
        self, source: str, fn: Function, mapping: Mapping[Any, str] | Sequence[str] | None = None
    ) -> StateGraph:
        """Add edges from a node to the result of `fn(state)`: one name or several, looked up in `mapping` first."""
        self.conditions.append(ConditionDraft(source=source, fn=fn, mapping=mapping))
        return self

    def set_entry_point(self, name: str) -> StateGraph:
        """Start with this node."""
        return self.add_edge(START, name)

    def set_finish_point(self, name: str) -> StateGraph:
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
        strict: bool = False,
        **options: Unpack[Options],
    ) -> CompiledGraph:
        """Check everything at once and return a graph that is ready to run; `options` are those of `Runner`.

        interrupt_before, interrupt_after: names of nodes before or after which every run pauses.
        max_steps: the number of supersteps that one turn may take.
        step_timeout, node_timeout: seconds that a superstep, or a node without its own timeout, may take.
        strict: whether a node that cannot be reached is an error.

        Raises:
            GraphError: listing every problem.
            UsageError: an option is invalid.
        """
        if not is_count(max_steps):
            raise UsageError(f"max_steps={max_steps!r}: give a whole number; a graph needs at least one superstep.")
        for option, seconds in (("step_timeout", step_timeout), ("node_timeout", node_timeout)):
            if seconds is not None and not is_positive(seconds):
                raise UsageError(f"{option}={seconds!r}: give seconds above zero, or None for no limit.")
        before, after = _names("interrupt_before", interrupt_before), _names("interrupt_after", interrupt_after)
        graph = CompiledGraph(
            self.name,
            self.schema,
            max_steps=max_steps,
            step_timeout=step_timeout,
            node_timeout=node_timeout,
            options=options,
        )
        compile_plan(self, graph, before, after, strict)
        return graph


def _names(option: str, given: object) -> frozenset[str]:
    names: list[Any] = list(cast("Iterable[Any]", given)) if is_listing(given) else [None]  # Any: users pass anything
    if all(isinstance(name, str) for name in names):
        return frozenset(names)
    raise UsageError(f"{option}={given!r}: give a list of node names.")
