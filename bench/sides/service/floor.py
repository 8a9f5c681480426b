"""The floor: a socket server without a framework that only says what the model says. It shows what the load can do."""

import asyncio
import json
from typing import Any

from bench.sides.service.work import Contestant, contest, say

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
sessions: dict[str, list[str]] = {}


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await _read(reader):
        length = next(int(line.partition(b":")[2]) for line in head.splitlines() if line.startswith(b"Content-Length"))
        data: dict[str, Any] = json.loads(await reader.readexactly(length))
        log = sessions.setdefault(data["session_id"], [])
        log.append(data["message"])
        pieces: list[str] = []
        writer.write(HEAD)
        async for piece in say(data["message"]):
            pieces.append(piece)
            frame = b"data: %b\n\n" % json.dumps({"text": piece}).encode()
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
        log.append("".join(pieces))
        writer.write(b"0\r\n\r\n")
    writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    return head if head.startswith(b"POST") else b""


async def _serve(port: int) -> None:
    async with await asyncio.start_server(_talk, "127.0.0.1", port, backlog=2048) as server:
        await server.serve_forever()


def serve(port: int, store: str) -> None:
    asyncio.run(_serve(port))


def post(session: str, message: str) -> tuple[str, object]:
    return "/chat", {"session_id": session, "message": message}


def token(data: bytes) -> str:
    return json.loads(data)["text"]


if __name__ == "__main__":
    contest(Contestant(serve=serve, post=post, token=token))
