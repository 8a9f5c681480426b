"""The journal: the only writer of a live session's log.

Frames mark what they changed. The journal folds the accumulated marks into one record, keeps one batch of records
in flight at a time, and emits durable events once the commit that holds their data has gone through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from adjourn._engine.frame import current_place
from adjourn._engine.questions import Parents
from adjourn._engine.record import FORMAT, MAX_BYTES, GraphImage, Record, encode, too_large
from adjourn._engine.scope import Frame, Scope
from adjourn.errors import AdjournError, AlreadyResumed, Conflict, NotStorable, SessionBusy, StoreUnavailable
from adjourn.events import Event, Final
from adjourn.sessions._log import ended, log_events, log_question, saved
from adjourn.stores._logging import log, note
from adjourn.stores.memory import MemoryStore
from adjourn.stores.protocol import (
    Answer,
    Answered,
    Begun,
    Claimed,
    Committed,
    Header,
    Lease,
    Question,
    SessionRef,
    Status,
    Store,
    Write,
)

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


BATCH = 256
"""Records that may be in flight at once with durability "async"."""

FIRST_DELAY = 0.05
"""Seconds before a write is first retried."""

SMALL = 8 * 1024
ROW = 1_100
"""The cost of reading a row, in bytes."""


class Size:
    """Decides when a full record is due: when folding the partial ones would cost more than twice reading a full one.

    Additions to a list are content, not waste; the cost is the row, and values that were replaced.
    """

    __slots__ = ("_since_full", "_state", "stored")

    def __init__(self, state: int | None = None, since_full: int = 0, stored: int = 0) -> None:
        self._state = state
        self._since_full = since_full
        self.stored = stored
        """The bytes of the records that the session is loaded from."""

    def full_is_due(self) -> bool:
        if self._state is None:
            return True
        return self._since_full > SMALL and self._since_full > 2 * self._state

    def count(self, size: int, record: Record) -> None:
        """Take note of a record of `size` bytes."""
        self.stored = size if record.full else self.stored + size
        if record.full or self._state is None:
            self._state, self._since_full = size, 0
            return
        self._since_full += size + ROW
        for image in record.frames.values():
            if type(image) is GraphImage and image.add:
                self._state += size
                return


_UNDER_WAY = Committed()


class Entry(msgspec.Struct, eq=False):
    """One record on its way to the store; some of its events were `told` before, the others begin with `first`."""

    write: Write
    after: str
    release: bool
    told: list[Event]
    events: list[Event]
    first: int
    done: bool = False
    result: Committed = _UNDER_WAY
    waiter: asyncio.Future[None] | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Release whoever waits for it."""
        self.done = True
        if self.waiter is None or self.waiter.done():
            return
        if error is None:
            self.waiter.set_result(None)
        else:
            self.waiter.set_exception(error)


class Journal:
    """Writes one session while one run has it."""

    ref: SessionRef
    owner: str = ""
    ttl: float = 30.0
    parent: str | None = None
    lease: Lease | None = None
    head: str | None = None
    number: int = 0
    seq: int = 0
    _takes: tuple[str, ...] = ()
    _begins: tuple[str, ...] = ()
    _closes: tuple[Answer, ...] = ()
    _sending: bool = False
    _pump: asyncio.Task[None] | None = None
    _soon: bool = False
    _sure_until: float = 0.0
    _refusal: NotStorable | None = None

    def __init__(
        self,
        scope: Scope,
        store: Store,
        *,
        durability: str,
        timeout: float,
        sink: Callable[[list[Event]], None],
        persistence: Persistence = Persistence.STORED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.max_bytes = max_bytes
        self.scope = scope
        self.store = store
        self.durability = durability
        self.timeout = timeout
        # Memory never keeps anybody waiting.
        self.patience = None if isinstance(store, MemoryStore) else Patience(store, timeout)
        self.sink = sink
        self.persistence = persistence
        self.emits_unsaved = self.is_unstored or durability == "pause"
        """Whether events are emitted before the record that holds them is stored."""
        self.asked_ids: set[str] = set()
        self._events: list[Event] = []
        self._told: list[Event] = []
        self._queue: list[Entry] = []
        self.size = Size()

    @property
    def is_unstored(self) -> bool:
        """Whether nothing of the session is in the store, and nothing needs to be."""
        return self.persistence is Persistence.UNSTORED

    def stand(self, head: str | None, seq: int) -> None:
        """Start at the head of a session that was loaded, or (None) before a new one."""
        self.head, self.seq = head, seq
        self.number = 0 if head is None else int(head.rpartition(".")[2]) + 1

    def branch_off(self, branch: str, parent: str) -> None:
        """Continue on a new branch that begins after the checkpoint `parent`."""
        self.scope.leave_branch(int(parent.rpartition(".")[2]), branch)
        self.parent, self.number = parent, 0
        self.size = Size()
        self.asked_ids = set()

    @property
    def has_news(self) -> bool:
        """Whether anything marked is not in a record yet."""
        return bool(self.scope.changes or self._takes or self._closes)

    @property
    def is_letting_go(self) -> bool:
        """Whether the record that releases the lease is on its way: its commit shows what became of the lease."""
        return any(entry.release for entry in self._queue)  # Code that was left behind may have queued after it.

    # What frames call

    def emit(self, event: Event) -> None:
        if self.scope.logs_events:
            self._events.append(event)

    def emit_live(self, event: Event) -> None:
        self.sink([event])

    def soon(self) -> None:
        if self._soon or self.lease is None or self.durability == "pause":
            return
        self._soon = True
        self.scope.loop.call_soon(self._write_soon)

    def _write_soon(self) -> None:
        self._soon = False
        if self.lease is None or self.scope.closed is not None or self._sending:
            return  # A commit in flight picks up what accumulates behind it.
        if self.scope.changes.dirty or self._events:
            with contextlib.suppress(NotStorable):  # Whoever makes the next record gets the error.
                self._queue.append(self._entry(Header(), "running"))
                self._start_pump()

    async def durable(self) -> None:
        self.scope.check_open()
        if self.is_unstored:
            return
        entry = self._entry(Header(), "running")
        self._queue.append(entry)
        self._start_pump()
        await self._wait(entry)

    async def note_begin(self, digest: str) -> list[Begun]:
        self._begins += (digest,)
        await self.durable()
        return [] if self.is_unstored else await self.store.begun(digest)

    async def assure(self) -> None:
        # The heartbeat may have slept as long as this run did, for example when its process was suspended.
        if self.scope.closed is not None or (self.lease is not None and time.monotonic() > self._sure_until):
            await self.durable()

    async def boundary(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        self.scope.check_open()
        if self.emits_unsaved:
            self._let_out()
            return
        header = Header(source=source, step=step, address=frame.address, next=following())
        entry = self._entry(header, "running")
        self._queue.append(entry)
        if self.durability == "async":
            self._start_pump()
            while len(self._queue) >= BATCH:
                await self._wait(self._queue[0])
        elif self._sending or (
            self.scope.cancellation.tasks and asyncio.current_task() in self.scope.cancellation.tasks
        ):
            # A cancel must not interrupt a commit, so it is not made in a task that can be cancelled.
            self._start_pump()
            await self._wait(entry)
        else:
            await self._drain()

    def _let_out(self) -> None:
        """Emit the accumulated events, unsaved."""
        # With durability "pause" only pauses and ends are promised; what happens in between is reported as it happens.
        if self._events:
            events, self._events = self._events, []
            self._told += events
            if self.scope.has_reader:
                self._show(events, self.seq + 1)
            self.seq += len(events)

    def _show(self, events: list[Event], first: int) -> None:
        """Give events, numbered from `first`, to the reader of the run."""
        for number, event in enumerate(events, first):
            force_setattr(event, "seq", number)  # Nobody has seen it yet, so it may still be changed.
        self.sink(events)

    # What the runner calls

    async def claim(
        self, header: Header, *, answers: tuple[Answer, ...] = (), over: str | None = None, write: bool = True
    ) -> Claimed:
        """Take the lease, with a record of what is marked unless `write` is False."""
        after, scope = self.head, self.scope
        entry = self._entry(header, "running", taken=answers) if write else None

        def claim(over: str | None) -> Awaitable[Claimed]:
            return self.store.claim(
                self.ref,
                self.owner,
                self.ttl,
                after=after,
                write=None if entry is None else entry.write,
                answers=answers,
                replaces=over,
            )

        try:
            claimed = await self._retrying(claim, over)
        except SessionBusy as busy:
            if busy.owner_id != self.owner:
                raise
            # We have it ourselves: the reply to the claim that got it was lost.
            claimed = await self._retrying(claim, self.owner)
        except asyncio.CancelledError:
            # The claim may have succeeded. Repeating it is harmless, and shows the caller what there is to release.
            with contextlib.suppress(AdjournError):
                self.lease = (await self._retrying(claim, over if write else self.owner)).lease
            raise
        self.lease = claimed.lease
        if self.is_unstored:
            self.persistence, self.emits_unsaved = Persistence.UNTIL_DONE, self.durability == "pause"
        if entry is not None and claimed.lease is not None:
            if log.isEnabledFor(logging.DEBUG):
                self._note_saved([entry])
            if scope.has_reader:
                self._show(_events_of(entry), entry.first)
        return claimed

    async def finish(self, header: Header, status: Status, last: Final | None = None) -> Committed:
        """Write all that is left and release the session; `last` is the run's last event as the log keeps it."""
        if self.scope.closed is not None:
            raise self.scope.closed  # The log broke and code swallowed the error: nothing more is accepted.
        if self.is_unstored and status == "done":
            # Nobody else can know this session, and it is now forgotten.
            self._let_out()
            self.seq += 1
            return Committed(released=True)
        if self.lease is None:
            await self.claim(Header())
        entry = self._entry(header, status, last=last, release=True)
        self._queue.append(entry)
        if self._sending:
            await self._wait(entry)
        else:
            await self._drain()
        if not entry.done:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        if not entry.result.released:
            # The run goes on with answers that came in; its events go into the next record instead.
            self.seq -= entry.write.event_count - len(entry.told)
            self._told = entry.told
            self._events = _events_of(entry)
        return entry.result

    def close(self, error: Exception) -> None:
        """Refuse everything from now on, including what has not been sent."""
        self.scope.closed = error
        self.lease = None
        while self._queue:
            self._queue.pop().settle()
        if self.patience is not None:
            self.patience.stop()

    # Making records

    def _entry(
        self,
        header: Header,
        status: Status,
        *,
        last: Final | None = None,
        release: bool = False,
        taken: tuple[Answer, ...] = (),
    ) -> Entry:
        """Return a record of what is marked; `last` is the event that comes after the record's own."""
        scope, after = self.scope, self.head
        checkpoint = f"{scope.branch}.{self.number}"
        if self._refusal is None:
            record, body = self._record()
        else:
            record, body = self._empty_record(status)
        self.size.count(len(body), record)
        asks = self._asks(begins=self.number == 0) if scope.questions.all and self._refusal is None else ()
        if taken:
            self.take_up(taken)
        if self.asked_ids and self._refusal is None:
            self._close_given_up()
        told, events = self._told, self._events
        logged = [*told, *events] if last is None else [*told, *events, last]
        count = len(logged) + (header.source is not None)
        first = self.seq + 1
        self.seq += count - len(told)
        write = Write(
            branch=scope.branch,
            number=self.number,
            parent=self.parent or after,
            full=record.full,
            body=body,
            header=header,
            status=status,
            asks=asks,
            takes=self._takes,
            closes=self._closes,
            events=log_events(logged) if logged else b"",
            event_count=count,
            begins=self._begun_now() if self._begins else (),
        )
        self._events, self._told, self._takes, self._closes, self.parent = [], [], (), (), None
        self.head = checkpoint
        self.number += 1
        return Entry(write, after or "", release, told, events, first)

    def _begun_now(self) -> tuple[Begun, ...]:
        """Return what begins with the record that is being made."""
        place = self.scope.place
        digests, self._begins = self._begins, ()
        return tuple([Begun(digest, place, self.number) for digest in digests])

    def _record(self) -> tuple[Record, bytes]:
        """Make a record of what is marked, and its bytes.

        Raises:
            NotStorable: with it, the session could not be loaded again. Nothing that it holds is stored or reported.
        """
        scope = self.scope
        try:
            record = scope.build_record(full=self.size.full_is_due())
            body = encode(record)
            if not record.full and self.size.stored + len(body) > self.max_bytes:
                # Values that were replaced no longer count in a full one.
                record = scope.build_record(full=True)
                body = encode(record)
            if len(body) > self.max_bytes:
                raise too_large(len(body), self.max_bytes)
        except NotStorable as refusal:
            self._refusal = refusal
            self._events, self._takes, self._closes = [], (), ()
            raise
        return record, body

    def _empty_record(self, status: Status) -> tuple[Record, bytes]:
        """Make a record without content, for a run that ends because one was refused: stored data stays as it is."""
        assert self._refusal is not None
        if status not in ("failed", "cancelled"):
            raise self._refusal
        self.scope.changes.clear()
        self._takes, self._closes = (), ()
        record = Record(v=FORMAT)
        return record, encode(record)

    def take_up(self, answers: tuple[Answer | Answered, ...]) -> None:
        """Note answers for the next record to hold."""
        self._takes += tuple([answer.id for answer in answers])

    def close_questions(self, closes: list[Answer]) -> None:
        """Note questions for the next record to end."""
        self._closes += tuple(closes)
        self.asked_ids -= {answer.id for answer in closes}

    def _close_given_up(self) -> None:
        """Close questions that nobody waits for any more: what asked them has gone on, or failed, without an answer."""
        gone = self.asked_ids.difference(self.scope.questions.open, self._takes)
        if gone:
            self._closes += tuple(Answer(id=each, value=b"", how="abandoned") for each in sorted(gone))
        self.asked_ids.intersection_update(self.scope.questions.open)

    def _asks(self, *, begins: bool) -> tuple[Question, ...]:
        """Return the questions without a row on this branch yet; if it `begins`, including those that have ended."""
        questions, known = self.scope.questions, self.asked_ids
        if begins:
            new = [question for question in questions.all.values() if question.id not in known]
        else:
            new = [question for _, question in questions.open.values() if question.id not in known]
        if not new:
            return ()
        known.update([question.id for question in new if question.is_open])
        parents = Parents(self.scope)
        above = parents.above if parents.composites else _nothing
        return tuple(
            [Question(id=q.id, body=log_question(q, above(q.id)), expires=q.expires, ended=ended(q)) for q in new]
        )

    # Sending them

    def _start_pump(self) -> None:
        if not self._sending:
            self._sending = True
            # The task is ours, whatever code waits for it: a frame that ends must not cancel it with its own tasks.
            token = current_place.set(None)
            self._pump = self.scope.loop.create_task(self._drain_behind())
            current_place.reset(token)

    async def _drain_behind(self) -> None:
        with contextlib.suppress(Exception):  # Whoever waits for an entry gets the error.
            await self._drain()

    async def _wait(self, entry: Entry) -> None:
        if not entry.done:
            entry.waiter = entry.waiter or self.scope.loop.create_future()
            await asyncio.shield(entry.waiter)
        self.scope.check_open()

    async def _drain(self) -> None:
        self._sending = True
        try:
            while self._queue and self.lease is not None:
                batch = self._queue[:BATCH]
                if len(batch) > 1:
                    batch = _up_to_release(batch)
                try:
                    self._through(batch, await self._retrying(self._commit, batch))
                except AlreadyResumed as late:
                    if not _leave_open(batch, late.interrupt_id):
                        raise
                    # Otherwise it is sent again as it is now.
        except Exception as error:  # whatever a store raises: nobody may be left waiting, and nothing more is written
            for entry in self._queue:
                entry.settle(error)
            self.close(error)
            raise
        finally:
            self._sending = False
        if self.scope.changes.dirty and self.durability != "pause" and self.lease is not None:
            self.soon()

    def _commit(self, batch: list[Entry]) -> Awaitable[Committed]:
        if self.lease is None:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        first, last = batch[0], batch[-1]
        if first is last:
            return self.store.commit(self.lease, first.write, after=first.after, release=first.release)
        writes = [entry.write for entry in batch]
        return self.store.commit(self.lease, *writes, after=first.after, release=last.release)

    def _through(self, batch: list[Entry], committed: Committed) -> None:
        """Release whoever waits for records that are stored now, and emit their events."""
        del self._queue[: len(batch)]
        batch[-1].result = committed
        if committed.released:
            self.lease = None
        if committed.cancel is not None and self.scope.cancellation.mode is None:
            self.scope.cancellation.cancel(committed.cancel)
        for entry in batch:
            entry.settle()
            if self.scope.has_reader and (committed.released or not entry.release):
                self._show(_events_of(entry), entry.first)
        if log.isEnabledFor(logging.DEBUG):
            self._note_saved(batch)

    def _note_saved(self, batch: list[Entry]) -> None:
        for write in [entry.write for entry in batch]:
            note(logging.DEBUG, "saved", self.scope.session_id, write.id, source=write.header.source)

    async def _retrying(self, call: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Retry the same write while the store is unavailable: its id makes a second success harmless."""
        patience, delay, begun = self.patience, FIRST_DELAY, time.monotonic()
        while True:
            try:
                result = await (call(argument) if patience is None else patience.wait_for(call(argument)))
            except StoreUnavailable as error:
                left = begun + self.timeout - time.monotonic()
                if error.is_lasting or left <= 0:
                    raise
                level = logging.WARNING if delay == FIRST_DELAY else logging.DEBUG
                note(level, "waiting for the store", self.scope.session_id, self.head, error=error)
            else:
                self._sure_until = begun + self.ttl
                return result
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, 1.0)


def _up_to_release(batch: list[Entry]) -> list[Entry]:
    """Return what is sent together: nothing after a record that releases the session."""
    for number, entry in enumerate(batch, 1):
        if entry.release:
            return batch[:number]
    return batch


def _leave_open(batch: list[Entry], id: str | None) -> bool:
    """Keep a question from being closed that was answered after the program gave it up: the answer stands."""
    for entry in batch:
        closes = tuple([answer for answer in entry.write.closes if answer.id != id])
        if id is not None and len(closes) < len(entry.write.closes):
            entry.write = replace(entry.write, closes=closes, takes=(*entry.write.takes, id))
            return True
    return False


def _events_of(entry: Entry) -> list[Event]:
    """Return the events of a record that were not emitted yet, except for the end of its run."""
    write = entry.write
    return entry.events if write.header.source is None else [*entry.events, saved(write.id, write.header)]


def _nothing(_: str) -> None:
    return None
