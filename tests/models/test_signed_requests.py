"""What a server signed is sent back to it byte by byte, also after a kill, from another process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, OpenAIChatModel, Runner, tool
from adjourn.messages import CallPart, Message, ReasoningPart, TextPart, ToolCall
from adjourn.models import ModelRequest
from adjourn.stores import SQLiteStore
from tests.models.openai_server import Server, answers, said, serving

HERE: dict[str, Any] = {"provider": "here"}
SIGNED = Message(
    role="assistant",
    content=(
        ReasoningPart(text="Hm.", signature="c2ln", **HERE),
        CallPart(id="c1"),
        TextPart(text="And a look.", extra={"z": 1, "a": 2}, **HERE),
    ),
    tool_calls=(
        ToolCall(id="c1", name="pay", arguments={"cents": 5}, extra={"extra_content": {"s": "ü", "b": [1.5]}}, **HERE),
        ToolCall(id="c2", name="look", **HERE, extra={"extra_content": {"s": "2"}}),
    ),
    finish_reason="tool_calls",
    extra={"reasoning_details": [{"type": "reasoning.encrypted", "data": "x==", "index": 0}]},
    **HERE,
)


class Signing:
    """A model that has signed its answer."""

    async def generate(self, request: ModelRequest) -> Message:
        return SIGNED


@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return "paid"


@tool
def look() -> str:
    """Look."""
    return "seen"


def runner_of(model: Any, path: Path | str) -> Runner[Any, Any]:
    return Runner(ChatModelAgent("A", model=model, tools=[pay, look]), store=SQLiteStore(path))


RUN_AND_DIE = """
import asyncio, os, signal, sys
from adjourn import Interrupted
from tests.models.test_signed_requests import Signing, runner_of

async def main():
    async for event in runner_of(Signing(), sys.argv[1]).run("go", session_id="s"):
        if isinstance(event, Interrupted):
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


def assistant_part(server: Server) -> str:
    """The assistant's message of the last request, as it was written."""
    [message] = [each for each in server.asked[-1].body["messages"] if each["role"] == "assistant"]
    return json.dumps(message)


async def test_a_signed_answer_goes_back_unchanged_after_a_kill(server: Server, tmp_path: Path) -> None:  # rule R9
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", RUN_AND_DIE, str(path)]
    died = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    model = OpenAIChatModel("m", base_url=server.url, **HERE)
    server.replies += [answers(said(content="done")), answers(said(content="ok"))]
    runner = runner_of(model, path)
    [asked] = await runner.pending("s")
    assert (await runner.resume("s", {asked.id: True})).output == "done"
    resumed = assistant_part(server)
    await model.generate(ModelRequest(messages=[SIGNED]))
    assert resumed == assistant_part(server)
    assert json.loads(resumed)["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "x==", "index": 0}]
    assert [call.get("extra_content") for call in json.loads(resumed)["tool_calls"]] == [
        {"s": "ü", "b": [1.5]},
        {"s": "2"},
    ]
    await model.close()


async def test_another_server_gets_none_of_it(server: Server, tmp_path: Path) -> None:
    await runner_of(Signing(), tmp_path / "s.db").run("go", session_id="s")
    model = OpenAIChatModel("m", base_url=server.url)
    server.replies.append(answers(said(content="done")))
    runner = runner_of(model, tmp_path / "s.db")
    [asked] = await runner.pending("s")
    await runner.resume("s", {asked.id: True})
    assert json.loads(assistant_part(server)) == {
        "role": "assistant",
        "content": "And a look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"cents":5}'}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    }
    await model.close()
