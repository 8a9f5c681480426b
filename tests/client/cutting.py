"""A proxy between a client and its server that cuts connections, holds them, or leads them to another server."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

PATIENCE = 30.0


class Cut(NamedTuple):
    """Where a connection breaks: after so many bytes that the server sends, or so many frames with data."""

    bytes: int | None = None
    frames: int | None = None
    hold: bool = False
    """It stays open, and nothing comes any more."""
    reset: bool = False
    """It breaks in the hard way."""


NOWHERE = Cut()


class Proxy:
    """Passes connections on; each one takes the next of the cuts, and when there are no more they are whole."""

    def __init__(self, port: int, cuts: Iterable[Cut] = ()) -> None:
        self.target = port
        self.connections = 0
        self._cuts = itertools.chain(cuts, itertools.repeat(NOWHERE))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def cut(self) -> None:
        """Break all connections that there are now."""
        with self._lock:
            broken, self._open = self._open, set()
        for each in broken:
            _shut(each)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            cut = next(self._cuts)
            try:
                server = socket.create_connection(("127.0.0.1", self.target), PATIENCE)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for work in ((_pass_on, client, server), (self._pass_back, server, client, cut)):
                thread = threading.Thread(target=work[0], args=work[1:], daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_back(self, server: socket.socket, client: socket.socket, cut: Cut) -> None:
        try:
            for piece in _until(server, cut):
                client.sendall(piece)
        except OSError:
            pass
        if cut.hold:
            with contextlib.suppress(OSError):
                while client.recv(4096):  # Until the client gives up.
                    pass
        if cut.reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with self._lock:
            self._open -= {client, server}
        _shut(server)
        _shut(client)
        client.close()
        server.close()


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while piece := client.recv(65536):
            server.sendall(piece)
    _shut(server)


def _until(server: socket.socket, cut: Cut) -> Iterator[bytes]:
    """Yield what a server sends, up to the cut."""
    left, seen = cut.bytes, b""
    while piece := server.recv(65536):
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if cut.frames is not None:
            before, seen = len(seen), seen + piece
            end = _end_of_frames(seen, cut.frames)
            if end is not None:
                yield piece[: end - before]
                return
        if piece:
            yield piece
        if left == 0:
            return


def _end_of_frames(sent: bytes, count: int) -> int | None:
    """Return where so many frames with data have ended, after the head of an answer."""
    place = sent.find(b"\r\n\r\n")
    if place < 0 or b"text/event-stream" not in sent[:place]:
        return None
    for _ in range(count):
        place = sent.find(b"\ndata: ", place + 1)
        if place < 0:
            return None
    place = sent.find(b"\n\n", place)
    return None if place < 0 else place + 2


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
