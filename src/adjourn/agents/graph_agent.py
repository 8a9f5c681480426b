"""GraphAgent: a compiled graph as an agent: at the root, in the tree of another agent, or as a tool."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from adjourn._calls.caller import WrapsCalls
from adjourn._checks import check_middleware
from adjourn._engine.program import Report
from adjourn._engine.scope import Frame, Request, Scope
from adjourn._values import codec
from adjourn.errors import UsageError
from adjourn.graph._frame import Task
from adjourn.graph._node import Plan, Send
from adjourn.graph._supersteps import GraphFrame
from adjourn.graph.commands import Overwrite
from adjourn.graph.compiled import CompiledGraph
from adjourn.graph.nodes.agent import ShowsGraph
from adjourn.messages import Message

from ._config import AgentConfig, input_messages
from ._frame import SCHEMA, AgentFrame, TranscriptFrame
from ._transcript import Ending
from .agent import Agent

INNER = "~"


class GraphAgentFrame(AgentFrame, WrapsCalls):
    """A running graph agent: its graph has a separate frame below it, which is kept when a turn has ended."""

    agent: GraphAgent
    inner: GraphFrame | None = None

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(agent, plan, scope, parent, segment)
        self.middleware = self.agent.middleware

    def first(self) -> list[Send]:
        return []

    def task_at(self, segment: str) -> Task | None:
        return None if segment == INNER else super().task_at(segment)

    def check_action(self, action: Request) -> None:
        raise UsageError(
            f"'{action.name}' was requested in a graph, where edges decide what follows. Return a Command from a node."
        )

    def begin(self, input: Any) -> None:
        inner, initial = self.bind_inner(), dict[str, Any]()
        if inner is None:
            inner = self.inner = self.agent.graph.open(self.scope, self, INNER, None)
            initial = dict(self._first_state())
        super().begin(input)
        prompt = self.last_prompt()
        said = _newest(input_messages(input, self.agent.name)) or ("" if prompt is None else prompt.text)
        inner.begin({**initial, "user_input": said})
        self.scope.mark(inner)

    def _first_state(self) -> Mapping[str, Any]:
        """Return the state that the graph starts from in a new frame."""
        kept = None if self.above is None else _top(self).fields.values.get("states", {}).get(self.agent.name)
        if kept is None:
            return self.agent.initial_state
        known = self.agent.graph.schema
        return {name: Overwrite(value) for name, value in kept.items() if name in known.channels or known.extra}

    def bind_inner(self) -> GraphFrame | None:
        """Return the graph's frame, restored from its stored image if it is dormant."""
        if self.inner is None:
            image = self.scope.dormant.bind(self.path, INNER)
            if image is not None:
                self.inner = self.agent.graph.open(self.scope, self, INNER, image)
        return self.inner

    def bind_dormant(self) -> None:
        self.bind_inner()

    async def advance(self) -> bool:
        inner = self.bind_inner()
        if inner is None or self.progress.ending is not None:
            return self.progress.ending is not None
        if not await inner.advance():
            return False
        report = inner.report()
        self.end(Ending(output=report.output))
        if self.above is not None:
            _keep_state(_top(self), self.agent.name, dict(inner.fields.values))
        if report.output:
            self.owner.extend([self.entry(Message.assistant(report.output))])
        return True

    def live_children(self) -> Iterable[Frame]:
        return [] if self.inner is None else [self.inner]

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

    def has_more(self) -> bool:
        inner = self.bind_inner()
        return inner is not None and inner.has_more()

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
    """A graph as an agent: the user's message becomes its `user_input`, its `last_response` the answer.

    At the root and in the tree of another agent, its state lives as long as the session: it continues where it ended,
    and `initial_state` is used once. As a tool, and as a node of a graph, it starts afresh each time. Its input is
    what the user said since the last answer; its graph sees the rest of the conversation only as far as it is in the
    graph's own state. `middleware` surrounds the calls of its LLM and tools nodes, including those of subgraphs.
    """

    frame_type = GraphAgentFrame

    def __init__(
        self,
        name: str,
        graph: CompiledGraph,
        *,
        description: str = "",
        initial_state: Mapping[str, Any] | None = None,
        middleware: Sequence[Any] = (),
    ) -> None:
        if not isinstance(graph, CompiledGraph):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"GraphAgent '{name}': {graph!r} is not a compiled graph. Did you call .compile()?")
        if "user_input" not in graph.schema.channels:
            raise UsageError(
                f"GraphAgent '{name}': the state of graph '{graph.name}' has no field 'user_input' for the user's "
                "message. Base it on MessagesState, or add one."
            )
        self.name = name
        self.graph = graph
        self.description = description
        self.initial_state = _checked(name, graph, initial_state)
        self.middleware = check_middleware(middleware, f"GraphAgent '{name}'")

    @property
    def drawn_as(self) -> Plan:
        return self.graph

    def make_plan(self) -> Plan:
        return Plan(self.name, SCHEMA)  # It has no steps itself.


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


def _top(frame: TranscriptFrame) -> TranscriptFrame:
    """Return the agent at the top of a tree: the run's root, or one that was started afresh."""
    return frame if frame.above is None else _top(frame.above)


def _keep_state(top: TranscriptFrame, name: str, fields: dict[str, Any]) -> None:
    """Keep the state that a graph agent continues from when it gets the turn again; its frame is gone by then."""
    states = {**top.fields.values.get("states", {}), name: fields}
    top.fields.set("states", states, tagged=True)  # Its values can be of any type in the graph's schema.
    top.scope.mark(top)


def _newest(messages: Sequence[Message]) -> str:
    """Return what the user has said since the last answer."""
    said = list(takewhile(lambda message: message.role == "user", reversed(messages)))
    return "\n".join(message.text for message in reversed(said))


def _messages(inner: GraphFrame) -> Sequence[Message] | None:
    found = inner.fields.values.get("messages")
    return codec.copy(found) if isinstance(found, list) else None
