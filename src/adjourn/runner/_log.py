"""The log writer: the only writer of a live session's log.

Frames mark what they changed. `Tail` turns the marks into records, one after the other; `LogWriter` sends these to the
store, and emits durable events once the commit that holds their data has gone through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from adjourn._engine.address import parse_segment
from adjourn._engine.entry import current_place
from adjourn._engine.proof import Ended, LeftBranch, Stored
from adjourn._engine.questions import Parents
from adjourn._engine.record import FORMAT, GraphImage, Record, decode, too_large
from adjourn._engine.scope import Frame, Scope
from adjourn._hiding import known
from adjourn._owner import is_own, lease_clock, note_end
from adjourn.errors import AdjournError, AlreadyResumed, Conflict, NotStorable, SessionBusy, StoreUnavailable
from adjourn.events import Event, Final, without_secrets
from adjourn.sessions._chain import Chain, ended_by
from adjourn.sessions._lineage import read_lineage
from adjourn.sessions._log import ended, log_events, saved, stored_question, with_past
from adjourn.stores._logging import log, note
from adjourn.stores.kit import Claim, Commit, ListAsked, ListBegun
from adjourn.stores.memory import MemoryStore
from adjourn.stores.protocol import Store
from adjourn.stores.types import (
    Answer,
    Answered,
    Begun,
    Claimed,
    Committed,
    Header,
    Lease,
    Notice,
    Question,
    SessionRef,
    Status,
    Write,
)

from ._notices import Notify, occasions_of
from ._patience import Patience

T = TypeVar("T")
A = TypeVar("A")


class Persistence(Enum):
    """How long a session stays in the store."""

    STORED = auto()
    """It is stored from its first record on, and kept."""
    UNTIL_DONE = auto()
    """It is stored while it waits for an answer, and forgotten when it is done."""
    UNSTORED = auto()
    """Nobody else can know about it: nothing is stored until it has to wait for an answer."""


_UNSTORED = Persistence.UNSTORED  # Looked up for every record: a member of an enum is found more slowly.

SMALL = 8 * 1024
"""Partial records of no more bytes than this are never too many."""

ROW = 1_100
"""The cost of reading a row, in bytes."""

BATCH = 256
"""Records that may be in flight at once with durability "async"."""

FIRST_DELAY = 0.05
"""Seconds before a write is first retried."""

_UNDER_WAY = Committed()


class PendingWrite(msgspec.Struct, eq=False):
    """One record on its way to the store; some of its events were `told` before, the others begin with `first`."""

    write: Write
    after: str
    release: bool
    told: list[Event]
    events: list[Event]
    first: int
    before: str
    """The digest of the record before it."""
    done: bool = False
    result: Committed = _UNDER_WAY
    waiter: asyncio.Future[None] | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Note that its end is known, and wake the task that waits for it, if there is one."""
        self.done = True
        if self.waiter is None or self.waiter.done():
            return
        if error is None:
            self.waiter.set_result(None)
        else:
            self.waiter.set_exception(error)

    @property
    def new_events(self) -> list[Event]:
        """Its events that were not emitted before, except for the end of the run."""
        write = self.write
        return self.events if write.header.source is None else [*self.events, saved(write.id, write.header)]


class Tail:
    """The end of a session's log: where the next record goes, and what it will hold besides the frames' changes.

    Between two calls of `make`:

    - `head` is the record that was made last, whether or not it is stored yet; `number` is that of the next record on
      the branch, and `seq` that of the last event. The next record names `head` as its parent, unless `branch_off` has
      given it another one.
    - `chain` stands at `head`, too.
    - `events` and `told` wait for the next record; those in `told` were already emitted and numbered.
    - `_state` is the size of the last full record, with what lists got since, and None if a full record is due.
      `_since_full` is the cost of reading the partial ones after it, and `_stored` the bytes of all of them.
    - After a `_refusal`, nothing that the refused record held is stored or reported. Only a record of the run's end,
      without content, can follow.
    """

    # Slots, as every record reads all of them.
    __slots__ = (
        "_begins",
        "_closes",
        "_ended",
        "_max_bytes",
        "_parent",
        "_past",
        "_program",
        "_refusal",
        "_since_full",
        "_state",
        "_stored",
        "_takes",
        "asked_ids",
        "chain",
        "events",
        "head",
        "notify",
        "number",
        "ref",
        "scope",
        "seq",
        "told",
    )

    def __init__(self, scope: Scope, ref: SessionRef, program: str, *, max_bytes: int, chain: Chain) -> None:
        self.ref: SessionRef = ref
        self.chain: Chain = chain
        self.head: str | None = None
        self.number: int = 0
        self.seq: int = 0
        self.asked_ids: set[str] = set()
        """The open questions that have a row on this branch."""
        self.events: list[Event] = []
        self.told: list[Event] = []
        self.scope: Scope = scope
        self._program = program
        self._max_bytes = max_bytes
        self._state: int | None = None
        self._since_full = 0
        self._stored = 0
        self._ended: dict[str, Ended] = {}
        self._parent: str | None = None
        self._takes: tuple[str, ...] = ()
        self._begins: tuple[str, ...] = ()
        self._closes: tuple[Answer, ...] = ()
        self._past: tuple[Question, ...] = ()
        self._refusal: NotStorable | None = None
        self.notify: Notify | None = None
        """Who decides which notices are stored with a record."""

    # Where it is

    def stand(self, head: str | None, seq: int) -> None:
        """Start at the head of a session that was loaded, or (None) before a new one."""
        self.head, self.seq = head, seq
        self.number = 0 if head is None else int(head.rpartition(".")[2]) + 1

    def measure(self, rows: Sequence[bytes], state: int) -> None:
        """Learn what the session was loaded from: a full record and the partial ones after it."""
        partial = sum(map(len, rows[1:]))
        self._state, self._stored = max(len(rows[0]), state), len(rows[0]) + partial
        self._since_full = partial + ROW * (len(rows) - 1)

    def branch_off(self, branch: str, parent: str, past: tuple[Question, ...], left: LeftBranch | None) -> None:
        """Continue on a new branch that begins after the checkpoint `parent`; `past` had been asked and had ended."""
        self.chain.left = left
        self.scope.leave_branch(branch)
        self._parent, self.number = parent, 0
        self._state, self._since_full, self._stored = None, 0, 0
        self.asked_ids = set()
        self._past = past

    # What the next record holds

    @property
    def has_news(self) -> bool:
        """Whether anything marked is not in a record yet."""
        return bool(self.scope.changes or self._takes or self._closes)

    def take_up(self, answers: tuple[Answer | Answered, ...]) -> None:
        """Note answers for the next record to hold."""
        self._takes += tuple([answer.id for answer in answers])
        for answer in answers:
            self._ended[answer.id] = ended_by(answer)

    def close_questions(self, closes: list[Answer]) -> None:
        """Note questions for the next record to end."""
        self._closes += tuple(closes)
        self.asked_ids -= {answer.id for answer in closes}

    def note_begin(self, digest: str) -> None:
        """Note something that begins with the next record."""
        self._begins += (digest,)

    def let_out(self) -> list[Event]:
        """Return the events that wait for the next record, which are numbered and emitted before it."""
        events, self.events = self.events, []
        self.told += events
        self.seq += len(events)
        return events

    def take_back(self, pending: PendingWrite) -> None:
        """Keep the events of a record for the next one: the run was to pause with it, and went on instead."""
        self.chain.unpaused = True
        self.seq -= pending.write.event_count - len(pending.told)
        self.told = pending.told
        self.events = pending.new_events

    def check_storable(self) -> None:
        """Refuse what is marked if no record could hold it.

        Raises:
            NotStorable: with it, the session could not be loaded again.
        """
        try:
            self.scope.build_record(full=self._is_full_due())
        except NotStorable as refusal:
            self._refuse(refusal)
            raise

    def _is_full_due(self) -> bool:
        """Return whether folding the partial records would cost more than twice reading a full one.

        What lists got is content, not waste; the cost is the rows, and values that were replaced.
        """
        return self._state is None or (self._since_full > SMALL and self._since_full > 2 * self._state)

    # Making it

    def make(
        self,
        header: Header,
        status: Status,
        *,
        last: Final | None = None,
        release: bool = False,
        taken: tuple[Answer, ...] = (),
    ) -> PendingWrite:
        """Return a record of what is marked; `last` is the event that comes after the record's own.

        Raises:
            NotStorable: what it holds cannot be stored, or with it, the session could not be loaded again.
        """
        scope, chain, after = self.scope, self.chain, self.head
        checkpoint, parent = f"{scope.branch}.{self.number}", self._parent or after
        if self._refusal is not None:
            record = self._empty_record(status)
        else:
            try:
                record = scope.build_record(full=self._is_full_due())
            except NotStorable as refusal:
                self._refuse(refusal)
                raise
        questions = scope.questions
        asks = self._asks() if questions.opened or self.number == 0 else ()
        if taken:
            self.take_up(taken)
        if questions.closed and self._refusal is None:
            self._close_given_up()
        told, events = self.told, self.events
        logged = told + events if last is None else [*told, *events, last]
        count = len(logged) + (header.source is not None)
        noted = log_events(logged) if logged else b""
        for answer in self._closes:
            self._ended[answer.id] = ended_by(answer)
        proof = chain.proof(status, asks, self._ended, noted if release and status == "waiting" else None)
        try:
            body, digest = chain.encode(record, proof, checkpoint, parent, header, noted)
            if not record.full and self._stored + len(body) > self._max_bytes:
                # Values that were replaced no longer count in a full one.
                record = scope.build_record(full=True)
                body, digest = chain.encode(record, proof, checkpoint, parent, header, noted)
            if len(body) > self._max_bytes:
                raise too_large(len(body), self._max_bytes)
        except NotStorable as refusal:
            self._refuse(refusal)
            raise
        self._count(record, len(body))
        write = Write(
            branch=scope.branch,
            number=self.number,
            parent=parent,
            full=record.full,
            body=body,
            header=header,
            status=status,
            asks=asks,
            takes=self._takes,
            closes=self._closes,
            events=noted,
            event_count=count,
            program=self._program,
            overtakes=header.source != "input",
        )
        # Apart, as most records have none of these: with more than 15 keywords, Python makes a dict for every call.
        if self._begins or header.input is not None:
            write = replace(write, begins=self._begun_now(), input=header.input)
        if self.notify is not None:
            write = replace(write, notices=self._notices(self.notify, checkpoint, status, last, asks))
        pending = PendingWrite(write, after or "", release, told, events, self.seq + 1, chain.digest)
        # The next one goes on after it, whether or not it is stored yet.
        chain.digest, chain.left = digest, None
        self.head, self.number, self.seq = checkpoint, self.number + 1, self.seq + count - len(told)
        self.events, self.told, self._takes, self._closes, self._parent, self._ended = [], [], (), (), None, {}
        return pending

    def _count(self, record: Record, size: int) -> None:
        """Take note of a record of `size` bytes."""
        if record.full or self._state is None:
            self._state, self._since_full = size, 0
            self._stored = size if record.full else self._stored + size
            return
        self._stored += size
        self._since_full += size + ROW
        for image in record.frames.values():
            if type(image) is GraphImage and image.add:
                self._state += size
                return

    def _notices(
        self, notify: Notify, checkpoint: str, status: Status, last: Final | None, asks: tuple[Question, ...]
    ) -> tuple[Notice, ...]:
        """Return what others are told as soon as the record that is being made is stored."""
        if last is None and not asks:
            return ()  # It is a step.
        name, waiting = parse_segment(self._program).id, tuple(self.scope.questions.open)
        occasions = occasions_of(name, checkpoint, status, last, asks, waiting)
        return tuple([notice for each in occasions for notice in notify.notices(each)])

    def _begun_now(self) -> tuple[Begun, ...]:
        """Return what begins with the record that is being made."""
        place = self.scope.place
        digests, self._begins = self._begins, ()
        return tuple([Begun(digest, place, self.number) for digest in digests])

    def _refuse(self, refusal: NotStorable) -> None:
        """Let nothing that the refused record holds be stored or reported."""
        self._refusal = refusal
        self.events, self._takes, self._closes, self._ended = [], (), (), {}

    def _empty_record(self, status: Status) -> Record:
        """Make a record without content, for a run that ends because one was refused: stored data stays as it is."""
        assert self._refusal is not None
        if status not in ("failed", "cancelled"):
            raise self._refusal
        self.scope.changes.clear()
        self._takes, self._closes, self._ended = (), (), {}
        return Record(v=FORMAT)

    def _close_given_up(self) -> None:
        """Close questions that no code waits for any more: what asked them has gone on, or failed, unanswered."""
        questions = self.scope.questions
        closed, questions.closed = self.asked_ids.intersection(questions.closed).difference(questions.open), []
        gone = closed.difference(self._takes)
        if gone:
            self._closes += tuple(Answer(id=each, value=b"", how="abandoned") for each in sorted(gone))
        self.asked_ids -= closed

    def _asks(self) -> tuple[Question, ...]:
        """Return the questions that the record asks; the first of a branch also those that had ended before."""
        questions, is_first = self.scope.questions, self.number == 0
        asks = ()
        if (questions.opened or (is_first and questions.all)) and self._refusal is None:
            asks = self._new_questions(is_first=is_first)
        if self._past:
            asks, self._past = with_past(self._past, asks), ()
        return asks

    def _new_questions(self, *, is_first: bool) -> tuple[Question, ...]:
        """Return the questions without a row on this branch yet; with its first record, also those that have ended."""
        questions = self.scope.questions
        those = questions.all if is_first else questions.opened
        new = [question for question in those.values() if question.id not in self.asked_ids]
        questions.opened = {}
        if not new:
            return ()
        self.asked_ids.update([question.id for question in new if question.how is None])
        parents = Parents(self.scope) if questions.has_composites else None
        return tuple([stored_question(q, parents and parents.above(q.id), ended(q)) for q in new])

    def make_again(self, batch: list[PendingWrite], given: Answered) -> None:
        """Make the bytes of records again, the first of which takes an answer up instead of closing its question."""
        self.chain.digest = batch[0].before
        for pending in batch:
            write, record = pending.write, decode(pending.write.body)
            assert record.proof is not msgspec.UNSET
            if pending is batch[0]:
                record.proof.ended[given.id] = ended_by(given)
            pending.before = self.chain.digest
            body, digest = self.chain.encode(record, record.proof, write.id, write.parent, write.header, write.events)
            pending.write = replace(write, body=body)
            self.chain.digest = digest


class LogWriter:
    """Writes one session while one run has it.

    Between two calls:

    - While `lease` is set, this run owns the session, as far as it knows: `close` takes the lease away, on the run's
      own thread, when the heartbeat hears that it is lost. Every commit names the lease, so one that was lost already
      changes nothing.
    - `_queue` has the records that were made and are not stored, in order. One batch of them is in flight at a time,
      sent by the task that called `_drain` or by `_pump`, and `_sending` is True meanwhile.
    - A cancel may cut a commit off: then the store may have it or not. `_cut` is how many records it held, and they are
      sent again as they were, since a store knows only a whole commit again.
    - With durability "pause", and before anything is stored (`emits_unsaved`), events are emitted before their record.
    """

    _pump: asyncio.Task[None] | None = None
    _has_begun: bool = False
    _soon: bool = False

    def __init__(
        self,
        scope: Scope,
        store: Store,
        tail: Tail,
        *,
        durability: str,
        timeout: float,
        ttl: float,
        sink: Callable[[list[Event]], None],
        persistence: Persistence = Persistence.STORED,
    ) -> None:
        self.scope = scope
        self.store = store
        self.tail = tail
        self.durability = durability
        self.timeout = timeout
        self.ttl = ttl
        # Memory never keeps anybody waiting.
        self.patience: Patience | None = None if isinstance(store, MemoryStore) else Patience(store, timeout)
        self.wants_summaries: bool = getattr(store, "wants_summaries", False)
        self.sink = sink
        self.persistence: Persistence = persistence
        self.emits_unsaved: bool = persistence is _UNSTORED or durability == "pause"
        """Whether events are emitted before the record that holds them is stored."""
        self.owner: str = ""
        self.lease: Lease | None = None
        self.sure_until: float = 0.0
        """When the lease that was secured last is over, by the clock of this process."""
        self._sent_at: float = 0.0
        """When the last call of the store was sent; a claim or a commit secures the lease from then on."""
        self.unreleased: Lease | None = None
        """The lease that the run held when its store went away."""
        self._sending: bool = False
        self._cut: int = 0
        self._queue: list[PendingWrite] = []

    @property
    def is_unstored(self) -> bool:
        """Whether nothing of the session is in the store, and nothing needs to be."""
        return self.persistence is _UNSTORED

    @property
    def is_letting_go(self) -> bool:
        """Whether the record that releases the lease is on its way: its commit shows what became of the lease."""
        return any(pending.release for pending in self._queue)  # Code that was left behind may have queued after it.

    # What frames call

    def emit(self, event: Event) -> None:
        if self.scope.logs_events:
            self.tail.events.append(without_secrets(event) if known.forms else event)

    def emit_live(self, event: Event) -> None:
        self.sink([without_secrets(event) if known.forms else event])

    def soon(self) -> None:
        if self._soon or self.lease is None or self.durability == "pause":
            return
        self._soon = True
        self.scope.loop.call_soon(self._write_soon)

    def _write_soon(self) -> None:
        self._soon = False
        if self.lease is None or self.scope.closed is not None or self._sending:
            return  # A commit in flight picks up what accumulates behind it.
        if self.scope.changes.dirty or self.tail.events:
            with contextlib.suppress(NotStorable):  # The next call that makes a record gets the error.
                self._queue.append(self.tail.make(Header(), "running"))
                self._start_pump()

    async def durable(self, *, here: bool = False) -> None:
        self.scope.check_open()
        if self.persistence is _UNSTORED:
            return
        pending = self.tail.make(Header(), "running")
        self._queue.append(pending)
        if here and not self._sending:
            await self._drain()
            self.scope.check_open()
        else:
            self._start_pump()
            await self._wait(pending)

    async def reported(self) -> None:
        if self.emits_unsaved:
            self._let_out()
        elif self.tail.events or self._queue:
            await self.durable()

    async def note_begin(self, digest: str) -> bool:
        self.tail.note_begin(digest)
        await self.durable()
        if self.is_unstored:
            return False
        here, begun = self.scope.place, await self.store.read(ListBegun(digest))
        others = [each for each in begun if each.place != here]
        if not others:
            return False
        lineage = await read_lineage(self.store, self.tail.ref, self.scope.branch)
        return not all(lineage.leads_here(each) for each in others)

    @property
    def is_unsure(self) -> bool:
        return self.lease is not None and lease_clock() > self.sure_until

    async def assure(self) -> None:
        # The heartbeat may have slept as long as this run did, for example when its process was suspended.
        if self.scope.closed is not None or self.is_unsure:
            await self.durable()

    def assure_here(self) -> None:
        if self.is_unsure:
            self.close(Conflict(self.scope.session_id, "its lease is over, and the store cannot be asked here"))
        self.scope.check_open()

    async def boundary(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        if self.scope.closed is not None:
            self.scope.check_open()
        if self.emits_unsaved:
            self._let_out()
            if self.is_unsure:
                await self.durable()
            return
        header = Header(source=source, step=step, address=frame.address, next=following(), metadata=self.scope.metadata)
        pending = self.tail.make(header, "running")
        self._queue.append(pending)
        if self.durability == "async":
            self._start_pump()
            while len(self._queue) >= BATCH:
                await self._wait(self._queue[0])
            if self.is_unsure and not pending.done:
                await self._wait(pending)
        elif self._sending or (
            self.scope.cancellation.tasks and asyncio.current_task() in self.scope.cancellation.tasks
        ):
            # A cancel must not interrupt a commit, so it is not made in a task that can be cancelled.
            self._start_pump()
            await self._wait(pending)
        else:
            await self._drain()

    def _let_out(self) -> None:
        """Emit the accumulated events, unsaved."""
        # With durability "pause" only pauses and ends are promised; what happens in between is reported as it happens.
        tail = self.tail
        if tail.events:
            first, events = tail.seq + 1, tail.let_out()
            if self.scope.has_reader:
                self._show(events, first)

    def _show(self, events: list[Event], first: int) -> None:
        """Give events, numbered from `first`, to the reader of the run."""
        for number, event in enumerate(events, first):
            force_setattr(event, "seq", number)  # Nobody has seen it yet, so it may still be changed.
        self.sink(events)

    # What the runner calls

    async def claim(
        self,
        header: Header,
        *,
        answers: tuple[Answer, ...] = (),
        over: str | None = None,
        write: bool = True,
        alone: bool = False,
    ) -> Claimed:
        """Take the lease, with a record of what is marked unless `write` is False."""
        after, scope = self.tail.head, self.scope
        pending = self.tail.make(header, "running", taken=answers) if write else None
        request = Claim(
            ref=self.tail.ref,
            owner=self.owner,
            ttl=self.ttl,
            after=after,
            write=None if pending is None else pending.write,
            answers=answers,
            replaces=over,
            alone=alone,
        )
        try:
            claimed = await self._claimed(request)
        except asyncio.CancelledError:
            # The claim may have succeeded. Repeating it is harmless, and shows the caller what there is to release.
            with contextlib.suppress(AdjournError):
                again = request if write else replace(request, replaces=self.owner)
                self.lease = (await self._claimed(again)).lease
            raise
        self.lease, self.sure_until = claimed.lease, self._sent_at + self.ttl
        if self.persistence is _UNSTORED:
            self.persistence, self.emits_unsaved = Persistence.UNTIL_DONE, self.durability == "pause"
        if pending is not None and claimed.lease is not None:
            self.tail.chain.stored.append(Stored(pending.write.number, pending.write.number, claimed.at))
            if log.isEnabledFor(logging.DEBUG):
                self._note_saved([pending])
            if scope.has_reader:
                self._show(pending.new_events, pending.first)
        return claimed

    async def _claimed(self, request: Claim) -> Claimed:
        """Return the reply to a claim, which may have to be repeated."""
        try:
            return await self._retrying(self.store.write, request)
        except SessionBusy as busy:
            if busy.owner_id != self.owner:
                raise
            # We have it ourselves: the reply to the claim that got it was lost.
            return await self._retrying(self.store.write, replace(request, replaces=self.owner))
        except StoreUnavailable:
            note_end(self.owner)  # It may have succeeded all the same, but nobody will use it.
            raise

    async def give_back(self, lease: Lease) -> None:
        """End the lease of a run of this process that could not release it."""
        await self._retrying(self.store.renew, [replace(lease, ttl=0.0)])

    async def finish(
        self, header: Header, status: Status, last: Final | None = None, *, summary: bytes = b""
    ) -> Committed:
        """Write all that is left and release the session.

        `last` is the run's last event as the log keeps it, `summary` what people see who look into the store.
        """
        if self.scope.closed is not None:
            raise self.scope.closed  # The log broke and code swallowed the error: nothing more is accepted.
        if self.persistence is _UNSTORED and status == "done":
            # Nobody else can know this session, and it is now forgotten.
            self._let_out()
            self.tail.seq += 1
            return Committed(released=True)
        if self.lease is None:
            await self.claim(Header())
        pending = self.tail.make(header, status, last=last, release=True)
        if summary:
            pending.write = replace(pending.write, summary=known.hide_in_json(summary))
        self._queue.append(pending)
        if self._sending:
            await self._wait(pending)
        else:
            await self._drain()
        if not pending.done:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        if not pending.result.released:
            # The run goes on with answers that came in; its events go into the next record instead.
            self.tail.take_back(pending)
        return pending.result

    def close(self, error: Exception) -> None:
        """Refuse everything from now on, including what has not been sent."""
        self.scope.closed = error
        lease, self.lease = self.lease, None
        if lease is not None and is_own(self.owner):
            note_end(self.owner)
            self.unreleased = lease
        while self._queue:
            self._queue.pop().settle()
        if self.patience is not None:
            self.patience.stop()

    # Sending

    def _start_pump(self) -> None:
        if not self._sending:
            self._sending, self._has_begun = True, False
            # The task is ours, whatever code waits for it: a frame that ends must not cancel it with its own tasks.
            token = current_place.set(None)
            self._pump = self.scope.loop.create_task(self._drain_behind())
            self._pump.add_done_callback(self._pump_over)
            current_place.reset(token)

    def _pump_over(self, pump: asyncio.Task[None]) -> None:
        # A new pump may have been started since this one ended: then neither flag is about this one.
        if pump is self._pump and not self._has_begun:
            # It was cancelled before its first step, as by a closing loop: others wait for it.
            self._sending = False
            if any(pending.waiter is not None for pending in self._queue):
                self._start_pump()

    async def _drain_behind(self) -> None:
        self._has_begun = True
        with contextlib.suppress(Exception):  # The tasks that wait for a record get the error.
            await self._drain()

    async def _wait(self, pending: PendingWrite) -> None:
        if not pending.done:
            pending.waiter = pending.waiter or self.scope.loop.create_future()
            await asyncio.shield(pending.waiter)
        self.scope.check_open()

    async def _drain(self) -> None:
        """Send what is in the queue, batch after batch, until it is empty or the lease is gone."""
        self._sending = True
        try:
            while self._queue and self.lease is not None:
                batch = self._queue[: self._cut or BATCH]
                if len(batch) > 1:
                    batch = _up_to_release(batch)
                self._cut = len(batch)
                try:
                    self._through(batch, await self._retrying(self.store.write, _commit(self.lease, batch)))
                    self._cut = 0
                except AlreadyResumed as late:
                    if not await self._leave_open(batch, late.interrupt_id):
                        raise
                    # Otherwise it is sent again as it is now.
        except Exception as error:  # whatever a store raises: nobody may be left waiting, and nothing more is written
            for pending in self._queue:
                pending.settle(error)
            self.close(error)
            raise
        finally:
            self._sending = False
            if self._cut and any(pending.waiter is not None for pending in self._queue):
                self._start_pump()  # A cancel came: others wait behind the task that it was for.
        if self.scope.changes.dirty and self.durability != "pause" and self.lease is not None:
            self.soon()

    def _through(self, batch: list[PendingWrite], committed: Committed) -> None:
        """Wake the tasks that wait for records that are stored now, and emit their events."""
        del self._queue[: len(batch)]
        self.sure_until = self._sent_at + self.ttl
        batch[-1].result = committed
        self.tail.chain.stored.append(Stored(batch[0].write.number, batch[-1].write.number, committed.at))
        if committed.released:
            self.lease = None
            if self.patience is not None:
                self.patience.stop()  # An edit ends without `close`.
        if committed.cancel is not None and self.scope.cancellation.mode is None:
            self.scope.cancellation.cancel(committed.cancel)
        for pending in batch:
            pending.done = True
            if pending.waiter is not None:
                pending.settle()
            if self.scope.has_reader and (committed.released or not pending.release):
                self._show(pending.new_events, pending.first)
        if log.isEnabledFor(logging.DEBUG):
            self._note_saved(batch)

    async def _leave_open(self, batch: list[PendingWrite], id: str | None) -> bool:
        """Keep a question from being closed that was answered after the program gave it up: the answer stands."""
        for place, pending in enumerate(batch):
            closes = tuple([answer for answer in pending.write.closes if answer.id != id])
            if id is not None and len(closes) < len(pending.write.closes):
                given = await self._retrying(self._answer_to, id)
                pending.write = replace(pending.write, closes=closes, takes=(*pending.write.takes, id))
                self.tail.make_again(self._queue[place:], given)
                return True
        return False

    async def _answer_to(self, id: str) -> Answered:
        (row,) = await self.store.read(ListAsked(self.tail.ref, self.scope.branch, [id]))
        assert row.how is not None
        return Answered(id=id, value=row.value or b"", how=row.how, by=row.by, at=row.at or 0.0)

    def _note_saved(self, batch: list[PendingWrite]) -> None:
        for write in [pending.write for pending in batch]:
            note(logging.DEBUG, "saved", self.scope.session_id, write.id, source=write.header.source)

    async def _retrying(self, call: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Retry the same call while the store is unavailable: the id of a write makes a second success harmless."""
        patience, delay, begun = self.patience, FIRST_DELAY, time.monotonic()
        while True:
            self._sent_at = lease_clock()
            try:
                return await (call(argument) if patience is None else patience.wait_for(call(argument)))
            except StoreUnavailable as error:
                left = begun + self.timeout - time.monotonic()
                if error.is_lasting or left <= 0:
                    raise
                level = logging.WARNING if delay == FIRST_DELAY else logging.DEBUG
                note(level, "waiting for the store", self.scope.session_id, self.tail.head, error=error)
            await asyncio.sleep(min(delay, left))
            if type(argument) is Commit and self.lease is None:
                raise Conflict(self.scope.session_id, "the run has let go of it")
            delay = min(2 * delay, 1.0)


def _commit(lease: Lease, batch: list[PendingWrite]) -> Commit:
    first, last = batch[0], batch[-1]
    writes = [pending.write for pending in batch] if len(batch) > 1 else (first.write,)
    return Commit(lease=lease, writes=writes, after=first.after, release=last.release)


def _up_to_release(batch: list[PendingWrite]) -> list[PendingWrite]:
    """Return what is sent together: nothing after a record that releases the session."""
    for number, pending in enumerate(batch, 1):
        if pending.release:
            return batch[:number]
    return batch
