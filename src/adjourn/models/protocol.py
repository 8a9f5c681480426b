"""What a model is asked, what a model is by shape, and how to call one whatever its shape."""

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
    """A tool as a model is told of it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One call of a model: the messages so far, the tools it may call, options, and the form of its answer.

    `options` go to the provider as they are, under its own names (`temperature`, `tool_choice`). `output` is the JSON
    Schema of a structured answer, or None for free text.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Any] = {}
    output: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # A request is kept by tests and traces, and the list that it was made from may grow.
        force_setattr(self, "messages", tuple(self.messages))
        force_setattr(self, "tools", tuple(self.tools))


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
