"""Agents whose model follows a script of tool calls, for tests of what becomes of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn import ChatModelAgent, Message, Runner, RunResult, ToolCall
from adjourn.events import Event, ToolResult
from adjourn.models import Chunk
from adjourn.models.chunks import ToolCallChunk
from adjourn.testing import ScriptedModel


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCall:
    """A call as a model makes it."""
    return ToolCall(id=id, name=name, arguments=arguments)


def written(name: str, text: str, id: str = "c1") -> list[Chunk]:
    """A streamed call whose arguments are this text, whatever it is."""
    middle = len(text) // 2
    first = ToolCallChunk(index=0, id=id, name=name, arguments=text[:middle])
    rest = ToolCallChunk(index=0, arguments=text[middle:])
    return [Chunk(tool_calls=(first,)), Chunk(tool_calls=(rest,)), Chunk(finish_reason="tool_calls")]


def agent(tools: Sequence[Any], *script: Any, name: str = "A", **options: Any) -> ChatModelAgent:
    """An agent with these tools; its model says "done" when its script is over."""
    return ChatModelAgent(name, model=ScriptedModel([*script, *["done"] * 5]), tools=tools, **options)


def runner(tools: Sequence[Any], *script: Any, store: Any = None, **options: Any) -> Runner:
    """A runner of such an agent."""
    return Runner(agent(tools, *script, **options), store=store)


def results(result: RunResult | Sequence[Message]) -> list[str]:
    """What the model reads of tool results, in order."""
    messages = result.messages if isinstance(result, RunResult) else result
    return [message.text for message in messages if message.role == "tool"]


def lone(result: RunResult) -> str:
    """The id of the one open question."""
    assert result.status == "interrupted", result
    (asked,) = result.interrupts
    return asked.id


def told(events: Sequence[Event]) -> list[ToolResult]:
    """The events of tool results."""
    return [event for event in events if isinstance(event, ToolResult)]


async def all_of(run: Any) -> list[Event]:
    """All events of a run."""
    return [event async for event in run]
