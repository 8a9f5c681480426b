"""Opening: from a call of the runner to a session that is claimed and ready to be driven."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, cast

import msgspec

from adjourn._checks import is_count
from adjourn._engine.questions import open_interrupts, open_keys
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    PendingInterrupts,
    SessionBusy,
    SessionError,
    StaleCheckpoint,
    UnfinishedRun,
    UsageError,
)
from adjourn.events import Event
from adjourn.sessions import SessionStatus
from adjourn.sessions._questions import Answers
from adjourn.sessions._settings import check_name
from adjourn.stores._logging import note
from adjourn.stores.protocol import Answer, Claimed, SessionRef

from ._driving import stop
from ._journal import Persistence
from ._live import TRIES, LiveSession, LiveSessions, apply_answers, check_usable, expire, resolve, status_of_live

OnPending = Literal["error", "abandon", "finish"]


class Call(msgspec.Struct, kw_only=True):
    """What a caller asked for, as far as run, resume and recover share it."""

    session_id: str
    user_id: str | None = None
    values: Mapping[str, Any] | None = None
    deps: Any = None
    max_steps: int | None = None
    model_options: dict[str, Any] = {}
    persistence: Persistence = Persistence.STORED
    is_new: bool = False
    """Whether the session's id was just generated, so that there is nothing to look for."""

    def __post_init__(self) -> None:
        check_name("session_id", self.session_id)
        if self.user_id is not None:
            check_name("user_id", self.user_id)
        if self.max_steps is not None and not is_count(self.max_steps):
            raise UsageError(f"max_steps={self.max_steps!r}: a graph needs at least one superstep.")


class Reader(Protocol):
    """Whoever reads a run: what it receives, and from which event on it follows one that somebody else drives."""

    wants_events: bool
    seen: int
    since: int | None

    def deliver(self, events: list[Event]) -> None:
        """Receive what has happened."""
        ...


class SessionOpener:
    """Opens the sessions of one runner."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._sessions = sessions
        self._settings = sessions.settings

    def _ref(self, call: Call) -> SessionRef:
        return self._settings.ref(call.session_id, call.user_id)

    # A new turn

    async def turn(self, call: Call, input: Any, on_pending: OnPending, reader: Reader) -> LiveSession:
        """Return a session with a turn's input, claimed (unless nobody else could know it)."""
        for _ in range(TRIES):
            live = None if call.is_new else self._sessions.pop(self._ref(call))
            cached = live is not None
            if live is None and not call.is_new:
                live = await self._sessions.find(self._ref(call))
            if live is None:
                live = self._sessions.new(call.session_id, call.user_id, call.persistence)
            await self._prepare(live, call, reader)
            if not live.is_new and not cached:
                _check_not_running(live)
            if live.status != "done":
                if cached:
                    continue  # What was kept may be older than what is stored: look in the store.
                await self._end_last_turn(live, on_pending)
            live.scope.next_input(call.model_options, call.user_id)
            live.root.begin(input)
            if live.journal.is_unstored:
                self._sessions.until_done.add(call.session_id)
                return live
            if await self._is_claimed(live, call, cached):
                return live
        raise Conflict(call.session_id, "others keep writing it")

    async def _is_claimed(self, live: LiveSession, call: Call, cached: bool) -> bool:
        """Claim a session with the input of a turn; return False if the store must be looked at again."""
        try:
            await self._claim(live, "input")
        except (Conflict, SessionBusy):
            if not cached and not live.is_new:
                await self._raise_if_busy(self._ref(call))
            return False
        except CheckpointNotFound:
            if not cached:
                raise  # It belongs to somebody else.
            return False  # What was kept is gone, and another may exist by now.
        return True

    async def _prepare(self, live: LiveSession, call: Call, reader: Reader) -> None:
        scope, settings, is_watched = live.scope, self._settings, reader.wants_events
        live.prepare(self._sessions)
        live.journal.sink = reader.deliver
        scope.deps = call.deps
        if call.deps is None and settings.deps is not None:
            scope.deps = await _made(settings.deps, live)
        scope.max_steps = call.max_steps
        scope.has_reader = is_watched
        scope.logs_events = is_watched or call.persistence is not Persistence.UNSTORED
        if settings.has_own_store:
            if not live.journal.is_unstored and call.session_id in self._sessions.until_done:
                live.journal.persistence = Persistence.UNTIL_DONE
            scope.has_boundaries = scope.logs_events or settings.durability != "pause"
        if call.values:
            live.root.set_values(call.values)

    async def _end_last_turn(self, live: LiveSession, on_pending: OnPending) -> None:
        """Give up what is unfinished, if `on_pending` says so, or raise an error that names it."""
        live.answers += await expire(self._settings.store, live, self._settings.clock())
        answered = {answer.id for answer in live.answers}
        waiting = [name for name in live.scope.questions.open if name not in answered]
        if on_pending == "abandon":
            live.journal.take_up(live.answers)
            live.journal.close_questions([Answer(id=name, value=b"", how="abandoned") for name in waiting])
            live.root.abandon()
        elif waiting:
            raise PendingInterrupts(live.scope.session_id, waiting, open_keys(live.scope))
        else:
            # No question is open, but what the answers (or their absence) lead to has not been done.
            ended = {"running": "crashed", "waiting": "answered"}.get(live.status, live.status)
            raise UnfinishedRun(live.scope.session_id, ended)

    # Going on

    async def resume(
        self,
        call: Call,
        given: Answers,
        by: str | None,
        checkpoint_id: str | None,
        state: Mapping[str, Any] | None,
        reader: Reader,
    ) -> LiveSession | None:
        """Return a session with answers in place, claimed; None when a live owner has it and takes the answers up."""
        for _ in range(TRIES):
            live = self._sessions.pop(self._ref(call))
            cached = live is not None
            if live is None:
                live = await self._sessions.load(self._ref(call))
            await self._prepare(live, call, reader)
            try:
                if checkpoint_id is not None:
                    await self._check_seen(live, given, checkpoint_id, cached)
                taken = await self._answered(live, given, by, cached)
                if state:
                    live.root.supply(state)
                return await self._go_on(live, taken, cached, reader)
            except Conflict:
                continue
            except (SessionError, UsageError):
                if not cached:
                    raise
                # What was kept may be older than what is stored: look in the store.
        raise Conflict(call.session_id, "others keep writing it")

    async def _answered(self, live: LiveSession, given: Answers, by: str | None, cached: bool) -> tuple[Answer, ...]:
        """Put answers into the frames: what waits beside the log, what has expired, and what is given."""
        store, now = self._settings.store, self._settings.clock()
        live.answers += await expire(store, live, now)
        if live.answers:
            self._take_up(live)
        if not live.scope.questions.open and live.status == "done" and given is None:
            raise AlreadyResumed(live.scope.session_id, live=live.is_running)
        taken = await resolve(self._settings, live, given, by) if live.scope.questions.open or given is not None else ()
        if taken and self._settings.permission:
            await self._check_permission(live, taken, by)
        if not live.is_running:  # Otherwise its owner goes on, who may have what is missing here.
            _check_deps(live)
            if not cached:
                check_usable(live, taken)
        apply_answers(live, taken, now)
        return taken

    async def _check_permission(self, live: LiveSession, taken: tuple[Answer, ...], by: str | None) -> None:
        named = {answer.id for answer in taken}
        asked = [each for each in open_interrupts(live.scope, live.journal.head) if each.id in named]

        async def turn_user() -> str | None:
            return live.scope.user_id

        await self._settings.permission.check(asked, by, turn_user)

    async def _check_seen(self, live: LiveSession, given: Answers, checkpoint_id: str, cached: bool) -> None:
        head = live.journal.head or ""
        if checkpoint_id == head and not cached:
            return
        stored = await self._settings.store.head(live.ref)
        if stored is not None and stored.checkpoint == checkpoint_id:
            return
        if given:
            # The question may have been answered since: that error explains more.
            await resolve(self._settings, live, given, None)
        await self._settings.store.load(live.ref, checkpoint_id)  # Raises if there is no such checkpoint.
        raise StaleCheckpoint(live.scope.session_id, checkpoint_id, head)

    def _take_up(self, live: LiveSession) -> None:
        waiting = tuple(answer for answer in live.answers if answer.id in live.scope.questions.open)
        live.answers = ()
        apply_answers(live, waiting, self._settings.clock())
        live.journal.take_up(waiting)

    async def _go_on(
        self, live: LiveSession, taken: tuple[Answer, ...], cached: bool, reader: Reader
    ) -> LiveSession | None:
        try:
            claimed = await self._claim(live, "resume", taken)
        except SessionBusy:
            if cached:
                raise Conflict(live.scope.session_id, "it moved since it was kept") from None
            raise
        note(logging.INFO, "resumed", live.scope.session_id, claimed.checkpoint, answers=len(taken))
        if claimed.lease is not None:
            return live
        reader.seen = reader.since = claimed.seq
        return None

    async def recover(self, call: Call, reader: Reader) -> LiveSession:
        """Return a session that goes on where it was cut off, claimed if there is anything left to run."""
        for _ in range(TRIES):
            live = await self._sessions.load(self._ref(call))
            self._sessions.pop(live.ref)
            _check_not_running(live)
            await self._prepare(live, call, reader)
            live.answers += await expire(self._settings.store, live, self._settings.clock())
            if live.status == "done" or (live.status == "waiting" and not live.answers):
                return live
            _check_deps(live)
            self._take_up(live)
            try:
                await self._claim(live, None)
            except Conflict:
                continue
            note(logging.INFO, "recovered", call.session_id, live.journal.head, after=live.status)
            return live
        raise Conflict(call.session_id, "others keep writing it")

    # Going back

    async def travel(self, call: Call, checkpoint_id: str, reader: Reader) -> LiveSession:
        """Return a session at `checkpoint_id`, on a new branch unless that is its head, claimed."""
        for _ in range(TRIES):
            live = await self._sessions.load(self._ref(call), checkpoint_id)
            self._sessions.pop(live.ref)
            _check_not_running(live)
            await self._prepare(live, call, reader)
            _check_deps(live)
            source = None
            if live.journal.head != checkpoint_id:
                live.journal.branch_off(self._settings.new_branch(), checkpoint_id)
                live.scope.reopen_approvals()
                source = "fork"
            else:
                self._take_up(live)
            try:
                await self._claim(live, source)
            except Conflict:
                continue
            live.status = "running"
            return live
        raise Conflict(call.session_id, "others keep writing it")

    # Claims

    async def _claim(self, live: LiveSession, source: str | None, taken: tuple[Answer, ...] = ()) -> Claimed:
        writes = source is not None or live.journal.has_news
        try:
            claimed = await live.journal.claim(live.header(source), answers=taken, over=live.dead_owner, write=writes)
        except asyncio.CancelledError:
            # The caller has left: the session must not look alive.
            if live.journal.lease is not None:
                with contextlib.suppress(AdjournError):
                    await stop(live)
            raise
        if claimed.lease is None:
            return claimed
        if live.head is not None:
            live.note_takeover()
        live.claims = claimed.claims
        return claimed

    async def _raise_if_busy(self, ref: SessionRef) -> None:
        head = await self._settings.store.head(ref)
        if head is not None and head.owner is not None:
            live = await self._sessions.find(ref)
            if live is not None:
                _check_not_running(live)


async def _made(deps: Any, live: LiveSession) -> Any:  # Any: whatever the user passes
    """Return the deps that a runner has for a session."""
    if not inspect.isroutine(deps) and not isinstance(deps, partial):
        return deps
    made: Any = cast("Callable[[SessionStatus], Any]", deps)(status_of_live(live))
    return await made if inspect.isawaitable(made) else made


def _check_deps(live: LiveSession) -> None:
    """Refuse to go on with a turn that was begun with deps and has none now: its code would not find them."""
    if live.scope.needs_deps and live.scope.deps is None and live.status != "done":
        raise UsageError(
            f"The turn of session '{live.scope.session_id}' was begun with deps, but there are none now. Pass deps=... "
            "again, or give them to the runner: Runner(..., deps=...)."
        )


def _check_not_running(live: LiveSession) -> None:
    if live.is_running and live.head is not None:
        raise SessionBusy(live.scope.session_id, live.owner or "", live.head.expires)
