"""Call any model, whatever it implements and however it can be asked for a structured answer."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import cast

from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn.errors import ModelError, UsageError
from adjourn.messages import Message

from ._results import close_stream, fitted, read_result, stream_result
from .bounds import bounds_of, in_time
from .chunks import Chunk, Gathering, chunks_of
from .protocol import ChatModel, Generates, ModelRequest, Streams


async def generate(model: ChatModel, request: ModelRequest) -> Message:
    """Ask a model for a whole answer; the chunks of a model that only streams are collected.

    Raises:
        ModelError: the model could not answer, or its stream ended without an answer.
        UsageError: the model did not return an assistant message.
    """
    request, by_tool = fitted(model, request)
    async with in_time(bounds_of(model)):
        if not hasattr(model, "generate"):
            message = await _gathered(model, request)
        else:
            message = _answer(model, await cast("Generates", model).generate(request))
    return read_result(message) if by_tool else message


async def _gathered(model: ChatModel, request: ModelRequest) -> Message:
    gathering = Gathering(bounds_of(model))
    chunks = _chunks(model, request)
    try:
        async for chunk in chunks:
            gathering.add(chunk)
    finally:
        await close_stream(chunks)
    return answered(gathering)


def answered(gathering: Gathering) -> Message:
    """Return the message that a model's chunks add up to.

    Raises:
        ModelError: there were none.
    """
    if gathering.is_empty:
        raise ModelError("The stream of a model ended without an answer. A model that has none must raise an error.")
    return gathering.message()


def stream(model: ChatModel, request: ModelRequest) -> AsyncIterator[Chunk]:
    """Ask a model for a streamed answer; a model that does not stream yields one chunk per part.

    This returns the model's own iterator, since wrapping it would add a cost to every token: callers that leave it
    early must close it with `close_stream`.

    Raises:
        UsageError: the model's `stream` does not return an async iterator.
    """
    request, by_tool = fitted(model, request)
    chunks = _chunks(model, request)
    return stream_result(chunks) if by_tool else chunks


def _chunks(model: ChatModel, request: ModelRequest) -> AsyncIterator[Chunk]:
    if not hasattr(model, "stream"):
        return _pieces(cast("Generates", model), request)
    chunks = cast("object", cast("Streams", model).stream(request))
    if isinstance(chunks, AsyncIterator):
        return cast("AsyncIterator[Chunk]", chunks)
    if inspect.iscoroutine(chunks):
        chunks.close()
    raise UsageError(
        f"{type(model).__name__}.stream returned {a_type(chunks)}, which is not an async iterator. Write it as "
        "an async generator: `async def stream(self, request): yield Chunk(...)`."
    )


async def _pieces(model: Generates, request: ModelRequest) -> AsyncIterator[Chunk]:
    for chunk in chunks_of(_answer(model, await model.generate(request))):
        yield chunk


def _answer(model: ChatModel, answer: object) -> Message:
    if isinstance(answer, Message) and answer.role == "assistant":
        return answer
    raise UsageError(
        f"{type(model).__name__}.generate returned {shorten(answer)}, which is not an assistant message. "
        "Return Message.assistant(...)."
    )
