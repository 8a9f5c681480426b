"""Requests to models, the protocols that models implement, and functions to call any of them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn.errors import UsageError
from adjourn.messages import Message

from .chunks import Chunk, Gathering, chunks_of


class ToolSpec(Struct, frozen=True, kw_only=True):
    """The description of a tool for a model; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One call of a model: the messages so far, the tools it may call, options, and the form of its answer.

    `options` are sent to the provider unchanged, under its own names (`temperature`, `tool_choice`). `output` is the
    JSON Schema of a structured answer, or None for free text.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Any] = {}
    output: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # Tests and traces keep requests, and the list that one was made from may grow.
        force_setattr(self, "messages", tuple(self.messages))
        force_setattr(self, "tools", tuple(self.tools))


@runtime_checkable
class Generates(Protocol):
    """A model that returns whole answers.

    It may be called from any number of runs at once. If it cannot answer, it raises `ModelError`, with
    `retryable=False` when trying again cannot help; any other exception fails the run unchanged.
    """

    async def generate(self, request: ModelRequest) -> Message:
        """Return the answer, an assistant message."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A model that streams its answer; otherwise the same as `Generates`.

    Write it as an async generator. It is closed when the rest is not needed, and must then release its connection.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer; raise if it ends early, rather than just stopping."""
        ...


ChatModel: TypeAlias = Generates | Streams
"""A model has `generate`, `stream`, or both; either one is enough."""


async def generate(model: ChatModel, request: ModelRequest) -> Message:
    """Ask a model for a whole answer; the chunks of a model that only streams are collected.

    Raises:
        ModelError: the model could not answer.
        UsageError: the model did not return an assistant message.
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
    """Ask a model for a streamed answer; a model that does not stream yields one chunk per part.

    This returns the model's own iterator, since wrapping it would add a cost to every token: callers that leave it
    early must close it with `close_stream`.

    Raises:
        UsageError: the model's `stream` does not return an async iterator.
    """
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


async def close_stream(chunks: AsyncIterator[Chunk]) -> None:
    """Close a stream whose rest is not needed, so that it releases its connection; a finished one is left alone."""
    if isinstance(chunks, AsyncGenerator):
        await cast("AsyncGenerator[Chunk, None]", chunks).aclose()


async def _pieces(model: Generates, request: ModelRequest) -> AsyncIterator[Chunk]:
    for chunk in chunks_of(await generate(model, request)):
        yield chunk


def _answer(model: ChatModel, answer: object) -> Message:
    if isinstance(answer, Message) and answer.role == "assistant":
        return answer
    raise UsageError(
        f"{type(model).__name__}.generate returned {shorten(answer)}, which is not an assistant message. "
        "Return Message.assistant(...)."
    )
