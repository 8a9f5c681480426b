"""Models for tests, driven by a script or a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias, cast

from adjourn._values.frozen import shorten
from adjourn.errors import UsageError
from adjourn.messages import Message, ToolCall
from adjourn.models import Chunk, Gathering, ModelRequest, chunks_of

Answer: TypeAlias = str | Message | ToolCall | Sequence[ToolCall]
"""An answer of a test model: a text, a whole message, or tool calls."""

AnswerFunction: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
ChunkScript: TypeAlias = Sequence[Chunk | BaseException]
"""An answer in given chunks; an exception at its end interrupts the stream there."""

_ANSWERS = "a text, an assistant Message, a ToolCall or a list of them"
_WORDS = re.compile(r"\s*\S+(?:\s+$)?|\s+")

ScriptItem: TypeAlias = Answer | ChunkScript | BaseException | type[BaseException] | AnswerFunction
"""What a script says for one call of the model."""


class FunctionModel:
    """Calls a sync or async function for each answer, streamed word by word; `.requests` records the requests."""

    def __init__(self, fn: AnswerFunction) -> None:
        self.fn = fn
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> Message:
        """Return the answer of the function."""
        self.requests.append(request)
        return await _asked(self.fn, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer of the function, word by word."""
        for chunk in _words(await self.generate(request)):
            yield chunk


class ScriptedModel:
    """Returns the answers of a script, one per call, streamed word by word; `.requests` records the requests.

    An item is a text, a `Message`, a `ToolCall` or a list of them, an exception to raise, a function of the request, or
    a list of `Chunk`s, which may end with an exception to simulate a broken stream.
    """

    def __init__(self, script: Iterable[ScriptItem]) -> None:
        if isinstance(script, str | Message | ToolCall):
            raise UsageError(
                f"ScriptedModel was given {shorten(script)}. Give a list of answers: ScriptedModel([...])."
            )
        self.script: tuple[ScriptItem, ...] = tuple(script)
        self.requests: list[ModelRequest] = []
        self._calls = count()

    async def generate(self, request: ModelRequest) -> Message:
        """Return the next answer of the script."""
        item = self._next(request)
        if not _is_chunks(item):
            return await _asked(item, request)
        gathering = Gathering()
        for chunk in _played(item):
            gathering.add(chunk)
        return gathering.message()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the next answer of the script."""
        item = self._next(request)
        for chunk in _played(item) if _is_chunks(item) else _words(await _asked(item, request)):
            yield chunk

    def _next(self, request: ModelRequest) -> Any:  # Any: callers distinguish the kinds of items
        self.requests.append(request)
        turn = next(self._calls)
        if turn >= len(self.script):
            raise UsageError(
                f"The script of this ScriptedModel has {len(self.script)} answers, and it was asked {turn + 1} times. "
                f"Add an answer to: {shorten(request.messages[-1:])}."
            )
        item: Any = self.script[turn]
        if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
            raise item
        return cast("Any", item)


async def _asked(item: Answer | AnswerFunction, request: ModelRequest) -> Message:
    answer = item(request) if callable(item) else item
    return _message(await answer if inspect.isawaitable(answer) else answer)


def _played(pieces: ChunkScript) -> Iterator[Chunk]:
    for piece in pieces:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def _is_chunks(item: object) -> bool:
    pieces = cast("Sequence[object]", item) if isinstance(item, list | tuple) else ()
    return bool(pieces) and all(isinstance(piece, Chunk | BaseException) for piece in pieces)


def _message(answer: object) -> Message:
    if isinstance(answer, Message) and answer.role == "assistant":
        return answer
    if isinstance(answer, str):
        return Message.assistant(answer, finish_reason="stop")
    calls = cast("Sequence[object]", answer if isinstance(answer, list | tuple) else [answer])
    if not calls or not all(isinstance(call, ToolCall) for call in calls):
        raise UsageError(f"{shorten(cast('object', answer))} is not an answer of a model. Give {_ANSWERS}.")
    return Message.assistant(tool_calls=cast("Sequence[ToolCall]", calls), finish_reason="tool_calls")


def _words(message: Message) -> Iterator[Chunk]:
    for chunk in chunks_of(message):
        if chunk.text:
            yield from (Chunk(text=word) for word in _WORDS.findall(chunk.text))
        else:
            yield chunk
