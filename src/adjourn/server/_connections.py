"""Connections: what may arrive before a request is known, and how many may wait with nothing to do."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ._errors import ApiError, error_body

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
"""Connections without an open request that a process has at most: as many as may be accepted in one go.

As many more may have clients that do not read their answers.
"""


class Waiting(ServerState):
    """The state of a server, with the connections that wait for their clients.

    Some have no open request: they are new, idle, or have a part of a head. Of others the client does not read the
    answer.
    """

    def __init__(self, patience: float, stall: float, most: int | None) -> None:
        super().__init__()
        self._patience = patience
        self._stall = stall
        self._most = _third_of_the_files() if most is None else most
        # The longest wait comes first: a connection is put at the end whenever its wait begins.
        self._since: dict[Connection, float] = {}
        self._unread: dict[Connection, tuple[float, int]] = {}  # since when, and how many bytes

    def begin(self, connection: Connection) -> None:
        """Note that a connection waits from now on; if too many do, close the one that has waited longest."""
        self._since[connection] = time.monotonic()
        if len(self._since) > self._most:
            # Not closed in order: one that takes nothing of its last answer would stay open.
            oldest = next(iter(self._since))
            del self._since[oldest]
            oldest.transport.abort()

    def begin_unread(self, connection: Connection) -> None:
        """Note that a client reads no further from now on; if too many do so, cut the one that has waited longest."""
        self._unread[connection] = time.monotonic(), connection.transport.get_write_buffer_size()
        if len(self._unread) > self._most:
            oldest = next(iter(self._unread))
            del self._unread[oldest]
            oldest.transport.abort()

    def end_unread(self, connection: Connection) -> None:
        """Note that a client has read, or is gone."""
        self._unread.pop(connection, None)

    def end(self, connection: Connection) -> None:
        """Note that a connection has brought a request, or is gone."""
        self._since.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections that have waited too long."""
        now = time.monotonic()
        for connection, since in list(self._since.items()):
            if since > now - self._patience:
                break
            connection.give_up()
        for connection, (since, size) in list(self._unread.items()):
            if since > now - self._stall:
                break
            del self._unread[connection]
            left = connection.transport.get_write_buffer_size()
            if left < size:  # It reads slowly.
                self._unread[connection] = now, left
            else:
                connection.transport.abort()


def _third_of_the_files() -> int:
    """Return how many connections may wait in either way so that as many others, files and stores included, fit in."""
    if resource is None:
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 3))


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that keeps no more than a bounded head and bounded trailers, for a bounded time.

    If its client does not read what it is sent, the connection is cut.

    What is checked where: a whole head or all trailers when they are complete; what the parser and we hold of
    unfinished ones after each piece that arrives. So an attacker gets one piece (256 KiB) beyond `HEAD` into memory.
    """

    server_state: Waiting
    headers: list[tuple[bytes, bytes]]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._unfinished = 0  # bytes that arrived since the last piece of a body, or the begin or end of a head
        self._is_in_head = False
        self._answered: RequestResponseCycle | None = None
        self.headers = []
        self.server_state.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self.server_state.end(self)
        self.server_state.end_unread(self)
        super().connection_lost(exc)
        # Uvicorn tells the last request alone, and the one that is being answered would never end if others follow it.
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self.server_state.begin_unread(self)

    def resume_writing(self) -> None:
        """Send more."""
        self.server_state.end_unread(self)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read a piece of what arrives."""
        self._unfinished += len(data)
        super().data_received(data)
        if (self._unfinished > HEAD or len(self.headers) > FIELDS) and not self.transport.is_closing():
            self._refuse(_too_large())

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
            message = "Too many requests wait on this connection."
            self._refuse(ApiError("too_many_requests", message, "Read the answers first."))
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
            self._refuse(ApiError("invalid_request", msg, "Send HTTP/1.1."))

    def give_up(self) -> None:
        """Close a connection that has not brought a request."""
        if self._is_in_head and not self.transport.is_closing():
            self._refuse(ApiError("too_slow", "The headers did not arrive in time.", "Send it again."))
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _check_fields(self, size: int) -> None:
        size += sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD or len(self.headers) > FIELDS:
            self._refuse(_too_large())
            raise _Refused

    def _refuse(self, refusal: ApiError) -> None:
        """Answer, where that cannot be taken for the answer to another request, and close the connection."""
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]  # None at first
        if not is_open or not (self._is_in_head or cycle.response_started or self.pipeline):
            body = error_body(refusal)
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
            self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[refusal.status], head, body))
        self.transport.close()


def _too_large() -> ApiError:
    return ApiError("headers_too_large", "The headers or trailers are too large.", "Send fewer or shorter ones.")


class _Refused(Exception):
    """Makes the parser stop in the middle of what has arrived."""
