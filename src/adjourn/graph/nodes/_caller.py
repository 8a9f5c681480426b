"""A node of a graph as one that calls models and tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from adjourn._engine.frame import here
from adjourn._engine.scope import Frame, Scope
from adjourn.errors import UsageError
from adjourn.events import Event
from adjourn.graph._task import Task
from adjourn.middleware.hooks import for_agents_only


def node_middleware(given: Sequence[Any], node: str) -> tuple[Any, ...]:
    """The middleware of a node.

    Raises:
        UsageError: one of them is for agents, and would do nothing here.
    """
    for each in for_agents_only(tuple(given)):
        raise UsageError(
            f"Node '{node}': the middleware {type(each).__name__} prepares an agent (`before_agent`), and a node is "
            "none. Give it to a ChatModelAgent, and add that with add_agent_node."
        )
    return tuple(given)


class NodeCaller:
    """A running node, under its own name; it belongs to the agent around it, if there is one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.scope: Scope = task.scope
        self.caller = task.spec.name
        self.address = task.address
        self.trail = task.graph.voice.path
        self.tells = task.graph.voice.tells

    def emit(self, event: Event) -> None:
        """Tell a durable event of this node."""
        if self.scope.telling and self.tells:
            self.scope.journal.emit(replace(event, agent=self.caller, path=self.trail))

    def emit_live(self, event: Event) -> None:
        """Tell a live event of this node."""
        if self.scope.watched and self.tells:
            self.scope.journal.emit_live(replace(event, agent=self.caller, path=self.trail))

    def all_values(self) -> dict[str, Any]:
        """The session's values as the node sees them."""
        return self.task.all_values()

    def middleware(self) -> tuple[Any, ...]:
        """What surrounds calls made here: of the run, and of the agents that the graph is in, the outermost first."""
        found: tuple[Any, ...] = ()
        frame: Frame | None = self.task.parent
        while frame is not None:
            found = (*frame.middleware, *found)
            frame = frame.parent
        return (*self.scope.middleware, *found)


def running_task() -> Task:
    """The task of the node that calls this."""
    at = here.get()
    assert at is not None
    assert isinstance(at.frame, Task)
    return at.frame
