"""What arrives before a request is known: headers, trailers and connections are bounded, and newcomers get in."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adjourn.server import App, CallerLimits, Tokens

from .agents import booker
from .serving import PATIENCE, Serving

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = (
    b"POST /api/v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
BODY = b'{"message":"hello","stream":false}'
LAST = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
SOME = 8 * 1024 * 1024
"""Bytes that are more than what sockets and one piece that is read can hold together with the limits."""


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker()])) as serving:
        yield serving


def connect(server: Serving) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    return client


def taken(client: socket.socket, piece: bytes) -> int:
    """How many bytes a server takes of what never ends, until it closes the connection."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 10 * SOME:
            client.sendall(piece)
            sent += len(piece)
    return sent


def reply(client: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            found += piece
    return found


ENDLESS = {
    "one-header": (GET + b"x-big: ", b"y" * 65536),
    "one-name": (GET, b"y" * 65536),
    "many-headers": (GET, b"x: y\r\n" * 10_000),
    "folded": (GET + b"x: y", b"\r\n z" * 10_000),
    "address": (b"GET /", b"y" * 65536),
    "query": (b"GET /?", b"y=1&" * 16_384),
    "nothing": (b"", b"\r\n" * 32_768),
    "trailer": (CHUNKED + LAST + b"x-big: ", b"y" * 65536),
    "trailers": (CHUNKED + LAST, b"x: y\r\n" * 10_000),
    "length-of-chunk": (CHUNKED, b"0" * 65536),
    "extension-of-chunk": (CHUNKED + b"5;", b"y" * 65536),
    "second-head": (GET + b"\r\n" + GET + b"x: ", b"y" * 65536),
    "requests": (b"", (GET + b"\r\n") * 1000),
}


@pytest.mark.parametrize(("begin", "piece"), ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_read_only_so_far(server: Serving, begin: bytes, piece: bytes):  # rule V16
    with connect(server) as client:
        client.sendall(begin)
        assert taken(client, piece) < SOME
    assert server.get("/healthz").status == 200


@pytest.mark.parametrize(
    "head",
    [
        GET + b"x-big: " + b"y" * 70_000 + b"\r\n\r\n",
        GET + b"".join(b"x%d: y\r\n" % number for number in range(100)) + b"\r\n",
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        CHUNKED + LAST + b"".join(b"x%d: y\r\n" % number for number in range(101)) + b"\r\n",
        CHUNKED + LAST + b"x-big: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
    ids=["long-header", "many-headers", "long-address", "many-trailers", "long-trailer"],
)
def test_too_large_headers_and_trailers_are_431(server: Serving, head: bytes):  # rule V16
    with connect(server) as client:
        client.sendall(head)
        assert reply(client).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("framing", [b"transfer-encoding: x", b"content-length: x", b"x\0: y"])
def test_what_is_not_http_is_refused_as_everything_else(server: Serving, framing: bytes):  # rule V9
    with connect(server) as client:
        client.sendall(b"DELETE /api/v1/sessions/s HTTP/1.1\r\nhost: localhost\r\n" + framing + b"\r\n\r\n")
        head, _, body = reply(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "invalid_request"


def test_large_headers_within_the_limits_are_taken(server: Serving):  # rule V16
    with connect(server) as client:
        client.sendall(GET + b"".join(b"x%d: %s\r\n" % (n, b"y" * 600) for n in range(98)))
        client.sendall(b"connection: close\r\n\r\n")
        assert reply(client).startswith(b"HTTP/1.1 200 ")


def test_an_endless_head_is_no_answer_to_the_request_before_it(server: Serving):  # rule V16
    with connect(server) as client:
        client.sendall(b"GET /api/v1/inbox/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        found = client.recv(65536)
        while b"caught_up" not in found:
            found += client.recv(65536)
        with contextlib.suppress(ConnectionError):
            client.sendall(GET + b"x: " + b"y" * 1_000_000 + b"\r\n\r\n")
        assert b"431" not in found + reply(client)


def test_a_trailer_is_no_header(tmp_path: Path):  # rule V16
    tokens = Tokens(tmp_path / "tokens.json")
    bearer = f"authorization: Bearer {tokens.create('ann')[1]}\r\n".encode()
    second = b"GET /api/v1/agents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    with Serving(App([booker()], tokens=tokens)) as server, connect(server) as client:
        client.sendall(CHUNKED + LAST + bearer + b"\r\n" + second + b"\r\n")
        assert reply(client).count(b"HTTP/1.1 401 ") == 2
        with connect(server) as known:
            known.sendall(CHUNKED.replace(b"\r\n", b"\r\n" + bearer, 1) + LAST + b"x: y\r\n\r\n" + second + b"\r\n")
            assert re.findall(rb"HTTP/1.1 (\d+) ", reply(known)) == [b"200", b"401"]


# Connections without a request


def is_closed(client: socket.socket) -> bool:
    """Whether a server has closed a connection that it sends nothing more to."""
    client.settimeout(0.01)
    try:
        reply(client)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET /hea", GET, GET + b"\r\n", CHUNKED], ids=["new", "line", "head", "kept", "body"]
)
def test_newcomers_are_served_however_many_connections_are_idle(sent: bytes):  # rule V16
    with Serving(App([booker()]), waiting=10) as server, contextlib.ExitStack() as stack:
        clients = list[socket.socket]()
        for _ in range(40):
            clients.append(stack.enter_context(connect(server)))
            clients[-1].sendall(sent)
            if sent.endswith(b"\r\n\r\n") and sent != CHUNKED:
                clients[-1].recv(65536)
        assert server.get("/healthz").status == 200
        if sent != CHUNKED:  # Those have an open request.
            closed = [is_closed(client) for client in clients]
            assert closed[:30] == [True] * 30
            assert not all(closed)


def test_a_stream_is_not_idle():  # rule V16
    with Serving(App([booker()]), waiting=50, patience=0.5) as server, contextlib.ExitStack() as stack:
        stream = stack.enter_context(server.open("GET", "/api/v1/inbox/events"))
        others = [stack.enter_context(connect(server)) for _ in range(20)]
        assert [reply(each) for each in others] == [b""] * 20
        asked = server.post("/api/v1/chat", {"message": "book Rome", "stream": False}).json
        assert any(asked["session_id"].encode() in frame.raw for frame in stream.frames())


@pytest.mark.parametrize(
    ("begin", "piece", "status"),
    [
        (b"", b"", b""),
        (b"GET /", b"y", b"HTTP/1.1 408 "),
        (GET, b"x: y\r\n", b"HTTP/1.1 408 "),
        (b"", b"\r\n", b""),
        (GET + b"\r\n" + GET, b"x: y\r\n", b"HTTP/1.1 200 "),
        (CHUNKED.replace(b"localhost", b"elsewhere"), b"1\r\nx\r\n", b"HTTP/1.1 421 "),
    ],
    ids=["silent", "line", "headers", "empty-lines", "second-head", "body-that-nobody-reads"],
)
def test_a_head_that_does_not_arrive_is_not_waited_for(begin: bytes, piece: bytes, status: bytes):  # rule V16
    with Serving(App([booker()]), patience=0.5) as server, connect(server) as client:
        client.sendall(begin)
        found, is_open = b"", True
        client.settimeout(0.02)
        for _ in range(1000):
            try:
                client.sendall(piece)
                got = client.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                got = b""
            found += got
            if not got:
                is_open = False
                break
        assert not is_open
        assert found.startswith(status)
        assert server.get("/healthz").status == 200


# Clients that do not read, and clients that leave


def deaf(server: Serving) -> socket.socket:
    """Return a client that asks for more than the sockets hold, and does not read it."""
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.connect(("127.0.0.1", server.server.port))
    client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 30)
    return client


def is_cut(client: socket.socket) -> bool:
    """Whether a server has cut a connection to a client that does not read."""
    try:
        client.sendall(b"\r\n")
    except ConnectionError:
        return True
    return False


def wait_until(happened: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_clients_that_do_not_read_are_left():  # rule V16
    with (
        Serving(App([booker()], limits=CallerLimits(stall=0.2))) as server,
        deaf(server) as client,
        server.open("GET", "/api/v1/inbox/events") as stream,
    ):
        wait_until(lambda: is_cut(client))
        asked = server.post("/api/v1/chat", {"message": "book Rome", "stream": False}).json
        assert any(asked["session_id"].encode() in frame.raw for frame in stream.frames())


def test_a_client_that_reads_slowly_is_not_left():  # rule V16
    with Serving(App([booker()], limits=CallerLimits(stall=0.1))) as server, deaf(server) as client:
        client.settimeout(PATIENCE)
        for _ in range(40):
            time.sleep(0.02)
            assert client.recv(16384)
        assert not is_cut(client)


def test_newcomers_are_served_however_many_clients_do_not_read():  # rule V16
    with Serving(App([booker()]), waiting=5) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(deaf(server)) for _ in range(15)]
        wait_until(lambda: [is_cut(client) for client in clients].count(True) == 10)
        assert server.get("/healthz").status == 200


def test_a_stream_ends_when_its_client_leaves_with_another_request_waiting(tmp_path: Path):  # rule V16
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.create("ann")[1]
    stream = b"GET /api/v1/inbox/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: " + token.encode() + b"\r\n\r\n"
    with Serving(App([booker()], tokens=tokens, limits=CallerLimits(requests=1), keep_alive=0.1)) as server:
        with connect(server) as client:
            client.sendall(stream + stream)
            assert client.recv(65536)
            assert server.get("/api/v1/agents", x_api_key=token).status == 429
        wait_until(lambda: server.get("/api/v1/agents", x_api_key=token).status == 200)


def test_a_client_that_leaves_within_a_body_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture):
    with Serving(App([booker()])) as server:
        with connect(server) as client:
            client.sendall(CHUNKED + b"5\r\n12345\r\n")
            time.sleep(0.1)
        assert server.get("/healthz").status == 200
    assert "Traceback" not in caplog.text
