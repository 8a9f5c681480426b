"""Answers and results without the values of secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from adjourn._hiding import Held, known
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.models import Chunk, ToolCallChunk, ToolSpec, close_stream


def check_names(tools: Sequence[ToolSpec], agent: str) -> None:
    """Refuse tools whose names would be hidden in the calls that a model makes.

    Raises:
        UsageError: the name of one holds the value of a secret.
    """
    for number, each in enumerate(tools, 1):
        if known.hide(each.name) != each.name:
            raise UsageError(
                f"The name of tool {number} of '{agent}' holds the value of a Secret, so its calls would be hidden. "
                "Rename the tool, or choose a secret that is not a word."
            )


def hidden_message(message: Message) -> Message:
    """Return a model's message without secrets."""
    hidden = known.hide_in_struct(message)
    # What the provider added may repeat the text, or sign it.
    return message if hidden is message else replace(hidden, extra=None)


def hidden_content(content: Any) -> Any:  # Any: a text, or the parts of a message
    """Return a tool's result without secrets."""
    if isinstance(content, str):
        return known.hide(content)
    return [known.hide_in_struct(part) for part in content]


async def hidden_chunks(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Yield the chunks of an answer without secrets; what may be the beginning of one is held back."""
    pieces = _Pieces()
    try:
        async for chunk in chunks:
            for each in pieces.add(chunk):
                yield each
        for each in pieces.rest():
            yield each
    finally:
        await close_stream(chunks)


class _Pieces:
    """The texts that an answer consists of, each held back on its own."""

    def __init__(self) -> None:
        self._reasoning = Held()
        self._text = Held()
        self._arguments: dict[int, Held] = {}

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield what can be shown now that this chunk has arrived."""
        if (chunk.text or chunk.parts or chunk.tool_calls) and (rest := self._reasoning.rest()):
            yield Chunk(reasoning=rest)
        if (chunk.reasoning or chunk.parts or chunk.tool_calls) and (rest := self._text.rest()):
            yield Chunk(text=rest)
        yield replace(
            chunk,
            reasoning=self._reasoning.add(chunk.reasoning),
            text=self._text.add(chunk.text),
            parts=tuple(map(known.hide_in_struct, chunk.parts)),
            tool_calls=tuple(map(self._call, chunk.tool_calls)),
        )

    def _call(self, piece: ToolCallChunk) -> ToolCallChunk:
        held = self._arguments.setdefault(piece.index, Held())
        return replace(piece, arguments=held.add(piece.arguments))

    def rest(self) -> Iterator[Chunk]:
        """Yield what is left at the end."""
        last = Chunk(reasoning=self._reasoning.rest(), text=self._text.rest())
        calls = [ToolCallChunk(index=index, arguments=held.rest()) for index, held in self._arguments.items()]
        for each in (last, *(Chunk(tool_calls=(call,)) for call in calls if call.arguments)):
            if each != _NOTHING:
                yield each


_NOTHING = Chunk()
