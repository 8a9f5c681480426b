"""Who calls models and tools, an agent or a node of a graph, and the ids of its calls."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from adjourn._engine.scope import Audience, Frame, Scope
from adjourn.events import Event
from adjourn.messages import Message, ToolCall
from adjourn.runner import ProgramOptions


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
    def address(self) -> str:
        """Where it stands."""
        ...

    @property
    def audience(self) -> Audience:
        """The name that people see, the agents that the turn has gone through, and whether anybody hears of it."""
        ...

    def emit_live(self, event: Event) -> None:
        """Emit a live event as its own."""
        ...

    def all_values(self) -> dict[str, Any]:
        """The session's values as it sees them."""
        ...


class WrapsCalls:
    """A frame whose middleware surrounds the calls that are made below it."""

    __slots__ = ()

    middleware: tuple[Any, ...] = ()  # Any: whoever wrote them need not have subclassed ours


def middleware_around(frame: Frame | None) -> tuple[Any, ...]:
    """What surrounds calls made in a frame: middleware of the run, then of the frames above it, the outermost first."""
    found: tuple[Any, ...] = ()
    scope = None if frame is None else frame.scope
    while frame is not None:
        if isinstance(frame, WrapsCalls):
            found = (*frame.middleware, *found)
        frame = frame.parent
    return found if scope is None else (*program_options(scope).middleware, *found)


_DEFAULTS = ProgramOptions()


def program_options(scope: Scope) -> ProgramOptions:
    """What the runner was given for its program."""
    found: object = scope.program_options
    return found if isinstance(found, ProgramOptions) else _DEFAULTS
