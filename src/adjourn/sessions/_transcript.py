"""The transcript of a session: everything that was said in it, entry by entry.

It only grows. Editing a tool call's arguments, or an agent's view of what was said, adds an entry that says so; what
stood there stays on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from adjourn._values.registry import native
from adjourn.messages import Message, ToolCall


class Edited(Struct, frozen=True, kw_only=True, gc=False):
    """Other arguments for a tool call, given by a person."""

    call_id: str
    arguments: Mapping[str, Any]  # Any: JSON
    by: str | None = None


class TranscriptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="entry", gc=False):
    """One entry: a message; or edited arguments; or the messages that `author` sees from here on instead.

    `author` is an agent's name, and empty for the user. `seen_as` replaces everything that the author saw before,
    except for the first `seen_from` messages.
    """

    author: str = ""
    turn: int = 0
    path: tuple[str, ...] = ()
    message: Message | None = None
    edited: Edited | None = None
    seen_as: tuple[Message, ...] | None = None
    seen_from: int = 0


native(TranscriptEntry)


def conversation(entries: Iterable[TranscriptEntry]) -> list[Message]:
    """Return all that was said, for people."""
    messages: list[Message] = []
    for entry in entries:
        if entry.edited is not None:
            amend(messages, entry.edited)
        elif entry.message is not None:
            messages.append(entry.message)
    return messages


def amend(messages: list[Message], edited: Edited) -> None:
    """Show a call, in the most recent message that has it, with the arguments that ran."""
    for place in range(len(messages) - 1, -1, -1):
        if has_call(messages[place], edited):
            messages[place] = with_edit(messages[place], edited)
            return


def has_call(message: Message, edited: Edited) -> bool:
    """Return whether a message makes the call that was edited."""
    return any(call.id == edited.call_id for call in message.tool_calls)


def with_edit(message: Message, edited: Edited) -> Message:
    """Return a message whose edited call has the arguments that ran."""
    return replace(message, tool_calls=tuple(_amended(call, edited) for call in message.tool_calls))


def _amended(call: ToolCall, edited: Edited) -> ToolCall:
    return ToolCall(id=call.id, name=call.name, arguments=edited.arguments) if call.id == edited.call_id else call
