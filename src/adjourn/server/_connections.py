"""Connections: what may arrive before a request is known, and how many may wait with nothing to do."""

from __future__ import annotations

import asyncio
import time

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None

HEAD = 64 * 1024
"""Bytes that a request's line and headers may have together, and the trailers after its body."""

FIELDS = 100
"""Headers that a request may have, and trailers."""

PIPELINED = 32
"""Requests that may wait on a connection for the answer to the one before them."""

PATIENCE = 10.0
"""Seconds in which a connection without an open request has to bring the head of one."""

MOST = 2048
"""Connections without an open request that a process has at most: as many as may be accepted in one go."""


class Waiting(ServerState):
    """The state of a server, with the connections that have no open request: new, idle, or with a part of a head."""

    def __init__(self, patience: float, most: int | None) -> None:
        super().__init__()
        self._patience = patience
        self._most = _half_of_the_files() if most is None else most
        # The longest wait comes first: a connection is put at the end whenever its wait begins.
        self._since: dict[Connection, float] = {}

    def begin(self, connection: Connection) -> None:
        """Note that a connection waits from now on; if too many do, close the one that has waited longest."""
        self._since[connection] = time.monotonic()
        if len(self._since) > self._most:
            # Not closed in order: one that takes nothing of its last answer would stay open.
            oldest = next(iter(self._since))
            del self._since[oldest]
            oldest.transport.abort()

    def end(self, connection: Connection) -> None:
        """Note that a connection has brought a request, or is gone."""
        self._since.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections that have waited too long."""
        late = time.monotonic() - self._patience
        for connection, since in list(self._since.items()):
            if since > late:
                break
            connection.give_up()


def _half_of_the_files() -> int:
    """Return how many connections may wait so that as many again, files and stores included, can be open."""
    if resource is None:
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 2))


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that keeps no more than a bounded head and bounded trailers, for a bounded time.

    What is checked where: a whole head or all trailers when they are complete; what the parser and we hold of
    unfinished ones after each piece that arrives. So an attacker gets one piece (256 KiB) beyond `HEAD` into memory.
    """

    server_state: Waiting

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._unfinished = 0  # bytes that arrived since the last piece of a body, or the begin or end of a head
        self._is_in_head = False
        self.headers = []
        self.server_state.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self.server_state.end(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a piece of what arrives."""
        self._unfinished += len(data)
        super().data_received(data)
        if (self._unfinished > HEAD or len(self.headers) > FIELDS) and not self.transport.is_closing():
            self._refuse(431, b"The headers or trailers are too large.")

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._unfinished, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer a request."""
        self._check_fields(len(self.url))
        self._unfinished, self._is_in_head = 0, False
        super().on_headers_complete()
        # Trailers would be added to the headers of the request, which has its own list of them.
        self.headers = []
        self.server_state.end(self)
        if len(self.pipeline) > PIPELINED:
            self._refuse(429, b"Too many requests wait on this connection.")
            raise _Refused

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._check_fields(0)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.server_state.begin(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, unless it was refused for something else."""
        if not self.transport.is_closing():
            self._refuse(400, msg.encode("ascii"))

    def give_up(self) -> None:
        """Close a connection that has not brought a request."""
        if self._is_in_head and not self.transport.is_closing():
            self._refuse(408, b"The headers did not arrive in time.")
        else:
            self.transport.close()

    def _check_fields(self, size: int) -> None:
        size += sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD or len(self.headers) > FIELDS:
            self._refuse(431, b"The headers or trailers are too large.")
            raise _Refused

    def _refuse(self, status: int, why: bytes) -> None:
        """Answer, where that cannot be taken for the answer to another request, and close the connection."""
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]  # None at first
        if not is_open or not (self._is_in_head or cycle.response_started or self.pipeline):
            head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n" % len(why)
            self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[status], head, why))
        self.transport.close()


class _Refused(Exception):
    """Makes the parser stop in the middle of what has arrived."""
