"""One turn of a session, read over as many connections as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

import msgspec

from adjourn.events import FINAL, CheckpointSaved, Event, Final, Interrupt, Interrupted
from adjourn.stores.types import Status

from ._following import Following
from ._http import Server, session_path
from ._sse import Frame
from ._wire import CaughtUp, InRun, run_item, with_infos

_SETTLED = frozenset[Status]({"waiting", "cancelled", "done"})
"""Of sessions in which nothing goes on."""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """The request that begins a turn, under a key: however often it is sent, it begins one."""

    path: str
    body: bytes
    key: str


class Turn(Following[InRun, Event]):
    """Reads the events of a turn, each durable one once, until it has ended.

    A turn that this client begins ends with its first final event. One that it only follows ends when the server says
    so: events of earlier turns may come first.
    """

    is_over: bool = False

    def __init__(self, server: Server, session_id: str, *, begin: Begin | None = None, after: int | None = 0) -> None:
        super().__init__(server, run_item, session_id)
        self.session_id = session_id
        self.seen = None if begin is not None else after  # None before there is a durable event of a turn that began.
        self.final: Final | None = None
        self.checkpoint_id: str | None = None
        self.status: Status | None = None
        """That of a session that had ended, or waits, before anything of it was read."""
        self.interrupts: tuple[Interrupt, ...] = ()
        self.was_sent: bool = False
        self._begin = begin
        # The id of the last frame: the server reads from it what this client lacks, so that all that comes is new.
        self._place = f"{self.seen or 0}~"
        self._is_open = False
        self._skips = begin is None and after is None
        self._caught_up: CaughtUp | None = None
        self._has_looked_back = False

    def _open(self) -> contextlib.AbstractAsyncContextManager[AsyncGenerator[Frame]]:
        self._caught_up, self.was_sent = None, True
        begin, session_id, place = self._begin, self.session_id, self._place
        if begin is not None and self.seen is None:
            # Nothing durable of the turn was read, so only the request itself says which turn it is.
            return self._server.stream(
                "POST", begin.path, body=begin.body, key=begin.key, place=place, session_id=session_id
            )
        return self._server.stream("GET", session_path(session_id, "/events"), place=place, session_id=session_id)

    def _take(self, item: InRun | None, id: str | None) -> Iterator[Event]:
        self._place = id or self._place
        if isinstance(item, CaughtUp):
            self._caught_up, self._skips = item, False
            if item.status in _SETTLED:
                # The last event may be an edit, or that it was given up, which no final one follows.
                self._is_open = False
        elif isinstance(item, Event):
            if item.seq is not None:
                self._note(item)
                if item.seq <= (self.seen or 0):
                    return
                self.seen = item.seq
            if isinstance(item, FINAL) and (item.seq is None or self._begin is not None):
                self.final, self.is_over = item, True
            if not self._skips:
                yield item

    def _note(self, event: Event) -> None:
        """Remember what shows the result."""
        self._is_open = not isinstance(event, FINAL)
        self.final = event if isinstance(event, FINAL) else None
        if isinstance(event, CheckpointSaved | Interrupted):
            self.checkpoint_id = event.checkpoint_id

    def _end(self) -> bool:
        """Decide whether that was all: a turn whose process died goes on elsewhere."""
        found = self._caught_up
        if self._begin is not None or self._is_open:
            return False
        if found is not None and found.status == "waiting" and not found.pending:
            return False  # An answer is recorded, and somebody goes on with it soon.
        if self.final is None and found is not None and found.status not in ("running", "queued"):
            if not self._has_looked_back:
                # Nothing came, as it had all been read before; the last event says how the session ended.
                self._has_looked_back, self._place = True, f"{max(found.seq - 1, 0)}~"
                return True
            if found.status == "failed":
                return False  # Its process died, and another one takes it up.
            self.status, self.interrupts = found.status, with_infos(found.pending)
        self.is_over = self.final is not None or self.status is not None
        return False
