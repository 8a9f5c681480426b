"""The pieces that a streamed answer comes in, and the message that they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.json import encode

from adjourn._text import a_type
from adjourn.messages import Message, Part, ReasoningPart, TextPart, ToolCall, Usage

# There are thousands of these in an answer, and none can be in a reference cycle: gc=False.


class ToolCallChunk(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of the tool call that stands at `index` among the calls of a message.

    The pieces of `id`, `name` and `arguments` (JSON text) are each put together in the order in which they come.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Chunk(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a model's answer; in one that has several, reasoning comes before text, and text before parts.

    `parts` stand in the message as they are, but a `ReasoningPart` without text signs the reasoning streamed before it.
    `usage` is the total so far: the last one counts, as does the last `finish_reason`.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallChunk, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    parts: tuple[Part, ...] = ()


def chunks_of(message: Message) -> Iterator[Chunk]:
    """A whole message as chunks, one for each of its pieces; gathered, they are the message again.

    Who wrote it (`name`) and its `id` are not part of an answer and get lost.
    """
    if isinstance(message.content, str):
        if message.content:
            yield Chunk(text=message.content)
    else:
        yield from _parts(message.content)
    if message.tool_calls:
        yield Chunk(tool_calls=tuple(_call(i, call) for i, call in enumerate(message.tool_calls)))
    if message.usage is not None or message.finish_reason is not None:
        yield Chunk(usage=message.usage, finish_reason=message.finish_reason)


def _parts(parts: tuple[Part, ...]) -> Iterator[Chunk]:
    # What stands beside its like is not streamed: it would run together with it.
    for before, part, after in zip((None, *parts), parts, (*parts[1:], None), strict=False):
        is_alone = type(part) not in (type(before), type(after)) and getattr(part, "text", "")
        match part:
            case TextPart() if is_alone:
                yield Chunk(text=part.text)
            case ReasoningPart(signature=None, id=None) if is_alone:
                yield Chunk(reasoning=part.text)
            case _:
                yield Chunk(parts=(part,))


def _call(index: int, call: ToolCall) -> ToolCallChunk:
    written = encode(call.arguments).decode() if call.raw is None else call.raw
    return ToolCallChunk(index=index, id=call.id, name=call.name, arguments=written)


# What a model was stopped by while it was writing; a call that it had begun may lack its end.
CUT_SHORT = frozenset({"length", "content_filter"})


class Gathering:
    """Takes chunks one by one and gives the message that they make.

    Consecutive texts are one text part, consecutive reasonings one reasoning part, and pieces of tool calls belong
    together by index. Nothing is repaired: arguments that are no JSON object are the call's `raw`.
    """

    __slots__ = ("_calls", "_finish_reason", "_parts", "_run", "_run_is_text", "_usage")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._run: list[str] = []  # pieces of the part that is being streamed
        self._run_is_text = True
        self._calls: dict[int, list[ToolCallChunk]] = {}
        self._usage: Usage | None = None
        self._finish_reason: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        if chunk.reasoning:
            self._go_on(chunk.reasoning, is_text=False)
        if chunk.text:
            self._go_on(chunk.text, is_text=True)
        if chunk.parts:
            for part in chunk.parts:
                self._take(part)
        if chunk.tool_calls:
            for piece in chunk.tool_calls:
                self._calls.setdefault(piece.index, []).append(piece)
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.finish_reason is not None:
            self._finish_reason = chunk.finish_reason

    def message(self) -> Message:
        """The message so far; more may be added afterwards."""
        is_cut = self._finish_reason in CUT_SHORT
        return Message(
            role="assistant",
            content=(*self._parts, *self._streamed()),
            tool_calls=tuple(_whole_call(self._calls[index], is_cut=is_cut) for index in sorted(self._calls)),
            usage=self._usage,
            finish_reason=self._finish_reason,
        )

    def _go_on(self, text: str, *, is_text: bool) -> None:
        if is_text is not self._run_is_text:
            self._close()
            self._run_is_text = is_text
        self._run.append(text)

    def _take(self, part: Part) -> None:
        signs = isinstance(part, ReasoningPart) and not part.text and self._run and not self._run_is_text
        if signs:
            part = msgspec.structs.replace(cast("ReasoningPart", part), text="".join(self._run))
            self._run.clear()
        self._close()
        self._parts.append(part)

    def _close(self) -> None:
        self._parts += self._streamed()
        self._run.clear()

    def _streamed(self) -> list[Part]:
        if not self._run:
            return []
        text = "".join(self._run)
        return [TextPart(text=text) if self._run_is_text else ReasoningPart(text=text)]


def _whole_call(pieces: list[ToolCallChunk], *, is_cut: bool) -> ToolCall:
    call_id = "".join(piece.id for piece in pieces)
    name = "".join(piece.name for piece in pieces)
    written = "".join(piece.arguments for piece in pieces)
    # Some servers write nothing for a tool without parameters. When the model was stopped, nothing means unfinished.
    if not written and not is_cut:
        return ToolCall(id=call_id, name=name)
    try:
        return ToolCall(id=call_id, name=name, arguments=parse_arguments(written))
    except ValueError:
        return ToolCall(id=call_id, name=name, raw=written)


def parse_arguments(written: str) -> dict[str, Any]:
    """Read the arguments of a call strictly: a JSON object without doubled keys, NaN, or numbers that JSON would bend.

    Raises:
        ValueError: it is anything else.
    """
    try:
        arguments = _STRICT.decode(written)
        msgspec.json.encode(arguments)  # what a model wrote must be storable: no huge integers, no lone surrogates
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"The arguments cannot be stored: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"The arguments are no JSON object but {a_type(arguments)}.")
    return cast("dict[str, Any]", arguments)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("A key of a JSON object is there twice.")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON.")


# msgspec takes the last of doubled keys; which one was meant only the model can say.
_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
