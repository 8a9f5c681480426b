"""Clients that are slow, silent, endless or make no sense: they cost a bounded amount, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from adjourn.server import App, CallerLimits
from adjourn.server._sse import EventStream, frame
from tests.effort import amount

from .agents import FLOOD, GATES, booker, counter
from .serving import PATIENCE, Serving, ids, text, types

HEAD = "POST /api/v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter()], max_body=10_000, limits=CallerLimits(upload=0.5))) as serving:
        yield serving


def connect(server: Serving, size: int | None = None) -> socket.socket:
    """A connection; one with a small buffer soon takes nothing more if nobody reads."""
    client = socket.socket()
    client.settimeout(PATIENCE)
    if size is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    client.connect(("127.0.0.1", server.server.port))
    return client


def reply(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            found += piece
    return found


def works(server: Serving) -> bool:
    with server.chat(agent="booker", message="hello") as stream:
        return types(stream.all())[-1] == "done"


# Bodies


def test_a_body_that_says_that_it_is_huge_is_refused_before_it_comes(server: Serving):  # failure 86, attack 16
    for declared in ("100000000", "9" * 18):
        with connect(server) as client:
            client.sendall(f"{HEAD}content-length: {declared}\r\n\r\n".encode())
            found = reply(client)
        assert found.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"too_large"' in found
    assert works(server)


def test_a_body_without_a_length_is_read_only_so_far(server: Serving):  # failure 86, attack 16
    with connect(server) as client:
        client.sendall(f"{HEAD}transfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                client.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        found = reply(client)
    assert found.startswith(b"HTTP/1.1 413 ") or not found  # It may be cut off while it writes.
    small = server.request("POST", "/api/v1/chat", b"x" * 20_000)
    assert (small.status, small.code) == (413, "too_large")
    assert works(server)


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ("[", "")], ids=["lists", "objects", "open"])
def test_a_body_that_is_deep_is_refused(begin: str, end: str):  # failure 86, attack 16
    deep = f"{begin * 100_000}1{end * 100_000}"
    with Serving(App([booker()], max_body=2_000_000)) as server:
        for path, field in (("/chat", "values"), ("/chat/resume", "answer"), ("/ag-ui/booker", "forwardedProps")):
            refused = server.post(f"/api/v1{path}", f'{{"{field}": {deep}}}'.encode())
            assert (path, refused.status, refused.code) == (path, 400, "too_deep")
        brackets = json.dumps({"message": "[" * 100_000, "stream": False}).encode()
        assert server.post("/api/v1/chat", brackets).json["status"] == "done"


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(server: Serving):  # failure 86, attack 16
    with connect(server) as client:
        client.sendall(f"{HEAD}content-length: 5000\r\n\r\n".encode())
        client.settimeout(0.05)
        found = b""
        for _ in range(1000):
            with contextlib.suppress(ConnectionError):
                client.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                found = client.recv(65536)
                break
    assert found.startswith(b"HTTP/1.1 408 ")
    assert works(server)


# What is not HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\x16\x03\x01garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\na: b\x00c\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(50_000)) + b"\r\n",
    ],
    ids=["bytes", "word", "version", "line", "nul", "negative", "two-lengths", "long-header", "many-headers"],
)
def test_what_makes_no_sense_is_refused_and_costs_nobody_anything(server: Serving, sent: bytes):  # attack 16
    with connect(server) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        found = reply(client)
    assert found == b"" or found.startswith(tuple(b"HTTP/1.1 %d " % status for status in (400, 404, 421, 431)))
    assert b"Traceback" not in found
    assert works(server)


def test_connections_that_are_half_open_are_in_nobodys_way():  # attack 16
    with Serving(App([booker()], grace=0.1)) as server, contextlib.ExitStack() as stack:
        for number in range(50):
            client = stack.enter_context(connect(server))
            client.sendall([b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nhost: loc", HEAD.encode()][number % 4])
        assert works(server)
        server.stop()  # In time, too.


# Readers


def stalled(server: Serving, session_id: str) -> socket.socket:
    """A reader who asks for a stream, and reads nothing."""
    client = connect(server, 4096)
    path = f"/api/v1/sessions/{session_id}/events?follow=session"
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return client


def memory() -> int:
    """Bytes that this process, which is client and server at once, has in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def test_readers_who_stand_still_cost_little_and_miss_nothing():  # rule V3, failure 81, attack 16
    size = len("".join(FLOOD))
    readers = amount(default=40, proof=100, long=100)
    with Serving(App([counter()])) as server, contextlib.ExitStack() as stack:
        server.chat(message="count", session_id="flood").all()
        for _ in range(readers):
            stack.enter_context(stalled(server, "flood"))
        before = memory()
        frames = server.chat(message="flood", session_id="flood").all()
        assert text(frames) == "".join(FLOOD)
        assert types(frames)[-1] == "done"
        assert memory() - before < 100 * size  # Each has what a socket buffers, and not all that was said.
        with server.events("flood") as stream:
            found = ids(stream.all())
        assert found == list(range(1, len(found) + 1))


async def test_a_reader_who_takes_nothing_for_long_is_left():  # rule V3, failure 81
    taken: list[bytes] = []
    is_closed = False

    async def frames() -> AsyncGenerator[bytes]:
        nonlocal is_closed
        try:
            for number in range(1000):
                yield frame(b"{}", id=number)
        finally:
            is_closed = True

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            if len(taken) == 3:
                await asyncio.Event().wait()
            taken.append(message["body"])

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    stream = EventStream(lambda _: frames(), asyncio.Event(), keep_alive=60.0, stall=0.01)
    await stream({"type": "http"}, receive, send)
    assert (len(taken), is_closed) == (3, True)  # Nothing says that it has ended, so the connection is cut.


def test_a_thousand_streams_are_open_at_once():  # rule V3, attack 16
    count = amount(default=200, proof=1000, long=1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 500  # Both ends are of this process.
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        with Serving(App([booker(), counter()])) as server, contextlib.ExitStack() as stack:
            before = memory()
            chat: dict[str, Any] = {"agent": "counter", "message": f"count many {count}", "session_id": "many"}
            running = stack.enter_context(server.open("POST", "/api/v1/chat", chat))
            GATES.reached(f"many {count}")
            streams = [stack.enter_context(server.events("many")) for _ in range(count)]
            for stream in streams:
                stream.until("draft")
            used = (memory() - before) / count
            GATES.open(f"many {count}")
            for stream in streams:
                assert types(stream.all())[-1] == "done"
            assert types(running.all())[-1] == "done"
            assert used < 1024 * 1024
            assert works(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
