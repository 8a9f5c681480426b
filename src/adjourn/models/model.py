"""What a model is, by shape, and how to call one whatever its shape."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol, TypeAlias, cast, runtime_checkable

from adjourn.core.errors import UsageError
from adjourn.core.frozen import shorten
from adjourn.core.wording import a_type
from adjourn.messages import Message

from .chunk import Chunk, chunks_of
from .gathering import Gathering
from .request import ModelRequest


@runtime_checkable
class Generates(Protocol):
    """A model that gives whole answers.

    It may be called from any number of runs at once. An answer that cannot be had is a `ModelError`, with
    `retryable=False` when trying again cannot help; any other exception fails the run as it is.
    """

    async def generate(self, request: ModelRequest) -> Message:
        """The answer, a message of the assistant."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A model that gives its answer in pieces; else as `Generates`.

    Write it as an async generator. It is closed when nobody wants the rest, and then lets go of its connection.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer in pieces; one that ends early raises instead of just ending."""
        ...


ChatModel: TypeAlias = Generates | Streams
"""A model has `generate`, `stream`, or both; one gives the other."""


async def generate(model: ChatModel, request: ModelRequest) -> Message:
    """Ask a model for a whole answer; what is only streamed is gathered.

    Raises:
        ModelError: the model could not give one.
        UsageError: what was given back is no message of the assistant.
    """
    if hasattr(model, "generate"):
        return _answer(model, await cast("Generates", model).generate(request))
    gathering = Gathering()
    chunks = stream(model, request)
    try:
        async for chunk in chunks:
            gathering.add(chunk)
    finally:
        await close_stream(chunks)
    return gathering.message()


def stream(model: ChatModel, request: ModelRequest) -> AsyncIterator[Chunk]:
    """Ask a model for an answer in pieces; what is only given whole comes in one chunk for each part.

    The model's own iterator is handed out, since another around it would cost at every token: whoever leaves it early
    closes it with `close_stream`.

    Raises:
        UsageError: the model's `stream` gives no async iterator.
    """
    if not hasattr(model, "stream"):
        return _pieces(cast("Generates", model), request)
    chunks = cast("object", cast("Streams", model).stream(request))
    if isinstance(chunks, AsyncIterator):
        return cast("AsyncIterator[Chunk]", chunks)
    if inspect.iscoroutine(chunks):
        chunks.close()
    raise UsageError(
        f"{type(model).__name__}.stream gave {a_type(chunks)}, which is no async iterator. Write it as an "
        "async generator: `async def stream(self, request): yield Chunk(...)`."
    )


async def close_stream(chunks: AsyncIterator[Chunk]) -> None:
    """Tell a stream that nobody wants the rest, so that it lets go of its connection; a finished one is left alone."""
    if isinstance(chunks, AsyncGenerator):
        await cast("AsyncGenerator[Chunk, None]", chunks).aclose()


async def _pieces(model: Generates, request: ModelRequest) -> AsyncIterator[Chunk]:
    for chunk in chunks_of(await generate(model, request)):
        yield chunk


def _answer(model: ChatModel, answer: object) -> Message:
    if isinstance(answer, Message) and answer.role == "assistant":
        return answer
    raise UsageError(
        f"{type(model).__name__}.generate gave {shorten(answer)}, which is no message of the assistant. "
        "Give Message.assistant(...)."
    )
