"""A receiver of webhooks on the loopback, in a thread of the test's process."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

import standardwebhooks

from adjourn.webhooks import Webhook

SECRET = "whsec_" + "c2VjcmV0IGZvciB0aGUgdGVzdHMgb2Ygd2ViaG9va3Mh"
OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQgb2YgdGhlIHRlc3RzIGFzIHdlbGw="
PATIENCE = 60.0


class Received(NamedTuple):
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def type(self) -> str:
        return self.message["type"]

    @property
    def data(self) -> dict[str, Any]:
        return self.message["data"]

    def verify(self, secret: str = SECRET) -> dict[str, Any]:
        """Check the signature with the official library."""
        return standardwebhooks.Webhook(secret).verify(self.body, self.headers)


Answering = Callable[[BaseHTTPRequestHandler], None]


class Receiver:
    """Takes requests, and answers as the test says: by default with 204."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Received] = queue.Queue()
        self.answers: list[int | Answering] = []
        """What the next requests get: a status, or something that answers by itself; then 204."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = receiver.answers.pop(0) if receiver.answers else 204
                receiver.requests.put(Received(self.path, headers, body))
                if callable(answer):
                    answer(self)
                    return
                self.send_response(answer)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        return self.server.server_port

    def url(self, path: str = "/hook", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def webhook(self, path: str = "/hook", **options: Any) -> Webhook:
        given: dict[str, Any] = {"secret": SECRET, "allow_private": True, "allow_http": True}
        return Webhook(self.url(path), **(given | options))

    def next(self) -> Received:
        """The next request, whose signature is checked."""
        received = self.requests.get(timeout=PATIENCE)
        received.verify()
        return received

    def has_none(self) -> bool:
        return self.requests.empty()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(PATIENCE)
