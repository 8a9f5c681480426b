"""The chunks of a streamed answer, and the message that they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.json import encode

from adjourn._text import a_type
from adjourn._values.frozen import freeze
from adjourn.messages import CallPart, Message, Part, ReasoningPart, TextPart, ToolCall, Usage, in_order

from .bounds import DEFAULT, LONGEST_NAME, PIECE, AnswerBounds, exceeded

# gc=False: an answer has thousands of these, and none can be part of a reference cycle.


class ToolCallChunk(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of the tool call at `index` among the calls of a message.

    The pieces of `id`, `name` and `arguments` (JSON text) are each concatenated in the order in which they arrive. The
    last `provider` and `extra` count.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    provider: str | None = None
    extra: Mapping[str, Any] | None = None  # Any: JSON that only the provider understands, here and below


class Origin(Struct, frozen=True, kw_only=True, gc=False):
    """Where an answer comes from, and what its provider wants back with it; see the fields of `Message`."""

    provider: str | None = None
    model: str | None = None
    response_id: str | None = None
    raw_finish_reason: str | None = None
    extra: Mapping[str, Any] | None = None


class Chunk(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a model's answer; within a chunk, reasoning comes before text, then parts, then tool calls.

    `parts` are added to the message unchanged, except that a `ReasoningPart` without text signs the reasoning streamed
    before it, and a `TextPart` without text the text. `usage` is the total so far: the last one counts, as do the last
    `finish_reason` and `origin`.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallChunk, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    parts: tuple[Part, ...] = ()
    origin: Origin | None = None


def chunks_of(message: Message) -> Iterator[Chunk]:
    """Yield a whole message as chunks, one for each of its pieces; `Gathering` turns them back into the message.

    The message's `name` and `id` are not part of an answer and are lost.
    """
    if isinstance(message.content, str):
        if message.content:
            yield Chunk(text=message.content)
        if message.tool_calls:
            yield Chunk(tool_calls=tuple(_call(i, call) for i, call in enumerate(message.tool_calls)))
    else:
        yield from _blocks(message)
    origin = _origin(message)
    if not (message.usage is message.finish_reason is origin is None):
        yield Chunk(usage=message.usage, finish_reason=message.finish_reason, origin=origin)


def _blocks(message: Message) -> Iterator[Chunk]:
    # Adjacent parts of the same type are not streamed, since they would be merged.
    blocks = in_order(message.parts, message.tool_calls)
    for before, block, after in zip((None, *blocks), blocks, (*blocks[1:], None), strict=False):
        is_alone = type(block) not in (type(before), type(after)) and getattr(block, "text", "")
        match block:
            case int():
                yield Chunk(tool_calls=(_call(block, message.tool_calls[block]),))
            case TextPart(provider=None) if is_alone:
                yield Chunk(text=block.text)
            case ReasoningPart(signature=None, id=None, provider=None) if is_alone:
                yield Chunk(reasoning=block.text)
            case _:
                yield Chunk(parts=(block,))


def _origin(message: Message) -> Origin | None:
    origin = Origin(
        provider=message.provider,
        model=message.model,
        response_id=message.response_id,
        raw_finish_reason=message.raw_finish_reason,
        extra=message.extra,
    )
    return None if origin == _UNKNOWN else origin


_UNKNOWN = Origin()


def _call(index: int, call: ToolCall) -> ToolCallChunk:
    written = encode(call.arguments).decode() if call.raw is None else call.raw
    return ToolCallChunk(
        index=index, id=call.id, name=call.name, arguments=written, provider=call.provider, extra=call.extra
    )


# Finish reasons of a model that was stopped while writing; its last call may be incomplete.
CUT_SHORT = frozenset({"length", "content_filter"})


class Gathering:
    """Collects chunks one by one and builds the message that they add up to.

    Consecutive texts become one text part, consecutive reasoning one reasoning part, and pieces of tool calls are
    joined by index, in the place where the first piece came. Nothing is repaired: arguments that are not a JSON object
    become the call's `raw`, except that blank ones and `null` are none, and that a text which holds the object (some
    servers encode it twice) counts as the object. An answer beyond `bounds` is refused.
    """

    __slots__ = (
        "_arguments",
        "_bounds",
        "_calls",
        "_finish_reason",
        "_origin",
        "_parts",
        "_room",
        "_run",
        "_run_is_text",
        "_usage",
    )

    def __init__(self, bounds: AnswerBounds = DEFAULT) -> None:
        self._bounds = bounds
        self._room = bounds.size  # bytes that are left of it
        self._arguments = 0  # characters in those of all calls
        self._parts: list[Part | int] = []  # an int is the index of a call, whose id may still be on its way
        self._run: list[str] = []  # pieces of the part being streamed
        self._run_is_text = True
        self._calls: dict[int, _Call] = {}
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._origin = _UNKNOWN

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk.

        Raises:
            ModelError: there are too many of them, or too much is in them.
        """
        self._room = room = self._room - PIECE - len(chunk.text) - len(chunk.reasoning)
        if room < 0:
            raise exceeded(f"{self._bounds.size:,} bytes", "size")
        if chunk.reasoning:
            self._append(chunk.reasoning, is_text=False)
        if chunk.text:
            self._append(chunk.text, is_text=True)
        if chunk.parts:
            self._add_parts(chunk.parts)
        if chunk.tool_calls:
            for piece in chunk.tool_calls:
                self._add_call(piece)
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.finish_reason is not None:
            self._finish_reason = chunk.finish_reason
        if chunk.origin is not None:
            self._origin = chunk.origin

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been said yet, not even why the answer ended."""
        return not (self._parts or self._run or self._finish_reason)

    def message(self) -> Message:
        """Return the message so far; more chunks may be added afterwards."""
        is_truncated = self._finish_reason in CUT_SHORT
        calls = {index: self._calls[index].whole(is_truncated=is_truncated) for index in sorted(self._calls)}
        parts = (CallPart(id=calls[part].id) if isinstance(part, int) else part for part in self._parts)
        return Message(
            role="assistant",
            content=(*parts, *self._streamed()),
            tool_calls=tuple(calls.values()),
            usage=self._usage,
            finish_reason=self._finish_reason,
            provider=self._origin.provider,
            model=self._origin.model,
            response_id=self._origin.response_id,
            raw_finish_reason=self._origin.raw_finish_reason,
            extra=self._origin.extra,
        )

    def _add_call(self, piece: ToolCallChunk) -> None:
        self._room -= PIECE + _size((piece.arguments, piece.provider, piece.extra))
        self._arguments += len(piece.arguments)
        if self._arguments > self._bounds.arguments:
            raise exceeded(f"{self._bounds.arguments:,} characters in the arguments of its calls", "arguments")
        call = self._calls.get(piece.index)
        if call is None:
            if len(self._calls) >= self._bounds.calls:
                raise exceeded(f"{self._bounds.calls:,} calls", "calls")
            self._close()
            self._parts.append(piece.index)
            call = self._calls[piece.index] = _Call()
        call.add(piece)

    def _append(self, text: str, *, is_text: bool) -> None:
        if is_text is not self._run_is_text:
            self._close()
            self._run_is_text = is_text
        self._run.append(text)

    def _add_parts(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._add_part(part)

    def _add_part(self, part: Part) -> None:
        self._room -= PIECE + _size(msgspec.structs.astuple(part))
        streamed = TextPart if self._run_is_text else ReasoningPart
        if self._run and isinstance(part, streamed) and not part.text:
            part = msgspec.structs.replace(part, text="".join(self._run))
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


class _Call:
    """The pieces of a call so far, joined, and the last of what the provider said about it."""

    __slots__ = ("_arguments", "_extra", "_id", "_name", "_provider")

    def __init__(self) -> None:
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._provider: str | None = None
        self._extra: Mapping[str, Any] | None = None

    def add(self, piece: ToolCallChunk) -> None:
        if piece.id or piece.name:
            self._id += piece.id
            self._name += piece.name
            if len(self._id) + len(self._name) > LONGEST_NAME:
                raise exceeded(f"{LONGEST_NAME:,} characters in the name of a call", "size")
        if piece.arguments:
            self._arguments.append(piece.arguments)
        if piece.provider is not None:
            self._provider = piece.provider
        if piece.extra is not None:
            self._extra = piece.extra

    def whole(self, *, is_truncated: bool) -> ToolCall:
        """Return the call; `is_truncated` says that the model was stopped while it wrote."""
        written = "".join(self._arguments)
        call = ToolCall(id=self._id, name=self._name, provider=self._provider, extra=self._extra)
        # Some servers send nothing, or null, for a tool without parameters. If the model was stopped, nothing means
        # unfinished.
        if written.strip() in ("", "null") and not is_truncated:
            return call
        try:
            return call.with_arguments(freeze(parse_arguments(written), "ToolCall.arguments"))
        except ValueError:
            return msgspec.structs.replace(call, raw=written)


def _size(fields: Iterable[object]) -> int:
    """Return about how many bytes the fields of a piece have: text, bytes, and JSON data."""
    return sum(len(each) if isinstance(each, str | bytes) else len(encode(each)) for each in fields if each)


def parse_arguments(written: str) -> dict[str, Any]:
    """Parse the arguments of a call strictly: a JSON object without duplicate keys, NaN or numbers JSON would change.

    Some servers encode the object twice, so that it is a text with the object in it.

    Raises:
        ValueError: they are anything else.
    """
    try:
        arguments = _STRICT.decode(written)
        if isinstance(arguments, str):
            arguments = _STRICT.decode(arguments)
        msgspec.json.encode(arguments)  # must be storable: no huge integers, no lone surrogates
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"The arguments cannot be stored: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"The arguments are not a JSON object but {a_type(arguments)}.")
    return cast("dict[str, Any]", arguments)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("A JSON object has the same key twice.")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON.")


# msgspec keeps the last of duplicate keys, but only the model knows which one it meant.
_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
