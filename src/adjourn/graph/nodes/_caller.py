"""Graph nodes as callers of models and tools."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from adjourn._checks import check_middleware
from adjourn._engine.scope import Scope
from adjourn.errors import UsageError
from adjourn.events import Event
from adjourn.graph._frame import Task
from adjourn.middleware.hooks import Hooks
from adjourn.tools import Tool


def node_hooks(given: Sequence[Any], node: str) -> Hooks:
    """Return the hooks of a node's middleware.

    Raises:
        UsageError: one of them is only for agents and would do nothing here.
    """
    hooks = Hooks(check_middleware(given, f"Node '{node}'"))
    for each in hooks.for_agents_only():
        raise UsageError(
            f"Node '{node}': the middleware {type(each).__name__} prepares an agent (`before_agent`), and a node is "
            "not an agent. Give it to a ChatModelAgent, and add that with add_agent_node."
        )
    return hooks


class NodeCaller:
    """A running node as a caller, under its own name and as part of the agent around it, if any."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.scope: Scope = task.scope
        self.address = task.address
        self.audience = task.graph.audience._replace(name=task.node.name)

    def emit(self, event: Event) -> None:
        """Emit a durable event of this node."""
        if self.scope.logs_events and self.audience.hears:
            self.scope.log.emit(replace(event, agent=self.audience.name, path=self.audience.path))

    def emit_live(self, event: Event) -> None:
        """Emit a live event of this node."""
        if self.scope.has_reader and self.audience.hears:
            self.scope.log.emit_live(replace(event, agent=self.audience.name, path=self.audience.path))

    def answer_id(self) -> str:
        """Return the id of the message that the node's model writes: the same however often the node runs."""
        # Not from the graph's counter, which parallel nodes share: which of them answers first must not matter.
        place = hashlib.blake2b(f"{self.task.path} {self.task.instance}".encode(), digest_size=5).hexdigest()
        return f"m{place}.1"

    def all_values(self) -> dict[str, Any]:
        """Return the session values as the node sees them."""
        return self.task.all_values()


MOST_TOOLS = 4
"""The number of tools that a drawing names; any others are only counted."""


def tool_names(tools: Iterable[Tool]) -> list[str]:
    """Return one line that names the tools, or no line if there are no tools."""
    names = [each.name for each in tools]
    if len(names) > MOST_TOOLS:
        names[MOST_TOOLS:] = [f"{len(names) - MOST_TOOLS} more"]
    return [f"tools: {', '.join(names)}"] if names else []
