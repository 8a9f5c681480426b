"""Opening: from a call of the runner to a session that is claimed and ready to be driven."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NoReturn, Protocol, TypedDict, cast

import msgspec

from adjourn._checks import is_count
from adjourn._engine.entry import check_not_own
from adjourn._engine.questions import OpenNow, open_keys
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
from adjourn.events import FINAL, Event
from adjourn.sessions import SessionStatus
from adjourn.sessions._chain import read_left
from adjourn.sessions._inputs import StoredTurn
from adjourn.sessions._log import read_events, read_past
from adjourn.sessions._questions import Answers, place_of
from adjourn.sessions._settings import check_name
from adjourn.sessions._spent import check_unspent
from adjourn.stores._logging import note
from adjourn.stores.kit import GetHead, ListEvents, ListInputs, Load
from adjourn.stores.types import Answer, Claimed, Head, QueuedInput, SessionRef

from ._driving import drive, end_cut_off
from ._live import (
    TRIES,
    LiveSession,
    LiveSessions,
    apply_answers,
    check_can_go_on,
    check_usable,
    expire,
    resolve,
    status_of_live,
)
from ._log import Persistence
from .agent_options import AgentOptions

PAGE = 100
"""Records whose events are read at once."""

OnPending = Literal["error", "abandon", "finish"]
OnBusy = Literal["error", "queue", "cancel", "rollback"]


class TurnOptions(TypedDict, total=False):
    """The options of a turn, as keyword arguments; `Runner.run` explains each of them."""

    user_id: str | None
    values: Mapping[str, Any] | None
    deps: Any
    on_pending: OnPending
    on_busy: OnBusy
    checkpoint_id: str | None
    again: bool
    max_steps: int | None
    model_options: Mapping[str, Any] | None
    for_agents: Mapping[str, AgentOptions] | None
    metadata: Mapping[str, Any] | None


class Call(msgspec.Struct, kw_only=True):
    """What a caller asked for, as far as run, resume and recover share it."""

    session_id: str
    user_id: str | None = None
    values: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    deps: Any = None
    max_steps: int | None = None
    model_options: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for_agents: dict[str, Any] = {}
    persistence: Persistence = Persistence.STORED
    message: str | None = None
    answer_id: str | None = None
    is_new: bool = False
    """Whether the session's id was just generated, so that there is nothing to look for."""
    abandons: bool = False
    """Whether its turn may begin after one that failed or was cancelled."""
    is_unattended: bool = False
    takes_next: bool = True

    def __post_init__(self) -> None:
        check_name("session_id", self.session_id)
        if self.user_id is not None:
            check_name("user_id", self.user_id)
        if self.answer_id is not None:
            check_name("id", self.answer_id)
        if self.state is not None and not isinstance(cast("object", self.state), Mapping):
            raise UsageError(f"state={self.state!r}: give a mapping of fields.")
        if self.max_steps is not None and not is_count(self.max_steps):
            raise UsageError(f"max_steps={self.max_steps!r}: a graph needs at least one superstep.")

    def for_its_run(self, state: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Return which arguments only the run that this call begins can use: one that is under way has its own.

        `deps` are not among them. They stand for the same things in every process, and whoever resumes cannot know
        whether the session is being run.
        """
        given = {
            "values": self.values,
            "state": state,
            "max_steps": self.max_steps,
            "for_agents": self.for_agents,
        }
        return tuple([name for name, value in given.items() if value])


class Reader(Protocol):
    """Whoever reads a run: what it receives, and from which event on it follows one that somebody else drives."""

    seen: int
    since: int | None
    is_attached: bool
    is_detached: bool

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled before it began."""
        ...

    @property
    def wants_events(self) -> bool:
        """Whether anybody reads the run."""
        ...

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
        ref = self._ref(call)
        for _ in range(TRIES):
            live = None if call.is_new else self._sessions.pop(ref)
            cached = live is not None
            if live is None and not call.is_new:
                live = await self._sessions.find(ref)
            if live is None:
                live = self._new(call)
            await self._prepare(live, call, reader)
            if not live.is_new and not cached:
                _check_not_running(live)
            if live.status != "done":
                if cached:
                    continue  # What was kept may be older than what is stored: look in the store.
                await self._end_last_turn(live, on_pending)
            begin_turn(live, call, input)
            if live.journal.is_unstored:
                self._sessions.until_done.add(call.session_id)
                return live
            if await self._is_claimed(live, ref, cached):
                return live
        raise Conflict(call.session_id, "others keep writing it")

    def _new(self, call: Call) -> LiveSession:
        if self._settings.has_own_store and not call.is_new and is_temporary(call.session_id):
            raise CheckpointNotFound(call.session_id)  # Its caller means to go on with what was forgotten.
        return self._sessions.new(call.session_id, call.user_id, call.persistence)

    async def _is_claimed(self, live: LiveSession, ref: SessionRef, cached: bool) -> bool:
        """Claim a session with the input of a turn; return False if the store must be looked at again."""
        try:
            await self._claim(live, "input")
        except (Conflict, SessionBusy):
            if not cached:
                await self._raise_if_busy(ref)
            return False
        except CheckpointNotFound:
            if not cached:
                raise  # It belongs to somebody else.
            return False  # What was kept is gone, and another may exist by now.
        return True

    async def _prepare(self, live: LiveSession, call: Call, reader: Reader) -> None:
        scope, settings, is_watched = live.scope, self._settings, reader.wants_events
        live.prepare(self._sessions)
        live.is_unattended, live.takes_next = call.is_unattended, call.takes_next
        live.journal.sink, live.seq_before = reader.deliver, live.journal.tail.seq
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
            live.journal.tail.take_up(live.answers)
            live.journal.tail.close_questions([Answer(id=name, value=b"", how="abandoned") for name in waiting])
            live.root.abandon()
        elif waiting:
            raise PendingInterrupts(live.scope.session_id, waiting, open_keys(live.scope))
        elif live.status == "queued":
            raise SessionBusy(live.scope.session_id)  # It was handed over, and somebody will go on with it.
        else:
            # No question is open, but what the answers (or their absence) lead to has not been done.
            ended = {"running": "crashed", "waiting": "answered"}.get(live.status, live.status)
            raise UnfinishedRun(live.scope.session_id, ended, inputs=live.head.inputs if live.head else 0)

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
        """Return a session with answers in place, claimed; None when a live owner has it and takes the answers up.

        It is also None when the same answers were given before, under the same id: then what they led to is read.

        Raises:
            Conflict: other answers were given under the id.
            StaleCheckpoint: something else is asked now in place of what was answered.
        """
        live = await self._resumed(call, given, by, checkpoint_id, state, reader)
        if live is not None and live.superseded:
            await self._ask_anew(live)
        return live

    async def _resumed(
        self,
        call: Call,
        given: Answers,
        by: str | None,
        checkpoint_id: str | None,
        state: Mapping[str, Any] | None,
        reader: Reader,
    ) -> LiveSession | None:
        if call.answer_id is None:
            return await self._resume(call, given, by, checkpoint_id, state, reader)
        store, ref = self._settings.store, self._ref(call)
        place = await place_of(store, ref, call.answer_id, given, by, call.message)
        if place is None:
            try:
                return await self._resume(call, given, by, checkpoint_id, state, reader)
            except SessionError:
                # Somebody who sends the same may have been faster.
                place = await place_of(store, ref, call.answer_id, given, by, call.message)
                if place is None:
                    raise
        return await self._follow(call, place, reader)

    async def _ask_anew(self, live: LiveSession) -> NoReturn:
        """Record the questions that take the place of those that were answered (rule R17)."""
        session_id, answered = live.scope.session_id, live.superseded[0]
        self._sessions.running[session_id] = live
        live.begin()
        try:
            await drive(live)
        finally:
            self._sessions.ended(live, well=False)
        asked = tuple(live.scope.questions.open)
        raise StaleCheckpoint(session_id, "", live.journal.tail.head or "", token=answered.id, open=asked)

    async def _follow(self, call: Call, place: int, reader: Reader) -> LiveSession | None:
        """Let a reader follow what happened after an event, and go on with it if whoever should have is gone."""
        if not await self._has_ended(self._ref(call), place):
            with contextlib.suppress(SessionError, Conflict):  # Others go on with it, or it cannot go on here.
                live = await self.recover(call, reader)
                live.seq_before = place
                return live
        reader.seen = reader.since = place
        reader.is_attached = True
        return None

    async def _has_ended(self, ref: SessionRef, place: int) -> bool:
        """Return whether the run after an event has ended."""
        while batches := await self._settings.store.read(ListEvents(ref, place, limit=PAGE)):
            events = [event for batch in batches for event in read_events(batch)]
            if any(isinstance(event, FINAL) and (event.seq or 0) > place for event in events):
                return True
            place = max(place + 1, *(event.seq or 0 for event in events))
        return False

    async def _resume(
        self,
        call: Call,
        given: Answers,
        by: str | None,
        checkpoint_id: str | None,
        state: Mapping[str, Any] | None,
        reader: Reader,
    ) -> LiveSession | None:
        ref = self._ref(call)
        for _ in range(TRIES):
            live = self._sessions.pop(ref)
            if live is not None and call.for_agents:
                live = None  # its agents have what they began with
            cached = live is not None
            if live is None:
                live = await self._sessions.load(ref)
            check_not_own(call.session_id, live.owner)
            await self._prepare(live, call, reader)
            live.scope.replace_for_agents(call.for_agents)
            try:
                if checkpoint_id is not None:
                    await self._check_seen(live, given, checkpoint_id, cached)
                taken = await self._answered(live, given, by, call, cached)
                if state:
                    live.root.supply(state)
                if state or call.values:
                    live.scope.note_speaker(by)  # as for an edit
                return await self._go_on(live, taken, cached, reader, call.for_its_run(state))
            except Conflict:
                continue
            except (SessionError, UsageError):
                if not cached:
                    raise
                # What was kept may be older than what is stored: look in the store.
        raise Conflict(call.session_id, "others keep writing it")

    async def _answered(
        self, live: LiveSession, given: Answers, by: str | None, call: Call, cached: bool
    ) -> tuple[Answer, ...]:
        """Put answers into the frames: what waits beside the log, what has expired, and what is given."""
        store, now = self._settings.store, self._settings.clock()
        live.answers += await expire(store, live, now)
        if live.answers:
            self._take_up(live)
        if not live.scope.questions.open and live.status == "done" and given is None:
            raise AlreadyResumed(live.scope.session_id, live=live.is_running)
        taken: tuple[Answer, ...] = ()
        if live.scope.questions.open or given is not None or call.message is not None:
            taken = await resolve(self._settings, live, given, by, call.message, call.answer_id)
        if call.answer_id is not None and not taken:
            # Sent again, it would answer what is asked by then.
            raise UsageError(
                f"resume(id={call.answer_id!r}) gives no answer, and an id stands for answers. "
                "Leave the id out, or call `recover` to continue with answers that were recorded before."
            )
        if taken and self._settings.permission:
            await self._check_permission(live, taken, by)
        if not live.is_running:  # Otherwise its owner goes on, who may have what is missing here.
            _check_deps(live)
            if not cached:
                # The others of these answers stay with their caller, who looks again.
                live.superseded = check_usable(live, taken)
                taken = live.superseded or taken
        apply_answers(live, taken, now)
        return taken

    async def _check_permission(self, live: LiveSession, taken: tuple[Answer, ...], by: str | None) -> None:
        named = {answer.id for answer in taken}
        asked = OpenNow(live.scope, live.journal.tail.head).shown_of(named)

        async def turn_user() -> str | None:
            return live.scope.user_id

        await self._settings.permission.check(asked, by, turn_user)

    async def _check_seen(self, live: LiveSession, given: Answers, checkpoint_id: str, cached: bool) -> None:
        head = live.journal.tail.head or ""
        if checkpoint_id == head and not cached:
            return
        stored = await self._settings.store.read(GetHead(live.ref))
        if stored is not None and stored.checkpoint == checkpoint_id:
            return
        if given:
            # The question may have been answered since: that error explains more.
            await resolve(self._settings, live, given, None)
        await self._settings.store.read(Load(live.ref, checkpoint_id))  # Raises if there is no such checkpoint.
        raise StaleCheckpoint(live.scope.session_id, checkpoint_id, head)

    def _take_up(self, live: LiveSession) -> None:
        waiting = tuple(answer for answer in live.answers if answer.id in live.scope.questions.open)
        live.answers = ()
        apply_answers(live, waiting, self._settings.clock())
        live.journal.tail.take_up(waiting)

    async def _go_on(
        self, live: LiveSession, taken: tuple[Answer, ...], cached: bool, reader: Reader, needs: tuple[str, ...]
    ) -> LiveSession | None:
        """Claim the session with the answers; `needs` are arguments that no run but the one begun here can use."""
        try:
            claimed = await self._claim(live, "resume", taken, alone=bool(needs or live.superseded))
        except SessionBusy as busy:
            if cached or live.superseded:
                raise Conflict(live.scope.session_id, "it moved since it was kept") from None
            if needs and taken:
                raise SessionBusy(busy.session_id, busy.owner_id, busy.expires, needs) from None
            raise
        note(logging.INFO, "resumed", live.scope.session_id, claimed.checkpoint, answers=len(taken))
        if claimed.lease is not None:
            return live
        reader.seen = reader.since = claimed.seq
        return None

    async def recover(self, call: Call, reader: Reader, *, only_due: bool = False) -> LiveSession:
        """Return a session that goes on where it was cut off, claimed if there is anything left to run.

        If its last turn is done, that is the next one in its queue.
        """
        for _ in range(TRIES):
            live = await self._sessions.find(self._ref(call))
            if live is None or (live.status == "done" and live.head is not None and live.head.inputs):
                begun = await self.next_turn(call, reader)
                if begun is not None:
                    return begun
                continue
            self._sessions.pop(live.ref)
            _check_not_running(live)
            if only_due and live.status in ("failed", "cancelled") and not live.answers:
                raise UnfinishedRun(call.session_id, live.status)  # Whoever wants it to go on says so.
            await self._prepare(live, call, reader)
            live.answers += await expire(self._settings.store, live, self._settings.clock())
            if live.status == "done" or (live.status == "waiting" and _waits_for_people(live)):
                return live
            live.scope.replace_for_agents(call.for_agents)
            _check_deps(live)
            check_can_go_on(live)
            self._take_up(live)
            try:
                await self._claim(live, None)
            except Conflict:
                continue
            note(logging.INFO, "recovered", call.session_id, live.journal.tail.head, after=live.status)
            return live
        raise Conflict(call.session_id, "others keep writing it")

    # The next turn of a queue

    async def advance(self, call: Call, reader: Reader) -> LiveSession:
        """Return a session in which what is due goes on: the next turn of its queue, or what is unfinished.

        Raises:
            UnfinishedRun: its last turn failed or was cancelled, and nobody has answered since.
        """
        return await self.next_turn(call, reader) or await self.recover(call, reader, only_due=True)

    async def begin_input(self, call: Call, id: str, reader: Reader) -> LiveSession:
        """Return a session with the turn of an input begun.

        Raises:
            Conflict: it is not next, or was taken.
            SessionBusy: somebody runs the session.
        """
        live = await self.next_turn(call, reader, only=id)
        if live is None:
            raise Conflict(call.session_id, f"the input '{id}' is not next in its queue")
        return live

    async def take_up(self, call: Call, reader: Reader) -> LiveSession:
        """Do what `advance` does, except that a turn that failed or was cancelled stays as it is.

        Raises:
            Conflict: there is nothing to do.
        """
        live = await self.next_turn(call, reader)
        head = await self._settings.store.read(GetHead(self._ref(call))) if live is None else None
        if head is not None and head.checkpoint and head.status in ("queued", "running", "waiting"):
            live = await self.recover(call, reader)
        if live is None or live.journal.lease is None:
            raise Conflict(call.session_id, "nothing is due there")
        return live

    async def next_turn(self, call: Call, reader: Reader, *, only: str | None = None) -> LiveSession | None:
        """Begin the turn of the first input that waits, or only of this one; None if it cannot begin (any more).

        Raises:
            CheckpointNotFound: there is no such session.
            SessionBusy: somebody runs it.
            InputRefused: the input cannot begin here.
        """
        ref = self._ref(call)
        for _ in range(TRIES):
            head = await self._settings.store.read(GetHead(ref))
            if head is None:
                raise CheckpointNotFound(ref.id)
            queued = await self._settings.store.read(ListInputs(ref, limit=1)) if head.inputs else []
            if not queued or only not in (None, queued[0].id) or not _can_begin(head, queued[0]):
                return None
            live = await self._standing(head)
            if live is None:
                continue  # It has moved on since.
            self._sessions.pop(live.ref)
            _check_not_running(live)
            try:
                await self._begin_queued(live, call, queued[0], reader)
                await self._claim(live, "input")
            except Conflict:
                continue
            note(logging.INFO, "begun", call.session_id, live.journal.tail.head, input=queued[0].id)
            return live
        raise Conflict(call.session_id, "others keep writing it")

    async def _standing(self, head: Head) -> LiveSession | None:
        """Return a session as it is at this head, which may have no record yet; None if it has moved on."""
        if not head.checkpoint:
            if head.program not in ("", self._sessions.segment):
                raise ProgramChanged(head.program, f"the program that is to run it is '{self._sessions.segment}'")
            return self._sessions.new(head.session, head.user, Persistence.STORED)  # The claim finds out if it has.
        live = await self._sessions.find(head.ref)
        return live if live is not None and live.journal.tail.head == head.checkpoint else None

    async def _begin_queued(self, live: LiveSession, call: Call, queued: QueuedInput, reader: Reader) -> None:
        """Begin the turn of an input that was stored.

        Raises:
            InputRefused: it cannot begin here.
        """
        session_id = live.scope.session_id
        try:
            with Reading(session_id):
                turn = StoredTurn.decode(queued.body)
                given, own = codec.decode(turn.input), _call_of(turn, call, queued)
        except (AdjournError, ValueError) as error:
            raise InputRefused(session_id, queued.id, str(error)) from error
        await self._prepare(live, own, reader)
        live.begins = queued.id
        if live.status != "done":
            await self._end_last_turn(live, "abandon")
        try:
            begin_turn(live, own, given)
        except Exception as error:  # reducers are users' code: whatever they raise, its cause is this input
            raise InputRefused(session_id, queued.id, str(error)) from error

    # Going back

    async def travel(self, call: Call, checkpoint_id: str, again: bool, reader: Reader) -> LiveSession:
        """Return a session at `checkpoint_id`, on a new branch unless that is its head, claimed.

        Raises:
            ApprovalSpent: approvals that were given before it have acted, and are not to do so `again`.
        """
        for _ in range(TRIES):
            live = await self._sessions.load(self._ref(call), checkpoint_id)
            self._sessions.pop(live.ref)
            _check_not_running(live)
            await self._prepare(live, call, reader)
            _check_deps(live)
            source = None
            if live.journal.tail.head != checkpoint_id:
                store, scope = self._settings.store, live.scope
                past = await read_past(store, live.ref, checkpoint_id, scope)
                past = await check_unspent(store, live.ref, checkpoint_id, past, scope, again=again)
                left = None if live.head is None else await read_left(self._settings.store, live.head)
                live.journal.tail.branch_off(self._settings.new_branch(), checkpoint_id, past, left)
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

    async def _claim(
        self, live: LiveSession, source: str | None, taken: tuple[Answer, ...] = (), *, alone: bool = False
    ) -> Claimed:
        # A session that had failed, or was handed over, counts as such until a record says that it goes on.
        writes = source is not None or live.journal.tail.has_news or live.status != "running"
        try:
            if live.owner is not None:
                await live.free()
            claimed = await live.journal.claim(
                live.header(source), answers=taken, over=live.owner and live.dead_owner, write=writes, alone=alone
            )
        except asyncio.CancelledError:
            # The caller has left: the session must not look alive.
            if live.journal.lease is not None:
                with contextlib.suppress(AdjournError):
                    await end_cut_off(live)
            raise
        if claimed.lease is None:
            return claimed
        if live.head is not None:
            live.note_takeover()
        live.claims = claimed.claims
        return claimed

    async def _raise_if_busy(self, ref: SessionRef) -> None:
        head = await self._settings.store.read(GetHead(ref))
        if head is not None and head.owner is not None:
            live = await self._sessions.find(ref)
            if live is not None:
                _check_not_running(live)
        elif head is not None and head.inputs:
            raise SessionBusy(ref.id, inputs=head.inputs)


def begin_turn(live: LiveSession, call: Call, input: Any) -> None:
    """Give a session the input of its next turn."""
    if live.status == "done":
        live.scope.forget_speakers()  # Else the model reads only now what was said in the turn that was given up.
    live.scope.next_input(call.model_options, call.user_id, call.metadata, call.for_agents)
    if call.state is None:
        live.root.begin(input)
    else:
        live.root.begin_with(input, call.state)


def _can_begin(head: Head, first: QueuedInput) -> bool:
    """Return whether the turn of the first input can begin, or could if nobody ran the session."""
    if not head.checkpoint or head.status == "done":
        return True
    return first.abandons and head.status in ("failed", "cancelled")


def _call_of(turn: StoredTurn, call: Call, queued: QueuedInput) -> Call:
    """Return the call that a stored turn stands for; deps are not stored, so they are those of whoever begins it."""
    return Call(
        session_id=call.session_id,
        user_id=queued.user,
        values={name: codec.decode(value) for name, value in turn.values.items()} or None,
        state=None if turn.state is None else {name: codec.decode(value) for name, value in turn.state.items()},
        deps=call.deps,
        max_steps=turn.max_steps,
        model_options=turn.model_options,
        metadata=turn.metadata,
        for_agents=turn.for_agents,
        is_unattended=call.is_unattended,
        takes_next=call.takes_next,
    )


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


def _waits_for_people(live: LiveSession) -> bool:
    """Return whether a paused session can do nothing but wait: a pause that nobody could end would last for ever."""
    return bool(live.scope.questions.open) and not live.answers


def _check_not_running(live: LiveSession) -> None:
    check_not_own(live.scope.session_id, live.owner)
    if live.is_running and live.head is not None:
        raise SessionBusy(live.scope.session_id, live.owner or "", live.head.expires)
