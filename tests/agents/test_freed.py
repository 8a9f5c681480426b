"""Agents that have ended leave nothing behind: no frame keeps itself alive through its parts."""

from __future__ import annotations

import gc

from adjourn import ChatModelAgent, Runner, SequentialAgent, tool
from adjourn._engine.scope import Frame
from adjourn.messages import Message, ToolCall
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


def say(request: ModelRequest) -> Message:
    if any(message.role == "tool" for message in request.messages):
        return Message.assistant("done")
    return Message.assistant("", tool_calls=[ToolCall(id="c1", name="look", arguments={"what": "it"})])


def _frames() -> int:
    return sum(isinstance(each, Frame) for each in gc.get_objects())


async def test_agents_that_have_ended_are_freed_without_the_garbage_collector():
    inner = ChatModelAgent("inner", model=FunctionModel(say), tools=[look])
    runner = Runner(SequentialAgent("outer", agents=[inner]))
    await runner.run("look")
    gc.collect()
    gc.disable()
    before = _frames()
    try:
        for _ in range(30):
            await runner.run("look")
        assert _frames() - before < 20
    finally:
        gc.enable()
