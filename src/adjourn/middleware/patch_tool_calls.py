"""Patching tool calls: add results to calls that have none, which providers would reject."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Sequence

from adjourn._habits import checks_options
from adjourn.context import RunContext
from adjourn.messages import Message, ToolCall

from .hooks import Middleware, ModelState

PATCH = "This call has no result."


class PatchToolCalls(Middleware):
    """Adds a placeholder result for each tool call without one; `text` is its text, or a function that makes it."""

    @checks_options
    def __init__(self, text: str | Callable[[ToolCall], str] = PATCH) -> None:
        self._text = text

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        return ModelState(messages=tuple(self._patched(state.messages)))

    def _patched(self, messages: Sequence[Message]) -> list[Message]:
        answered = {message.tool_call_id for message in messages if message.role == "tool"}
        patched: list[Message] = []
        for message in messages:
            patched.append(message)
            patched += [self._placeholder(call) for call in message.tool_calls if call.id not in answered]
        return patched

    def _placeholder(self, call: ToolCall) -> Message:
        text = self._text(call) if callable(self._text) else self._text
        return Message.tool(text, tool_call_id=call.id, name=call.name)
