"""OpenAI's protocol over real HTTP: what is sent, what comes back, and what can go wrong on the way."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec
import openai
import pytest

from adjourn import ChatModelAgent, Message, OpenAIChatModel, Retry, Runner, ToolCall, Usage, UsageError
from adjourn.errors import ModelError, RetryExhausted
from adjourn.messages import AudioPart, FilePart, ImagePart, ReasoningPart, TextPart
from adjourn.middleware import LogCalls
from adjourn.models import Chunk, Gathering, ModelRequest, ToolSpec, close_stream
from adjourn.models.openai._errors import retry_after
from adjourn.stores import SQLiteStore
from tests.models.openai_server import (
    TOTAL,
    USAGE,
    Connection,
    Json,
    Reply,
    Server,
    answers,
    call_piece,
    delta,
    hangs_up,
    said,
    serving,
    stalls,
    streams,
)

HELLO = ModelRequest(messages=[Message.user("hello")])
BOOK = ToolCall(id="call_1", name="book", arguments={"to": "Beijing"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def model(server: Server) -> AsyncIterator[OpenAIChatModel]:
    made = OpenAIChatModel("gpt-test", api_key="sk-test", base_url=server.url, timeout=10, provider="here")
    yield made
    await made.close()


async def streamed(model: OpenAIChatModel, request: ModelRequest = HELLO) -> tuple[list[Chunk], Message]:
    gathering = Gathering()
    chunks = [chunk async for chunk in model.stream(request)]
    for chunk in chunks:
        gathering.add(chunk)
    return chunks, gathering.message()


async def sent(server: Server, model: OpenAIChatModel, request: ModelRequest) -> Json:
    """The body that a request becomes."""
    server.replies.append(answers(said(content="ok")))
    await model.generate(request)
    return server.asked[-1].body


async def sent_messages(server: Server, model: OpenAIChatModel, *messages: Message) -> list[Json]:
    return (await sent(server, model, ModelRequest(messages=messages)))["messages"]


# Answers


def origin(message: Message, **fields: Any) -> Message:
    """The message with what the test's server says of itself."""
    return msgspec.structs.replace(message, provider="here", model="m", response_id="cmpl-1", **fields)


async def test_a_whole_answer(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(answers(said(content="hi", usage=USAGE)))
    usage = Usage(calls=1, input_tokens=12, output_tokens=7, cached_tokens=5, reasoning_tokens=3)
    assert await model.generate(HELLO) == origin(Message.assistant("hi", usage=usage, finish_reason="stop"))
    asked = server.asked[0]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer sk-test"
    assert asked.body == {"model": "gpt-test", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_streamed_answer(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(
        streams(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"), TOTAL)
    )
    chunks, message = await streamed(model)
    assert [chunk.text for chunk in chunks] == ["Hel", "lo", "", ""]
    usage = Usage(calls=1, input_tokens=12, output_tokens=7, cached_tokens=5, reasoning_tokens=3)
    assert message == origin(Message.assistant("Hello", usage=usage, finish_reason="stop"))
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body["stream_options"] == {"include_usage": True}


async def test_whole_tool_calls(server: Server, model: OpenAIChatModel) -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "book", "arguments": '{"to": "Beijing"}'}},
        {"id": "call_2", "type": "function", "function": {"name": "pay", "arguments": '{"cents": '}},
    ]
    server.replies.append(answers(said("tool_calls", tool_calls=calls)))
    message = await model.generate(HELLO)
    assert message.tool_calls == (BOOK, ToolCall(id="call_2", name="pay", raw='{"cents": '))
    assert message.finish_reason == "tool_calls"


async def test_tool_calls_split_over_many_chunks(server: Server, model: OpenAIChatModel) -> None:
    first, second = '{"to": "Beijing"}', '{"card": "4242", "cents": 100}'
    pieces = [
        call_piece(0, id="call_1", type="function", name="book"),
        call_piece(1, id="call_2", type="function", name="pay"),
    ]
    for i in range(max(len(first), len(second))):
        pieces += [call_piece(place, text[i]) for place, text in ((0, first), (1, second)) if i < len(text)]
    server.replies.append(streams(*pieces, delta("tool_calls"), TOTAL))
    chunks, message = await streamed(model)
    assert len(chunks) == len(first) + len(second) + 4
    assert message.tool_calls == (BOOK, ToolCall(id="call_2", name="pay", arguments={"card": "4242", "cents": 100}))


async def test_servers_that_number_their_calls_in_ways_of_their_own(server: Server, model: OpenAIChatModel) -> None:
    whole = '{"to": "Beijing"}'
    always_0 = [call_piece(0, whole, id="a", name="book"), call_piece(0, whole, id="b", name="book")]
    unnumbered = [call_piece(None, whole[:5], id="a", name="book"), call_piece(None, whole[5:])]
    repeated = [call_piece(0, whole[:5], id="a", name="book"), call_piece(0, whole[5:], id="a", name="book")]
    for pieces, ids in ((always_0, ["a", "b"]), (unnumbered, ["a"]), (repeated, ["a"])):
        server.replies.append(streams(*pieces, delta("tool_calls")))
        _, message = await streamed(model)
        expected = [ToolCall(id=name, name="book", arguments={"to": "Beijing"}) for name in ids]
        assert list(message.tool_calls) == expected


async def test_calls_that_are_written_oddly_are_one_call(server: Server, model: OpenAIChatModel) -> None:
    whole = '{"to": "Beijing"}'
    nested = '{"to": {"city": "Beijing"}}'
    placeholder = [call_piece(0, "{}", id="a", name="book"), call_piece(0, whole, id="a", name="book")]
    odd_index = [call_piece(cast("Any", "first"), whole, id="a", name="book")]
    cut_at_braces = [
        call_piece(0, nested[:-1], id="a", name="book"),
        call_piece(0, nested[-1:], id="a", name="book"),
    ]
    no_calls = [delta(tool_calls="none"), call_piece(0, whole, id="a", name="book")]
    for pieces, to in (
        (placeholder, "Beijing"),
        (odd_index, "Beijing"),
        (cut_at_braces, {"city": "Beijing"}),
        (no_calls, "Beijing"),
    ):
        server.replies.append(streams(*pieces, delta("tool_calls")))
        _, message = await streamed(model)
        assert list(message.tool_calls) == [ToolCall(id="a", name="book", arguments={"to": to})]
    server.replies.append(streams(delta(tool_calls=["book"]), delta("tool_calls")))
    assert "a tool call is not an object: book" in str(await failure(model))


async def test_content_in_parts_of_all_kinds(server: Server, model: OpenAIChatModel) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    none: Json = {"type": "image_url", "image_url": {}}
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}}
    parts: list[Any] = ["Hel", {"type": "text", "text": "lo"}, image, none, broken]
    server.replies.append(streams(delta(content=parts), delta("stop")))
    _, message = await streamed(model)
    assert message.text == "Hello"
    assert [part for part in message.parts if isinstance(part, ImagePart)] == [
        ImagePart(url="https://example.com/a.png")
    ]


async def test_reasoning_of_compatible_servers(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(
        streams(delta(reasoning_content="h"), delta(reasoning="m"), delta(content="yes"), delta("stop"))
    )
    server.replies.append(answers(said(content="yes", reasoning_content="hm")))
    expected = (ReasoningPart(text="hm"), TextPart(text="yes"))
    assert (await streamed(model))[1].parts == expected
    assert (await model.generate(HELLO)).parts == expected


async def test_a_refusal_is_told_as_such(server: Server, model: OpenAIChatModel) -> None:  # failures 75
    server.replies.append(streams(delta(refusal="I will "), delta(refusal="not."), delta("stop")))
    server.replies.append(answers(said(refusal="I will not.")))
    for message in ((await streamed(model))[1], await model.generate(HELLO)):
        assert message == origin(Message.assistant("I will not.", finish_reason="refusal"), raw_finish_reason="stop")


async def test_only_the_first_of_several_choices_counts(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(
        streams(delta(content="a"), delta(content="x", index=1), delta("stop", index=1), delta("stop"))
    )
    assert (await streamed(model))[1].text == "a"


async def test_finish_reasons(server: Server, model: OpenAIChatModel) -> None:
    for told, reason in (("length", "length"), ("content_filter", "content_filter"), ("function_call", "tool_calls")):
        server.replies.append(answers(said(told, content="a")))
        assert (await model.generate(HELLO)).finish_reason == reason


async def test_a_character_cut_in_two_is_whole_again(server: Server, model: OpenAIChatModel) -> None:
    cut = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n'
    server.replies.append(streams(cut % b"hi \\ud83d", cut % b"\\ude42!", cut % b"\\ude42", delta("stop")))
    chunks, message = await streamed(model)
    assert message.text == "hi 🙂!�"
    assert msgspec.json.encode([chunk.text for chunk in chunks])


# What is sent


async def test_every_role_is_sent(server: Server, model: OpenAIChatModel) -> None:
    messages = await sent_messages(
        server,
        model,
        Message.system("Be kind."),
        Message.user("hi", name="Ann Lee"),
        Message.assistant([ReasoningPart(text="hm")], tool_calls=[BOOK]),
        Message.tool("booked", tool_call_id="call_1", name="book"),
        Message.assistant("done", name="desk"),
        Message.user("thanks"),
    )
    function = {"name": "book", "arguments": '{"to":"Beijing"}'}
    assert messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi", "name": "Ann_Lee"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "booked", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]


async def test_reasoning_is_sent_back_to_those_who_want_it(server: Server) -> None:
    model = OpenAIChatModel("m", base_url=server.url, send_reasoning=True)
    thought = Message.assistant([ReasoningPart(text="hm"), "yes"])
    assert await sent_messages(server, model, thought, Message.user("go")) == [
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
        {"role": "user", "content": "go"},
    ]
    await model.close()


async def test_images_sounds_and_files_are_sent(server: Server, model: OpenAIChatModel) -> None:
    message = Message.user(
        [
            "look",
            ImagePart(url="https://x.test/a.png"),
            ImagePart(data=b"\x89PNG", media_type="image/png"),
            AudioPart(data=b"RIFF", media_type="audio/wav"),
            FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        ]
    )
    [body] = await sent_messages(server, model, message)
    assert body["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}},
    ]


IMAGE = ImagePart(url="https://x.test/a.png")
UNSENDABLE = [
    (Message.user([AudioPart(url="https://x.test/a.mp3")]), "do not accept audio by URL.*AudioPart"),
    (Message.user([AudioPart(data=b"x", media_type="audio/flac")]), "do not accept audio as audio/flac"),
    (Message.user([FilePart(url="https://x.test/a.pdf")]), "do not accept files by URL.*FilePart"),
    (Message.user([ReasoningPart(text="hm")]), "contains a ReasoningPart"),
    (Message.system([IMAGE]), "'system' contains an ImagePart.*user message"),
]


@pytest.mark.parametrize(("message", "error"), UNSENDABLE, ids=range(len(UNSENDABLE)))
async def test_what_the_protocol_does_not_know_is_refused_before_it_is_sent(
    server: Server, model: OpenAIChatModel, message: Message, error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        await model.generate(ModelRequest(messages=[message]))
    with pytest.raises(UsageError, match=error):
        await streamed(model, ModelRequest(messages=[message]))
    assert server.asked == []


async def test_a_broken_call_does_not_break_the_conversation(server: Server, model: OpenAIChatModel) -> None:
    broken = Message.assistant(tool_calls=[ToolCall(id="c1", name="functions.book", raw='{"to": "Bei')])
    [body] = await sent_messages(server, model, broken)
    assert body["tool_calls"][0]["function"] == {
        "name": "functions_book",
        "arguments": '{"INVALID_JSON":"{\\"to\\": \\"Bei"}',
    }


async def test_tools_and_options_are_sent(server: Server) -> None:
    model = OpenAIChatModel("m", base_url=server.url, options={"temperature": 0, "seed": 7}, headers={"x-team": "a"})
    schema: Json = {"type": "object", "properties": {"to": {"type": "string"}}}
    request = ModelRequest(
        messages=[Message.user("hi")],
        tools=[ToolSpec(name="book", description="Books.", schema=schema)],
        options={"tool_choice": "required", "seed": None},
    )
    body = await sent(server, model, request)
    assert body["tools"] == [
        {"type": "function", "function": {"name": "book", "description": "Books.", "parameters": schema}}
    ]
    assert (body["tool_choice"], body["temperature"]) == ("required", 0)
    assert "seed" not in body
    assert server.asked[0].headers["x-team"] == "a"
    await model.close()


async def test_an_option_that_is_none_removes_a_default(server: Server) -> None:
    model = OpenAIChatModel("m", base_url=server.url, options={"stream_options": None})
    server.replies.append(streams(delta("stop")))
    await streamed(model)
    assert "stream_options" not in server.asked[0].body
    await model.close()


async def test_whether_to_stream_is_no_option(server: Server) -> None:
    model = OpenAIChatModel("m", base_url=server.url, options={"stream": True})
    assert "stream" not in await sent(server, model, HELLO)
    await model.close()


async def test_options_that_are_no_json_are_refused(model: OpenAIChatModel) -> None:
    request = ModelRequest(messages=[Message.user("hi")], options={"note": object()})
    with pytest.raises(UsageError, match=r"cannot be written as JSON.*Check its options"):
        await model.generate(request)


class City(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    twin: City | None


async def test_structured_output_is_asked_for(server: Server, model: OpenAIChatModel) -> None:
    closed = msgspec.json.schema(City)
    body = await sent(server, model, ModelRequest(messages=[Message.user("hi")], output=closed))
    wanted = body["response_format"]
    assert wanted["type"] == "json_schema"
    assert (wanted["json_schema"]["name"], wanted["json_schema"]["strict"]) == ("City", True)
    assert wanted["json_schema"]["schema"]["type"] == "object", "the root is written out"
    open_one: Json = {"type": "object", "additionalProperties": {"type": "string", "format": "city"}}
    body = await sent(server, model, ModelRequest(messages=[Message.user("hi")], output=open_one))
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": open_one, "strict": False}


async def test_enums_of_a_strict_schema_get_a_type(server: Server, model: OpenAIChatModel) -> None:
    fields: Json = {"a": {"enum": ["x", None]}, "b": {"const": True}, "c": {"enum": [1, 2.5]}, "d": {"enum": [[1]]}}
    given = {"type": "object", "properties": fields}
    body = await sent(server, model, ModelRequest(messages=[Message.user("hi")], output=given))
    found = body["response_format"]["json_schema"]["schema"]["properties"]
    assert [found[name].get("type") for name in "abcd"] == [["string", "null"], "boolean", ["integer", "number"], None]


@pytest.mark.parametrize(
    ("field", "strict"),
    [
        ({"type": "array", "items": {"type": "string"}}, True),
        ({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]}, True),
        ({"type": "array"}, False),
        ({"type": ["array", "null"], "items": {"type": "string"}}, False),
        ({"type": "array", "items": True}, False),
        ({"description": "whatever"}, False),
        ({"type": "string", "not": {"const": "x"}}, False),
    ],
)
async def test_a_schema_that_strict_mode_cannot_express_is_sent_as_it_is(
    server: Server, model: OpenAIChatModel, field: Json, strict: bool
) -> None:
    schema: Json = {
        "type": "object",
        "properties": {"it": field},
        "required": ["it"],
        "additionalProperties": False,
    }
    body = await sent(server, model, ModelRequest(messages=[Message.user("hi")], output=schema))
    wanted = body["response_format"]["json_schema"]
    assert wanted["strict"] == strict
    if not strict:
        assert wanted["schema"] == schema


async def test_structured_output_that_is_no_object_is_refused(model: OpenAIChatModel) -> None:
    with pytest.raises(UsageError, match=r"of type 'integer'.*field of an object"):
        await model.generate(ModelRequest(messages=[Message.user("hi")], output={"type": "integer"}))


# What can go wrong

LIMITED: Json = {"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}
QUOTA: Json = {"error": {"message": "You have no money.", "type": "insufficient_quota", "code": "insufficient_quota"}}
WRONG: Json = {"error": {"message": "Bad messages.", "type": "invalid_request_error", "code": None}}


async def failure(model: OpenAIChatModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await streamed(model)
    return caught.value


async def test_a_rate_limit_says_how_long_to_wait(server: Server, model: OpenAIChatModel) -> None:  # failures 76
    server.replies += [answers(LIMITED, status=429, headers={"retry-after": "7"})] * 2
    with pytest.raises(ModelError, match=r"status 429: Slow down\. Wait 7 seconds") as caught:
        await model.generate(HELLO)
    for error in (caught.value, await failure(model)):
        assert (error.provider, error.status, error.code) == ("here", 429, "rate_limit_exceeded")
        assert error.retry_after == 7
        assert Retry(on=ModelError).matches(error)
    assert len(server.asked) == 2, "the SDK's own retries are off"


def test_retry_after_in_all_its_forms() -> None:
    now = 1_700_000_000.0
    assert retry_after({"retry-after": "1.5"}, now) == 1.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}, now) == 0.25
    assert retry_after({"retry-after": formatdate(now + 30, usegmt=True)}, now) == 30
    assert retry_after({"retry-after": formatdate(now - 30, usegmt=True)}, now) == 0
    assert retry_after({}, now) is None
    for odd in ("inf", "-inf", "nan", "1e999", "soon", ""):
        assert retry_after({"retry-after": odd}, now) is None


@pytest.mark.parametrize(
    ("asks", "words"), [("2.5", "Wait 2.5 sec"), ("1e9", "Wait 1,000,000,000 sec"), ("inf", "Try")]
)
async def test_how_long_to_wait_can_be_read(server: Server, model: OpenAIChatModel, asks: str, words: str) -> None:
    server.replies.append(answers(LIMITED, status=429, headers={"retry-after": asks}))
    with pytest.raises(ModelError, match=words):
        await model.generate(HELLO)


async def test_a_total_alone_is_a_usage_and_zeros_are_none(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(answers(said(content="hi", usage={"total_tokens": 12})))
    assert (await model.generate(HELLO)).usage == Usage(calls=1, input_tokens=12)
    zeros = {**TOTAL, "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    server.replies.append(streams(delta("stop", content="hi"), TOTAL, zeros))
    _, message = await streamed(model)
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (12, 7)


@pytest.mark.parametrize("arguments", [None, "", "  \n", "null", " null "])
async def test_no_arguments_in_all_their_forms(server: Server, model: OpenAIChatModel, arguments: str | None) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    server.replies += [answers(said("tool_calls", tool_calls=[call])), streams(delta("tool_calls", tool_calls=[call]))]
    for message in (await model.generate(HELLO), (await streamed(model))[1]):
        assert [(each.arguments, each.raw) for each in message.tool_calls] == [({}, None)]


@pytest.mark.parametrize(
    ("status", "body", "retryable", "advice"),
    [
        (400, WRONG, False, "Fix the request"),
        (401, WRONG, False, "OPENAI_API_KEY"),
        (404, "<html>nothing here</html>", False, "name of the model"),
        (408, {}, True, "Try again"),
        (418, {}, False, "Fix the request"),
        (429, QUOTA, False, "Fix the request, or check the account"),
        (500, {}, True, "Try again"),
        (503, "away", True, "Try again"),
    ],
)
async def test_statuses(  # failures 76
    server: Server, model: OpenAIChatModel, status: int, body: Json | str, retryable: bool, advice: str
) -> None:
    server.replies.append(answers(body, status=status))
    error = await failure(model)
    assert (error.status, error.retryable) == (status, retryable)
    assert f"The model 'gpt-test' answered with status {status}: " in str(error)
    assert advice in str(error)
    assert "sk-test" not in str(error)


BEGUN = (delta(content="Hel"), call_piece(0, '{"to"', id="c1", name="book"))
HALVES: dict[str, Reply] = {
    "cut": streams(*BEGUN, cut=True),
    "ended": streams(*BEGUN, done=False),
    "done": streams(*BEGUN),
    "no JSON": streams(*BEGUN, b'data: {"choices": [{"del\n\n'),
    "wrong type": streams(*BEGUN, {"choices": "none"}),
    "not UTF-8": streams(*BEGUN, b'data: {"choices": "\xff"}\n\n'),
    "not even an object": streams(*BEGUN, b"data: [1]\n\n"),
    "error": streams(*BEGUN, {"error": {"message": "Overloaded", "type": "server_error", "code": None}}),
    "empty": streams(done=False),
    "no answer": hangs_up,
}


@pytest.mark.parametrize("how", HALVES)
async def test_half_a_stream_is_an_error_that_can_be_tried_again(  # rule A8, failures 76 and 77
    server: Server, model: OpenAIChatModel, how: str
) -> None:
    server.replies += [HALVES[how]] * (2 if how == "no answer" else 1)
    error = await failure(model)
    assert (error.provider, error.status, error.retryable) == ("here", None, True)
    server.replies.append(streams(delta(content="Hello"), delta("stop")))
    assert (await streamed(model))[1].text == "Hello", "the next call finds a working connection"


async def test_an_error_in_a_stream_may_say_that_trying_again_is_vain(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(streams(delta(content="Hel"), WRONG))
    error = await failure(model)
    assert (error.code, error.retryable) == ("invalid_request_error", False)
    assert "stopped with an error: Bad messages." in str(error)


_HEL = b'{"choices": [{"index": 0, "delta": {"content": "Hel"}}]}'
_LO = b'{"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + _HEL[:20], _HEL[20:30], _HEL[30:] + b"\n\ndata: " + _LO + b"\n\n"],
        [b"\xef", b"\xbb\xbf", b" \n", b"data: " + _HEL + b"\r", b"\n\r\ndata: " + _LO + b"\r\r"],
        [b"data: " + _HEL[:12] + b"\ndata: " + _HEL[12:] + b"\n\ndata: " + _LO + b"\n\n"],
        [_HEL + b"\n" + _LO + b"\n"],
        [_HEL + b" \n", b"  \n", _LO + b"\t\n"],
        [b"event: message\ndata: " + _HEL + b"\n\ndata: null\n\ndata:\n\ndata: " + _LO + b"\n\n"],
    ],
    ids=["in pieces", "byte order mark", "over lines", "bare lines", "bare lines with spaces", "named"],
)
async def test_lines_in_all_their_forms(server: Server, model: OpenAIChatModel, pieces: list[bytes]) -> None:
    server.replies.append(streams(*pieces))
    assert (await streamed(model))[1].text == "Hello"


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (b"event: error\ndata: the cluster\ndata: is on fire\n\n", "the cluster is on fire"),
        (b"error: the cluster is on fire\n", "the cluster is on fire"),
        (b'error: {"message": "the cluster is on fire"}\n', "the cluster is on fire"),
        (b'{"error": {"message": "the cluster is on fire"}} \n', "the cluster is on fire"),
        (b"{broken\n", "the cluster|JSON|cannot be read|Expecting"),
        (b"data: the cluster\ndata: is on fire\n\n", "JSON|Expecting"),
    ],
)
async def test_errors_that_are_no_events_are_read(
    server: Server, model: OpenAIChatModel, piece: bytes, said: str
) -> None:
    server.replies.append(streams(delta(content="Hel"), piece))
    assert re.search(said, str(await failure(model)).replace("\n", " "))


async def test_a_whole_body_that_is_cut_is_an_error(server: Server, model: OpenAIChatModel) -> None:
    async def half(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 30\r\n\r\n")
        await connection.send(b'{"choices": [ ')
        await connection.send(b'{"message": {"co')

    server.replies.append(half)
    assert (await failure(model)).retryable


async def test_what_was_streamed_before_the_cut_was_seen(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(streams(delta(content="Hel"), cut=True))
    chunks = model.stream(HELLO)
    assert (await anext(chunks)).text == "Hel"
    with pytest.raises(ModelError, match="connection broke"):
        await anext(chunks)


async def test_a_cut_after_the_answer_has_ended_costs_nothing(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(streams(delta(content="Hello"), delta("stop"), cut=True))
    assert (await streamed(model))[1] == origin(Message.assistant("Hello", finish_reason="stop"))


@pytest.mark.parametrize(
    "body", ["<html>hello</html>", {"choices": "none"}, {"choices": []}], ids=["html", "type", "none"]
)
async def test_a_whole_answer_that_is_none(server: Server, model: OpenAIChatModel, body: Json | str) -> None:
    server.replies.append(answers(body))
    with pytest.raises(ModelError) as caught:
        await model.generate(HELLO)
    assert caught.value.retryable


@pytest.mark.parametrize("reply", [stalls(), stalls(delta(content="Hel"))], ids=["at once", "after a while"])
async def test_a_server_that_falls_silent_is_a_timeout(server: Server, reply: Reply) -> None:
    model = OpenAIChatModel("m", base_url=server.url, timeout=0.05)
    server.replies.append(reply)
    error = await failure(model)
    assert error.retryable
    assert "did not respond in time" in str(error)
    await server.left.wait()
    await model.close()


async def test_a_server_that_is_not_there(server: Server) -> None:
    async with serving() as gone:
        url = gone.url
    model = OpenAIChatModel("m", base_url=url)
    error = await failure(model)
    assert error.retryable
    assert "could not be reached" in str(error)
    await model.close()


# Leaving early


async def test_leaving_a_stream_closes_its_connection(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(stalls(delta(content="Hel")))
    chunks = model.stream(HELLO)
    assert (await anext(chunks)).text == "Hel"
    await close_stream(chunks)
    await server.left.wait()


@pytest.mark.parametrize("kind", ["stream", "generate"])
async def test_cancelling_closes_the_connection(server: Server, model: OpenAIChatModel, kind: str) -> None:
    server.replies.append(stalls(delta(content="Hel")) if kind == "stream" else stalls())
    running = asyncio.create_task(streamed(model) if kind == "stream" else cast("Any", model.generate(HELLO)))
    await server.has_been_asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.left.wait()


async def test_a_connection_is_used_again(server: Server, model: OpenAIChatModel) -> None:
    for _ in range(3):
        server.replies.append(streams(delta(content="a"), delta("stop"), TOTAL))
        await streamed(model)
        server.replies.append(answers(said(content="hi")))
        await model.generate(HELLO)
    assert server.connections == 1


async def test_one_model_serves_several_event_loops(server: Server, model: OpenAIChatModel) -> None:
    server.replies += [answers(said(content="hi"))] * 4
    texts: list[str] = []

    def in_a_loop_of_its_own() -> None:
        texts.append(asyncio.run(model.generate(HELLO)).text)

    await model.generate(HELLO)
    for _ in range(2):
        thread = threading.Thread(target=in_a_loop_of_its_own)
        thread.start()
        await asyncio.to_thread(thread.join)
    await model.generate(HELLO)
    assert texts == ["hi", "hi"]
    assert server.connections == 3


async def test_connections_are_closed_when_their_loop_ends(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(answers(said(content="hi")))
    await asyncio.to_thread(lambda: asyncio.run(model.generate(HELLO)))
    await server.left.wait()


async def test_a_closed_model_can_be_used_again(server: Server, model: OpenAIChatModel) -> None:
    for _ in range(2):
        server.replies.append(answers(said(content="hi")))
        await model.generate(HELLO)
        await model.close()
    assert server.connections == 2


async def test_a_client_of_ones_own_is_used_and_left_open(server: Server) -> None:
    client = openai.AsyncOpenAI(api_key="sk-own", base_url=server.url, default_headers={"x-own": "1"})
    model = OpenAIChatModel("m", client=client)
    server.replies += [answers({}, status=500), answers(said(content="hi"))]
    with pytest.raises(ModelError):
        await model.generate(HELLO)
    await model.close()
    assert (await model.generate(HELLO)).text == "hi"
    assert server.asked[1].headers["x-own"] == "1"
    await client.close()


# Making one


def make(code: str, **environment: str) -> str:
    """What a new process prints; it has these variables, and none of OpenAI's otherwise."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    command = "\n".join(
        [
            "import sys",
            "from adjourn import UsageError",
            "from adjourn.models import OpenAIChatModel",
            "try:",
            f"    {code}",
            "except UsageError as error:",
            "    print(error)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=600, env=kept | environment
    )
    return done.stdout


def test_a_missing_key_is_named() -> None:
    assert "OPENAI_API_KEY is not set" in make("OpenAIChatModel('gpt-5')")
    assert make("print(OpenAIChatModel('gpt-5'))", OPENAI_API_KEY="sk-secret") == "OpenAIChatModel('gpt-5')\n"
    assert make("print(OpenAIChatModel('m', base_url='http://127.0.0.1:1/v1'))") == "OpenAIChatModel('m')\n"
    assert make("print(OpenAIChatModel('m'))", OPENAI_BASE_URL="http://127.0.0.1:1/v1") == "OpenAIChatModel('m')\n"


def test_a_missing_sdk_is_named() -> None:
    told = make("sys.modules['openai'] = None; OpenAIChatModel('gpt-5')", OPENAI_API_KEY="sk-secret")
    assert "pip install 'adjourn[openai]'" in told


def test_the_sdk_is_loaded_by_those_who_make_a_model() -> None:
    assert make("OpenAIChatModel; print('openai' in sys.modules)") == "False\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"base_url": "localhost:8000"}, "base_url='localhost:8000'.*http://"),
        ({"base_url": "http://h/v1/chat/completions/"}, "without its end, which is added: 'http://h/v1'"),
        ({"timeout": 0}, "timeout=0.*above 0"),
    ],
)
def test_mistakes_show_when_a_model_is_made(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        OpenAIChatModel("m", api_key="sk", **arguments)


# Secrets

KEY, TOKEN = "sk-canary-4711", "canary/token+0815"


def echoes(status: int) -> Reply:
    """An answer that repeats the headers of its request, as some proxies do."""

    async def reply(connection: Connection) -> None:
        text = f"not allowed: {KEY} {quote(TOKEN, safe='')} {b64encode(KEY.encode()).decode()} Bearer {TOKEN}"
        await answers({"error": {"message": text, "code": f"bad {KEY}"}}, status=status)(connection)

    return reply


@asynccontextmanager
async def keyed(server: Server, kind: str) -> AsyncGenerator[OpenAIChatModel]:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Key": KEY}
    async with openai.AsyncOpenAI(api_key=KEY, base_url=server.url, default_headers=headers) as client:
        if kind == "custom":
            model = OpenAIChatModel("gpt-test", client=client)
        elif kind == "extra":
            model = OpenAIChatModel("gpt-test", api_key=KEY, base_url=server.url, options={"extra_headers": headers})
        else:
            model = OpenAIChatModel("gpt-test", api_key=KEY, base_url=server.url, headers=headers)
        yield model
        await model.close()


def shows(text: str) -> bool:
    forms = [KEY, TOKEN, quote(TOKEN, safe=""), b64encode(KEY.encode()).decode().rstrip("=")]
    return any(form in text for form in forms)


async def collected(run: Any, events: list[Any]) -> None:
    async for event in run:
        events.append(event)  # noqa: PERF401  # those before the error count, too


def stored_in(folder: Path) -> list[str]:
    return [file.read_bytes().decode("latin-1") for file in folder.iterdir()]


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize("kind", ["own", "extra", "custom"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_what_a_server_repeats_of_a_key_is_hidden_everywhere(  # attack 10
    server: Server, kind: str, status: int, streaming: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "adjourn")
    server.replies += [echoes(status)] * 2
    store, events, retry = SQLiteStore(tmp_path / "s.db"), list[Any](), Retry(attempts=2, backoff=0, on=Exception)
    async with keyed(server, kind) as model:
        agent = ChatModelAgent("A", model=model, retry=retry, middleware=[LogCalls()])
        run = Runner(agent, store=store, streaming=streaming).run("hello", session_id="s1")
        with pytest.raises((RetryExhausted, ModelError)) as caught:
            await collected(run, events)
    await store.close()
    text = "".join(traceback.format_exception(caught.value))
    assert "not allowed: [secret] [secret]" in text
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert "extra_headers" not in server.asked[0].body
    assert events
    for seen in (text, repr(events), repr(model), repr(agent), caplog.text, *stored_in(tmp_path)):
        assert not shows(seen)


@pytest.mark.parametrize("body", [{"status": KEY}, {"status": KEY, "choices": []}, {"fault": {"faultstring": KEY}}])
async def test_a_key_in_a_body_that_is_no_answer_is_not_shown(server: Server, body: Json) -> None:  # attack 10
    server.replies += [answers(body), streams(body)]
    model = OpenAIChatModel("gpt-test", api_key=KEY, base_url=server.url)
    for asked in (model.generate(HELLO), collected(model.stream(HELLO), [])):
        with pytest.raises(ModelError, match=r"\[secret\]") as caught:
            await asked
        assert not shows("".join(traceback.format_exception(caught.value)))
    await model.close()


async def test_a_key_that_no_header_can_hold_is_not_shown(server: Server) -> None:  # attack 10
    model = OpenAIChatModel("gpt-test", api_key=f"{KEY}\n{TOKEN}", base_url=server.url)
    with pytest.raises(ModelError) as caught:
        await model.generate(HELLO)
    assert not shows("".join(traceback.format_exception(caught.value)))
    await model.close()


async def test_errors_without_a_secret_keep_their_cause(server: Server, model: OpenAIChatModel) -> None:
    server.replies.append(answers({"error": {"message": "no"}}, status=400))
    with pytest.raises(ModelError) as caught:
        await model.generate(HELLO)
    assert isinstance(caught.value.__cause__, openai.BadRequestError)


async def test_headers_that_are_none_are_refused(model: OpenAIChatModel) -> None:
    with pytest.raises(UsageError, match=r"extra_headers=a str\. Give a mapping"):
        await model.generate(ModelRequest(messages=HELLO.messages, options={"extra_headers": "x"}))
