"""Server-sent events: frames, and the response that sends them until its reader leaves or the server closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adjourn._hiding import logger

log = logger("adjourn.server")

HEADERS = {
    "cache-control": "no-cache, no-transform",
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",
}
"""Nothing between the server and the client may keep frames back, or change them."""

RETRY = 2000
"""Milliseconds after which a client whose connection is lost comes back."""

SOON = 500
"""The same when the server closes, which others may stand in for."""

KEEP_ALIVE = b": keep-alive\n\n"


def frame(data: bytes, *, id: object = None, event: str | None = None, retry: int | None = None) -> bytes:
    """Return one frame; `data` is JSON, which has no line ends."""
    lines = [
        b"" if id is None else b"id: %b\n" % str(id).encode(),
        b"" if event is None else b"event: %b\n" % event.encode(),
        b"" if retry is None else b"retry: %d\n" % retry,
        b"data: %b\n" % data if data else b"",
    ]
    return b"".join([*lines, b"\n"])


def opening(place: object) -> bytes:
    """Return the first frame: even a client that loses the connection right after it can come back to this place."""
    return frame(b"", id=place, retry=RETRY)


def closing() -> bytes:
    """Return the last frame of a stream that ends before its run does."""
    return frame(b'{"type":"closing"}', event="closing", retry=SOON)


class EventStream(Response):
    """Sends frames until there are no more, the reader leaves, or `closes` is set.

    The frames come from a generator, made for the request, that only reads: ending it stops no run.
    """

    def __init__(
        self,
        begin: Callable[[Request], AsyncGenerator[bytes]],
        closes: asyncio.Event,
        *,
        after: int = 0,
        input_id: str | None = None,
        keep_alive: float,
        stall: float,
        last: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send frames, which come after event number `after`, or are those of the turn of an input.

        A reader who takes nothing for `stall` seconds is left: the log has the rest for when it comes back.
        `last` is the frame that says that the server closes, if not the usual one.
        """
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self.after = after
        self.input_id = input_id
        self._begin = begin
        self._closes = closes
        self._keep_alive = keep_alive
        self._stall = stall
        self._last = closing() if last is None else last
        self._idle = True
        self.may_go_on: Callable[[], bool] = lambda: True
        """Asked now and then; when it says no, the stream ends as if the server closed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        async with contextlib.aclosing(self._begin(Request(scope))) as frames:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope.get("method") == "HEAD":
                # Whoever asks for the head alone waits for its end, and would wait for that of the stream.
                await anext(frames)  # Only what has begun can end what it holds.
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            sending = asyncio.ensure_future(self._send_all(frames, send))
            leaving = asyncio.ensure_future(_left(receive))
            closing_ = asyncio.ensure_future(self._closes.wait())
            beating = asyncio.ensure_future(self._beat(send))
            tasks = (sending, leaving, closing_, beating)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            if any(isinstance(_error_of(task), TimeoutError) for task in (sending, beating)):
                # The answer stays unfinished, so the server closes the connection.
                log.info("a stream was left: its reader has taken nothing for %g s", self._stall)
            elif sending.cancelled():
                if not _is_through(leaving) and (_is_through(closing_) or _is_through(beating)):
                    await send({"type": "http.response.body", "body": self._last, "more_body": False})
            elif (error := sending.exception()) is not None:
                raise error

    async def _send_all(self, frames: AsyncGenerator[bytes], send: Send) -> None:
        async for each in frames:
            self._idle = False
            async with asyncio.timeout(self._stall):
                await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self, send: Send) -> None:
        """Send something now and then, as proxies cut connections that are silent; end when it may not go on."""
        while True:
            await asyncio.sleep(self._keep_alive)
            if not self.may_go_on():
                return
            if self._idle:
                async with asyncio.timeout(self._stall):
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            self._idle = True


def _is_through(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled()


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
