"""Live sessions: loaded from their store, with their answers in place, ready to run, and their leases kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, Protocol, TypeVar

from msgspec.structs import replace

from adjourn._engine import record
from adjourn._engine.address import segment_text
from adjourn._engine.entry import current_place
from adjourn._engine.program import Program, ProgramFrame
from adjourn._engine.questions import Superseded, open_interrupts
from adjourn._engine.record import Called, UserImage, without_message
from adjourn._engine.scope import TURN, Frame, Scope, live_scopes
from adjourn._engine.values import check_tags
from adjourn._owner import has_ended, is_dead, process_id
from adjourn._values.damage import Reading
from adjourn.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    ProgramChanged,
    RunError,
    UnknownInterrupt,
)
from adjourn.events import Event
from adjourn.messages import Usage
from adjourn.sessions import SessionStatus
from adjourn.sessions._chain import Chain
from adjourn.sessions._contents import folded
from adjourn.sessions._log import read_questions
from adjourn.sessions._questions import Answers, OpenQuestions, why_not_open
from adjourn.sessions._settings import check_name
from adjourn.stores._logging import note
from adjourn.stores.kit import GiveAnswers, ListAsked, Load
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Answered, Head, Header, Lease, Loaded, Renewed, SessionRef, Status

from ._heartbeat import Heartbeat
from ._log import LogWriter, Persistence, Tail
from ._reader import Listener, Readers
from ._settings import RunnerSettings


def _leave_to_parent() -> None:
    """In the child of a fork, let go of the runs of its parent: they are not its own."""
    for scope in live_scopes:
        scope.log.close(Conflict(scope.session_id, "the process that runs it is the parent of this one"))
    live_scopes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


_runs = count(1)

CACHED = 24
"""How many sessions a runner keeps ready after their runs have ended."""

TRIES = 20
"""How often a call retries when the session changes under it."""

MAX_CLAIMS = 5
"""Claims without progress after which a run counts as a crash loop."""


_UNLISTED = Header()


class LiveSession:
    """A session in memory: its scope, its root frame, and the writer of its log.

    `seq_before` is the number of the last event before its present run, and `since` the time when that began.
    """

    __slots__ = (
        "answers",
        "beat",
        "claims",
        "head",
        "input_id",
        "is_new",
        "is_to_hand_over",
        "is_unattended",
        "log",
        "owner",
        "queued",
        "readers",
        "ref",
        "root",
        "scope",
        "seq_before",
        "since",
        "status",
        "superseded",
        "takes_next",
    )
    root: ProgramFrame

    def __init__(
        self,
        sessions: LiveSessions,
        session_id: str,
        user_id: str | None,
        persistence: Persistence = Persistence.STORED,
    ) -> None:
        settings = sessions.settings
        scope = Scope(session_id, app=settings.app, user_id=user_id, clock=settings.clock)
        self.scope: Scope = scope
        scope.interrupts, scope.program_options = settings.interrupts, settings.program
        scope.speakers = None if settings.permission.self_approval else ()
        ref = SessionRef(session_id, settings.app, user_id)
        self.ref: SessionRef = ref
        chain = Chain(ref, settings.audit_keys[0] if settings.audit_keys else None)
        self.log: LogWriter = LogWriter(
            scope,
            settings.store,
            Tail(scope, ref, sessions.segment, max_bytes=settings.max_session_bytes, chain=chain),
            durability=settings.durability,
            timeout=settings.store_timeout,
            ttl=settings.lease_ttl,
            sink=_nowhere,
            persistence=persistence,
        )
        scope.log = self.log
        self.log.tail.notify = settings.notify
        self.beat: Heartbeat = sessions.beat
        self.status: Status = "done"
        self.is_new: bool = True
        self.owner: str | None = None
        """Whose lease it was when it was loaded; the run here is `log.owner`."""
        self.answers: tuple[Answered, ...] = ()
        """Those that wait beside the log, and that no frame has yet."""
        self.head: Head | None = None
        """What was loaded of it; where its log is now says `log.tail`."""
        self.claims: int = 0
        self.input_id: str | None = None
        """The id of the input in the queue that its turn begins with."""
        self.is_to_hand_over: bool = False
        self.is_unattended: bool = False
        """Whether nobody waits for its run: if that is cut off, others should go on with it."""
        self.takes_next: bool = True
        """Whether the process that ends its turn begins the next one of its queue."""
        self.queued: int = 0
        """How many inputs waited when its run ended."""
        self.superseded: tuple[Answer, ...] = ()
        """The answers that it was claimed with only to ask something else in place of their questions (rule R17)."""
        self.seq_before: int = 0
        self.since: float = 0.0
        self.readers: Readers | None = None
        """Those who read its present run."""

    def prepare(self, sessions: LiveSessions) -> None:
        """Get ready for a run on the running event loop."""
        scope, slots = self.scope, sessions.settings.max_concurrency
        scope.loop, scope.thread = asyncio.get_running_loop(), threading.get_ident()
        now = time.monotonic()
        if now > sessions.yield_deadline:
            sessions.yield_deadline = now + TURN
        scope.yield_deadline = sessions.yield_deadline
        scope.closed = scope.cancellation.mode = None
        self.is_to_hand_over = False
        self.queued, self.input_id, self.superseded = 0, None, ()
        if slots is not None:
            scope.slots = asyncio.Semaphore(slots)
        self.log.owner = f"{process_id()}/{next(_runs)}"
        place = current_place.get()
        scope.begun_by = None if place is None else place.frame.scope

    def header(self, source: str | None) -> Header:
        """Return what history shows of a record that is made now; without a source, nothing."""
        if source is None:
            return _UNLISTED
        root, noted = self.root, self.scope.metadata
        return Header(
            source=source,
            step=root.step,
            address=root.address,
            next=root.following() if self.scope.turn else (),  # Before its first turn, nothing is to come.
            metadata=noted,
            input=self.input_id if source == "input" else None,
        )

    def cut(self, mode: str) -> None:
        """Ask its run to stop: at its next safe point, or with mode "now" in the middle of user code."""
        self.is_to_hand_over = False  # A cancel counts more: whoever cancels wants it stopped everywhere.
        self.scope.cancellation.cancel(mode)

    def hand_over(self, mode: str) -> None:
        """Ask its run to stop as `cut` does, but so that somebody else goes on with it; a cancel stays a cancel."""
        cancellation = self.scope.cancellation
        self.is_to_hand_over = self.is_to_hand_over or cancellation.mode is None
        cancellation.cancel(mode)

    def hear(self, lease: Lease, state: Renewed) -> None:
        """Learn, on the heartbeat's thread, that its run has lost the lease or is to be cancelled."""
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
            if state.lost:
                self.scope.loop.call_soon_threadsafe(self._lose, lease)
            elif state.cancel:
                self.scope.loop.call_soon_threadsafe(self.cut, state.cancel)

    def secure(self, lease: Lease, until: float) -> None:
        """Learn, on the heartbeat's thread, that its lease was renewed."""
        writer = self.log
        if writer.lease == lease and writer.sure_until < until:
            writer.sure_until = until

    @property
    def is_gone(self) -> bool:
        """Whether the run's event loop was closed under it: nothing of it goes on, and its session is for others."""
        return self.scope.loop.is_closed()

    def _lose(self, lease: Lease) -> None:
        if self.log.lease == lease and not self.log.is_letting_go:
            self.log.close(Conflict(self.scope.session_id, "its lease was taken over"))
            self.cut("now")

    async def let_go(self) -> None:
        """Release the session under a run that does not end."""
        self.beat.remove(self)
        self.log.close(Conflict(self.scope.session_id, "its process has given it up"))
        if self.log.unreleased is not None:
            await self.log.give_back(self.log.unreleased)
            self.log.unreleased = None

    def begin(self) -> None:
        """Count as running, and keep its lease renewed meanwhile."""
        self.since = time.perf_counter()
        live_scopes.add(self.scope)
        if self.log.lease is not None:
            self.beat.add(self, self.log.lease)

    def end(self) -> None:
        """Release the run that has ended, its lease, and its reader."""
        live_scopes.discard(self.scope)
        self.beat.remove(self)
        self.log.close(_ENDED)
        if self.log.unreleased is not None:
            self.beat.give_back(self.log.unreleased)
        self.log.sink, self.scope.deps, self.scope.begun_by = _nowhere, None, None
        self.readers = None

    def dissolve(self) -> None:
        """Separate its parts, which nobody uses any more, so that their memory is freed at once."""
        self.log.scope = self.log.tail.scope = _NOBODYS
        del self.scope.root
        self.scope.changes.dirty.clear()  # Without a store, nothing has cleared the marks.

    @property
    def dead_owner(self) -> str | None:
        """The owner whose lease may be taken at once, since its process is gone."""
        return self.owner if self.owner and is_dead(self.owner) else None

    async def free(self) -> None:
        """Give back what an ended run of this process still holds, whose store was away: that was not a crash."""
        if self.head is not None and self.owner is not None and has_ended(self.owner):
            await self.log.give_back(Lease(ref=self.ref, owner=self.owner, fence=self.head.fence, ttl=0.0))
            self.owner = None

    def note_takeover(self) -> None:
        """Log it if the claim just made took the session from an owner that was gone."""
        if self.dead_owner or (self.head is not None and self.status == "running"):
            owner = self.owner or "an owner whose lease was over"
            note(logging.INFO, "took over", self.scope.session_id, self.log.tail.head, owner=owner)

    @property
    def runs_elsewhere(self) -> bool:
        """Whether another run has it, as far as was known when it was loaded."""
        return self.owner is not None and self.dead_owner is None


def _nowhere(_: list[Event]) -> None:
    return


_ENDED = RunError("the run has ended")
"""Why a log writer is closed when all went well; it is only ever the cause of what is raised."""

_NOBODYS = Scope("", app="", user_id=None, clock=time.time)
"""What a dissolved session's log writer writes: nothing, so that leftover code finds it closed."""
_NOBODYS.closed = _ENDED


Ending = Literal["done", "waiting", "failed", "cancelled", "handed_over", "taken_over"]
"""How a run ended in its process: a pause, an end, or that another process goes on with its session."""


class RunObserver(Protocol):
    """Hears of every run that a runner drives, on the event loop that drives it; it must not raise anything."""

    def began(self, user_id: str | None) -> None:
        """Note that a run begins in a turn of a user: a turn, a resume or a recovery."""
        ...

    def ended(self, user_id: str | None, ending: Ending, before: Usage, after: Usage, seconds: float) -> None:
        """Note that a run has ended; its turn had used `before` when it began, and has used `after`."""
        ...


class LiveSessions:
    """The sessions of one program for one runner: made, loaded, running, and kept ready between runs."""

    def __init__(self, settings: RunnerSettings, program: Program) -> None:
        self.settings = settings
        self.program = program
        self.beat: Heartbeat = Heartbeat.of(settings.store)
        self.segment: str = segment_text(program.kind, program.name)
        self.running: dict[str, LiveSession] = {}
        self.until_done: set[str] = set()
        self.take_next: Callable[[SessionRef, Any], None] = _no_queue
        self.observer: RunObserver | None = None
        self.listen: Callable[[], Listener] | None = None
        """Makes what hears the events of a run that this runner drives, whether or not anybody reads it."""
        self._kept: OrderedDict[str, LiveSession] = OrderedDict()
        # When to yield to the event loop: one time for all runs, as one may follow another.
        self.yield_deadline: float = 0.0

    def new(self, session_id: str, user_id: str | None, persistence: Persistence) -> LiveSession:
        """Make a session that does not exist yet, with the values that every session begins with."""
        live = LiveSession(self, session_id, user_id, persistence)
        live.scope.branch = self.settings.new_branch()
        live.root = live.scope.root = self.program.open(live.scope, None, self.segment, None)
        if self.settings.values:
            live.root.set_values(self.settings.values)
        return live

    async def find(self, ref: SessionRef, checkpoint_id: str | None = None) -> LiveSession | None:
        """Return a session as it is stored, at its head or at a checkpoint; None if there is none.

        Raises:
            ProgramChanged: it is the session of another program.
        """
        if checkpoint_id is not None:
            check_name("checkpoint_id", checkpoint_id)
        loaded = await self.settings.store.read(Load(ref, checkpoint_id))
        if loaded is None:
            return None
        note(logging.DEBUG, "loaded", ref.id, loaded.point)
        return await self.open(loaded, folded(loaded))

    async def open(self, loaded: Loaded, tree: record.Tree) -> LiveSession:
        """Return a session from what was loaded and folded, which is used up.

        Raises:
            ProgramChanged: it is the session of another program.
        """
        await read_questions(self.settings.store, loaded, tree)
        with Reading(loaded.head.session):
            return self._restore(loaded, tree)

    async def load(self, ref: SessionRef, checkpoint_id: str | None = None) -> LiveSession:
        """Return a session that must exist, as `find` does.

        Raises:
            CheckpointNotFound: it does not.
        """
        live = await self.find(ref, checkpoint_id)
        if live is None:
            raise CheckpointNotFound(ref.id, checkpoint_id)
        return live

    def _restore(self, loaded: Loaded, tree: record.Tree) -> LiveSession:
        """Build a live session from stored records, folded."""
        head = loaded.head
        live = LiveSession(self, head.session, head.user)
        live.is_new = False
        live.head, live.status, live.owner, live.answers = head, head.status, head.owner, loaded.answers
        state = sum(len(bytes(piece)) for kept in tree.pieces.values() for parts in kept.values() for piece in parts)
        live.scope.restore(tree)
        if head.status == "running" and not live.runs_elsewhere and loaded.point == head.checkpoint:
            live.scope.count_crash()
        live.scope.branch = loaded.point.rpartition(".")[0]
        live.log.tail.stand(head.checkpoint, head.seq)
        live.log.tail.chain.stand(loaded, pauses=tree.pauses)
        live.log.tail.measure(loaded.rows, state)
        live.log.tail.asked_ids = set(live.scope.questions.open)
        image = live.scope.dormant.bind("", self.segment)
        if image is None:
            stored = ", ".join(live.scope.dormant.below(""))
            raise ProgramChanged(stored, f"the program that is to run it is '{self.segment}'")
        live.root = live.scope.root = self.program.open(live.scope, None, self.segment, image)
        return live

    # Kept ready between runs: the first commit of the next run confirms one, or it is dropped.

    def pop(self, ref: SessionRef) -> LiveSession | None:
        """Return a session that was kept ready, for a single run; one that `ref` does not name stays."""
        kept = self._kept.get(ref.id)
        if kept is None or not _is_named(kept, ref):
            return None
        del self._kept[ref.id]
        return kept

    def running_as(self, ref: SessionRef) -> LiveSession | None:
        """Return the session that `ref` names if this runner runs it."""
        live = self.running.get(ref.id)
        # One that has lost its session, or was left to the parent of this process, is not its owner any more.
        return live if live is not None and live.scope.closed is None and _is_named(live, ref) else None

    def readers_of(self, ref: SessionRef) -> Readers | None:
        """Return those who read the run of the session that `ref` names, if this runner runs it."""
        live = self.running_as(ref)
        return None if live is None or live.readers is None or live.readers.has_ended else live.readers

    def ended(self, live: LiveSession, *, well: bool) -> None:
        """Note that the run of a session has ended: after one that ended well, it is kept ready."""
        session_id = live.scope.session_id
        if self.running.get(session_id) is live:  # Otherwise the next run was faster: this one had released it.
            del self.running[session_id]
        deps = live.scope.deps
        live.end()
        if live.queued and live.takes_next and live.status != "waiting":
            self.take_next(live.ref, deps)
        if live.log.persistence is not Persistence.STORED and live.status == "done":
            self.until_done.discard(session_id)
        elif well:
            self._kept[session_id] = live
            if len(self._kept) <= CACHED:
                return
            _, live = self._kept.popitem(last=False)
        else:
            return  # Leftovers of a run that was cut off may still hold on to it.
        live.dissolve()


def _no_queue(_: SessionRef, __: object) -> None:
    return


def status_of_live(live: LiveSession) -> SessionStatus:
    """Return the status of a session that is about to run."""
    scope, checkpoint = live.scope, live.log.tail.head
    return SessionStatus(
        session_id=scope.session_id,
        status="running" if live.is_new else live.status,
        owner=None,
        since=datetime.fromtimestamp(scope.clock(), UTC),
        interrupts=open_interrupts(scope, checkpoint),
        checkpoint_id=checkpoint or "",
        user_id=live.ref.user,
        app_name=scope.app,
    )


def _is_named(live: LiveSession, ref: SessionRef) -> bool:
    """Return whether `ref` names this session; as in a store, with a user it names only that user's."""
    return ref.app == live.ref.app and ref.user in (None, live.ref.user)


async def resolve(
    settings: RunnerSettings,
    live: LiveSession,
    given: Answers,
    by: str | None,
    message: str | None = None,
    called: Called | None = None,
) -> tuple[Answer, ...]:
    """Return the answers as the store takes them, every one checked before any is written.

    `called` is what the caller calls this.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
        StaleCheckpoint: a token names a question that is not asked (any more).
    """
    scope = live.scope
    try:
        open_ = scope.questions.open
        questions = OpenQuestions(live.ref, scope.branch, open_, require_token=settings.require_token)
        return questions.resolve(given, by, message, called)
    except UnknownInterrupt as unknown:
        error = await why_not_open(settings.store, live.ref, unknown, live=live.runs_elsewhere)
        if error is unknown and scope.questions.has_ended(unknown.interrupt_id):
            # It ended on the branch that this one came from.
            error = AlreadyResumed(scope.session_id, unknown.interrupt_id, live=live.runs_elsewhere)
        raise error from None


AnyAnswer = TypeVar("AnyAnswer", Answer, Answered)


def check_usable(live: LiveSession, answers: Sequence[AnyAnswer]) -> tuple[AnyAnswer, ...]:
    """Refuse answers that could not be used here, before they count (rule R17).

    Returns those to questions in whose place something else would be asked.

    Raises:
        ProgramChanged: what asked is gone or has changed, or holds values of types that this process lacks.
    """
    frames, superseded = _Frames(live.root, bind=True), list[AnyAnswer]()
    for answer in answers:
        path, question = live.scope.questions.paths[answer.id], live.scope.questions.open[answer.id]
        answered = replace(question, how=answer.how, value=without_message(answer.value)[0])
        try:
            for frame in frames.leading_to(path):
                frame.check_answer(answered)
        except Superseded:
            superseded.append(answer)
        live.scope.check_types(path)
    return tuple(superseded)


def check_can_go_on(live: LiveSession) -> None:
    """Refuse to go on where that could not work here, before the session is claimed (rule R17).

    Raises:
        ProgramChanged: as `check_usable`, for the answers that wait; or what is unfinished holds values of types that
            this process lacks.
    """
    live.root.check_types()
    dormant = live.scope.dormant
    for path, image in dormant.everything():
        if not isinstance(image, UserImage) or image.status != "done":
            check_tags(path, image, dormant.pieces.get(path, {}))
    check_usable(live, [answer for answer in live.answers if answer.id in live.scope.questions.open])


class _Frames:
    """The live frames of a session, by their paths: there may be as many answers as there are frames.

    With `bind`, dormant ones are bound on the way, as far as their programs are known before any code runs.
    """

    def __init__(self, root: Frame, *, bind: bool = False) -> None:
        self._root = root
        self._bind = bind
        self._below: dict[str, dict[str, Frame]] = {}

    def find(self, path: str) -> Frame:
        """Return the frame at `path`, or the nearest one above it."""
        *_, nearest = self.leading_to(path)
        return nearest

    def leading_to(self, path: str) -> Iterator[Frame]:
        """Yield the frames that lead to `path`, from the root on."""
        frame: Frame | None = self._root
        while frame is not None:
            yield frame
            frame = self._next(frame, path)

    def _next(self, frame: Frame, path: str) -> Frame | None:
        below = self._below.get(frame.path)
        if below is None:
            if self._bind:
                frame.bind_dormant()
            below = self._below[frame.path] = {child.path: child for child in frame.live_children()}
        end = len(frame.path)
        while below and end < len(path):
            end = path.find(";", end + 1)
            end = len(path) if end < 0 else end
            if (child := below.get(path[:end])) is not None:
                return child
        return None


def apply_answers(live: LiveSession, taken: Sequence[Answer | Answered], now: float) -> None:
    """Write answers into the frames that asked, and let these run again."""
    find = _Frames(live.scope.root).find if live.scope.dormant and not live.scope.is_dormant else None
    for answer in taken:
        at = answer.at if isinstance(answer, Answered) else now
        live.scope.answer(answer.id, how=answer.how, value=answer.value, by=answer.by, at=at, find=find)


async def expire(store: Store, live: LiveSession, now: float) -> tuple[Answered, ...]:
    """End, once and beside the log, the open questions that have expired, as their askers chose."""
    if not live.scope.questions.timed:
        return ()
    due = [q for q in live.scope.questions.timed.values() if q.expires is not None and q.expires <= now]
    expired: list[Answered] = []
    for question in due:
        value = bytes(question.default)
        answer = Answer(id=question.id, value=value, how="expired")
        try:
            await store.write(GiveAnswers(ref=live.ref, answers=[answer]))
        except (AlreadyResumed, InterruptExpired):
            continue  # Somebody was faster; the loaded answers, or the next load, show how it ended.
        note(logging.INFO, "expired", live.scope.session_id, live.log.tail.head, question=question.id)
        expired.append(await _given(store, live, answer))
    return tuple(expired)


async def _given(store: Store, live: LiveSession, answer: Answer) -> Answered:
    """Return an answer that was just given, with the store's time."""
    (row,) = await store.read(ListAsked(live.ref, live.scope.branch, [answer.id]))
    return Answered(id=answer.id, value=answer.value, how=answer.how, by=answer.by, at=row.at or 0.0)
