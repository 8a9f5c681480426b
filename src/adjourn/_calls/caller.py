"""Who calls models and tools, an agent or a node of a graph, and the ids of its calls."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from adjourn._engine.scope import Scope
from adjourn.events import Event
from adjourn.messages import Message, ToolCall


def with_own_ids(message: Message, used: set[str]) -> Message:
    """The message with an id for each call that is not in `used` and no other of its calls has."""
    if not message.tool_calls:
        return message
    calls: dict[str, ToolCall] = {}
    for call in message.tool_calls:
        name, number = call.id or "call", 2
        while name in used or name in calls:
            name, number = f"{call.id or 'call'}~{number}", number + 1
        calls[name] = call if name == call.id else replace(call, id=name)
    if list(calls) == [call.id for call in message.tool_calls]:
        return message
    return replace(message, tool_calls=tuple(calls.values()))


class Caller(Protocol):
    """What a call needs to know of whoever makes it."""

    scope: Scope

    @property
    def caller(self) -> str:
        """The name that people see."""
        ...

    @property
    def trail(self) -> tuple[str, ...]:
        """The agents that the turn has gone through."""
        ...

    @property
    def address(self) -> str:
        """Where it stands."""
        ...

    @property
    def tells(self) -> bool:
        """Whether what it does is told to those who follow the run."""
        ...

    def emit_live(self, event: Event) -> None:
        """Tell a live event, as its own."""
        ...

    def all_values(self) -> dict[str, Any]:
        """The session's values as it sees them."""
        ...
