"""Runs that other processes drive: following them, their results, and stopping them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal

from adjourn._engine.entry import check_not_own
from adjourn._text import undotted
from adjourn.errors import (
    CheckpointNotFound,
    Conflict,
    ProgramChanged,
    RunError,
    SessionBusy,
    UnfinishedRun,
    UsageError,
)
from adjourn.events import Event, Failed
from adjourn.sessions._fork import cancel
from adjourn.sessions._status import owner_of
from adjourn.stores.kit import Cancel, GetHead
from adjourn.stores.protocol import Store
from adjourn.stores.types import SessionRef

from ._driving import stored_result
from ._editing import Change
from ._live import LiveSession, LiveSessions
from ._opening import Call, Claiming, SessionOpener
from ._reader import Reader, Watched, logged
from .result import RunResult

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")


def check_mode(mode: str) -> None:
    """Refuse a cancel mode that does not exist."""
    if mode not in MODES:
        raise UsageError(f"cancel(mode={mode!r}): use one of {', '.join(MODES)}.")


class Stop(Change):
    """Cancel a session that no process runs, or ask its owner to; its questions stay open."""

    needs_it_free = False  # An owner that came since is asked.
    source = "cancel"
    status = "cancelled"
    has_stopped: bool = False
    """Whether there was anything to stop."""

    def __init__(self, opener: SessionOpener, ref: SessionRef, mode: CancelMode) -> None:
        super().__init__(opener, Call(ref=ref))
        self._mode: CancelMode = mode

    async def find(self) -> LiveSession | None:
        head = await self.settings.store.read(GetHead(self.call.ref))
        if head is None:
            raise CheckpointNotFound(self.call.ref.id)
        self.has_stopped = head.status not in ("done", "cancelled") and bool(head.checkpoint)
        if not self.has_stopped or (owner_of(head) and await self.settings.store.write(Cancel(head.ref, self._mode))):
            return None
        try:
            live = await self.sessions.load(head.ref)
        except ProgramChanged:  # What it was is enough to stop it: its program may be gone for good.
            try:
                return await cancel(self.settings, head.ref)
            except SessionBusy as busy:
                raise Conflict(head.session, "it has moved on") from busy
        if live.log.tail.head != head.checkpoint:
            raise Conflict(head.session, "it has moved on")
        return live

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming:
        return Claiming("cancel")

    async def missed(self, error: Conflict | SessionBusy) -> None:
        return


class RunFollower:
    """The runs of a runner's sessions, as stored."""

    def __init__(self, opener: SessionOpener) -> None:
        self.sessions: LiveSessions = opener.sessions
        self._opener = opener

    @property
    def _store(self) -> Store:
        return self.sessions.settings.store

    async def find(self, ref: SessionRef, _: object) -> None:
        """Begin to follow a session, which must exist, and not be the one that the calling code runs in."""
        head = await self._store.read(GetHead(ref))
        if head is None:
            raise CheckpointNotFound(ref.id)
        check_not_own(ref.id, head.owner)

    def follow(self, ref: SessionRef, after: int, since: int | None, *, whole: bool = True) -> AsyncGenerator[Watched]:
        """Yield the stored events after a number, until the run that is live now (or was live at `since`) has ended."""
        return Reader(self._store, ref, after=after, since=since, whole=whole).items()

    async def result(self, ref: SessionRef, last: Event | None, point: str | None) -> RunResult:
        """Return the result of a run that another process drove, from its last event and the checkpoint before it."""
        if isinstance(last, Failed):
            failure = f"{last.error}: {last.message}"
            raise RunError(f"Session '{ref.id}' failed with {undotted(failure)}. Try again with `recover`.")
        live = await self.sessions.load(ref, point if last else None)
        if last is None and live.status == "failed" and live.head is not None:
            async for event in logged(self._store, ref, live.head.seq - 1, whole=False):
                return await self.result(ref, event, None)
        if last is None and live.status == "running":
            raise UnfinishedRun(ref.id, "crashed")
        return stored_result(live, last)

    # Stopping

    async def stop(self, ref: SessionRef, mode: CancelMode) -> bool:
        """Stop a session's run, or cancel one that waits; return whether there was anything to stop."""
        live = self.sessions.running_as(ref)
        if live is not None:
            live.scope.loop.call_soon_threadsafe(live.cut, mode)
            return True
        move = Stop(self._opener, ref, mode)
        await self._opener.open(move, None)
        return move.has_stopped
