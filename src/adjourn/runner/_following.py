"""Runs that somebody else drives: following them, what they came to, and stopping them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from adjourn._owner import is_dead
from adjourn._text import undotted
from adjourn.errors import CheckpointNotFound, Conflict, RunError, SessionBusy, UnfinishedRun, UsageError
from adjourn.events import FINAL, Done, Event, Failed, Interrupted, is_muted
from adjourn.sessions._log import read_events
from adjourn.stores.protocol import Head, SessionRef, Store

from ._driving import stored_result
from ._live import TRIES, Sessions, ended_with, questions_at
from .history import History
from .result import RunResult

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")

POLL = (0.01, 0.25)
"""Seconds between looks at a session that somebody else runs: the first and the longest."""

PAGE = 100
"""Records whose events are read at once."""


def check_mode(mode: str) -> None:
    """Refuse a cancel mode that does not exist."""
    if mode not in MODES:
        raise UsageError(f"cancel(mode={mode!r}): use one of {', '.join(MODES)}.")


def is_running(head: Head) -> bool:
    """Whether a live process owns a session."""
    return head.owner is not None and not is_dead(head.owner)


class RunFollower:
    """The runs of a runner's sessions, by what is stored of them."""

    def __init__(self, sessions: Sessions, travel: History) -> None:
        self.sessions = sessions
        self._travel = travel

    @property
    def _store(self) -> Store:
        return self.sessions.settings.store

    def _ref(self, session_id: str) -> SessionRef:
        return self.sessions.settings.ref(session_id)

    async def find(self, session_id: str, _: object) -> None:
        """Begin to follow a session, which must be there."""
        if await self._store.head(self._ref(session_id)) is None:
            raise CheckpointNotFound(session_id)

    async def follow(self, session_id: str, after: int, since: int | None) -> AsyncGenerator[Event]:
        """The stored events after a number, until the run that is live now (or was live at `since`) has ended."""
        head = await self._store.head(self._ref(session_id))
        since = since if since is not None else head.seq if head else 0
        pause = POLL[0]
        while head is not None:
            found = False
            async for event in self.logged(session_id, after):
                after, found = event.seq or after, True
                yield event
                if after > since and isinstance(event, FINAL):
                    return
            if not found and not is_running(head):
                return
            pause = POLL[0] if found else min(2 * pause, POLL[1])
            await asyncio.sleep(0 if found else pause)
            head = await self._store.head(self._ref(session_id))

    async def logged(self, session_id: str, after: int) -> AsyncIterator[Event]:
        """The events after a number that are stored by now, as readers of the run get them."""
        async for event, point in self.events(session_id, after):
            if not is_muted(event):
                yield await self._whole(session_id, event, point)

    async def events(self, session_id: str, after: int) -> AsyncIterator[tuple[Event, str]]:
        """Every stored event after a number, with the checkpoint that holds it."""
        try:
            while batches := await self._store.events(self._ref(session_id), after, limit=PAGE):
                for batch in batches:
                    for event in read_events(batch):
                        if event.seq is not None and event.seq > after:
                            after = event.seq
                            yield event, batch.id
        except CheckpointNotFound:
            return  # It was forgotten or deleted meanwhile, and its events with it.

    async def _whole(self, session_id: str, event: Event, point: str) -> Event:
        """An event from the log; a pause and an end with the questions and the state of their checkpoint, `point`."""
        settings = self.sessions.settings
        if isinstance(event, Done):
            return msgspec.structs.replace(event, state=await ended_with(settings, session_id, point))
        if isinstance(event, Interrupted):
            return msgspec.structs.replace(event, interrupts=await questions_at(settings, session_id, point))
        return event

    async def result(self, session_id: str, last: Event | None, point: str | None) -> RunResult:
        """What a run came to that somebody else drove: its last event, and the checkpoint before that, if any came."""
        if isinstance(last, Failed):
            failure = f"{last.error}: {last.message}"
            raise RunError(f"Session '{session_id}' failed with {undotted(failure)}. Try again with `recover`.")
        live = await self.sessions.load(session_id, point if last else None)
        if last is None and live.status == "failed" and live.head is not None:
            async for event in self.logged(session_id, live.head.seq - 1):
                return await self.result(session_id, event, None)
        if last is None and live.status == "running":
            raise UnfinishedRun(session_id, "crashed")
        return stored_result(live, last)

    # Stopping

    async def stop(self, session_id: str, mode: CancelMode) -> bool:
        """Stop a session's run, or cancel one that waits; returns whether there was anything to stop."""
        live = self.sessions.running.get(session_id)
        if live is not None:
            live.scope.loop.call_soon_threadsafe(live.cut, mode)
            return True
        for _ in range(TRIES):
            head = await self._store.head(self._ref(session_id))
            if head is None:
                raise CheckpointNotFound(session_id)
            if head.status in ("done", "cancelled"):
                return False
            if await self._stopped(head, mode):
                return True
        raise Conflict(session_id, "others keep writing it")

    async def _stopped(self, head: Head, mode: CancelMode) -> bool:
        """Whether its owner could be asked to stop, or it could be stopped here; else it moved on meanwhile."""
        if is_running(head):
            return await self._store.cancel(head.ref, mode)
        found = await self.sessions.load(head.session)
        if found.journal.head != head.checkpoint:
            return False
        try:
            await self._travel.stop(found)
        except (Conflict, SessionBusy):
            return False
        self.sessions.take(head.session)
        return True
