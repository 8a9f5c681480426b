"""The moves by which runs begin: a turn, answers, going on, the next input of a queue, going back.

`SessionOpener.open` finds the session, makes one of them, and claims it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from adjourn._engine.questions import OpenNow, open_keys
from adjourn._engine.record import Called
from adjourn._temporary import is_temporary
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    InputRefused,
    PendingInterrupts,
    ProgramChanged,
    SessionBusy,
    SessionError,
    StaleCheckpoint,
    UnfinishedRun,
    UsageError,
)
from adjourn.events import FINAL
from adjourn.sessions._chain import read_left
from adjourn.sessions._inputs import StoredTurn
from adjourn.sessions._log import read_events, read_past
from adjourn.sessions._questions import Answers, seq_before
from adjourn.sessions._settings import check_name
from adjourn.sessions._spent import check_unspent
from adjourn.stores._logging import note
from adjourn.stores.kit import GetHead, ListEvents, ListInputs, Load
from adjourn.stores.types import Answer, Claimed, Head, QueuedInput, SessionRef

from ._driving import drive
from ._live import TRIES, LiveSession, apply_answers, check_can_go_on, check_usable, expire, resolve
from ._log import Persistence
from ._opening import Call, Claiming, Move, OnPending, RunHandle, SessionOpener, check_not_running

PAGE = 100
"""Records whose events are read at once."""


class BeginTurn(Move):
    """Begin a turn with an input, in a new session or one whose last turn is done; or give that up first."""

    uses_kept = True

    def __init__(self, opener: SessionOpener, call: Call, input: Any, on_pending: OnPending) -> None:
        super().__init__(opener, call)
        self._input = input
        self._on_pending: OnPending = on_pending

    async def find(self) -> LiveSession:
        sessions, call = self.sessions, self.call
        found = None if call.is_new else await sessions.find(call.ref)
        if found is not None:
            return found
        if sessions.settings.has_own_store and not call.is_new and is_temporary(call.ref.id):
            raise CheckpointNotFound(call.ref.id)  # Its caller means to go on with what was forgotten.
        return sessions.new(call.ref.id, call.ref.user, call.persistence)

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming | None:
        if live.status != "done":
            if is_kept:
                raise Conflict(self.call.ref.id, "it may have moved since it was kept")
            await end_last_turn(self.opener, live, self._on_pending)
        begin_turn(live, self.call, self._input)
        if live.log.is_unstored:
            self.sessions.until_done.add(self.call.ref.id)
            return None
        return Claiming("input")

    async def missed(self, error: Conflict | SessionBusy) -> None:
        """Raise if a live owner has the session, or inputs wait in its queue."""
        sessions, ref = self.sessions, self.call.ref
        head = await sessions.settings.store.read(GetHead(ref))
        if head is not None and head.owner is not None:
            live = await sessions.find(ref)
            if live is not None:
                check_not_running(live)
        elif head is not None and head.inputs:
            raise SessionBusy(ref.id, inputs=head.inputs)


class Resume(Move):
    """Put answers into the frames that asked; a live owner takes them up itself."""

    needs_it_free = False

    def __init__(
        self,
        opener: SessionOpener,
        call: Call,
        given: Answers,
        *,
        by: str | None,
        message: str | None,
        id: str | None,
        checkpoint_id: str | None,
    ) -> None:
        super().__init__(opener, call)
        self.uses_kept = not call.for_agents  # The agents of one that was kept have what they began with.
        self.given = given
        self.by = by
        self.message = message
        self.id = id
        self.rest = ""
        """A digest of what comes with the answers, if they have an id."""
        if id is not None:
            check_name("id", id)
            if call.values or call.state:
                self.rest = codec.fingerprint([dict(call.values or {}), dict(call.state or {})])
        self._checkpoint_id = checkpoint_id
        self._needs = call.for_its_run()
        """Arguments that no run but the one begun here can use."""
        self._taken = 0
        self._is_superseded = False

    async def find(self) -> LiveSession:
        return await self.sessions.load(self.call.ref)

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming:
        live.scope.replace_for_agents(self.call.for_agents)
        if self._checkpoint_id is not None:
            await self._check_seen(live, self._checkpoint_id, is_kept=is_kept)
        taken = await self._answered(live, is_kept=is_kept)
        if self.call.state:
            live.root.supply(self.call.state)
        if self.call.state or self.call.values:
            live.scope.note_speaker(self.by)  # as for an edit
        self._taken, self._is_superseded = len(taken), bool(live.superseded)
        return Claiming("resume", taken, alone=bool(self._needs or live.superseded))

    async def missed(self, error: Conflict | SessionBusy) -> None:
        if not isinstance(error, SessionBusy) or self._is_superseded:
            return
        if self._needs and self._taken:
            raise SessionBusy(error.session_id, error.owner_id, error.expires, self._needs) from None
        raise error

    async def made(self, live: LiveSession, claimed: Claimed) -> None:
        note(logging.INFO, "resumed", live.scope.session_id, claimed.checkpoint, answers=self._taken)

    async def _answered(self, live: LiveSession, *, is_kept: bool) -> tuple[Answer, ...]:
        """Put answers into the frames: what waits beside the log, what has expired, and what is given."""
        now = self.settings.clock()
        live.answers += await expire(self.settings.store, live, now)
        if live.answers:
            take_up(self.opener, live)
        if not live.scope.questions.open and live.status == "done" and self.given is None:
            raise AlreadyResumed(live.scope.session_id, live=live.runs_elsewhere)
        taken: tuple[Answer, ...] = ()
        if live.scope.questions.open or self.given is not None or self.message is not None:
            called = None if self.id is None else Called(self.id, live.log.tail.seq, self.rest)
            taken = await resolve(self.settings, live, self.given, self.by, self.message, called)
        if self.id is not None and not taken:
            # Sent again, it would answer what is asked by then.
            raise UsageError(
                f"resume(id={self.id!r}) gives no answer, and an id stands for answers. "
                "Leave the id out, or call `recover` to continue with answers that were recorded before."
            )
        if taken and self.settings.permission:
            await self._check_permission(live, taken)
        if not live.runs_elsewhere:  # Otherwise its owner goes on, who may have what is missing here.
            check_deps(live)
            if not is_kept:  # Otherwise the very program that asked goes on.
                # The others of these answers stay with their caller, who looks again.
                live.superseded = check_usable(live, taken)
                taken = live.superseded or taken
        apply_answers(live, taken, now)
        return taken

    async def _check_permission(self, live: LiveSession, taken: tuple[Answer, ...]) -> None:
        named = {answer.id for answer in taken}
        asked = OpenNow(live.scope, live.log.tail.head).shown_of(named)

        async def turn_user() -> str | None:
            return live.scope.user_id

        await self.settings.permission.check(asked, self.by, turn_user)

    async def _check_seen(self, live: LiveSession, checkpoint_id: str, *, is_kept: bool) -> None:
        head = live.log.tail.head or ""
        if checkpoint_id == head and not is_kept:
            return
        stored = await self.settings.store.read(GetHead(live.ref))
        if stored is not None and stored.checkpoint == checkpoint_id:
            return
        if self.given:
            # The question may have been answered since: that error explains more.
            await resolve(self.settings, live, self.given, None)
        await self.settings.store.read(Load(live.ref, checkpoint_id))  # Raises if there is no such checkpoint.
        raise StaleCheckpoint(live.scope.session_id, checkpoint_id, head)


class Recover(Move):
    """Go on where a turn was cut off, if there is anything left to run."""

    def __init__(self, opener: SessionOpener, call: Call, *, only_due: bool = False) -> None:
        super().__init__(opener, call)
        self._only_due = only_due

    async def find(self) -> LiveSession | None:
        live = await self.sessions.find(self.call.ref)
        if live is None or (live.status == "done" and live.head is not None and live.head.inputs):
            return None  # The next turn of its queue is due.
        if self._only_due and live.status in ("failed", "cancelled") and not live.answers:
            check_not_running(live)
            raise UnfinishedRun(self.call.ref.id, live.status)  # A caller who wants it to go on says so.
        return live

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming | None:
        live.answers += await expire(self.settings.store, live, self.settings.clock())
        waits_for_people = live.status == "waiting" and live.scope.questions.open and not live.answers
        if live.status == "done" or waits_for_people:
            return None
        live.scope.replace_for_agents(self.call.for_agents)
        check_deps(live)
        check_can_go_on(live)
        take_up(self.opener, live)
        return Claiming(None)

    async def made(self, live: LiveSession, claimed: Claimed) -> None:
        note(logging.INFO, "recovered", live.scope.session_id, claimed.checkpoint, after=live.status)


class NextInput(Move):
    """Begin the turn of the first input that waits in a session's queue, or only that of the input `only`."""

    def __init__(self, opener: SessionOpener, call: Call, *, only: str | None = None) -> None:
        super().__init__(opener, call)
        self._given = call
        self._only = only

    async def find(self) -> LiveSession | None:
        """Return the session; None if the turn cannot begin (any more).

        Raises:
            CheckpointNotFound: there is no such session.
            InputRefused: the input cannot begin here.
        """
        store, ref = self.settings.store, self._given.ref
        head = await store.read(GetHead(ref))
        if head is None:
            raise CheckpointNotFound(ref.id)
        queued = await store.read(ListInputs(ref, limit=1)) if head.inputs else []
        if not queued or self._only not in (None, queued[0].id) or not _can_begin(head, queued[0]):
            return None
        live = await self._standing(head)
        check_not_running(live)
        self._queued = queued[0]
        try:
            with Reading(ref.id):
                turn = StoredTurn.decode(self._queued.body)
                self._input, self.call = codec.decode(turn.input), _call_of(turn, self._given, self._queued)
        except (AdjournError, ValueError) as error:
            raise InputRefused(ref.id, self._queued.id, str(error)) from error
        return live

    async def _standing(self, head: Head) -> LiveSession:
        """Return a session as it is at this head, which may have no record yet."""
        sessions = self.sessions
        if not head.checkpoint:
            if head.program not in ("", sessions.segment):
                raise ProgramChanged(head.program, f"the program that is to run it is '{sessions.segment}'")
            return sessions.new(head.session, head.user, Persistence.STORED)  # The claim finds out if it has moved on.
        live = await sessions.find(head.ref)
        if live is None or live.log.tail.head != head.checkpoint:
            raise Conflict(head.session, "it has moved on")
        return live

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming:
        live.input_id = self._queued.id
        if live.status != "done":
            await end_last_turn(self.opener, live, "abandon")
        try:
            begin_turn(live, self.call, self._input)
        except Exception as error:  # reducers are users' code: whatever they raise, its cause is this input
            raise InputRefused(live.scope.session_id, self._queued.id, str(error)) from error
        return Claiming("input")

    async def made(self, live: LiveSession, claimed: Claimed) -> None:
        note(logging.INFO, "begun", live.scope.session_id, claimed.checkpoint, input=self._queued.id)


class Travel(Move):
    """Go on from a checkpoint, on a new branch unless that is the head.

    Raises:
        ApprovalSpent: approvals that were given before it have acted, and are not to do so `again`.
    """

    def __init__(self, opener: SessionOpener, call: Call, checkpoint_id: str, *, again: bool) -> None:
        super().__init__(opener, call)
        self._point = checkpoint_id
        self._again = again

    async def find(self) -> LiveSession:
        return await self.sessions.load(self.call.ref, self._point)

    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming:
        check_deps(live)
        settings, scope, tail = self.settings, live.scope, live.log.tail
        if tail.head == self._point:
            take_up(self.opener, live)
            return Claiming(None)
        past = await read_past(settings.store, live.ref, self._point, scope)
        past = await check_unspent(settings.store, live.ref, self._point, past, scope, again=self._again)
        left = None if live.head is None else await read_left(settings.store, live.head)
        tail.branch_off(settings.new_branch(), self._point, past, left)
        scope.reopen_approvals()
        return Claiming("fork")

    async def made(self, live: LiveSession, claimed: Claimed) -> None:
        live.status = "running"


# What callers want, which may take more than one move


async def resume(opener: SessionOpener, move: Resume, handle: RunHandle) -> LiveSession | None:
    """Return a session with answers in place, claimed; None when a live owner has it and takes the answers up.

    It is also None when the same answers were given before, under the same id: then what they led to is read.

    Raises:
        Conflict: other answers were given under the id.
        StaleCheckpoint: something else is asked now in place of what was answered.
    """
    if move.id is not None and (seq := await _seq_before(opener, move, move.id)) is not None:
        return await _follow(opener, move.call, seq, handle)
    try:
        live = await opener.open(move, handle)
    except SessionError:
        # Another process that sends the same may have been faster.
        if move.id is None or (seq := await _seq_before(opener, move, move.id)) is None:
            raise
        return await _follow(opener, move.call, seq, handle)
    if live is not None and live.superseded:
        await _ask_anew(opener, live)
    return live


async def _seq_before(opener: SessionOpener, move: Resume, id: str) -> int | None:
    return await seq_before(opener.settings.store, move.call.ref, id, move.given, move.by, move.message, move.rest)


async def _ask_anew(opener: SessionOpener, live: LiveSession) -> NoReturn:
    """Record the questions that take the place of those that were answered (rule R17)."""
    session_id, answered = live.scope.session_id, live.superseded[0]
    opener.sessions.running[session_id] = live
    live.begin()
    try:
        await drive(live)
    finally:
        opener.sessions.ended(live, well=False)
    asked = tuple(live.scope.questions.open)
    raise StaleCheckpoint(session_id, "", live.log.tail.head or "", token=answered.id, open=asked)


async def _follow(opener: SessionOpener, call: Call, seq: int, handle: RunHandle) -> LiveSession | None:
    """Let a handle follow what happened after an event, and go on with it if the process that did is gone."""
    if not await _has_ended(opener, call.ref, seq):
        with contextlib.suppress(SessionError, Conflict):  # Another process goes on with it, or it cannot go on here.
            live = await recover(opener, call, handle)
            live.seq_before = seq
            return live
    handle.seen = handle.since = seq
    handle.is_attached = True
    return None


async def _has_ended(opener: SessionOpener, ref: SessionRef, seq: int) -> bool:
    """Return whether the run after an event has ended."""
    while batches := await opener.settings.store.read(ListEvents(ref, seq, limit=PAGE)):
        events = [event for batch in batches for event in read_events(batch)]
        if any(isinstance(event, FINAL) and (event.seq or 0) > seq for event in events):
            return True
        seq = max(seq + 1, *(event.seq or 0 for event in events))
    return False


async def recover(opener: SessionOpener, call: Call, handle: RunHandle, *, only_due: bool = False) -> LiveSession:
    """Return a session that goes on where it was cut off, claimed if there is anything left to run.

    If its last turn is done, that is the next one in its queue.
    """
    for _ in range(TRIES):
        for move in (Recover(opener, call, only_due=only_due), NextInput(opener, call)):
            live = await opener.open(move, handle)
            if live is not None:
                return live
    raise Conflict(call.ref.id, "others keep writing it")


async def advance(opener: SessionOpener, call: Call, handle: RunHandle) -> LiveSession:
    """Return a session in which what is due goes on: the next turn of its queue, or what is unfinished.

    Raises:
        UnfinishedRun: its last turn failed or was cancelled, and has not been answered since.
    """
    begun = await opener.open(NextInput(opener, call), handle)
    return begun or await recover(opener, call, handle, only_due=True)


async def begin_input(opener: SessionOpener, call: Call, id: str, handle: RunHandle) -> LiveSession:
    """Return a session with the turn of an input begun.

    Raises:
        Conflict: it is not next, or was taken.
        SessionBusy: a live owner has the session.
    """
    live = await opener.open(NextInput(opener, call, only=id), handle)
    if live is None:
        raise Conflict(call.ref.id, f"the input '{id}' is not next in its queue")
    return live


async def take_up_next(opener: SessionOpener, call: Call, handle: RunHandle) -> LiveSession:
    """Do what `advance` does, except that a turn that failed or was cancelled stays as it is.

    Raises:
        Conflict: there is nothing to do.
    """
    live = await opener.open(NextInput(opener, call), handle)
    head = await opener.settings.store.read(GetHead(call.ref)) if live is None else None
    if head is not None and head.checkpoint and head.status in ("queued", "running", "waiting"):
        live = await recover(opener, call, handle)
    if live is None or live.log.lease is None:
        raise Conflict(call.ref.id, "nothing is due there")
    return live


# Parts of moves


def begin_turn(live: LiveSession, call: Call, input: Any) -> None:
    """Give a session the input of its next turn."""
    if live.status == "done":
        live.scope.forget_speakers()  # Else the model reads only now what was said in the turn that was given up.
    live.scope.next_input(call.model_options, call.ref.user, call.metadata, call.for_agents)
    live.root.begin(input, call.state)


async def end_last_turn(opener: SessionOpener, live: LiveSession, on_pending: OnPending) -> None:
    """Give up what is unfinished, if `on_pending` says so, or raise an error that names it."""
    live.answers += await expire(opener.settings.store, live, opener.settings.clock())
    answered = {answer.id for answer in live.answers}
    waiting = [name for name in live.scope.questions.open if name not in answered]
    if on_pending == "abandon":
        live.log.tail.take_up(live.answers)
        live.log.tail.close_questions([Answer(id=name, value=b"", how="abandoned") for name in waiting])
        live.root.abandon()
    elif waiting:
        raise PendingInterrupts(live.scope.session_id, waiting, open_keys(live.scope))
    elif live.status == "queued":
        raise SessionBusy(live.scope.session_id)  # It was handed over, and another process will go on with it.
    else:
        # No question is open, but what the answers (or their absence) lead to has not been done.
        ended = {"running": "crashed", "waiting": "answered"}.get(live.status, live.status)
        raise UnfinishedRun(live.scope.session_id, ended, inputs=live.head.inputs if live.head else 0)


def take_up(opener: SessionOpener, live: LiveSession) -> None:
    """Put the answers that wait beside the log into the frames that asked."""
    waiting = tuple(answer for answer in live.answers if answer.id in live.scope.questions.open)
    live.answers = ()
    apply_answers(live, waiting, opener.settings.clock())
    live.log.tail.take_up(waiting)


def check_deps(live: LiveSession) -> None:
    """Refuse to go on with a turn that was begun with deps and has none now: its code would not find them."""
    if live.scope.needs_deps and live.scope.deps is None and live.status != "done":
        raise UsageError(
            f"The turn of session '{live.scope.session_id}' was begun with deps, but there are none now. Pass deps=... "
            "again, or give them to the runner: Runner(..., deps=...)."
        )


def _can_begin(head: Head, first: QueuedInput) -> bool:
    """Return whether the turn of the first input can begin, or could if no process ran the session."""
    if not head.checkpoint or head.status == "done":
        return True
    return first.abandons and head.status in ("failed", "cancelled")


def _call_of(turn: StoredTurn, call: Call, queued: QueuedInput) -> Call:
    """Return the call that a stored turn stands for; deps are not stored, so they are those of the present caller."""
    values: Mapping[str, Any] = {name: codec.decode(value) for name, value in turn.values.items()}
    return Call(
        ref=msgspec.structs.replace(call.ref, user=queued.user),
        values=values or None,
        state=None if turn.state is None else {name: codec.decode(value) for name, value in turn.state.items()},
        deps=call.deps,
        max_steps=turn.max_steps,
        model_options=turn.model_options,
        metadata=turn.metadata,
        for_agents=turn.for_agents,
        is_unattended=call.is_unattended,
        takes_next=call.takes_next,
    )
