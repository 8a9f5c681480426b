"""Live sessions: loaded from their store, with their answers in place, ready to run, and their leases kept alive."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import ClassVar, Protocol

from msgspec import Raw

from adjourn._engine import record
from adjourn._engine.address import is_under, segment_text
from adjourn._engine.program import Program, ProgramFrame
from adjourn._engine.questions import open_interrupts
from adjourn._engine.record import NONE
from adjourn._engine.scope import TURN, Frame, Scope
from adjourn._owner import is_dead, process_id
from adjourn._text import visible_line
from adjourn._values.damage import Reading
from adjourn.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    CrashLoop,
    InterruptExpired,
    ProgramChanged,
    RunError,
    UnknownInterrupt,
    text_of,
)
from adjourn.events import Event
from adjourn.sessions import SessionStatus
from adjourn.sessions._contents import folded
from adjourn.sessions._log import read_questions
from adjourn.sessions._questions import Answers, OpenQuestions, why_not_open
from adjourn.sessions._settings import check_name
from adjourn.stores._logging import note
from adjourn.stores.protocol import Answer, Answered, Head, Header, Lease, Loaded, Renewed, SessionRef, Status, Store

from ._journal import ROW, Journal, Persistence, Size
from ._settings import RunnerSettings

log = logging.getLogger("adjourn.stores")

IDLE = 10.0
"""Seconds after which a heartbeat without leases ends its thread."""


class LeaseHolder(Protocol):
    """Whoever holds a lease."""

    def hear(self, lease: Lease, state: Renewed) -> None:
        """Receive, on the heartbeat's thread, what became of it."""
        ...


class Heartbeat:
    """Renews the leases of live runs from a separate thread, so that a blocked event loop cannot lose them.

    There is one for each store, with one event loop for as long as its thread lives: a store that keeps connections
    per loop opens one for all renewals.
    """

    _of: ClassVar[weakref.WeakKeyDictionary[Store, Heartbeat]] = weakref.WeakKeyDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._leases: dict[LeaseHolder, Lease] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, store: Store) -> Heartbeat:
        """Return the heartbeat of a store."""
        beat = cls._of.get(store)
        if beat is not None:
            return beat
        with cls._lock:
            return cls._of.setdefault(store, cls(store))

    @classmethod
    def forget(cls) -> None:
        """Start over in the child of a fork, which has none of the threads."""
        cls._lock = threading.Lock()
        for beat in cls._of.values():
            beat._leases, beat._wake, beat._thread = {}, threading.Event(), None

    def add(self, holder: LeaseHolder, lease: Lease) -> None:
        """Renew the lease of `holder` until it is removed."""
        with self._lock:
            self._leases[holder] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="adjourn-heartbeat", daemon=True)
                self._thread.start()
            elif lease.ttl / 3 < self._interval:
                self._wake.set()

    def remove(self, holder: LeaseHolder) -> None:
        """Stop renewing a lease."""
        self._leases.pop(holder, None)

    _interval = IDLE

    def _beat(self) -> None:
        loop = asyncio.Runner()  # It makes its loop when first used; most threads never get that far.
        try:
            self._beat_on(loop)
        finally:
            loop.close()

    def _beat_on(self, loop: asyncio.Runner) -> None:
        while True:
            with self._lock:
                # A copy, since runs may end meanwhile.
                self._interval = min((lease.ttl / 3 for lease in list(self._leases.values())), default=IDLE)
            woken = self._wake.wait(self._interval)
            self._wake.clear()
            with self._lock:
                leases = dict(self._leases)
                if not leases and not woken:
                    self._thread = None
                    return
            store = self._store()
            if leases and store is not None:
                self._renew(loop, store, leases)
            del store

    def _renew(self, loop: asyncio.Runner, store: Store, leases: dict[LeaseHolder, Lease]) -> None:
        try:
            renewed = loop.run(_renewed(store, list(leases.values())))
            for (holder, lease), state in zip(leases.items(), renewed, strict=True):
                if state.lost or state.cancel:
                    holder.hear(lease, state)
        except Exception as error:  # noqa: BLE001  # protects every lease of this store: without this thread they expire
            # The run's own commits meet the same trouble and decide; here we just try again.
            log.warning("leases not renewed: %s", visible_line(text_of(error)))


async def _renewed(store: Store, leases: list[Lease]) -> list[Renewed]:
    return await store.renew(leases)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Heartbeat.forget)


_runs = count(1)

CACHED = 24
"""How many sessions a runner keeps ready after their runs have ended."""

TRIES = 20
"""How often a call retries when the session changes under it."""

MAX_CLAIMS = 5
"""Claims without progress after which a run counts as a crash loop."""


_UNLISTED = Header()


class LiveSession:
    """A session in memory: its scope, its root frame, and the journal that writes it."""

    status: Status = "done"
    is_new: bool = True
    owner: str | None = None
    answers: tuple[Answered, ...] = ()
    head: Head | None = None
    claims: int = 0
    root: ProgramFrame

    def __init__(
        self,
        sessions: LiveSessions,
        session_id: str,
        user_id: str | None,
        persistence: Persistence = Persistence.STORED,
    ) -> None:
        settings = sessions.settings
        self.scope = scope = Scope(session_id, app=settings.app, user_id=user_id, clock=settings.clock)
        scope.interrupts = settings.interrupts
        scope.program_options = settings.program
        self.journal = scope.journal = Journal(
            scope,
            settings.store,
            durability=settings.durability,
            timeout=settings.store_timeout,
            sink=_nowhere,
            persistence=persistence,
            max_bytes=settings.max_session_bytes,
        )
        self.journal.ttl = settings.lease_ttl
        self.ref = self.journal.ref = SessionRef(session_id, settings.app, user_id)
        self.beat = sessions.beat

    def prepare(self, sessions: LiveSessions) -> None:
        """Get ready for a run on the running event loop."""
        scope, slots = self.scope, sessions.settings.max_concurrency
        scope.loop, scope.thread = asyncio.get_running_loop(), threading.get_ident()
        now = time.monotonic()
        if now > sessions.yield_deadline:
            sessions.yield_deadline = now + TURN
        scope.yield_deadline = sessions.yield_deadline
        scope.closed = scope.cancellation.mode = None
        if sessions.settings.max_threads != scope.max_threads:
            scope.max_threads, scope.share = sessions.settings.max_threads, None
        if slots is not None:
            scope.slots = asyncio.Semaphore(slots)
        self.journal.owner = f"{process_id()}/{next(_runs)}"

    def header(self, source: str | None) -> Header:
        """Return what history shows of a record that is made now; without a source, nothing."""
        if source is None:
            return _UNLISTED
        root = self.root
        return Header(source=source, step=root.step, address=root.address, next=root.following())

    def cut(self, mode: str) -> None:
        """Ask its run to stop: at its next safe point, or with mode "now" in the middle of user code."""
        self.scope.cancellation.cancel(mode)

    def hear(self, lease: Lease, state: Renewed) -> None:
        """Learn, on the heartbeat's thread, that its run has lost the lease or is to be cancelled."""
        loop = self.scope.loop
        if loop.is_closed():
            # The run's event loop was closed under it: leave its session to be taken over.
            self.beat.remove(self)
        elif state.lost:
            loop.call_soon_threadsafe(self._lose, lease)
        elif state.cancel:
            loop.call_soon_threadsafe(self.cut, state.cancel)

    def _lose(self, lease: Lease) -> None:
        if self.journal.lease == lease and not self.journal.is_letting_go:
            self.journal.close(Conflict(self.scope.session_id, "its lease was taken over"))
            self.cut("now")

    def check_claims(self) -> None:
        """Refuse a run that was claimed again and again, and crashed each time."""
        if self.claims > MAX_CLAIMS:
            raise CrashLoop(self.scope.session_id, self.claims - 1)

    def begin(self) -> None:
        """Keep its lease renewed during its run."""
        if self.journal.lease is not None:
            self.beat.add(self, self.journal.lease)

    def end(self) -> None:
        """Release the run that has ended, its lease, and its reader."""
        self.beat.remove(self)
        self.journal.close(_ENDED)
        self.journal.sink, self.scope.deps = _nowhere, None

    def dissolve(self) -> None:
        """Separate its parts, which nobody uses any more, so that their memory is freed at once."""
        self.journal.scope = _NOBODYS
        del self.scope.root
        self.scope.changes.dirty.clear()  # Without a store, nothing has cleared the marks.

    @property
    def dead_owner(self) -> str | None:
        """The owner whose lease may be taken at once, since its process is gone."""
        return self.owner if self.owner and is_dead(self.owner) else None

    def note_takeover(self) -> None:
        """Log it if the claim just made took the session from an owner that was gone."""
        if self.dead_owner or (self.head is not None and self.status == "running"):
            owner = self.owner or "an owner whose lease was over"
            note(logging.INFO, "took over", self.scope.session_id, self.journal.head, owner=owner)

    @property
    def is_running(self) -> bool:
        """Whether somebody else runs it, as far as was known when it was loaded."""
        return self.owner is not None and self.dead_owner is None


def _nowhere(_: list[Event]) -> None:
    return


_ENDED = RunError("the run has ended")
"""Why a journal is closed when all went well; it is only ever the cause of what is raised."""

_NOBODYS = Scope("", app="", user_id=None, clock=time.time)
"""What a dissolved session's journal writes: nothing, so that leftover code finds it closed."""
_NOBODYS.closed = _ENDED


class LiveSessions:
    """The sessions of one program for one runner: made, loaded, running, and kept ready between runs."""

    def __init__(self, settings: RunnerSettings, program: Program) -> None:
        self.settings = settings
        self.program = program
        self.beat = Heartbeat.of(settings.store)
        self.segment = segment_text(program.kind, program.name)
        self.running: dict[str, LiveSession] = {}
        self.until_done: set[str] = set()
        self._kept: OrderedDict[str, LiveSession] = OrderedDict()
        # When to yield to the event loop: one time for all runs, as one may follow another.
        self.yield_deadline = 0.0

    def new(self, session_id: str, user_id: str | None, persistence: Persistence) -> LiveSession:
        """Make a session that does not exist yet."""
        live = LiveSession(self, session_id, user_id, persistence)
        live.scope.branch = self.settings.new_branch()
        live.root = live.scope.root = self.program.open(live.scope, None, self.segment, None)
        return live

    async def find(self, ref: SessionRef, checkpoint_id: str | None = None) -> LiveSession | None:
        """Return a session as it is stored, at its head or at a checkpoint; None if there is none.

        Raises:
            ProgramChanged: it is the session of another program.
        """
        if checkpoint_id is not None:
            check_name("checkpoint_id", checkpoint_id)
        loaded = await self.settings.store.load(ref, checkpoint_id)
        if loaded is None:
            return None
        note(logging.DEBUG, "loaded", ref.id, loaded.point)
        tree = folded(loaded)
        await read_questions(self.settings.store, loaded, tree)
        with Reading(ref.id):
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
        size = max(
            len(loaded.rows[0]),
            sum(len(bytes(piece)) for kept in tree.pieces.values() for parts in kept.values() for piece in parts),
        )
        live.scope.restore(tree)
        live.scope.branch = loaded.point.rpartition(".")[0]
        live.journal.stand(head.checkpoint, head.seq)
        partial, full = sum(len(row) for row in loaded.rows[1:]), len(loaded.rows[0])
        live.journal.size = Size(size, partial + ROW * (len(loaded.rows) - 1), full + partial)
        live.journal.asked_ids = set(live.scope.questions.open)
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
        return live if live is not None and _is_named(live, ref) else None

    def ended(self, live: LiveSession, *, well: bool) -> None:
        """Note that the run of a session has ended: after one that ended well, it is kept ready."""
        session_id = live.scope.session_id
        if self.running.get(session_id) is live:  # Otherwise the next run was faster: this one had released it.
            del self.running[session_id]
        live.end()
        if live.journal.persistence is not Persistence.STORED and live.status == "done":
            self.until_done.discard(session_id)
        elif well:
            self._kept[session_id] = live
            if len(self._kept) <= CACHED:
                return
            _, live = self._kept.popitem(last=False)
        else:
            return  # Leftovers of a run that was cut off may still hold on to it.
        live.dissolve()


def status_of_live(live: LiveSession) -> SessionStatus:
    """Return the status of a session that is about to run."""
    scope, checkpoint = live.scope, live.journal.head
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


async def resolve(settings: RunnerSettings, live: LiveSession, given: Answers, by: str | None) -> tuple[Answer, ...]:
    """Return the answers as the store takes them, every one checked before any is written.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
        StaleCheckpoint: a token names a question that is not asked (any more).
    """
    scope = live.scope
    try:
        asked = [question for _, question in scope.questions.open.values()]
        questions = OpenQuestions(live.ref, scope.branch, asked, require_token=settings.require_token)
        return questions.resolve(given, by)
    except UnknownInterrupt as unknown:
        error = await why_not_open(settings.store, live.ref, unknown, live=live.is_running)
        if error is unknown and scope.questions.has_ended(unknown.interrupt_id):
            # It ended on the branch that this one came from.
            error = AlreadyResumed(scope.session_id, unknown.interrupt_id, live=live.is_running)
        raise error from None


def check_usable(live: LiveSession, answers: Sequence[Answer]) -> None:
    """Refuse answers that could not be used here, before they count (rule R17).

    Raises:
        ProgramChanged: what asked is gone or has changed, or holds values of types that this process lacks.
    """
    for answer in answers:
        path, question = live.scope.questions.open[answer.id]
        for frame in _bound(live.root, path):
            frame.check_answer(question)
        live.scope.check_types(path)


def _bound(frame: Frame, path: str) -> Iterator[Frame]:
    """Yield the frames that lead to `path`, bound as far as their programs are known before any code runs."""
    below: Frame | None = frame
    while below is not None:
        yield below
        below.bind_dormant()
        below = next((child for child in below.live_children() if is_under(path, child.path)), None)


def apply_answers(live: LiveSession, taken: Sequence[Answer | Answered], now: float) -> None:
    """Write answers into the frames that asked, and let these run again."""
    for answer in taken:
        at = answer.at if isinstance(answer, Answered) else now
        value = Raw(answer.value) if answer.value else NONE
        live.scope.answer(answer.id, how=answer.how, value=value, by=answer.by, at=at)


async def expire(store: Store, live: LiveSession, now: float) -> tuple[Answered, ...]:
    """End, once and beside the log, the open questions that have expired, as their askers chose."""
    due = [q for _, q in live.scope.questions.open.values() if q.expires is not None and q.expires <= now]
    expired: list[Answered] = []
    for question in due:
        value = bytes(question.default)
        answer = Answer(id=question.id, value=value, how="expired")
        try:
            await store.answer(live.ref, [answer])
        except (AlreadyResumed, InterruptExpired):
            continue  # Somebody was faster; the loaded answers, or the next load, show how it ended.
        note(logging.INFO, "expired", live.scope.session_id, live.journal.head, question=question.id)
        expired.append(Answered(id=question.id, value=value, how="expired", by=None, at=now))
    return tuple(expired)
