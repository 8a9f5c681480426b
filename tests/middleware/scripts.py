"""Agents whose models follow a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn import ChatModelAgent, Message, Middleware, ToolCall
from adjourn.testing import ScriptedModel


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def scripted(*script: Any, tools: Sequence[Any] = (), middleware: Sequence[Middleware] = (), **options: Any) -> Any:
    """An agent and its model, whose `requests` tell what it was shown."""
    model = ScriptedModel(script)
    return ChatModelAgent("A", model=model, tools=tools, middleware=middleware, **options), model


def result_of(messages: Sequence[Message], call_id: str = "c1") -> str:
    """The newest result of a call."""
    return next(message.text for message in reversed(messages) if message.tool_call_id == call_id)
