"""A server on loopback that speaks chat completions over HTTP as a test tells it to, well or badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

Json = dict[str, Any]
Reply = Callable[["Connection"], Awaitable[None]]


class Asked(msgspec.Struct):
    """A request as it came over the wire."""

    path: str
    headers: Mapping[str, str]
    body: Json


class Connection:
    """One connection of a client; a reply writes to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> Asked | None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self._reader.readexactly(int(headers["content-length"]))
        return Asked(path=first.split()[1], headers=headers, body=json.loads(body))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One chunk of HTTP's chunked encoding."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def until_left(self) -> None:
        """Wait until the client has closed its side."""
        await self._reader.read()


class Server:
    """What was asked, and the replies that are still to come."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.replies: list[Reply] = []
        self.connections = 0
        self.has_been_asked = asyncio.Event()
        self.left = asyncio.Event()  # a connection has ended


@asynccontextmanager
async def serving() -> AsyncGenerator[Server]:
    """A server that lives as long as the block."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        connection = Connection(reader, writer)
        try:
            while (asked := await connection.read()) is not None:
                server.asked.append(asked)
                server.has_been_asked.set()
                reply = server.replies.pop(0)
                await (_refusal(asked.body) or reply)(connection)
        except (asyncio.IncompleteReadError, ConnectionError, _Closed):
            server.left.set()
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}/v1")
    async with listener:
        yield server


def _refusal(body: Json) -> Reply | None:
    """What OpenAI answers to a tool whose arguments are not an object at first sight."""
    for tool in body.get("tools", ()):
        function = tool["function"]
        if function["parameters"].get("type") != "object":
            words = f"Invalid schema for function '{function['name']}': schema must be of 'type: \"object\"'."
            return answers({"error": {"message": words, "code": "invalid_function_parameters"}}, status=400)
    return None


class _Closed(Exception):
    """A reply has ended the connection."""


# Replies


def answers(body: Json | str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole body, JSON or text."""

    async def reply(connection: Connection) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        told = {"content-type": kind, "content-length": str(len(data)), **(headers or {})}
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in told.items())]
        await connection.send("\r\n".join([*lines, "", ""]).encode() + data)

    return reply


def streams(*pieces: Json | bytes, done: bool = True, cut: bool = False) -> Reply:
    """Server-sent events: a dict as JSON, bytes as they are. `cut` ends the connection in the middle of the body."""

    async def reply(connection: Connection) -> None:
        await connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            await connection.chunk(piece if isinstance(piece, bytes) else event(piece))
        if cut:
            raise _Closed
        await connection.chunk(b"data: [DONE]\n\n" if done else b": bye\n\n")
        await connection.send(b"0\r\n\r\n")

    return reply


def stalls(*pieces: Json) -> Reply:
    """Begins to stream, then says nothing more until the client leaves; nothing at all without pieces."""

    async def reply(connection: Connection) -> None:
        if pieces:
            await connection.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
        for piece in pieces:
            await connection.chunk(event(piece))
        await connection.until_left()
        raise _Closed

    return reply


async def hangs_up(connection: Connection) -> None:
    """No answer at all."""
    raise _Closed


# Pieces of answers


def event(data: Json) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(finish_reason: str | None = None, index: int = 0, **fields: Any) -> Json:
    choice = {"index": index, "delta": fields, "finish_reason": finish_reason}
    return {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def call_piece(index: int | None, arguments: str | None = None, **fields: Any) -> Json:
    function = {name: value for name, value in (("name", fields.pop("name", None)), ("arguments", arguments)) if value}
    place = {} if index is None else {"index": index}
    return delta(tool_calls=[{**place, "function": function, **fields}])


def said(finish_reason: str | None = "stop", usage: Json | None = None, **fields: Any) -> Json:
    message = {"role": "assistant", "content": None, **fields}
    choices = [{"index": 0, "message": message, "finish_reason": finish_reason}]
    return {"id": "cmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


USAGE: Json = {
    "prompt_tokens": 12,
    "completion_tokens": 7,
    "total_tokens": 19,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
TOTAL: Json = {
    "id": "cmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [],
    "usage": USAGE,
}
