"""GraphAgent: a compiled graph as an agent, at the root, in another one's tree, or as a tool."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from adjourn._engine.program import Report
from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn._values import codec
from adjourn.errors import ProgramChanged, UsageError
from adjourn.graph._frame import GraphFrame
from adjourn.graph._task import Send, Task
from adjourn.graph.commands import Overwrite
from adjourn.graph.compiled import CompiledGraph
from adjourn.messages import Message

from ._frame import AgentFrame
from ._inputs import input_messages
from ._plan import AgentPlan
from ._progress import Ending
from .agent import Agent

INNER = "~"


class GraphAgent(Agent):
    """A graph as an agent: the user's message becomes its `user_input`, its `last_response` the answer.

    Its state lives as long as the session does, at the root and in another agent's tree: whoever hands over to it again
    finds it where it ended, and `initial_state` counts once. As a tool, and as a node of a graph, it begins anew each
    time. What the user said since anybody answered is its input; of what else was said, its graph has what is in its
    own state. `middleware` surrounds the calls of its LLM and tools nodes, also in the graphs inside it.
    """

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
            raise UsageError(f"GraphAgent '{name}': {graph!r} is no compiled graph. Did you call .compile()?")
        if "user_input" not in graph.schema.channels:
            raise UsageError(
                f"GraphAgent '{name}': the state of graph '{graph.name}' has no field 'user_input' for what the user "
                "says. Base it on MessagesState, or add one."
            )
        self.name = name
        self.graph = graph
        self.description = description
        self.initial_state = _checked(name, graph, initial_state)
        self.middleware = tuple(middleware)

    def make_plan(self) -> AgentPlan:
        return _GraphPlan(self)

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        frame = GraphAgentFrame(self, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what stands there is no agent, as '{self.name}' is")
        frame.restore(image)
        return frame


class _GraphPlan(AgentPlan):
    """A graph agent has no nodes of its own."""

    def first(self, frame: AgentFrame) -> list[Send]:
        return []

    def task_at(self, frame: AgentFrame, segment: str) -> Task | None:
        return None if segment == INNER else super().task_at(frame, segment)

    def check_action(self, frame: AgentFrame, action: Mapping[str, str]) -> None:
        raise UsageError(
            f"'{action['action']}' was asked for in a graph, which goes its own ways. Return a Command from a node."
        )


class GraphAgentFrame(AgentFrame):
    """A running graph agent: its graph is a frame of its own below it, which stays when a turn has ended."""

    def __init__(self, agent: GraphAgent, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(agent.plan, scope, parent, segment)
        self.graph_agent = agent
        self.middleware = agent.middleware
        self.inner: GraphFrame | None = None

    def begin(self, input: Any) -> None:
        inner, initial = self.rouse_inner(), dict[str, Any]()
        if inner is None:
            inner = self.inner = self.graph_agent.graph.open(self.scope, self, INNER, None)
            initial = dict(self._first_state())
        super().begin(input)
        told = self.told_last()
        said = _newest(input_messages(input, self.agent.name)) or ("" if told is None else told.text)
        inner.begin({**initial, "user_input": said})
        self.scope.mark(inner)

    def _first_state(self) -> Mapping[str, Any]:
        """What the graph goes on from in a frame that is new."""
        kept = None if self.above is None else _top(self).channels.get("states", {}).get(self.agent.name)
        if kept is None:
            return self.graph_agent.initial_state
        known = self.graph_agent.graph.schema
        return {name: Overwrite(value) for name, value in kept.items() if name in known.channels or known.extra}

    def rouse_inner(self) -> GraphFrame | None:
        """The graph's frame, from its stored image if it sleeps."""
        if self.inner is None:
            image = self.scope.dormant.bind(self.path, INNER)
            if image is not None:
                self.inner = self.graph_agent.graph.open(self.scope, self, INNER, image)
        return self.inner

    def bind_dormant(self) -> None:
        self.rouse_inner()

    async def advance(self) -> bool:
        inner = self.rouse_inner()
        if inner is None or self.progress.ending is not None:
            return self.progress.ending is not None
        if not await inner.advance():
            return False
        report = inner.report()
        self.end(Ending(output=report.output))
        if self.above is not None:
            _keep_state(_top(self), self.agent.name, dict(inner.channels))
        if report.output:
            self.owner.extend([self.entry(Message.assistant(report.output))])
        return True

    def live_children(self) -> Iterable[Frame]:
        return [] if self.inner is None else [self.inner]

    def report(self) -> Report:
        inner, own = self.rouse_inner(), super().report()
        if inner is None:
            return own
        found = inner.report()
        # Below another frame it takes part in a conversation that is not its graph's own.
        messages = _messages(inner) if self.parent is None else None
        return Report(output=own.output, state=found.state, fields=found.fields, messages=messages or own.messages)

    def following(self) -> tuple[str, ...]:
        inner = self.rouse_inner()
        return () if inner is None else inner.following()

    def has_more(self) -> bool:
        inner = self.rouse_inner()
        return inner is not None and inner.has_more()

    def supply(self, state: Mapping[str, Any]) -> None:
        if (inner := self.rouse_inner()) is not None:
            inner.supply(state)

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        inner = self.rouse_inner()
        if inner is None:
            raise UsageError(f"GraphAgent '{self.agent.name}' has no state yet. Run it first.")
        inner.edit(values, as_node)
        if as_node is not None:
            self.set_progress(ending=None)

    def abandon(self) -> None:
        if (inner := self.rouse_inner()) is not None:
            inner.abandon()
        self.set_progress(ending=Ending())


def _checked(name: str, graph: CompiledGraph, state: object) -> dict[str, Any]:
    if not isinstance(state, Mapping | None):
        raise UsageError(f"GraphAgent '{name}': initial_state={state!r}. Give a mapping of fields.")
    fields = dict(cast("Mapping[str, Any]", state or {}))
    unknown = [] if graph.schema.extra else [field for field in fields if field not in graph.schema.channels]
    if unknown:
        raise UsageError(
            f"GraphAgent '{name}': initial_state has '{unknown[0]}', which is no field of graph '{graph.name}'. "
            f"It has: {', '.join(graph.schema.channels)}."
        )
    return fields


def _top(frame: AgentFrame) -> AgentFrame:
    """The agent at the top of a tree: the run's root, or one that was started afresh."""
    return frame if frame.above is None else _top(frame.above)


def _keep_state(top: AgentFrame, name: str, fields: dict[str, Any]) -> None:
    """Keep what a graph agent goes on from when it is handed over to again; its own frame is gone by then."""
    top.channels["states"] = {**top.channels.get("states", {}), name: fields}
    top.replaced["states"] = None
    top.tagged |= {"states"}  # Whatever the graph's schema has in it.
    top.scope.mark(top)


def _newest(messages: Sequence[Message]) -> str:
    """What the user has said since anybody answered."""
    said = list(takewhile(lambda message: message.role == "user", reversed(messages)))
    return "\n".join(message.text for message in reversed(said))


def _messages(inner: GraphFrame) -> Sequence[Message] | None:
    found = inner.channels.get("messages")
    return codec.copy(found) if isinstance(found, list) else None
