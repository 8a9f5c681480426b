"""Models that a test decides: from a script, or from a function."""

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
"""What a model of a test says: a text, a whole message, or the calls that it wants."""

AnswerFunction: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
Cut: TypeAlias = Sequence[Chunk | BaseException]
"""An answer in chunks of the test's choice; an exception at its end cuts the stream there."""

_ANSWERS = "a text, a Message of the assistant, a ToolCall or a list of them"
_WORDS = re.compile(r"\s*\S+(?:\s+$)?|\s+")


class FunctionModel:
    """Asks a function for each answer, plain or async; a streamed text comes word by word. `.requests` records."""

    def __init__(self, fn: AnswerFunction) -> None:
        self.fn = fn
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> Message:
        """What the function says."""
        self.requests.append(request)
        return await _asked(self.fn, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """What the function says, word by word."""
        for chunk in _words(await self.generate(request)):
            yield chunk


class ScriptedModel:
    """Gives the answers of a script, one for each call, streamed word by word; `.requests` records what it was asked.

    An item is a text, a `Message`, a `ToolCall` or a list of them, an exception to raise, a function of the request, or
    a list of `Chunk`s, which may end in an exception: a stream that breaks off.
    """

    def __init__(self, script: Iterable[Answer | Cut | BaseException | type[BaseException] | AnswerFunction]) -> None:
        if isinstance(script, str | Message | ToolCall):
            raise UsageError(
                f"ScriptedModel was given {shorten(script)}. Give a list of answers: ScriptedModel([...])."
            )
        self.script = tuple(script)
        self.requests: list[ModelRequest] = []
        self._calls = count()

    async def generate(self, request: ModelRequest) -> Message:
        """The next answer of the script."""
        item = self._next(request)
        if not _is_cut(item):
            return await _asked(item, request)
        gathering = Gathering()
        for chunk in _until_cut(item):
            gathering.add(chunk)
        return gathering.message()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next answer of the script, in pieces."""
        item = self._next(request)
        for chunk in _until_cut(item) if _is_cut(item) else _words(await _asked(item, request)):
            yield chunk

    def _next(self, request: ModelRequest) -> Any:  # Any: the items of a script are told apart by whoever uses them
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


def _until_cut(pieces: Cut) -> Iterator[Chunk]:
    for piece in pieces:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def _is_cut(item: object) -> bool:
    pieces = cast("Sequence[object]", item) if isinstance(item, list | tuple) else ()
    return bool(pieces) and all(isinstance(piece, Chunk | BaseException) for piece in pieces)


def _message(answer: object) -> Message:
    if isinstance(answer, Message) and answer.role == "assistant":
        return answer
    if isinstance(answer, str):
        return Message.assistant(answer, finish_reason="stop")
    calls = cast("Sequence[object]", answer if isinstance(answer, list | tuple) else [answer])
    if not calls or not all(isinstance(call, ToolCall) for call in calls):
        raise UsageError(f"{shorten(cast('object', answer))} is no answer of a model. Give {_ANSWERS}.")
    return Message.assistant(tool_calls=cast("Sequence[ToolCall]", calls), finish_reason="tool_calls")


def _words(message: Message) -> Iterator[Chunk]:
    for chunk in chunks_of(message):
        if chunk.text:
            yield from (Chunk(text=word) for word in _WORDS.findall(chunk.text))
        else:
            yield chunk
