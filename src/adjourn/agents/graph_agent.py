"""GraphAgent: a compiled graph as an agent: at the root, in the tree of another agent, or as a tool."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from adjourn._checks import check_middleware
from adjourn._engine.program import Report
from adjourn._engine.record import Image
from adjourn._engine.scope import ACTION, Frame, Request, Scope
from adjourn._habits import checks_options
from adjourn._values import codec
from adjourn.errors import UsageError
from adjourn.events import BreakLoop, Exit, Transfer
from adjourn.graph._frame import GraphFrame, Task
from adjourn.graph._node import Plan, Send
from adjourn.graph.commands import Overwrite
from adjourn.graph.compiled import CompiledGraph
from adjourn.graph.nodes.agent import ShowsGraph
from adjourn.messages import Message

from ._config import AgentConfig, AgentInput, input_messages
from ._frame import AgentFrame, AgentPlan
from ._graph_mapping import FromState, GraphMapping, ToState, newest
from ._handoff import check_target, giver
from ._transcript import Ending
from .agent import Agent

INNER = "~"


class GraphAgentPlan(AgentPlan):
    """The plan of a graph agent: it has no steps itself."""

    def first(self, frame: AgentFrame) -> list[Send]:
        return []

    def check_action(self, frame: AgentFrame, action: Request) -> None:
        if action.name == "transfer":
            back = giver(frame)
            check_target([] if back is None else [back.agent], action.arguments["target"])


class InnerFrame(GraphFrame):
    """The graph of a graph agent: the session values that its nodes write are the agent's."""

    def merge_values(self, values: Mapping[str, Any]) -> None:
        agent = cast("GraphAgentFrame", self.parent)
        agent.merge_values(values)
        agent.scope.mark(agent)


class GraphAgentFrame(AgentFrame):
    """A running graph agent: its graph has a separate frame below it, which is kept when a turn has ended."""

    agent: GraphAgent
    around_nodes: tuple[Any, ...]
    beside: Frame | None

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(agent, plan, scope, parent, segment)
        self.around_nodes = self.agent.middleware

    def task_at(self, segment: str) -> Task | None:
        return None if segment == INNER else super().task_at(segment)

    def merge_values(self, values: Mapping[str, Any]) -> None:
        kept = dict(values)
        if (action := kept.pop(ACTION, None)) is not None:
            # The graph goes on by its edges; what was requested is done when it has ended.
            self.set_progress(requested=_ending(Request(**action)))
        if kept:
            super().merge_values(kept)

    def begin(self, input: Any) -> None:
        self._begin(input, {})

    def begin_with(self, input: Any, state: Mapping[str, Any]) -> None:
        self._begin(input, state)

    def _begin(self, input: Any, state: Mapping[str, Any]) -> None:
        inner, initial = self.bind_inner(), cast("Mapping[str, Any]", {})
        if inner is None:
            inner = self.beside = self._open(None)
            initial = self._first_state()
        super().begin(input)
        inner.begin_from(initial, state, self.agent.mapping.state_for(self._given(input)))
        self.scope.mark(inner)

    def _given(self, input: Any) -> AgentInput:
        """Return what the agent was given: the conversation, and what the user has said since the last answer."""
        prompt = self.last_prompt()
        message = newest(input_messages(input, self.agent.name)) or (None if prompt is None else newest([prompt]))
        messages = tuple(self.seen())
        return AgentInput(messages=messages, text="" if message is None else message.text, message=message)

    def _open(self, image: Image | None) -> GraphFrame:
        return self.agent.graph.open_as(InnerFrame, self.scope, self, INNER, image)

    def _first_state(self) -> Mapping[str, Any]:
        """Return the state that the graph starts from in a new frame."""
        kept = None if self.above is None else _top(self).fields.values.get("states", {}).get(self.agent.name)
        if kept is None:
            return self.agent.initial_state
        known = self.agent.graph.schema
        return {name: Overwrite(value) for name, value in kept.items() if name in known.channels or known.extra}

    def bind_inner(self) -> GraphFrame | None:
        """Return the graph's frame, restored from its stored image if it is dormant."""
        if self.beside is None:
            dormant = self.scope.dormant
            if INNER in dormant.below(self.path):
                self.beside = dormant.reopen(self.path, INNER, self._open)
        return cast("GraphFrame | None", self.beside)

    def bind_dormant(self) -> None:
        self.bind_inner()

    async def advance(self) -> bool:
        inner = self.bind_inner()
        if inner is None or self.progress.ending is not None:
            return self.progress.ending is not None
        if not await inner.advance():
            return False
        self._finish(inner)
        return True

    def _finish(self, inner: GraphFrame) -> None:
        """End the agent: say what the graph came to, unless it hands back, and do what its nodes requested."""
        requested = self.progress.requested or Ending()
        said = self._answer(inner) if requested.action != "transfer" else None
        output = requested.output or ("" if said is None else said.text)
        self._emit_action(requested)
        self.end(Ending(output=output, action=requested.action, target=requested.target))
        if self.above is not None:
            _keep_state(_top(self), self.agent.name, inner.fields.share())
        if said is not None:
            self.transcript.extend([self.entry(said)])

    def _answer(self, inner: GraphFrame) -> Message | None:
        return self.agent.mapping.answer_of(inner.report().state)

    def _emit_action(self, requested: Ending) -> None:
        match requested.action:
            case "transfer":
                self.emit(Transfer(address=self.address, target=requested.target))
            case "exit":
                self.emit(Exit(address=self.address, result=requested.output))
            case "break_loop":
                self.emit(BreakLoop(address=self.address))
            case _:
                pass

    def report(self) -> Report:
        inner, own = self.bind_inner(), super().report()
        if inner is None:
            return own
        found = inner.report()
        # Below another frame, it takes part in a conversation other than that of its graph.
        messages = _messages(inner) if self.parent is None else None
        return Report(output=own.output, state=found.state, fields=found.fields, messages=messages or own.messages)

    def following(self) -> tuple[str, ...]:
        inner = self.bind_inner()
        return () if inner is None else inner.following()

    def supply(self, state: Mapping[str, Any]) -> None:
        if (inner := self.bind_inner()) is not None:
            inner.supply(state)

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        inner = self.bind_inner()
        if inner is None:
            raise UsageError(f"GraphAgent '{self.agent.name}' has no state yet. Run it first.")
        inner.edit(values, as_node)
        if as_node is not None:
            self.set_progress(ending=None)

    def abandon(self) -> None:
        if (inner := self.bind_inner()) is not None:
            inner.abandon()
        self.set_progress(ending=Ending())


class GraphAgent(Agent, ShowsGraph):
    """A graph as an agent: the user's message becomes a field of its state, and a field of its state the answer.

    At the root and in the tree of another agent, its state lives as long as the session: it continues where it ended,
    and `initial_state` is used once. As a tool, and as a node of a graph, it starts afresh each time. Its input is
    what the user said since the last answer; its graph sees the rest of the conversation only as far as it is in the
    graph's own state, or as `input` puts it there.

    A node can end the agent's part in the conversation: `current().transfer_to(...)` the agent that handed over to it,
    `current().exit(...)` or `current().break_loop()`. The graph goes on by its edges; when it has ended, that is done.

    graph: the compiled graph.
    description: what the agent is for; other agents and people read it.
    initial_state: the fields that its state starts with in a session.
    input: the field that gets the message, or a function of an `AgentInput` that returns an update of the state;
        `user_input` by default.
    output: the field with the answer, or a function of the final state that returns text or an assistant message;
        `last_response` by default.
    middleware: what surrounds the calls of its LLM and tools nodes, including those of subgraphs.
    """

    frame_type: ClassVar[type[AgentFrame]] = GraphAgentFrame

    @checks_options
    def __init__(
        self,
        name: str,
        graph: CompiledGraph,
        *,
        description: str = "",
        initial_state: Mapping[str, Any] | None = None,
        input: ToState | None = None,
        output: FromState | None = None,
        middleware: Sequence[Any] = (),
    ) -> None:
        if not isinstance(graph, CompiledGraph):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"GraphAgent '{name}': {graph!r} is not a compiled graph. Did you call .compile()?")
        self.name = name
        self.graph = graph
        self.description = description
        self.initial_state: dict[str, Any] = _checked(name, graph, initial_state)
        self.mapping: GraphMapping = GraphMapping(f"GraphAgent '{name}'", graph.schema, input, output)
        self.middleware: tuple[Any, ...] = check_middleware(middleware, f"GraphAgent '{name}'")

    @property
    def drawn_as(self) -> Plan:
        return self.graph

    def option_names(self) -> dict[str, str]:
        return self.graph.option_names()

    def make_plan(self) -> AgentPlan:
        return GraphAgentPlan(self)


def _checked(name: str, graph: CompiledGraph, state: object) -> dict[str, Any]:
    if not isinstance(state, Mapping | None):
        raise UsageError(f"GraphAgent '{name}': initial_state={state!r}. Give a mapping of fields.")
    fields = dict(cast("Mapping[str, Any]", state or {}))
    unknown = [] if graph.schema.extra else [field for field in fields if field not in graph.schema.channels]
    if unknown:
        raise UsageError(
            f"GraphAgent '{name}': initial_state has '{unknown[0]}', which is not a field of graph '{graph.name}'. "
            f"It has: {', '.join(graph.schema.channels)}."
        )
    return fields


def _top(frame: AgentFrame) -> AgentFrame:
    """Return the agent at the top of a tree: the run's root, or one that was started afresh."""
    return frame if frame.above is None else _top(frame.above)


def _keep_state(top: AgentFrame, name: str, fields: dict[str, Any]) -> None:
    """Keep the state that a graph agent continues from when it gets the turn again; its frame is gone by then."""
    states = {**top.fields.values.get("states", {}), name: fields}
    top.fields.set("states", states, tagged=True)  # Its values can be of any type in the graph's schema.
    top.scope.mark(top)


def _ending(action: Request) -> Ending:
    """Return how an agent ends that does what a node requested."""
    arguments = action.arguments
    return Ending(action=action.name, output=arguments.get("result", ""), target=arguments.get("target", ""))


def _messages(inner: GraphFrame) -> Sequence[Message] | None:
    found = inner.fields.values.get("messages")
    return codec.copy(found) if isinstance(found, list) else None
