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
from adjourn.stores.types import Head, SessionRef

from ._driving import stored_result
from ._editing import Editor
from ._live import TRIES, LiveSessions
from ._reader import Reader, Watched, logged
from .result import RunResult

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")


def check_mode(mode: str) -> None:
    """Refuse a cancel mode that does not exist."""
    if mode not in MODES:
        raise UsageError(f"cancel(mode={mode!r}): use one of {', '.join(MODES)}.")


class RunFollower:
    """The runs of a runner's sessions, as stored."""

    def __init__(self, sessions: LiveSessions, editor: Editor) -> None:
        self.sessions = sessions
        self._editor = editor

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
        for _ in range(TRIES):
            head = await self._store.read(GetHead(ref))
            if head is None:
                raise CheckpointNotFound(ref.id)
            if head.status in ("done", "cancelled") or not head.checkpoint:
                return False
            if await self._stopped(head, mode):
                return True
        raise Conflict(ref.id, "others keep writing it")

    async def _stopped(self, head: Head, mode: CancelMode) -> bool:
        """Return whether its owner could be asked to stop, or it could be stopped here; if not, it has moved on."""
        if owner_of(head) is not None:
            return await self._store.write(Cancel(head.ref, mode))
        try:
            found = await self.sessions.load(head.ref)
        except ProgramChanged:  # What it was is enough to stop it: its program may be gone for good.
            found = None
        if found is not None and found.log.tail.head != head.checkpoint:
            return False
        try:
            if found is None:
                await cancel(self.sessions.settings, head.ref)
            else:
                await self._editor.stop(found)
        except (Conflict, SessionBusy):
            return False
        self.sessions.pop(head.ref)
        return True
