"""The pieces that a streamed answer comes in."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.json import encode

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
