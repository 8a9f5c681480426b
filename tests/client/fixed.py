"""A server on the loopback that says what it was told to."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Generator
from typing import Any


@contextlib.contextmanager
def answering(status: int, *bodies: bytes, **headers: str) -> Generator[str]:
    """A server that answers with the next of the bodies each time, and always the same when it has come to the last."""
    left = list(bodies)

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()
