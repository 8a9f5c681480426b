"""A stream comes to the message that it was, however it was cut into chunks; nothing in it is repaired."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adjourn import Message, ToolCall, Usage
from adjourn.messages import FilePart, ImagePart, Part, ReasoningPart, TextPart
from adjourn.models import Chunk, Gathering, ToolCallChunk, chunks_of

IMAGE = ImagePart(data=b"\x89PNG", media_type="image/png")


def gathered(chunks: Sequence[Chunk]) -> Message:
    gathering = Gathering()
    for chunk in chunks:
        gathering.add(chunk)
    return gathering.message()


def call_of(*written: str, finish_reason: str | None = "tool_calls") -> ToolCall:
    pieces = [Chunk(tool_calls=(ToolCallChunk(index=0, arguments=text),)) for text in written]
    named = Chunk(tool_calls=(ToolCallChunk(index=0, id="c1", name="book"),))
    return gathered([named, *pieces, Chunk(finish_reason=finish_reason)]).tool_calls[0]


# Any message, cut at random

texts = st.text(max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
broken = st.sampled_from(
    ['{"to": "Bei', "[1]", "null", "{'a': 1}", '{"a": 1,}', '{"a":1,"a":2}', '{"n": NaN}', "nonsense"]
)
calls = st.builds(
    ToolCall, id=texts, name=texts, arguments=st.dictionaries(texts, json_values, max_size=3)
) | st.builds(ToolCall, id=texts, name=texts, raw=broken)
parts = st.one_of(
    st.builds(TextPart, text=texts),
    st.builds(ReasoningPart, text=texts, signature=st.none() | texts, id=st.none() | texts),
    st.just(IMAGE),
    st.just(FilePart(url="https://x.test/b.pdf", name="b.pdf")),
)
usages = st.none() | st.builds(Usage, calls=st.just(1), input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9))
messages = st.builds(
    Message.assistant,
    texts | st.lists(parts, max_size=5),
    tool_calls=st.lists(calls, max_size=3),
    usage=usages,
    finish_reason=st.none() | st.sampled_from(["stop", "tool_calls", "length"]),
)


def cut(draw: Any, text: str) -> list[str]:
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=4))})
    return [text[a:b] for a, b in pairwise(places)] or [""]


def split_call(draw: Any, call: ToolCallChunk) -> list[ToolCallChunk]:
    fields = {name: cut(draw, getattr(call, name)) for name in ("id", "name", "arguments")}
    return [ToolCallChunk(index=call.index, **{name: text}) for name, pieces in fields.items() for text in pieces]


@st.composite
def split(draw: Any, message: Message) -> list[Chunk]:
    """The chunks of a message cut anew, the pieces of its calls mixed with one another."""
    chunks: list[Chunk] = []
    for chunk in chunks_of(message):
        if chunk.tool_calls:
            lanes = [split_call(draw, call) for call in chunk.tool_calls]
            while lanes := [lane for lane in lanes if lane]:
                lane = draw(st.sampled_from(lanes))
                chunks.append(Chunk(tool_calls=(lane.pop(0),)))
        elif chunk.text or chunk.reasoning:
            texts, thoughts = cut(draw, chunk.text), cut(draw, chunk.reasoning)
            chunks += [Chunk(reasoning=piece) for piece in thoughts] + [Chunk(text=piece) for piece in texts]
        else:
            chunks.append(chunk)
    return chunks


@given(st.data(), messages)
def test_any_split_of_a_message_gathers_to_the_same_message(data: st.DataObject, message: Message) -> None:
    chunks = data.draw(split(message))
    assert msgspec.json.encode(gathered(chunks)) == msgspec.json.encode(message)


@given(messages)
@example(Message.assistant([ReasoningPart(text="hm"), ReasoningPart(signature="s")]))
@example(Message.assistant(["a", "b", ReasoningPart(text="c"), ReasoningPart(text="d"), "", "e"]))
def test_a_message_is_the_sum_of_its_chunks(message: Message) -> None:
    assert msgspec.json.encode(gathered(list(chunks_of(message)))) == msgspec.json.encode(message)


# What belongs together


def test_texts_that_follow_one_another_are_one_part() -> None:
    chunks = [Chunk(text="Grü"), Chunk(), Chunk(text="ße"), Chunk(reasoning="hm"), Chunk(text="!")]
    assert gathered(chunks).parts == (TextPart(text="Grüße"), ReasoningPart(text="hm"), TextPart(text="!"))
    assert gathered(chunks[:3]) == Message.assistant("Grüße")
    assert gathered([]) == Message.assistant()


def test_parts_stand_where_they_came() -> None:
    chunks = [Chunk(text="see: ", parts=(IMAGE,)), Chunk(text="nice", reasoning="hm")]
    expected: list[Part | str] = ["see: ", IMAGE, ReasoningPart(text="hm"), "nice"]
    assert gathered(chunks) == Message.assistant(expected)


def test_a_reasoning_part_without_text_signs_what_was_streamed_before() -> None:
    signature = ReasoningPart(signature="s", id="r1")
    chunks = [Chunk(reasoning="h"), Chunk(reasoning="m"), Chunk(parts=(signature,)), Chunk(parts=(signature,))]
    assert gathered(chunks).parts == (ReasoningPart(text="hm", signature="s", id="r1"), signature)


def test_pieces_of_calls_belong_together_by_index() -> None:
    def piece(index: int, **fields: str) -> Chunk:
        return Chunk(tool_calls=(ToolCallChunk(index=index, **fields),))

    chunks = [
        piece(1, id="c2", name="pay", arguments='{"cents'),
        piece(0, id="c1", name="bo"),
        piece(1, arguments='": 100}'),
        piece(0, name="ok", arguments='{"to": "Beijing"}'),
    ]
    assert gathered(chunks).tool_calls == (
        ToolCall(id="c1", name="book", arguments={"to": "Beijing"}),
        ToolCall(id="c2", name="pay", arguments={"cents": 100}),
    )


def test_the_last_usage_and_finish_reason_count() -> None:
    first, last = Usage(calls=1, input_tokens=5), Usage(calls=1, input_tokens=5, output_tokens=2)
    message = gathered([Chunk(usage=first), Chunk(finish_reason="stop"), Chunk(usage=last)])
    assert (message.usage, message.finish_reason) == (last, "stop")


def test_a_message_may_be_looked_at_while_more_comes() -> None:
    gathering = Gathering()
    gathering.add(Chunk(text="a"))
    assert gathering.message().text == "a"
    gathering.add(Chunk(text="b"))
    assert gathering.message() == Message.assistant("ab")


# Arguments are never repaired

BROKEN = [
    '{"to": "Bei',
    '{"to": "Beijing"',
    '{"to": "Beijing",}',
    '{"to": "Beijing", "to": "Paris"}',
    '{"in": {"to": 1, "to": 2}}',
    '{"n": NaN}',
    '{"n": -Infinity}',
    '{"n": 1e999}',
    '{"n": ' + "9" * 5000 + "}",
    '{"name": "\\ud800"}',
    '{"a": ' * 200 + "1" + "}" * 200,
    '{"a": ' * 100_000,
    '{"to": "Beijing"} and more',
    '["Beijing"]',
    '"Beijing"',
    "null",
    " ",
    "{'to': 'Beijing'}",
]


@pytest.mark.parametrize("written", BROKEN, ids=range(len(BROKEN)))
def test_arguments_that_are_no_json_object_are_kept_as_written(written: str) -> None:  # failures 70
    call = call_of(*(written[i : i + 3000] for i in range(0, len(written), 3000)))
    assert (call.arguments, call.raw) == ({}, written)
    message = Message.assistant(tool_calls=[call])
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert call_of() == call_of("") == call_of("{}") == ToolCall(id="c1", name="book")


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_call_that_was_cut_off_never_looks_complete(reason: str) -> None:  # rule A8, failures 77
    assert call_of(finish_reason=reason).raw == ""
    assert call_of('{"to": ', finish_reason=reason).raw == '{"to": '
    assert call_of('{"to": 1}', finish_reason=reason).raw is None
