"""An answer without end: how much of it is read, and what becomes of the session."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, OpenAIChatModel, Retry, Runner, ToolCall, UsageError
from adjourn.errors import ModelError
from adjourn.messages import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from adjourn.middleware import RedactPII
from adjourn.models import AnswerBounds, Chunk, Gathering, ModelRequest, ToolCallChunk, generate
from adjourn.models.openai._answer import AnswerReader
from adjourn.testing import ScriptedModel
from tests.models.openai_server import Connection, Reply, Server, call_piece, delta, event, said, serving, streams

MB = 1024 * 1024
BOUNDS = AnswerBounds(size=4 * MB, calls=20)
SOME = 16 * MB
"""Bytes that are more than the bounds and what sockets hold."""
HELLO = streams(delta(content="Hello"), delta("stop"))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


class Endless:
    """A reply that goes on until the client leaves, and how much of it was sent."""

    def __init__(self, begin: bytes, piece: bytes, status: int = 200, headers: str = "", pause: float = 0.0) -> None:
        self.sent = 0
        self._begin = begin
        self._piece = piece
        self._head = f"HTTP/1.1 {status} Whatever\r\n{headers}transfer-encoding: chunked\r\n\r\n".encode()
        self._pause = pause

    async def __call__(self, connection: Connection) -> None:
        await connection.send(self._head)
        pieces: Iterable[bytes] = itertools.chain([self._begin] if self._begin else [], itertools.repeat(self._piece))
        for piece in pieces:
            await connection.chunk(piece)
            self.sent += len(piece)
            assert self.sent < 40 * SOME
            await asyncio.sleep(self._pause)


LONG = b"x" * 65536
TOKEN = event(delta(content="word ")) * 300
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "line": (b"data: ", LONG),
    "line-of-nothing-known": (b"data: {}\n\n", LONG),
    "comment": (b": ", LONG),
    "comments": (b"", b": ping\n\n" * 5000),
    "event": (b"", b"data: [1,\n" * 5000),
    "events-without-text": (b"", b"data: {}\n\n" * 5000),
    "white-space": (b"", b" \n" * 30_000),
    "whole-answer": (b'{"choices": [{"message": {"content": "', LONG),
    "text": (b"<html>", LONG),
    "tokens": (b"", TOKEN),
    "reasoning": (b"", event(delta(reasoning_content="hm ")) * 300),
    "arguments": (event(call_piece(0, "{", id="c1", name="look")), event(call_piece(0, "}")) * 300),
    "name": (b"", event(call_piece(0, None, id="c1", name="n" * 1000)) * 50),
    "name-in-pieces": (event(call_piece(0, None, id="c1")), event(call_piece(0, None, name="look")) * 300),
}


def model_of(server: Server, bounds: AnswerBounds = BOUNDS, client: Any = None) -> OpenAIChatModel:
    return OpenAIChatModel("m", base_url=server.url, timeout=10, bounds=bounds, client=client)


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("begin", "piece"), ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_without_end_is_given_up(  # rule V16
    server: Server, begin: bytes, piece: bytes, is_streamed: bool
) -> None:
    endless = Endless(begin, piece)
    server.replies.append(endless)
    model = model_of(server)
    runner = Runner(ChatModelAgent("A", model=model), streaming=is_streamed)
    with pytest.raises(
        ModelError, match=r"The answer of a model has more than .* bounds=AnswerBounds\(size="
    ) as failed:
        await runner.run("hi", session_id="s")
    assert not failed.value.retryable
    assert endless.sent < SOME
    assert len(server.asked) == 1  # The same answer would come again.
    server.replies.append(HELLO)
    assert (await runner.recover("s")).output == "Hello"
    await model.close()


async def test_what_comes_after_the_end_of_an_answer_is_not_read_for_ever(server: Server) -> None:  # rule V16
    endless = Endless(event(delta(content="Hello")) + event(delta("stop")), b": more\n\n" * 5000)
    server.replies.append(endless)
    model = model_of(server)
    assert (await Runner(ChatModelAgent("A", model=model)).run("hi")).output == "Hello"
    assert endless.sent < SOME
    await model.close()


ERRORS = {
    "error": (500, "", b'{"error": {"message": "', LONG),
    "refusal": (400, "content-type: application/json\r\n", b'{"error": {"message": "', LONG),
    "redirect": (302, "location: /v1/elsewhere\r\n", b"", LONG),
    "compressed": (500, "content-encoding: gzip\r\n", gzip.compress(b"x" * 10 * MB), gzip.compress(b"x" * 10 * MB)),
}


@pytest.mark.parametrize("is_given", [False, True], ids=["own-client", "given-client"])
@pytest.mark.parametrize(("status", "headers", "begin", "piece"), ERRORS.values(), ids=ERRORS)
async def test_an_error_without_end_is_read_only_so_far(  # rule V16
    server: Server, status: int, headers: str, begin: bytes, piece: bytes, is_given: bool
) -> None:
    import openai  # noqa: PLC0415

    endless = Endless(begin, piece, status=status, headers=headers)
    server.replies += [endless, HELLO]
    given = openai.AsyncOpenAI(api_key="k", base_url=server.url) if is_given else None
    model = model_of(server, client=given)
    runner = Runner(ChatModelAgent("A", model=model, retry=None))
    if status == 302:
        assert (await runner.run("hi")).output == "Hello"
    else:
        with pytest.raises(ModelError, match=f"answered with status {status}"):
            await runner.run("hi")
    assert endless.sent < SOME
    await model.close()


async def test_a_compressed_answer_counts_as_what_it_becomes(server: Server) -> None:  # rule V16
    endless = Endless(gzip.compress(b"data: " + b"x" * 64 * MB), LONG, headers="content-encoding: gzip\r\n")
    server.replies.append(endless)
    model = model_of(server)
    with pytest.raises(ModelError, match="has more than"):
        await Runner(ChatModelAgent("A", model=model)).run("hi")
    assert endless.sent < SOME
    await model.close()


@pytest.mark.parametrize("status", [200, 302, 500])
@pytest.mark.parametrize("encoding", ["gzip, gzip", "deflate, gzip, gzip", "gzip\r\ncontent-encoding: gzip", "x"])
async def test_what_was_packed_twice_is_not_unpacked(server: Server, status: int, encoding: str) -> None:  # rule V16
    bomb = gzip.compress(gzip.compress(bytes(100 * MB)))
    headers = f"location: /v1/elsewhere\r\ncontent-encoding: {encoding}\r\n"
    server.replies += [Endless(bomb, LONG, status=status, headers=headers), HELLO]
    model = model_of(server)
    runner = Runner(ChatModelAgent("A", model=model, retry=None))
    tracemalloc.start()
    try:
        if status == 302:
            assert (await runner.run("hi")).output == "Hello"
        else:
            with pytest.raises(ModelError):
                await runner.run("hi")
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()
    assert server.asked[0].headers["accept-encoding"] == "deflate, gzip, identity"
    await model.close()


async def test_an_answer_may_not_take_for_ever(server: Server) -> None:  # rule V16
    for is_streamed in (True, False):
        endless = Endless(b"", b": ping\n\n", pause=0.01)
        server.replies.append(endless)
        model = model_of(server, bounds=AnswerBounds(seconds=0.2))
        with pytest.raises(ModelError, match=r"more than 0\.2 seconds.*AnswerBounds\(seconds="):
            await Runner(ChatModelAgent("A", model=model), streaming=is_streamed).run("hi")
        await model.close()
    assert len(server.asked) == 2


async def test_an_answer_may_not_have_any_number_of_calls(server: Server) -> None:  # rule V16
    calls = [call_piece(n, "{}", id=f"c{n}", name="look") for n in range(21)]
    whole = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in range(21)]
    replies: list[tuple[Reply, bool]] = [(streams(*calls, delta("tool_calls")), True)]
    body = json.dumps(said("tool_calls", tool_calls=whole)).encode()
    replies.append((streams(b"data: " + body + b"\n\n"), False))
    for reply, is_streamed in replies:
        server.replies.append(reply)
        model = model_of(server)
        with pytest.raises(ModelError, match=r"more than 20 calls.*AnswerBounds\(calls="):
            await Runner(ChatModelAgent("A", model=model), streaming=is_streamed).run("hi")
        await model.close()


async def test_the_next_model_answers_instead(server: Server) -> None:  # rule A8
    server.replies.append(Endless(b"data: ", LONG))
    model = model_of(server)
    agent = ChatModelAgent("A", model=model, failover=[ScriptedModel(["from the other"])])
    assert (await Runner(agent).run("hi")).output == "from the other"
    await model.close()


async def test_a_policy_that_tries_again_ends_too(server: Server) -> None:  # rule A8
    server.replies += [Endless(b"data: ", LONG), HELLO]
    model = model_of(server)
    agent = ChatModelAgent("A", model=model, retry=Retry(attempts=3, on=ModelError, backoff=0.0))
    with pytest.raises(ModelError, match="has more than"):
        await Runner(agent).run("hi")
    assert len(server.asked) == 1
    await model.close()


# Any model


class Custom:
    """A model of a user, which streams the same chunk without end."""

    def __init__(self, chunk: Chunk, bounds: AnswerBounds = BOUNDS) -> None:
        self.bounds = bounds
        self.left = 1_000_000
        self._chunk = chunk

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        while self.left:
            self.left -= 1
            yield self._chunk


CHUNKS = {
    "text": Chunk(text="word "),
    "reasoning": Chunk(reasoning="hm "),
    "nothing": Chunk(),
    "parts": Chunk(parts=(TextPart(text="x", provider="p"),)),
    "arguments": Chunk(tool_calls=(ToolCallChunk(index=0, arguments="x"),)),
    "names": Chunk(tool_calls=(ToolCallChunk(index=0, name="look"),)),
}


@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("how", ["streamed", "whole", "redacted", "called"])
async def test_every_model_is_bounded(chunk: Chunk, how: str) -> None:  # rule V16
    model = Custom(chunk)
    middleware = [RedactPII(patterns={"x": "never"})] if how == "redacted" else []
    runner = Runner(ChatModelAgent("A", model=model, middleware=middleware), streaming=how != "whole")
    asking = generate(model, ModelRequest(messages=[])) if how == "called" else runner.run("hi")
    with pytest.raises(ModelError, match="has more than"):
        await asking
    assert model.left > 900_000


async def test_a_model_that_never_answers_is_left() -> None:  # rule V16
    class Silent:
        bounds = AnswerBounds(seconds=0.05)

        async def generate(self, request: ModelRequest) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

    for streaming in (True, False):
        with pytest.raises(ModelError, match=r"more than 0\.05 seconds"):
            await Runner(ChatModelAgent("A", model=Silent()), streaming=streaming).run("hi")


async def test_a_timeout_of_the_model_itself_stays_its_own() -> None:
    class Late:
        async def generate(self, request: ModelRequest) -> Message:
            raise TimeoutError("the line is dead")

    with pytest.raises(ModelError, match="TimeoutError: the line is dead"):
        await Runner(ChatModelAgent("A", model=Late())).run("hi")


def test_what_is_within_the_bounds_is_taken() -> None:
    gathering = Gathering(BOUNDS)
    for number in range(20):
        gathering.add(Chunk(tool_calls=(ToolCallChunk(index=number, id=str(number), name="look"),)))
    gathering.add(Chunk(text="x" * 3 * MB))
    assert gathering.message().tool_calls[19] == ToolCall(id="19", name="look")
    assert len(gathering.message().text) == 3 * MB


BIG = "x" * MB
KEPT: dict[str, Part | ToolCallChunk] = {
    "url": ImagePart(url=f"data:image/png;base64,{BIG}"),
    "bytes": ImagePart(data=BIG.encode(), media_type="image/png"),
    "name-of-a-file": FilePart(url="https://example.com", name=BIG),
    "id": ReasoningPart(text="hm", id=BIG),
    "signature": ReasoningPart(signature=BIG, provider="p"),
    "extra": TextPart(text="x", provider="p", extra={"a": BIG}),
    "opaque": OpaquePart(provider="p", data={"a": [BIG]}),
    "extra-of-a-call": ToolCallChunk(index=0, provider="p", extra={"a": BIG}),
    "provider-of-a-call": ToolCallChunk(index=0, provider=BIG),
}


@pytest.mark.parametrize("piece", KEPT.values(), ids=KEPT)
def test_everything_in_a_piece_counts(piece: Part | ToolCallChunk) -> None:  # rule V16
    chunk = Chunk(tool_calls=(piece,)) if isinstance(piece, ToolCallChunk) else Chunk(parts=(piece,))
    gathering = Gathering(BOUNDS)
    for _ in range(4):
        gathering.add(chunk)
    with pytest.raises(ModelError, match=r"more than 4,194,304 bytes"):
        gathering.add(chunk)


@pytest.mark.parametrize("of_calls", [1, 4])
def test_the_arguments_of_all_calls_are_bounded_together(of_calls: int) -> None:  # rule V16
    gathering = Gathering()
    for number in range(16):
        gathering.add(Chunk(tool_calls=(ToolCallChunk(index=number % of_calls, arguments="[" * 65536),)))
    assert len(gathering.message().tool_calls) == of_calls
    with pytest.raises(ModelError, match=r"more than 1,048,576 characters in .*AnswerBounds\(arguments="):
        gathering.add(Chunk(tool_calls=(ToolCallChunk(index=0, arguments="["),)))


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
async def test_arguments_that_stall_the_event_loop_are_not_parsed(server: Server, is_streamed: bool) -> None:
    server.replies.append(streams(call_piece(0, "[]," * MB, id="c1", name="look"), delta("tool_calls")))
    model = model_of(server, bounds=AnswerBounds())
    with pytest.raises(ModelError, match="in the arguments of its calls"):
        await Runner(ChatModelAgent("A", model=model), streaming=is_streamed).run("hi")
    await model.close()


MANY = 40_000
DETAIL = {"type": "reasoning.text", "text": "hm " * 60}
PIECES: dict[str, dict[str, Any]] = {
    "details": {"reasoning_details": [{**DETAIL, "text": "hm ", "index": index} for index in range(MANY)]},
    "texts-of-a-detail": {"reasoning_details": [{**DETAIL, "index": 0}] * MANY},
    "blank-arguments": {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": " "}}] * MANY},
    "calls": {"tool_calls": [{"id": str(number), "function": {"name": "look"}} for number in range(MANY)]},
}


@pytest.mark.parametrize("said", PIECES.values(), ids=PIECES)
def test_many_pieces_take_no_more_work_each(said: dict[str, Any]) -> None:  # rule V16
    began = time.process_time()
    reader = AnswerReader("p")
    reader.read(delta(**said))
    chunk = reader.read(delta("stop"))
    assert chunk is not None
    if "reasoning_details" in said:
        assert chunk.origin is not None
        kept = (chunk.origin.extra or {})["reasoning_details"]
        texts = [detail["text"] for detail in said["reasoning_details"]]
        assert "".join(detail["text"] for detail in kept) == "".join(texts)
    assert time.process_time() - began < 3  # It took up to an hour, in which others waited.


@pytest.mark.parametrize("wrong", [{"size": 0}, {"calls": -1}, {"arguments": 0}, {"seconds": 0}, {"size": "1"}])
def test_bounds_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give a number above zero"):
        AnswerBounds(**wrong)
    with pytest.raises(UsageError, match=r"Give AnswerBounds\(...\)"):
        OpenAIChatModel("m", api_key="k", bounds=wrong)  # pyright: ignore[reportArgumentType]
