"""Runs that somebody else drives: following them, their results, and stopping them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from adjourn._text import undotted
from adjourn.errors import CheckpointNotFound, Conflict, RunError, SessionBusy, UnfinishedRun, UsageError
from adjourn.events import FINAL, Done, Event, Failed, Interrupted, is_muted
from adjourn.sessions._contents import Contents
from adjourn.sessions._log import read_events
from adjourn.sessions._status import owner_of
from adjourn.stores.protocol import Head, SessionRef, Store

from ._driving import stored_result
from ._editing import Editor
from ._live import TRIES, LiveSessions
from .result import RunResult

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")

POLL = (0.01, 0.25)
"""Seconds between polls of a session that somebody else runs: the first and the longest."""

PAGE = 100
"""Records whose events are read at once."""


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
        """Begin to follow a session, which must exist."""
        if await self._store.head(ref) is None:
            raise CheckpointNotFound(ref.id)

    async def follow(self, ref: SessionRef, after: int, since: int | None) -> AsyncGenerator[Event]:
        """Yield the stored events after a number, until the run that is live now (or was live at `since`) has ended."""
        head = await self._store.head(ref)
        since = since if since is not None else head.seq if head else 0
        pause = POLL[0]
        while head is not None:
            found = False
            async for event in self.logged(ref, after):
                after, found = event.seq or after, True
                yield event
                if after > since and isinstance(event, FINAL):
                    return
            if not found and owner_of(head) is None:
                return
            pause = POLL[0] if found else min(2 * pause, POLL[1])
            await asyncio.sleep(0 if found else pause)
            head = await self._store.head(ref)

    async def logged(self, ref: SessionRef, after: int) -> AsyncIterator[Event]:
        """Yield the events after a number that are stored by now, as readers of the run get them."""
        async for event, point in self.events(ref, after):
            if not is_muted(event):
                yield await self._whole(ref, event, point)

    async def events(self, ref: SessionRef, after: int) -> AsyncIterator[tuple[Event, str]]:
        """Yield every stored event after a number, with the checkpoint that holds it."""
        try:
            while batches := await self._store.events(ref, after, limit=PAGE):
                for batch in batches:
                    for event in read_events(batch):
                        if event.seq is not None and event.seq > after:
                            after = event.seq
                            yield event, batch.id
        except CheckpointNotFound:
            return  # It has been forgotten or deleted since, and its events with it.

    async def _whole(self, ref: SessionRef, event: Event, point: str) -> Event:
        """Return a logged event; a pause or an end with the questions and the state of its checkpoint, `point`."""
        if not isinstance(event, Done | Interrupted):
            return event
        try:
            contents = await Contents.at(self._store, ref, point)
        except CheckpointNotFound:
            return event  # It has been pruned.
        if isinstance(event, Done):
            return msgspec.structs.replace(event, state=contents.final_state)
        return msgspec.structs.replace(event, interrupts=contents.interrupts)

    async def result(self, ref: SessionRef, last: Event | None, point: str | None) -> RunResult:
        """Return the result of a run that somebody else drove, from its last event and the checkpoint before it."""
        if isinstance(last, Failed):
            failure = f"{last.error}: {last.message}"
            raise RunError(f"Session '{ref.id}' failed with {undotted(failure)}. Try again with `recover`.")
        live = await self.sessions.load(ref, point if last else None)
        if last is None and live.status == "failed" and live.head is not None:
            async for event in self.logged(ref, live.head.seq - 1):
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
            head = await self._store.head(ref)
            if head is None:
                raise CheckpointNotFound(ref.id)
            if head.status in ("done", "cancelled"):
                return False
            if await self._stopped(head, mode):
                return True
        raise Conflict(ref.id, "others keep writing it")

    async def _stopped(self, head: Head, mode: CancelMode) -> bool:
        """Return whether its owner could be asked to stop, or it could be stopped here; if not, it has moved on."""
        if owner_of(head) is not None:
            return await self._store.cancel(head.ref, mode)
        found = await self.sessions.load(head.ref)
        if found.journal.head != head.checkpoint:
            return False
        try:
            await self._editor.stop(found)
        except (Conflict, SessionBusy):
            return False
        self.sessions.pop(head.ref)
        return True
