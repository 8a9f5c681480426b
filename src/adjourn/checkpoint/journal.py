"""The journal: the only writer of a live session's log.

Frames mark what they changed. The journal folds the marks that have gathered into one record, keeps one batch of
records under way at a time, and lets durable events out when the commit that holds their data is through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from adjourn.core.errors import AdjournError, AlreadyResumed, Conflict, SessionBusy, StoreUnavailable
from adjourn.core.events import (
    FINAL,
    CheckpointSaved,
    Event,
    Interrupt,
    Interrupted,
)
from adjourn.core.frame import here
from adjourn.core.interrupt import shown
from adjourn.core.logged import log_event, log_interrupt
from adjourn.core.record import GraphImage, Record, encode
from adjourn.core.scope import Frame, Scope

from .logbook import note
from .memory import MemoryStore
from .store import Answer, Answered, Claimed, Committed, Header, Lease, Question, Status, Store, Write

T = TypeVar("T")
A = TypeVar("A")
BATCH = 256
"""Records that may be under way at once with durability "async"."""

FIRST_DELAY = 0.05
"""Seconds before a write is tried again the first time."""

SMALL = 8 * 1024
ROW = 1_100
"""What a row costs when it is read, in bytes."""


class Size:
    """Decides when a full record is due: when folding the partial ones would cost more than twice reading a full one.

    What grew a list is content, not waste; what costs is the row, and values that were replaced.
    """

    __slots__ = ("_since_full", "_state")

    def __init__(self, state: int | None = None, since_full: int = 0) -> None:
        self._state = state
        self._since_full = since_full

    def full_is_due(self) -> bool:
        if self._state is None:
            return True
        return self._since_full > SMALL and self._since_full > 2 * self._state

    def count(self, size: int, record: Record) -> None:
        """Take note of a record of `size` bytes."""
        if record.full or self._state is None:
            self._state, self._since_full = size, 0
            return
        self._since_full += size + ROW
        for image in record.frames.values():
            if type(image) is GraphImage and image.add:
                self._state += size
                return


class Patience:
    """Cuts calls to a store that take too long, with one timer for all calls of a run."""

    def __init__(self, seconds: float, *, is_needed: bool) -> None:
        self.seconds = seconds
        self._is_needed = is_needed
        self._since = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cut = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """A call to the store begins in the current task."""
        if not self._is_needed:
            return
        self._task, self._since = asyncio.current_task(), loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._check, loop)

    def end(self) -> None:
        """The call has come back."""
        self._task = None

    def was_cut(self) -> bool:
        """Whether the cancellation that reached the current task was ours; it is taken back then."""
        was_cut, self._cut = self._cut, False
        task = asyncio.current_task()
        if was_cut and task is not None:
            task.uncancel()
        return was_cut

    def stop(self) -> None:
        """No more calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        left = self._since + self.seconds - loop.time()
        if left <= 0:
            self._cut = True
            self._task.cancel()
        else:
            self._timer = loop.call_later(left, self._check, loop)


class Entry:
    """One record on its way to the store."""

    __slots__ = ("after", "done", "events", "release", "result", "told", "waiter", "write")

    def __init__(self, write: Write, after: str, release: bool, told: list[Event], events: list[Event]) -> None:
        self.write = write
        self.after = after
        self.release = release
        self.told = told
        self.events = events
        self.done = False
        self.result = Committed()
        self.waiter: asyncio.Future[None] | None = None


class Journal:
    """Writes one session while one run has it."""

    def __init__(
        self,
        scope: Scope,
        store: Store,
        *,
        durability: str,
        timeout: float,
        sink: Callable[[list[Event]], None],
        volatile: bool = False,
    ) -> None:
        self.scope = scope
        self.store = store
        self.durability = durability
        self.patience = Patience(timeout, is_needed=not isinstance(store, MemoryStore))
        self.sink = sink
        self.volatile = volatile
        self.owner = ""
        self.ttl = 30.0
        self.parent: str | None = None
        self.lease: Lease | None = None
        self.head: str | None = None
        self.number = 0
        self.seq = 0
        self.asked_ids: set[str] = set()
        self._events: list[Event] = []
        self._told: list[Event] = []
        self._takes: list[str] = []
        self._closes: list[Answer] = []
        self._queue: deque[Entry] = deque()
        self._sending = False
        self._pump: asyncio.Task[None] | None = None
        self._soon = False
        self._sure_until = 0.0
        self.size = Size()

    def stand(self, head: str | None, seq: int) -> None:
        """Stand at the head of a session that was loaded, or (None) before a new one."""
        self.head, self.seq = head, seq
        self.number = 0 if head is None else int(head.rpartition(".")[2]) + 1

    def branch_off(self, branch: str, parent: str) -> None:
        """Go on on a new branch that begins after the checkpoint `parent`."""
        self.scope.branch, self.parent, self.number = branch, parent, 0
        self.size = Size()
        self.asked_ids = set()

    @property
    def has_news(self) -> bool:
        """Whether anything has been marked that no record holds."""
        return bool(self.scope.dirty or self.scope.stirred or self._takes or self._closes)

    @property
    def tells_unsaved(self) -> bool:
        """Whether events are told before the record that holds them is stored."""
        return self.durability == "pause" or self.volatile

    # What frames call

    def tell(self, event: Event) -> None:
        if self.scope.telling:
            self._events.append(event)

    def tell_live(self, event: Event) -> None:
        self.sink([event])

    def soon(self) -> None:
        if self._soon or self.lease is None or self.durability == "pause":
            return
        self._soon = True
        self.scope.loop.call_soon(self._write_soon)

    def _write_soon(self) -> None:
        self._soon = False
        if self.lease is None or self.scope.closed is not None or self._sending:
            return  # A commit under way picks up what gathers behind it.
        if self.scope.dirty or self._events:
            self._enqueue(Header(), "running")
            self._start_pump()

    async def durable(self) -> None:
        self.scope.check_open()
        if self.volatile:
            return
        if self.lease is None:
            await self.claim(Header())
            return
        entry = self._enqueue(Header(), "running")
        self._start_pump()
        await self._wait(entry)

    async def assure(self) -> None:
        # The heartbeat may have been asleep as long as this run was, as when its process was stopped.
        if self.scope.closed is not None or (self.lease is not None and self.scope.loop.time() > self._sure_until):
            await self.durable()

    async def border(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        self.scope.check_open()
        if self.tells_unsaved:
            self.let_out()
            return
        header = Header(source=source, step=step, address=frame.address, next=following())
        if self.lease is None:
            await self.claim(header)
            return
        entry = self._enqueue(header, "running")
        if self.durability == "async":
            self._start_pump()
            while len(self._queue) >= BATCH:
                await self._wait(self._queue[0])
        else:
            await self._stored(entry)

    async def _stored(self, entry: Entry) -> None:
        if self._sending or asyncio.current_task() in self.scope.user_cuts:
            # A cancel must not cut a commit in the middle, so it is not made in a task that can be cut.
            self._start_pump()
            await self._wait(entry)
        else:
            await self._drain()

    def let_out(self, last: Iterable[Event] = ()) -> None:
        """Tell what has gathered, unsaved, and these events after it."""
        # With durability "pause" only pauses and ends are promised; what happens in between is told as it happens.
        self._events += last
        if self._events:
            events, self._events = self._numbered(self._events), []
            self._told += events
            self.sink(events)

    # What the runner calls

    async def claim(
        self, header: Header, *, answers: tuple[Answer, ...] = (), over: str | None = None, write: bool = True
    ) -> Claimed:
        """Take the lease, with a record of what is marked unless `write` is False."""
        after = self.head
        entry = self._entry(header, "running", taken=answers) if write else None
        claim = partial(
            self.store.claim,
            self.scope.session_id,
            self.owner,
            self.ttl,
            after=after,
            write=None if entry is None else entry.write,
            answers=answers,
            over=over,
            app=self.scope.app,
        )
        try:
            claimed = await self._retrying(lambda user: claim(user=user), self.scope.user_id)
        except SessionBusy as busy:
            if busy.owner != self.owner:
                raise
            # We have it ourselves: of the claim that got it we did not hear.
            claimed = await self._retrying(lambda user: claim(user=user, over=self.owner), self.scope.user_id)
        except asyncio.CancelledError:
            # It may have been made. Made again, which is harmless, it tells the caller what there is to give back.
            again = claim if write else partial(claim, over=self.owner)
            with contextlib.suppress(AdjournError):
                self.lease = (await self._retrying(lambda user: again(user=user), self.scope.user_id)).lease
            raise
        self.lease = claimed.lease
        self.volatile = False
        if entry is not None and claimed.lease is not None:
            self._through(entry)
        return claimed

    async def finish(self, header: Header, status: Status, events: Callable[[str], list[Event]]) -> Committed:
        """Write all that is left and let go of the session; `events` makes the last events for the new head."""
        if self.scope.closed is not None:
            raise self.scope.closed  # The log broke behind code that swallowed the error: nothing is taken anew.
        await self.flush()
        if self.lease is None:
            await self.claim(Header())
        self._events += events(f"{self.scope.branch}.{self.number}")
        entry = self._enqueue(header, status, release=True)
        await self._stored(entry)
        if entry.result.released:
            self.lease = None
        else:
            # The run goes on with answers that came in; its events go into the next record instead.
            self.seq -= len(entry.events)
            self._told = entry.told
            self._events = [e for e in entry.events if not isinstance(e, FINAL)]
        return entry.result

    async def flush(self) -> None:
        """Return when everything that was submitted is stored."""
        while self._queue:
            self._start_pump()
            await self._wait(self._queue[-1])

    def close(self, error: Exception) -> None:
        """Refuse everything from now on."""
        self.scope.closed = error
        self.lease = None
        self.patience.stop()

    # Making records

    def _enqueue(self, header: Header, status: Status, *, release: bool = False) -> Entry:
        self.scope.check_open()
        entry = self._entry(header, status, release=release)
        self._queue.append(entry)
        return entry

    def _entry(self, header: Header, status: Status, *, release: bool = False, taken: tuple[Answer, ...] = ()) -> Entry:
        after, told = self.head or "", self._told
        write, events = self._write(header, status, taken)
        return Entry(write, after, release, told, events)

    def _write(self, header: Header, status: Status, taken: tuple[Answer, ...]) -> tuple[Write, list[Event]]:
        scope = self.scope
        full = self.size.full_is_due()
        record = scope.take(full=full)
        body = encode(record)
        self.size.count(len(body), record)
        checkpoint = f"{scope.branch}.{self.number}"
        asks = self._asks(checkpoint) if scope.open else ()
        if header.source is not None and scope.telling:
            self._tell_saved(checkpoint, header)
        logged = [log_event(event) for event in (*self._told, *self._events)]
        first = self.seq + 1 - len(self._told)
        events, self._events, self._told = self._numbered(self._events), [], []
        takes = (*self._takes, *(answer.id for answer in taken))
        if self.asked_ids:
            self._close_given_up(takes)
        write = Write(
            branch=scope.branch,
            number=self.number,
            parent=self.parent or self.head,
            full=full,
            body=body,
            header=header,
            status=status,
            asks=asks,
            takes=takes,
            closes=tuple(self._closes),
            events=b"[" + b",".join(logged) + b"]" if logged else b"",
            first_seq=first if logged else 0,
            event_count=len(logged),
        )
        self._takes, self._closes, self.parent = [], [], None
        self.head = checkpoint
        self.number += 1
        return write, events

    def _tell_saved(self, checkpoint: str, header: Header) -> None:
        saved = CheckpointSaved(
            checkpoint_id=checkpoint, source=header.source or "", step=header.step, address=header.address
        )
        # What ends a run is its last event.
        is_last = bool(self._events) and isinstance(self._events[-1], FINAL)
        self._events.insert(len(self._events) - is_last, saved)

    def take_up(self, answers: tuple[Answered, ...]) -> None:
        """Note answers that the next record holds."""
        self._takes = [*self._takes, *(answer.id for answer in answers)]

    def close_questions(self, closes: list[Answer]) -> None:
        """Note questions that the next record ends."""
        self._closes = [*self._closes, *closes]
        self.asked_ids -= {answer.id for answer in closes}

    def _close_given_up(self, takes: tuple[str, ...]) -> None:
        """Close questions that nobody waits for any more: what asked them has gone on, or failed, without an answer."""
        gone = sorted(self.asked_ids.difference(self.scope.open, takes))
        self.asked_ids.intersection_update(self.scope.open)
        self._closes += [Answer(id=each, value=b"", how="abandoned") for each in gone]

    def _asks(self, checkpoint: str) -> tuple[Question, ...]:
        new = [question for _, question in self.scope.open.values() if question.id not in self.asked_ids]
        if not new:
            return ()
        self.asked_ids.update(question.id for question in new)
        known = {i.id: i for event in self._events if isinstance(event, Interrupted) for i in event.interrupts}
        parents: dict[str, Interrupt] = {}
        seen = [known.get(q.id) or shown(self.scope, q, checkpoint, parents) for q in new]
        return tuple(
            Question(id=q.id, body=log_interrupt(interrupt), expires=q.expires)
            for q, interrupt in zip(new, seen, strict=True)
        )

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.seq += 1
            # Nobody has seen it yet, so it can still be changed.
            msgspec.structs.force_setattr(event, "seq", self.seq)
        return events

    # Sending them

    def _start_pump(self) -> None:
        if not self._sending:
            self._sending = True
            # It is ours, whatever code waits for it: a frame that ends must not cancel it with what it has started.
            token = here.set(None)
            self._pump = self.scope.loop.create_task(self._drain_behind())
            here.reset(token)

    async def _drain_behind(self) -> None:
        with contextlib.suppress(Exception):  # Whoever waits for an entry has been told.
            await self._drain()

    async def _wait(self, entry: Entry) -> None:
        if not entry.done:
            entry.waiter = entry.waiter or self.scope.loop.create_future()
            await asyncio.shield(entry.waiter)
        self.scope.check_open()

    async def _drain(self) -> None:
        self._sending = True
        try:
            while self._queue:
                if len(self._queue) == 1:
                    entry = self._queue[0]
                    entry.result = await self._retrying(self._commit, entry)
                    self._queue.popleft()
                    self._through(entry)
                else:
                    await self._send_together()
        except Exception as error:  # whatever a store raises: nobody may be left waiting
            self._break(error)
            raise
        finally:
            self._sending = False
        if self.scope.dirty and self.durability != "pause" and self.lease is not None:
            self.soon()

    def _break(self, error: Exception) -> None:
        """The log cannot be written any more: whoever waits is told, and nobody else gets in."""
        self.close(error)
        for entry in self._queue:
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_exception(error)
        self._queue.clear()

    def _through(self, entry: Entry) -> None:
        entry.done = True
        note(logging.DEBUG, "saved", self.scope.session_id, entry.write.id, source=entry.write.header.source)
        if entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_result(None)
        if entry.result.cancel is not None and self.scope.cancel_mode is None:
            self.scope.cut(entry.result.cancel)
        if entry.events and (entry.result.released or not entry.release):
            self.sink(entry.events)

    async def _send_together(self) -> None:
        batch = list(self._queue)[:BATCH]
        try:
            batch[-1].result = await self._retrying(self._commit_all, batch)
        except AlreadyResumed:
            for entry in batch:
                entry.result = await self._retrying(self._commit, entry)
        for entry in batch:
            self._queue.popleft()
            self._through(entry)

    async def _commit_all(self, batch: list[Entry]) -> Committed:
        if self.lease is None:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        writes, last = [entry.write for entry in batch], batch[-1]
        return await self.store.commit(self.lease, *writes, after=batch[0].after, release=last.release)

    async def _commit(self, entry: Entry) -> Committed:
        if self.lease is None:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        try:
            return await self.store.commit(self.lease, entry.write, after=entry.after, release=entry.release)
        except AlreadyResumed as late:
            # Somebody was first to answer a question that the program gave up: the answer stands, unused.
            closes = tuple(answer for answer in entry.write.closes if answer.id != late.interrupt_id)
            if len(closes) == len(entry.write.closes):
                raise
            takes = (*entry.write.takes, late.interrupt_id or "")
            entry.write = msgspec.structs.replace(entry.write, closes=closes, takes=takes)
            return await self._commit(entry)

    async def _retrying(self, call: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Try the same write again while the store is away: its id makes a second success harmless."""
        loop, patience, delay = self.scope.loop, self.patience, FIRST_DELAY
        deadline = loop.time() + patience.seconds
        while True:
            patience.begin(loop)
            try:
                result = await call(argument)
                self._sure_until = deadline - patience.seconds + self.ttl
                return result
            except StoreUnavailable as error:
                if error.is_lasting or loop.time() >= deadline:
                    raise
                level = logging.WARNING if delay == FIRST_DELAY else logging.DEBUG
                note(level, "waiting for the store", self.scope.session_id, self.head, error=error)
            except asyncio.CancelledError:
                if not patience.was_cut():
                    raise
                raise StoreUnavailable(repr(self.store), f"no answer within {patience.seconds:g} s") from None
            finally:
                patience.end()
            await asyncio.sleep(max(0.0, min(delay, deadline - loop.time())))
            delay = min(2 * delay, 1.0)
