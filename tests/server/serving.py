"""A server on the loopback, in a thread of the test's process, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from adjourn.server import App
from adjourn.server.serve import Server
from tests.servers import postgres, redis
from tests.test_docs import ROOT

PATIENCE = 30.0


def store_url(kind: str, folder: Path) -> str:
    """The URL of a new store of a kind, on a server of the tests' own if it needs one."""
    match kind:
        case "postgres":
            return postgres().fresh()
        case "redis":
            return redis().fresh()
        case "sqlite":
            return f"sqlite:///{folder / 'store.db'}"
        case _:
            return "memory://"


class Serving:
    """An App behind a real uvicorn."""

    def __init__(self, app: App, **options: Any) -> None:
        self.app = app
        self._is_up = threading.Event()
        self.server = Server(app, port=0, tell=lambda _: self._is_up.set(), **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop in order, as on a signal."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.server.stop)
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.server.serve())
        self._loop.close()

    # A client

    def request(self, method: str, path: str, data: Any = None, **headers: str) -> Reply:
        """Send a request and read the whole answer."""
        with self.open(method, path, data, **headers) as stream:
            return Reply(stream.status, stream.headers, stream.rest())

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def post(self, path: str, data: Any, **headers: str) -> Reply:
        return self.request("POST", path, data, **headers)

    def open(self, method: str, path: str, data: Any = None, **headers: str) -> Stream:
        """Send a request and read only the head of the answer."""
        return Stream(self.server.port, method, path, data, headers)

    def chat(self, **data: Any) -> Stream:
        return self.open("POST", "/api/v1/chat", data)

    def resume(self, **data: Any) -> Stream:
        return self.open("POST", "/api/v1/chat/resume", data)

    def events(self, session_id: str, query: str = "", **headers: str) -> Stream:
        return self.open("GET", f"/api/v1/sessions/{session_id}/events{query}", **headers)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        error = self.json["error"]
        assert error["message"]
        assert error["hint"]
        return error["code"]


class Frame(NamedTuple):
    """One frame of a stream, as its fields are on the wire."""

    raw: bytes

    def _field(self, name: bytes) -> str | None:
        for line in self.raw.split(b"\n"):
            if line.startswith(name + b": "):
                return line[len(name) + 2 :].decode()
        return None

    @property
    def id(self) -> str | None:
        return self._field(b"id")

    @property
    def event(self) -> str | None:
        return self._field(b"event")

    @property
    def data(self) -> Any:
        text = self._field(b"data")
        return None if text is None else json.loads(text)

    @property
    def type(self) -> str | None:
        return None if self.data is None else self.data["type"]


class Stream:
    """An answer that is read frame by frame, from a socket of its own."""

    def __init__(
        self, port: int, method: str, path: str, data: Any, headers: dict[str, str], patience: float = PATIENCE
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
        body = data if isinstance(data, bytes | None) else json.dumps(data).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        self._connection.request(method, path, body, sent)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}

    @property
    def session_id(self) -> str:
        return self.headers["x-session-id"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def rest(self) -> bytes:
        """Everything that is still to come, to the end."""
        return self._response.read()

    def frames(self) -> Iterator[Frame]:
        """The frames as they come; comments are frames, too."""
        lines: list[bytes] = []
        while line := self._response.readline():
            assert b"\r" not in line
            if line != b"\n":
                lines.append(line)
            elif lines:
                yield Frame(b"".join(lines))
                lines = []
        assert not lines, "a frame was cut"
        self.close()

    def all(self) -> list[Frame]:
        return list(self.frames())

    def until(self, kind: str) -> list[Frame]:
        """The frames up to the first of a type, which is the last of them."""
        found: list[Frame] = []
        for frame in self.frames():
            found.append(frame)
            if frame.type == kind:
                return found
        raise AssertionError(f"no {kind} in {[each.type for each in found]}")

    def reply(self) -> Reply:
        """The whole answer, where it is no stream."""
        with self:
            return Reply(self.status, self.headers, self.rest())


def types(frames: list[Frame]) -> list[str]:
    return [frame.type for frame in frames if frame.type is not None]


def ids(frames: list[Frame]) -> list[int]:
    """The numbers of the frames with data."""
    return [int(frame.id) for frame in frames if frame.id is not None and frame.data is not None]


def text(frames: list[Frame]) -> str:
    """What is on the screen of somebody who replaces a text by its draft, and adds the pieces that follow."""
    shown = ""
    for frame in frames:
        if frame.type == "draft":
            shown = frame.data["text"]
        elif frame.type == "delta":
            shown += frame.data.get("text", "")
    return shown


SERVE = """
import sys
from adjourn.server import App, Served
from adjourn.stores import SessionRef
from adjourn.server.serve import Server
from tests.server import agents
app = App([Served(program=getattr(agents, sys.argv[1]), answer_pending=True)], store=sys.argv[2])
Server(app, port=0, tell=lambda url: print(url, flush=True)).run()
"""


@contextmanager
def dying(agent: str, store: str) -> Generator[int]:
    """A process that serves an agent until its tool ends it; and its port."""
    env = {**os.environ, "ADJOURN_TEST_DIES": "1"}
    command = [sys.executable, "-c", SERVE, agent, store]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.kill()
