"""Runs that somebody else drives: following them, their results, and stopping them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from adjourn._engine.entry import check_not_own
from adjourn._text import undotted
from adjourn.errors import (
    CheckpointCorrupt,
    CheckpointNotFound,
    Conflict,
    ProgramChanged,
    RunError,
    SessionBusy,
    UnfinishedRun,
    UsageError,
)
from adjourn.events import FINAL, Done, Event, Failed, Interrupted, is_muted
from adjourn.sessions._fork import cancel
from adjourn.sessions._log import read_events
from adjourn.sessions._news import news_of
from adjourn.sessions._span import Span, final_state, open_at, spans
from adjourn.sessions._status import owner_of
from adjourn.stores.kit import Cancel, GetHead, ListEvents
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, SessionRef

from ._driving import stored_result
from ._editing import Editor
from ._live import TRIES, LiveSessions
from .result import RunResult

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")

POLL = (0.01, 0.25)
"""Seconds between polls of a session that somebody else runs: the first and the longest."""

NET = 1.0
"""Seconds between polls if the store gives hints, which may be lost; that an owner dies is never hinted at."""

PAGES = (100, 6400)
"""Records whose events are read at once: at first, and at most."""


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

    async def follow(
        self, ref: SessionRef, after: int, since: int | None, *, whole: bool = True
    ) -> AsyncGenerator[Event]:
        """Yield the stored events after a number, until the run that is live now (or was live at `since`) has ended.

        `whole` is as for `logged`.
        """
        async with news_of(self._store, (ref.app, ref.id)) as news:
            head = await self._store.read(GetHead(ref))
            since = since if since is not None else head.seq if head else 0
            pause = POLL[0]
            while head is not None:
                found = False
                async for event in self.logged(ref, after, whole=whole):
                    after, found = event.seq or after, True
                    yield event
                    if after > since and isinstance(event, FINAL):
                        return
                if not found and owner_of(head) is None and head.status != "queued":
                    return
                pause = POLL[0] if found else min(2 * pause, POLL[1])
                await news.wait(0 if found else NET if news.has_hints else pause)
                head = await self._store.read(GetHead(ref))

    async def logged(self, ref: SessionRef, after: int, *, whole: bool = True) -> AsyncIterator[Event]:
        """Yield the events after a number that are stored by now, as readers of the run get them.

        Unless `whole`, a pause comes without its questions, and an end without its state.
        """
        async for page in self._pages(ref, after):
            completed = await self._completed(ref, page) if whole else {}
            for event, point in page:
                read = completed.get(point) if isinstance(event, Done | Interrupted) else None
                if isinstance(read, CheckpointCorrupt):
                    raise read
                if not is_muted(event):
                    yield read or event

    async def events(self, ref: SessionRef, after: int) -> AsyncIterator[Event]:
        """Yield every stored event after a number."""
        async for page in self._pages(ref, after):
            for event, _ in page:
                yield event

    async def _pages(self, ref: SessionRef, after: int) -> AsyncIterator[list[tuple[Event, str]]]:
        """Yield the stored events after a number with the checkpoints that hold them, in ever larger pages.

        The states of a page are read together, and reading those of its end means to read everything before it: with
        pages of one size, the whole would take time that grows with the square of its length.
        """
        size = PAGES[0]
        try:
            while batches := await self._store.read(ListEvents(ref, after, limit=size)):
                page = [(event, batch.id) for batch in batches for event in read_events(batch)]
                page = [(event, point) for event, point in page if event.seq is not None and event.seq > after]
                if not page:
                    return
                after, size = page[-1][0].seq or after, min(2 * size, PAGES[1])
                yield page
        except CheckpointNotFound:
            return  # It has been forgotten or deleted since, and its events with it.

    async def _completed(self, ref: SessionRef, page: list[tuple[Event, str]]) -> dict[str, Event | CheckpointCorrupt]:
        """Return, by checkpoint, the pauses of a page with their questions and the ends with their states.

        Those of checkpoints that have been pruned are left out.
        """
        ends = {point: event for event, point in page if isinstance(event, Done | Interrupted)}
        found: dict[str, Event | CheckpointCorrupt] = {}
        async for points, span in spans(self._store, ref, list(reversed(ends))):
            for point in points:
                read = await self._whole(ends[point], span, point) if isinstance(span, Span) else span
                if not isinstance(read, CheckpointNotFound):
                    found[point] = read
        return found

    async def _whole(self, event: Done | Interrupted, span: Span, point: str) -> Event | CheckpointCorrupt:
        try:
            tree = span.fold_to(point)
            if isinstance(event, Done):
                return msgspec.structs.replace(event, state=final_state(tree))
            asked = await open_at(self._store, span.loaded_at(point), tree)
        except CheckpointCorrupt as damage:
            return damage
        return msgspec.structs.replace(event, interrupts=asked)

    async def result(self, ref: SessionRef, last: Event | None, point: str | None) -> RunResult:
        """Return the result of a run that somebody else drove, from its last event and the checkpoint before it."""
        if isinstance(last, Failed):
            failure = f"{last.error}: {last.message}"
            raise RunError(f"Session '{ref.id}' failed with {undotted(failure)}. Try again with `recover`.")
        live = await self.sessions.load(ref, point if last else None)
        if last is None and live.status == "failed" and live.head is not None:
            async for event in self.logged(ref, live.head.seq - 1, whole=False):
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
        if found is not None and found.journal.tail.head != head.checkpoint:
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
