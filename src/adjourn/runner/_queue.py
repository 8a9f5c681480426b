"""The queue of a session: storing the input of a turn, waiting until it begins, and beginning what comes next."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from functools import partial
from typing import Any

import msgspec

from adjourn._plain import Documented
from adjourn._values import codec
from adjourn.errors import (
    AdjournError,
    CheckpointNotFound,
    Conflict,
    InputWithdrawn,
    ProgramChanged,
    SessionBusy,
    UnfinishedRun,
)
from adjourn.sessions._inputs import StoredTurn, stored_fields
from adjourn.sessions._news import news_of
from adjourn.sessions._settings import check_name
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores._logging import note
from adjourn.stores.kit import Fanout, GetHead, HasInput, ListEvents, ListInputs, ListOpen, Submit, Withdraw
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, Input, QueuedInput, SessionRef, Status

from ._following import RunFollower
from ._live import TRIES, LiveSession, LiveSessions
from ._loops import is_passing
from ._moves import NextInput, begin_turn, take_up_next
from ._opening import Call, OnBusy, RunHandle, SessionOpener
from ._reader import NET, POLL
from .run import Begin, Run

LEAVING = 2 * POLL[1]
"""Seconds within which a caller who waits in any process sees that a turn failed, and takes its own input away."""


class Submission(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """An input that is stored. Its turn begins when those before it have ended, wherever somebody takes it up.

    `status` is the session's: that of its last turn, such as "cancelled", if that did not end well. `waiting` is how
    many inputs were in its queue: none if a turn has begun with this one before.
    """

    session_id: str
    id: str
    status: Status
    waiting: int


class Background:
    """Which sessions go on in the background, each once, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, bool] = {}  # By session: whether somebody has asked for it again since.

    def begin(self, session_id: str) -> bool:
        """Return whether to go on with a session; if that is under way, it looks once more before it ends."""
        with self._lock:
            is_first = session_id not in self._asked
            self._asked[session_id] = not is_first
            return is_first

    def end(self, session_id: str) -> bool:
        """Return whether to end, because nobody has asked for the session again."""
        with self._lock:
            if self._asked[session_id]:
                self._asked[session_id] = False
                return False
            del self._asked[session_id]
            return True

    def stop(self, session_id: str) -> None:
        """End, whoever has asked for the session again."""
        with self._lock:
            self._asked.pop(session_id, None)


class TurnQueue:
    """The queues of one runner's sessions."""

    def __init__(self, sessions: LiveSessions, opener: SessionOpener, follower: RunFollower) -> None:
        self._sessions = sessions
        self._settings = sessions.settings
        self._opener = opener
        self._follower = follower
        self._ended = Fanout()  # Wakes whoever waits here for a turn to end.
        self._waiting: set[tuple[str, str]] = set()  # Inputs whose callers wait here: by session and id.
        self._background = Background()
        self._tasks: set[asyncio.Task[None]] = set()

    # Storing an input

    async def submit(self, call: Call, input: Any, id: str | None, on_busy: OnBusy) -> Submission:
        """Store what a turn is to begin with, checked as if it began now."""
        if id is not None:
            check_name("id", id)
        name = self._settings.new_id() if id is None else id
        head = await self._store(call, input, name, on_busy)
        return Submission(session_id=call.ref.id, id=name, status=status_of(head), waiting=head.inputs)

    async def _make_way(self, ref: SessionRef, id: str, on_busy: OnBusy) -> None:
        """Refuse a session that is busy, or make room in it; if it is busy with this very input, leave it as it is."""
        head = await self._settings.store.read(GetHead(ref))
        is_busy = head is not None and (head.inputs or _runs_turn(head))
        if head is None or not is_busy or await self._settings.store.read(HasInput(ref, id)):
            return
        if on_busy == "error":
            raise SessionBusy(ref.id, owner_of(head) or "", head.expires, inputs=head.inputs)
        await self._make_room(ref)

    async def _store(self, call: Call, input: Any, id: str, on_busy: OnBusy = "queue") -> Head:
        given = Input(
            id=id,
            body=stored_turn(call, input).encode(),
            program=self._sessions.segment,
            user=call.ref.user,
            abandons=call.abandons or on_busy == "cancel",
        )
        await self._check(call, input)
        if on_busy != "queue":
            await self._make_way(call.ref, id, on_busy)
        head = await self._settings.store.write(Submit(ref=call.ref, input=given))
        note(logging.INFO, "submitted", call.ref.id, None, input=given.id)
        return head

    async def _check(self, call: Call, input: Any) -> None:
        """Begin the turn on a copy of the session as it is stored: what is wrong with the input shows there."""
        ref = call.ref
        live = None if call.is_new else await self._sessions.find(ref)
        if live is None:
            head = None if call.is_new else await self._settings.store.read(GetHead(ref))
            if head is not None and head.program not in ("", self._sessions.segment):
                raise ProgramChanged(head.program, f"the program that is to run it is '{self._sessions.segment}'")
            live = self._sessions.new(call.ref.id, call.ref.user, call.persistence)
        elif live.status != "done":
            live.root.abandon()
        live.prepare(self._sessions)
        try:
            if call.values:
                live.root.set_values(call.values)
            begin_turn(live, call, input)
            live.log.tail.check_storable()
        finally:
            live.dissolve()

    # Taking the place of the turn that runs

    async def overtake(
        self, call: Call, input: Any, begin: Begin, begin_anyway: Begin, handle: RunHandle
    ) -> LiveSession | None:
        """Begin a turn; if the session is busy, make room for it and `begin_anyway`."""
        try:
            return await begin(handle)
        except SessionBusy:
            pass
        except UnfinishedRun as unfinished:
            if not unfinished.inputs:
                raise
        await self._check(call, input)  # Nothing is stopped for a turn that could not begin.
        for _ in range(TRIES):
            await self._make_room(call.ref)
            try:
                return await begin_anyway(handle)
            except SessionBusy:
                continue
        raise Conflict(call.ref.id, "others keep writing it")

    async def _make_room(self, ref: SessionRef) -> None:
        """Remove what waits in the queue, cancel the turn that runs, and wait for its end."""
        store = self._settings.store
        # What waits goes first: the end of the turn would begin it.
        with contextlib.suppress(CheckpointNotFound):  # With its last input goes a session that has nothing else.
            for queued in await store.read(ListInputs(ref)):
                await store.write(Withdraw(ref, queued.id))
        head = await store.read(GetHead(ref))
        if head is None or not _runs_turn(head):
            return
        # A turn that has paused before the cancel reached it is cancelled, too.
        while head is not None and (_runs_turn(head) or head.status == "waiting"):
            await self._follower.stop(head.ref, "after_tools")
            async for _ in self._follower.follow(head.ref, head.seq, None, whole=False):
                pass
            head = await store.read(GetHead(ref))

    # Waiting for a turn

    async def turn(self, call: Call, input: Any, begin: Begin, handle: RunHandle) -> LiveSession | None:
        """Return the session with this turn begun; None if somebody else drives it, for the handle to follow.

        If others come first, the input is stored behind theirs.
        """
        try:
            return await begin(handle)
        except SessionBusy:
            pass
        name = self._settings.new_id()
        head = await self._store(call, input, name)
        key = (call.ref.id, name)
        self._waiting.add(key)
        try:
            return await self._wait(call, name, head.seq, handle)
        except InputWithdrawn:
            raise
        except BaseException:
            # Whoever wanted this turn is gone, or hears of an error: it must not begin later, unless it was detached.
            if not handle.is_detached:
                await self._withdraw(call.ref, name)
            raise
        finally:
            self._waiting.discard(key)
            self._ended.publish(call.ref)  # Somebody else may have left it to this caller to begin what is next.

    async def _wait(self, call: Call, id: str, seq: int, handle: RunHandle) -> LiveSession | None:
        ref, pause = call.ref, POLL[0]
        before = _Before(self._settings.store)
        with self._ended.listening() as news:
            while True:
                queued = await self._queued(ref, id)
                if id not in [each.id for each in queued]:
                    handle.seen = handle.since = await self._begun_at(ref, id, seq)
                    return None
                if handle.is_cancelled:
                    await self._withdraw(ref, id)
                    continue
                live = await self._attempt(call, queued[0], id, before, handle)
                if live is not None:
                    return live
                pause = POLL[0] if await news.wait(pause) else min(2 * pause, POLL[1])

    async def begun(self, ref: SessionRef, id: str, handle: RunHandle) -> None:
        """Wait until the turn of an input has begun, for the handle of a run that follows it.

        Raises:
            InputWithdrawn: it was removed before.
        """
        after = handle.seen
        async with news_of(self._settings.store, (ref.app, ref.id)) as news:
            while id in [each.id for each in await self._queued(ref, id)]:
                await news.wait(NET if news.has_hints else POLL[1])
        handle.seen = handle.since = await self._begun_at(ref, id, after)

    async def _queued(self, ref: SessionRef, id: str) -> list[QueuedInput]:
        try:
            return await self._settings.store.read(ListInputs(ref))
        except CheckpointNotFound:
            raise InputWithdrawn(ref.id, id) from None

    async def _begun_at(self, ref: SessionRef, id: str, after: int) -> int:
        """Return the number of the last event before the turn of an input that does not wait any more."""
        while batches := await self._settings.store.read(ListEvents(ref, after, limit=100)):
            for batch in batches:
                if batch.header.input == id:
                    return batch.first - 1
                after = batch.first + batch.count - 1
        raise InputWithdrawn(ref.id, id)

    async def _attempt(
        self, call: Call, first: QueuedInput, id: str, before: _Before, handle: RunHandle
    ) -> LiveSession | None:
        """Begin the turn of this input if it is next; see to it that somebody begins, or ends, what comes before."""
        head = await self._settings.store.read(GetHead(call.ref))
        if head is None or owner_of(head) is not None or await self._is_under_way(head, call, before):
            return None
        if head.status in ("failed", "cancelled") and not first.abandons:
            if not call.abandons or before.stays(head, first):
                await self._leave(head, id)
            return None
        if first.id == id:
            try:
                return await self._opener.open(NextInput(self._opener, call, only=id), handle)
            except (SessionBusy, Conflict):
                return None  # Somebody was faster.
        if (call.ref.id, first.id) not in self._waiting:
            self._go_on(head.ref, call.deps)
        return None

    async def _is_under_way(self, head: Head, call: Call, before: _Before) -> bool:
        """Return whether the last turn of a session has not ended, and see to it that it goes on if it can."""
        if head.status == "waiting":
            is_due = await before.is_due(head)
        elif head.checkpoint and head.status in ("running", "queued"):
            is_due = True  # Its owner died, or has left it to others.
        else:
            return False
        if is_due:
            self._go_on(head.ref, call.deps)
        return True

    async def _leave(self, head: Head, id: str) -> None:
        """Take an input away that a turn holds which did not end well; if it is gone, that was its own turn."""
        if await self._withdraw(head.ref, id):
            raise UnfinishedRun(head.session, head.status, inputs=head.inputs - 1)

    async def _withdraw(self, ref: SessionRef, id: str) -> bool:
        try:
            return await self._settings.store.write(Withdraw(ref, id))
        except CheckpointNotFound:
            return False

    # Beginning what comes next

    def take_next(self, ref: SessionRef, deps: Any) -> None:
        """Begin the next turn of a session that a run of this process has just released.

        If a caller waits here for one of its turns, that caller does it, and sees what happens as it happens.
        """
        self._ended.publish(ref)
        if not self._is_awaited(ref):
            self._go_on(ref, deps)

    def _go_on(self, ref: SessionRef, deps: Any) -> None:
        """Go on with a session in the background."""
        if not self._background.begin(ref.id):
            return
        loop, name = asyncio.get_running_loop(), f"adjourn-queue {ref.id}"
        if is_passing(loop):
            # Sync code waits for this loop, which ends with the run; what comes next must not hold it up.
            threading.Thread(target=lambda: asyncio.run(self._drive_all(ref, deps)), name=name, daemon=True).start()
            return
        task = loop.create_task(self._drive_all(ref, deps), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive_all(self, ref: SessionRef, deps: Any) -> None:
        """Go on with a session, turn after turn, until nothing is due there or a caller waits for what comes next."""
        try:
            while True:
                while await self._drive_next(ref, deps) and not self._is_awaited(ref):
                    pass
                self._ended.publish(ref)
                if self._background.end(ref.id):
                    return
        except BaseException:
            self._background.stop(ref.id)
            raise

    def _is_awaited(self, ref: SessionRef) -> bool:
        return any(session == ref.id for session, _ in self._waiting)

    async def _drive_next(self, ref: SessionRef, deps: Any) -> bool:
        """Go on with a session that nobody runs, to the end of one turn; return False if there was nothing to do.

        What failed stays as it is.
        """
        call = Call(ref=ref, deps=deps, is_unattended=True, takes_next=False)
        run: Run = Run(ref, partial(take_up_next, self._opener, call), self._follower)
        run.detach()
        try:
            await run.start()
        except (SessionBusy, Conflict, CheckpointNotFound):
            return False  # Others were faster.
        except AdjournError as error:
            note(logging.WARNING, "cannot begin the next turn", ref.id, None, error=error)
            return False
        await run.settled()
        return True


class _Before:
    """What comes before an input that somebody waits for: whether that goes on, or would hold it for ever."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paused_at = ""
        self._open: list[str] = []
        self._held: tuple[str, str] = ("", "")
        self._held_since: float = 0.0

    async def is_due(self, head: Head) -> bool:
        """Return whether a pause may go on: an answer was given, or a question has expired."""
        now_open = [question.id for question in await self._store.read(ListOpen(head.ref))]
        if head.checkpoint != self._paused_at:
            self._paused_at, self._open = head.checkpoint, now_open
            return True  # That may have happened before.
        return now_open != self._open or not now_open

    def stays(self, head: Head, first: QueuedInput) -> bool:
        """Return whether a turn that did not end well holds the first input, and nobody takes that away."""
        now, held = time.monotonic(), (head.checkpoint, first.id)
        if held != self._held:
            self._held, self._held_since = held, now
        return now - self._held_since >= LEAVING


def _runs_turn(head: Head) -> bool:
    """Return whether a process runs a turn, or has handed it over to the next one."""
    return bool(head.checkpoint) and (owner_of(head) is not None or head.status == "queued")


def stored_turn(call: Call, input: Any) -> StoredTurn:
    """Return what a turn is to begin with, as it is stored.

    Raises:
        NotStorable: something of it cannot be stored.
    """
    return StoredTurn(
        input=codec.stored(input, "input"),
        values=stored_fields(call.values or {}, "values"),
        state=None if call.state is None else stored_fields(call.state, "state"),
        max_steps=call.max_steps,
        model_options=call.model_options,
        for_agents=call.for_agents,
        metadata=call.metadata,
    )
