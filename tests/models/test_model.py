"""A model has `generate`, `stream` or both, and either serves for both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from adjourn import Message, Retry, ToolCall, UsageError
from adjourn.errors import ModelError
from adjourn.messages import ReasoningPart
from adjourn.models import Chunk, ModelRequest, ToolSpec, close_stream, generate, stream

ASKED = ModelRequest(messages=[Message.user("hi")])


class Whole:
    async def generate(self, request: ModelRequest) -> Message:
        text = request.messages[-1].text.upper()
        parts = [ReasoningPart(text="hm"), text]
        return Message.assistant(parts, tool_calls=[ToolCall(id="c1", name="book")], finish_reason="stop")


class Pieces:
    closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            for letter in request.messages[-1].text:
                yield Chunk(text=letter.upper())
        finally:
            self.closed = True


class Both(Whole, Pieces):
    pass


async def test_what_is_only_streamed_can_be_had_whole() -> None:
    assert await generate(Pieces(), ASKED) == Message.assistant("HI")


async def test_what_is_only_whole_can_be_streamed() -> None:
    chunks = [chunk async for chunk in stream(Whole(), ASKED)]
    assert [chunk.reasoning + chunk.text for chunk in chunks] == ["hm", "HI", "", ""]
    assert chunks[2].tool_calls[0].name == "book"
    assert chunks[3].finish_reason == "stop"


async def test_of_both_each_is_used_for_what_it_is() -> None:
    assert (await generate(Both(), ASKED)).tool_calls != ()
    assert [chunk.text async for chunk in stream(Both(), ASKED)] == ["H", "I"]


async def test_a_stream_that_nobody_wants_any_more_is_closed() -> None:
    model = Pieces()
    chunks = stream(model, ASKED)
    await anext(chunks)
    assert not model.closed
    await close_stream(chunks)
    assert model.closed
    await close_stream(chunks)


async def test_a_stream_that_is_a_coroutine_is_explained() -> None:
    class Wrong:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            return Pieces().stream(request)

    with pytest.raises(UsageError, match=r"Wrong\.stream returned a coroutine.*async generator"):
        stream(cast("Any", Wrong()), ASKED)


@pytest.mark.parametrize("answer", ["hi", None, Message.user("hi")])
async def test_an_answer_that_is_none_is_explained(answer: object) -> None:
    class Wrong:
        async def generate(self, request: ModelRequest) -> Message:
            return cast("Message", answer)

    with pytest.raises(UsageError, match=r"Wrong\.generate returned .*Message\.assistant"):
        await generate(Wrong(), ASKED)


def test_a_request_stays_when_the_list_it_was_made_from_grows() -> None:
    messages, tools = [Message.user("hi")], [ToolSpec(name="book", schema={"type": "object"})]
    request = ModelRequest(messages=messages, tools=tools)
    messages.append(Message.assistant("ho"))
    tools.clear()
    assert (len(request.messages), len(request.tools)) == (1, 1)


def test_a_model_error_tells_whether_trying_again_can_help() -> None:
    busy = ModelError("busy", provider="openai", status=429, code="rate_limit_exceeded", retry_after=2.0)
    wrong = ModelError("wrong", status=400, retryable=False)
    assert (busy.provider, busy.status, busy.code, busy.retry_after) == ("openai", 429, "rate_limit_exceeded", 2.0)
    assert Retry(on=ModelError).matches(busy)
    assert Retry().matches(ModelError("plain"))
    assert not Retry(on=ModelError).matches(wrong)
