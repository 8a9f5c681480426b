"""Ids of tool calls: the model's own, unless it gave none or one twice."""

from __future__ import annotations

from msgspec.structs import replace

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
