"""GraphAgent: a compiled graph as an agent: at the root, in the tree of another agent, or as a tool."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from adjourn._checks import check_middleware
from adjourn._engine.program import Report
from adjourn._engine.record import Image
from adjourn._engine.scope import ACTION, Action, Frame, Scope
from adjourn._habits import checks_options
from adjourn._values import codec
from adjourn.errors import UsageError
from adjourn.events import BreakLoop, Exit, Transfer
from adjourn.graph._frame import GraphFrame
from adjourn.graph._node import Plan, Send
from adjourn.graph.commands import Overwrite
from adjourn.graph.compiled import CompiledGraph
from adjourn.graph.nodes.agent import ShowsGraph
from adjourn.messages import Message

from ._config import AgentInput, input_messages
from ._frame import AgentFrame, AgentPlan
from ._graph_mapping import FromState, GraphMapping, ToState, newest
from ._handoff import check_target, giver
from ._transcript import Ending
from .agent import Agent

INNER = "~"


class GraphAgentPlan(AgentPlan):
    """The plan of a graph agent: its graph has a separate frame below it, which is kept when a turn has ended.

    It has no steps itself, so its own frame never has tasks.
    """

    has_state = True
    beside = INNER

    def __init__(self, agent: GraphAgent) -> None:
        super().__init__(agent)
        self._agent = agent

    def first(self, frame: AgentFrame) -> list[Send]:
        return []

    def check_action(self, frame: AgentFrame, action: Action) -> None:
        if action.name == "transfer":
            back = giver(frame)
            check_target([] if back is None else [back.agent], action.arguments["target"])

    def take_values(self, frame: AgentFrame, values: Mapping[str, Any]) -> Mapping[str, Any]:
        kept = dict(values)
        if (action := kept.pop(ACTION, None)) is not None:
            # The graph goes on by its edges; what was requested is done when it has ended.
            frame.set_progress(requested=_ending(Action(**action)))
        return kept

    def open_graph(self, frame: AgentFrame, image: Image | None) -> GraphFrame:
        """Return the frame of an agent's graph, restored from its stored image if there is one."""
        return self._agent.graph.open_as(InnerFrame, frame.scope, frame, INNER, image)

    def begin_state(self, frame: AgentFrame, input: Any, state: Mapping[str, Any]) -> None:
        inner, initial = _graph(frame), cast("Mapping[str, Any]", {})
        if inner is None:
            inner = frame.beside = self.open_graph(frame, None)
            initial = self._first_state(frame)
        inner.begin_from(initial, state, self._agent.mapping.state_for(self._given(frame, input)))
        frame.scope.mark(inner)

    def _given(self, frame: AgentFrame, input: Any) -> AgentInput:
        """Return what the agent was given: the conversation, and what the user has said since the last answer."""
        prompt = frame.view.last_prompt(frame.transcript.sources)
        message = newest(input_messages(input, self.name)) or (None if prompt is None else newest([prompt]))
        messages = tuple(frame.seen())
        return AgentInput(messages=messages, text="" if message is None else message.text, message=message)

    def _first_state(self, frame: AgentFrame) -> Mapping[str, Any]:
        """Return the state that the graph starts from in a new frame."""
        kept = None if frame.above is None else _top(frame).fields.values.get("states", {}).get(self.name)
        if kept is None:
            return self._agent.initial_state
        known = self._agent.graph.schema
        return {name: Overwrite(value) for name, value in kept.items() if name in known.channels or known.extra}

    async def prepare(self, frame: AgentFrame) -> bool:
        if frame.progress.ending is None:
            inner = _graph(frame)
            if inner is None or not await inner.advance():
                return False
            self._finish(frame, inner)
        return True

    def _finish(self, frame: AgentFrame, inner: GraphFrame) -> None:
        """End the agent: say what the graph came to, unless it hands back, and do what its nodes requested."""
        requested = frame.progress.requested or Ending()
        said = self._agent.mapping.answer_of(inner.report().state) if requested.action != "transfer" else None
        output = requested.output or ("" if said is None else said.text)
        _emit_action(frame, requested)
        frame.end(Ending(output=output, action=requested.action, target=requested.target))
        if frame.above is not None:
            _keep_state(_top(frame), self.name, inner.fields.share())
        if said is not None:
            frame.transcript.extend([frame.entry(said)])

    # What people see and change

    def report(self, frame: AgentFrame) -> Report:
        inner, own = _graph(frame), super().report(frame)
        if inner is None:
            return own
        found = inner.report()
        # Below another frame, it takes part in a conversation other than that of its graph.
        messages = _messages(inner) if frame.parent is None else None
        return Report(output=own.output, state=found.state, fields=found.fields, messages=messages or own.messages)

    def following(self, frame: AgentFrame) -> tuple[str, ...]:
        inner = _graph(frame)
        return () if inner is None else inner.following()

    def abandon(self, frame: AgentFrame) -> None:
        if (inner := _graph(frame)) is not None:
            inner.abandon()
        frame.set_progress(ending=Ending())

    def supply(self, frame: AgentFrame, state: Mapping[str, Any]) -> None:
        if (inner := _graph(frame)) is not None:
            inner.supply(state)

    def edit(self, frame: AgentFrame, values: Mapping[str, Any], as_node: str | None) -> None:
        inner = _graph(frame)
        if inner is None:
            raise UsageError(f"GraphAgent '{self.name}' has no state yet. Run it first.")
        inner.edit(values, as_node)
        if as_node is not None:
            frame.set_progress(ending=None)


class InnerFrame(GraphFrame):
    """The graph of a graph agent: the session values that its nodes write are the agent's."""

    def merge_values(self, values: Mapping[str, Any]) -> None:
        agent = cast("AgentFrame", self.parent)
        agent.merge_values(values)
        agent.scope.mark(agent)


class GraphAgent(Agent, ShowsGraph):
    """A graph as an agent: the user's message becomes a field of its state, and a field of its state the answer.

    At the root and in the tree of another agent, its state lives as long as the session: it continues where it ended,
    and `initial_state` is used once. As a tool, and as a node of a graph, it starts afresh each time. Its input is
    what the user said since the last answer; its graph sees the rest of the conversation only as far as it is in the
    graph's own state, or as `input` puts it there.

    A node can end the agent's part in the conversation: `current().transfer_to(...)` the agent that handed over to it,
    `current().exit(...)` or `current().break_loop()`. The graph goes on by its edges; when it has ended, that is done.
    """

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
        """Make an agent of a graph.

        name: used in addresses and records; it must be unique in the agent's tree.
        graph: the compiled graph.
        description: what the agent is for; other agents and people read it.
        initial_state: the fields that its state starts with in a session.
        input: the field that gets the message, or a function of an `AgentInput` that returns an update of the state;
            `user_input` by default.
        output: the field with the answer, or a function of the final state that returns text or an assistant message;
            `last_response` by default.
        middleware: what surrounds the calls of its LLM and tools nodes, including those of subgraphs.
        """
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

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        frame = super().open(scope, parent, segment, image)
        frame.around_nodes = self.middleware
        if INNER in scope.dormant.below(frame.path):
            plan = cast("GraphAgentPlan", self.plan)
            frame.beside = scope.dormant.reopen(frame.path, INNER, partial(plan.open_graph, frame))
        return frame


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


def _graph(frame: AgentFrame) -> GraphFrame | None:
    """Return the frame of an agent's graph, which it has from its first turn on."""
    return cast("GraphFrame | None", frame.beside)


def _emit_action(frame: AgentFrame, requested: Ending) -> None:
    match requested.action:
        case "transfer":
            frame.emit(Transfer(address=frame.address, target=requested.target))
        case "exit":
            frame.emit(Exit(address=frame.address, result=requested.output))
        case "break_loop":
            frame.emit(BreakLoop(address=frame.address))
        case _:
            pass


def _top(frame: AgentFrame) -> AgentFrame:
    """Return the agent at the top of a tree: the run's root, or one that was started afresh."""
    return frame if frame.above is None else _top(frame.above)


def _keep_state(top: AgentFrame, name: str, fields: dict[str, Any]) -> None:
    """Keep the state that a graph agent continues from when it gets the turn again; its frame is gone by then."""
    states = {**top.fields.values.get("states", {}), name: fields}
    top.fields.set("states", states, tagged=True)  # Its values can be of any type in the graph's schema.
    top.scope.mark(top)


def _ending(action: Action) -> Ending:
    """Return how an agent ends that does what a node requested."""
    arguments = action.arguments
    return Ending(action=action.name, output=arguments.get("result", ""), target=arguments.get("target", ""))


def _messages(inner: GraphFrame) -> Sequence[Message] | None:
    found = inner.fields.values.get("messages")
    return codec.copy(found) if isinstance(found, list) else None
