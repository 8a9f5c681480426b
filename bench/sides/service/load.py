"""The load: chats over plain sockets, so that a server has the machine to itself as far as possible.

Nothing is parsed while the clock runs: pieces are kept as they come, and read when all is over.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

END = b"\r\n0\r\n\r\n"
"""What a chunked body ends with."""
PATIENCE = 120.0
"""Seconds that a chat may take."""


@dataclass
class Reply:
    """What one chat got, and when."""

    asked: float
    ended: float = 0.0
    pieces: list[bytes] = field(default_factory=list[bytes])

    @property
    def seconds(self) -> float:
        return self.ended - self.asked

    @property
    def status(self) -> int:
        return int(b"".join(self.pieces)[9:12])

    def events(self) -> Iterator[bytes]:
        """The data of each frame."""
        body = b"".join(self.pieces).partition(b"\r\n\r\n")[2]
        for line in b"".join(_chunks(body)).splitlines():
            if line.startswith(b"data: "):
                yield line[6:]


def _chunks(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        head = body.index(b"\r\n", at)
        size = int(body[at:head], 16)
        yield body[head + 2 : head + 2 + size]
        at = head + 4 + size


class Connection(asyncio.Protocol):
    """A connection that is kept alive for one chat after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._tail = b""
        self._marker = b""
        self._begun: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        reply, ended, begun = self._reply, self._ended, self._begun
        if reply is None or ended is None or begun is None:
            return
        reply.pieces.append(data)
        if not begun.done() and self._marker in data:
            begun.set_result(None)
        self._tail = (self._tail + data)[-len(END) :]
        if self._tail == END and not ended.done():
            reply.ended = perf_counter()
            ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self._begun, self._ended):
            if each is not None and not each.done():
                each.set_exception(ConnectionError("the server closed the connection"))

    def ask(self, request: bytes, marker: bytes = b"") -> Reply:
        """Send a request; `begun` is when the marker has come, and `ended` when all has."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._begun, self._ended = loop.create_future(), loop.create_future()
        self._marker, self._tail = marker, b""
        self._reply = Reply(perf_counter())
        self._transport.write(request)
        return self._reply

    async def begun(self) -> None:
        assert self._begun is not None
        await asyncio.wait_for(asyncio.shield(self._begun), PATIENCE)

    async def ended(self) -> None:
        assert self._ended is not None
        await asyncio.wait_for(asyncio.shield(self._ended), PATIENCE)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connected(port: int, count: int) -> list[Connection]:
    """Open connections."""
    loop = asyncio.get_running_loop()
    found: list[Connection] = []
    for _ in range(count):
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        found.append(connection)
    return found


async def run_chats(port: int, clients: int, requests: list[bytes]) -> tuple[float, list[Reply]]:
    """Let each client send one request after the other, until all are answered: the seconds, and the replies."""
    connections = await connected(port, clients)
    left = iter(requests)
    replies: list[Reply] = []

    async def client(connection: Connection) -> None:
        for request in left:
            replies.append(connection.ask(request))
            await connection.ended()

    began = perf_counter()
    await asyncio.gather(*map(client, connections))
    took = perf_counter() - began
    for connection in connections:
        connection.close()
    return took, replies


async def hold_open(
    port: int, requests: list[bytes], marker: bytes, when_open: Callable[[], None]
) -> tuple[int, list[Reply]]:
    """Open a stream for each request; when all have begun, let them go on: how many failed, and the replies."""
    connections = await connected(port, len(requests))
    replies = [connection.ask(request, marker) for connection, request in zip(connections, requests, strict=True)]
    begun = await asyncio.gather(*(each.begun() for each in connections), return_exceptions=True)
    when_open()
    ended = await asyncio.gather(*(each.ended() for each in connections), return_exceptions=True)
    for connection in connections:
        connection.close()
    failed = [first is not None or last is not None for first, last in zip(begun, ended, strict=True)]
    return sum(failed), [reply for reply, is_bad in zip(replies, failed, strict=True) if not is_bad]
