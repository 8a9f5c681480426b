"""One turn of a session, read over as many connections as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

import msgspec

from adjourn._drafts import Draft
from adjourn.events import FINAL, CheckpointSaved, Event, Final, Interrupt, Interrupted
from adjourn.stores.types import Status

from ._http import Lost, Patience, Server, session_path
from ._sse import Frame
from ._texts import Texts
from ._wire import CaughtUp, Closing, run_item, with_infos

_SETTLED = frozenset[Status]({"waiting", "cancelled", "done"})
"""Of sessions in which nothing goes on."""

SOON = 0.5
"""Seconds after which to come back to a server that has said that it closes."""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """The request that begins a turn, under a key: however often it is sent, it begins one."""

    path: str
    body: bytes
    key: str


class Turn:
    """Reads the events of a turn, each durable one once, until it has ended.

    A turn that this client begins ends with its first final event. One that it only follows ends when the server says
    so: events of earlier turns may come first.
    """

    def __init__(self, server: Server, session_id: str, *, begin: Begin | None = None, after: int | None = 0) -> None:
        self.session_id = session_id
        self.seen: int | None = None if begin is not None else after
        """The number of the last durable event that was read; None before there is one of the turn that was begun."""
        self.final: Final | None = None
        self.checkpoint_id: str | None = None
        self.status: Status | None = None
        """That of a session that had ended, or waits, before anything of it was read."""
        self.interrupts: tuple[Interrupt, ...] = ()
        self.is_over: bool = False
        self.was_sent: bool = False
        self._server = server
        self._begin = begin
        self._is_open = False
        self._skips = begin is None and after is None
        self._texts = Texts()

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events that come, from where the last reader stopped.

        Raises:
            ServerUnavailable: it cannot be reached, or not for too long.
            AdjournError: the server refuses to begin the turn, or to let it be read.
        """
        patience = Patience(self._server, self.session_id)
        while not self.is_over:
            lost: Lost | None = None
            try:
                async with contextlib.aclosing(self._connection(patience)) as events:
                    async for event in events:
                        yield event
            except Lost as error:
                lost = error
            if not self.is_over:
                self._texts.connection_lost()
                await patience.wait(lost or Lost("the stream ended before the turn did"), self.seen)

    async def _connection(self, patience: Patience) -> AsyncGenerator[Event]:
        """Yield what comes over one connection.

        Raises:
            Lost: it broke, or the server closes.
        """
        caught_up: CaughtUp | None = None
        async with self._stream() as frames:
            async for frame in frames:
                if frame.data is None:
                    if frame.id is None:
                        patience.heard()  # A comment, which comes now and then.
                    continue
                item = run_item(frame.data, self._server.url)
                if isinstance(item, Closing):
                    raise Lost("the server closes", retry_after=SOON)
                if isinstance(item, CaughtUp):
                    caught_up, self._skips = item, False
                    if item.status in _SETTLED:
                        # The last event may be an edit, or that it was given up, which no final one follows.
                        self._is_open = False
                    continue
                for event in self._passed(frame, item):
                    patience.heard()
                    if not self._skips:
                        yield event
                if self.is_over:
                    return
        await self._settle(caught_up)

    def _stream(self) -> contextlib.AbstractAsyncContextManager[AsyncGenerator[Frame]]:
        begin, session_id = self._begin, self.session_id
        self.was_sent = True
        if begin is not None and self.seen is None:
            # Nothing durable of the turn was read, so only the request itself says which turn it is.
            return self._server.stream("POST", begin.path, body=begin.body, key=begin.key, session_id=session_id)
        return self._server.stream("GET", session_path(session_id, "/events"), after=self.seen, session_id=session_id)

    def _passed(self, frame: Frame, item: Event | Draft | None) -> Iterator[Event]:
        """Yield what a frame has for the reader; what was read before is left out."""
        number = _number(frame.id)
        if number is not None:
            if number <= (self.seen or 0):
                return
            self.seen = number
            if item is not None and not isinstance(item, Draft):
                self._note(item)
        if isinstance(item, Draft):
            yield from self._texts.drafted(item)
        elif item is not None:
            if isinstance(item, FINAL) and (number is None or self._begin is not None):
                self.final, self.is_over = item, True
            yield from self._texts.passed(item)

    def _note(self, event: Event) -> None:
        """Remember what shows the result."""
        self._is_open = not isinstance(event, FINAL)
        self.final = event if isinstance(event, FINAL) else None
        if isinstance(event, CheckpointSaved | Interrupted):
            self.checkpoint_id = event.checkpoint_id

    async def _settle(self, caught_up: CaughtUp | None) -> None:
        """Decide whether a stream that ended was all of it: a turn whose process died goes on elsewhere."""
        if self._begin is not None or self._is_open:
            return
        if caught_up is not None and caught_up.status == "waiting" and not caught_up.pending:
            return  # An answer is recorded, and somebody goes on with it soon.
        if self.final is None and caught_up is not None and caught_up.status not in ("running", "queued"):
            await self._find_last(caught_up.seq)
            if self.final is None and caught_up.status == "failed":
                return  # Its process died, and another one takes it up.
            self.status, self.interrupts = caught_up.status, with_infos(caught_up.pending)
        self.is_over = self.final is not None or self.status is not None

    async def _find_last(self, seq: int) -> None:
        """Read the last event of a session in which nothing happens: it says how that ended.

        Raises:
            Lost: something does happen by now, or the server closes.
        """
        path = session_path(self.session_id, "/events")
        async with self._server.stream("GET", path, after=max(seq - 1, 0), session_id=self.session_id) as frames:
            async for frame in frames:
                item = None if frame.data is None else run_item(frame.data, self._server.url)
                if isinstance(item, CaughtUp):
                    return
                if item is not None and (_number(frame.id) or 0) > seq:
                    break
                if isinstance(item, FINAL):
                    self.final = item
        raise Lost("the session goes on")


def _number(id: str | None) -> int | None:
    return int(id) if id is not None and id.isascii() and id.isdigit() and len(id) < 19 else None
