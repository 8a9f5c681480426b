"""Requests to models, and the protocols that models implement."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn.messages import Message

from .chunks import Chunk

OutputMode = Literal["native", "tool", "prompt"]
"""How a structured answer is asked for: by a schema that the server enforces, as a tool's arguments, or in words."""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """The description of a tool for a model; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One call of a model: the messages so far, the tools it may call, options, and the form of its answer.

    `options` are sent to the provider unchanged, under its own names (`temperature`, `tool_choice`). `output` is the
    JSON Schema of a structured answer, or None for free text, and `output_mode` how it is asked for, if not as fits the
    model's abilities: a model itself only ever sees "native" schemas. With `must_call`, it may only answer with a call
    of one of the tools.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Any] = {}
    output: Mapping[str, Any] | None = None
    output_mode: OutputMode | None = None
    must_call: bool = False

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
