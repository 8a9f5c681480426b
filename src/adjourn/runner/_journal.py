"""The journal: the only writer of a live session's log.

Frames mark what they changed, and `Records` makes a record of the accumulated marks. The journal keeps one batch of
records in flight at a time, and emits durable events once the commit that holds their data has gone through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TypeVar

from msgspec.structs import force_setattr, replace

from adjourn._engine.entry import current_place
from adjourn._engine.scope import Frame, Scope
from adjourn._hiding import known
from adjourn._owner import forget_end, is_own, lease_clock, note_end
from adjourn.errors import AdjournError, AlreadyResumed, Conflict, NotStorable, SessionBusy, StoreUnavailable
from adjourn.events import Event, Final, without_secrets
from adjourn.sessions._lineage import read_lineage
from adjourn.stores._logging import log, note
from adjourn.stores.kit import Claim, Commit, ListAsked, ListBegun
from adjourn.stores.memory import MemoryStore
from adjourn.stores.protocol import Store
from adjourn.stores.types import (
    Answer,
    Answered,
    Claimed,
    Committed,
    Header,
    Lease,
    Status,
)

from ._patience import Patience
from ._records import PendingWrite, Records

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

BATCH = 256
"""Records that may be in flight at once with durability "async"."""

FIRST_DELAY = 0.05
"""Seconds before a write is first retried."""


class Journal:
    """Writes one session while one run has it."""

    _pump: asyncio.Task[None] | None = None
    _has_begun: bool = False
    _soon: bool = False

    def __init__(
        self,
        scope: Scope,
        store: Store,
        records: Records,
        *,
        durability: str,
        timeout: float,
        ttl: float,
        sink: Callable[[list[Event]], None],
        persistence: Persistence = Persistence.STORED,
    ) -> None:
        self.scope = scope
        self.store = store
        self.records = records
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
        self._asked: float = 0.0
        """When the store was last asked to take or renew it."""
        self.unreleased: Lease | None = None
        """The lease that the run held when its store went away."""
        self._sending: bool = False
        self._cut: int = 0
        """How many records were on their way when a cancel cut their commit off: they may be stored, or not."""
        self._queue: list[PendingWrite] = []

    @property
    def is_unstored(self) -> bool:
        """Whether nothing of the session is in the store, and nothing needs to be."""
        return self.persistence is _UNSTORED

    def is_logged(self, *, has_ended: bool) -> bool:
        """Return whether the log has every event that the run has emitted so far."""
        return self.persistence is Persistence.STORED and (has_ended or not self.emits_unsaved)

    @property
    def is_letting_go(self) -> bool:
        """Whether the record that releases the lease is on its way: its commit shows what became of the lease."""
        return any(entry.release for entry in self._queue)  # Code that was left behind may have queued after it.

    # What frames call

    def emit(self, event: Event) -> None:
        if self.scope.logs_events:
            self.records.events.append(without_secrets(event) if known.forms else event)

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
        if self.scope.changes.dirty or self.records.events:
            with contextlib.suppress(NotStorable):  # Whoever makes the next record gets the error.
                self._queue.append(self.records.make(Header(), "running"))
                self._start_pump()

    async def durable(self, *, here: bool = False) -> None:
        self.scope.check_open()
        if self.persistence is _UNSTORED:
            return
        entry = self.records.make(Header(), "running")
        self._queue.append(entry)
        if here and not self._sending:
            await self._drain()
            self.scope.check_open()
        else:
            self._start_pump()
            await self._wait(entry)

    async def reported(self) -> None:
        if self.emits_unsaved:
            self._let_out()
        elif self.records.events or self._queue:
            await self.durable()

    async def note_begin(self, digest: str) -> bool:
        self.records.note_begin(digest)
        await self.durable()
        if self.is_unstored:
            return False
        here, begun = self.scope.place, await self.store.read(ListBegun(digest))
        others = [each for each in begun if each.place != here]
        if not others:
            return False
        lineage = await read_lineage(self.store, self.records.ref, self.scope.branch)
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
        self.scope.check_open()
        if self.emits_unsaved:
            self._let_out()
            if self.is_unsure:
                await self.durable()
            return
        header = Header(source=source, step=step, address=frame.address, next=following(), metadata=self.scope.metadata)
        entry = self.records.make(header, "running")
        self._queue.append(entry)
        if self.durability == "async":
            self._start_pump()
            while len(self._queue) >= BATCH:
                await self._wait(self._queue[0])
            if self.is_unsure and not entry.done:
                await self._wait(entry)
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
        records = self.records
        if records.events:
            first, events = records.seq + 1, records.let_out()
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
        after, scope = self.records.head, self.scope
        entry = self.records.make(header, "running", taken=answers) if write else None

        def claim(over: str | None) -> Awaitable[Claimed]:
            self._asked = lease_clock()
            return self.store.write(
                Claim(
                    ref=self.records.ref,
                    owner=self.owner,
                    ttl=self.ttl,
                    after=after,
                    write=None if entry is None else entry.write,
                    answers=answers,
                    replaces=over,
                    alone=alone,
                )
            )

        try:
            claimed = await self._heard(claim, over)
        except asyncio.CancelledError:
            # The claim may have succeeded. Repeating it is harmless, and shows the caller what there is to release.
            with contextlib.suppress(AdjournError):
                self.lease = (await self._heard(claim, over if write else self.owner)).lease
            raise
        self.lease, self.sure_until = claimed.lease, self._asked + self.ttl
        if self.persistence is _UNSTORED:
            self.persistence, self.emits_unsaved = Persistence.UNTIL_DONE, self.durability == "pause"
        if entry is not None and claimed.lease is not None:
            self.records.chain.note_stored(entry.write.number, entry.write.number, claimed.at)
            if log.isEnabledFor(logging.DEBUG):
                self._note_saved([entry])
            if scope.has_reader:
                self._show(entry.new_events, entry.first)
        return claimed

    async def _heard(self, claim: Callable[[str | None], Awaitable[Claimed]], over: str | None) -> Claimed:
        """Return the reply to a claim, which may have to be repeated."""
        try:
            return await self._retrying(claim, over)
        except SessionBusy as busy:
            if busy.owner_id != self.owner:
                raise
            # We have it ourselves: the reply to the claim that got it was lost.
            return await self._retrying(claim, self.owner)
        except StoreUnavailable:
            note_end(self.owner)  # It may have succeeded all the same, but nobody will use it.
            raise

    async def give_back(self, lease: Lease) -> None:
        """End the lease of a run of this process that could not release it."""
        await self._retrying(self.store.renew, [replace(lease, ttl=0.0)])
        forget_end(lease.owner)

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
            self.records.seq += 1
            return Committed(released=True)
        if self.lease is None:
            await self.claim(Header())
        entry = self.records.make(header, status, last=last, release=True)
        if summary:
            entry.write = replace(entry.write, summary=known.hide_in_json(summary))
        self._queue.append(entry)
        if self._sending:
            await self._wait(entry)
        else:
            await self._drain()
        if not entry.done:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        if not entry.result.released:
            # The run goes on with answers that came in; its events go into the next record instead.
            self.records.take_back(entry)
        return entry.result

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

    # Sending them

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
            if any(entry.waiter is not None for entry in self._queue):
                self._start_pump()

    async def _drain_behind(self) -> None:
        self._has_begun = True
        with contextlib.suppress(Exception):  # Whoever waits for an entry gets the error.
            await self._drain()

    async def _wait(self, entry: PendingWrite) -> None:
        if not entry.done:
            entry.waiter = entry.waiter or self.scope.loop.create_future()
            await asyncio.shield(entry.waiter)
        self.scope.check_open()

    async def _drain(self) -> None:
        self._sending = True
        try:
            while self._queue and self.lease is not None:
                # What was cut off is repeated as it was: a store knows only a whole commit again.
                batch = self._queue[: self._cut or BATCH]
                if len(batch) > 1:
                    batch = _up_to_release(batch)
                self._cut = len(batch)
                try:
                    self._through(batch, await self._retrying(self._commit, batch))
                    self._cut = 0
                except AlreadyResumed as late:
                    if not await self._leave_open(batch, late.interrupt_id):
                        raise
                    # Otherwise it is sent again as it is now.
        except Exception as error:  # whatever a store raises: nobody may be left waiting, and nothing more is written
            for entry in self._queue:
                entry.settle(error)
            self.close(error)
            raise
        finally:
            self._sending = False
            if self._cut and any(entry.waiter is not None for entry in self._queue):
                self._start_pump()  # A cancel came: others wait behind whoever it was for.
        if self.scope.changes.dirty and self.durability != "pause" and self.lease is not None:
            self.soon()

    def _commit(self, batch: list[PendingWrite]) -> Awaitable[Committed]:
        if self.lease is None:
            raise Conflict(self.scope.session_id, "the run has let go of it")
        self._asked = lease_clock()
        first, last = batch[0], batch[-1]
        if first is last:
            return self.store.write(
                Commit(lease=self.lease, writes=(first.write,), after=first.after, release=first.release)
            )
        writes = [entry.write for entry in batch]
        return self.store.write(Commit(lease=self.lease, writes=writes, after=first.after, release=last.release))

    def _through(self, batch: list[PendingWrite], committed: Committed) -> None:
        """Release whoever waits for records that are stored now, and emit their events."""
        del self._queue[: len(batch)]
        self.sure_until = self._asked + self.ttl
        batch[-1].result = committed
        self.records.chain.note_stored(batch[0].write.number, batch[-1].write.number, committed.at)
        if committed.released:
            self.lease = None
        if committed.cancel is not None and self.scope.cancellation.mode is None:
            self.scope.cancellation.cancel(committed.cancel)
        for entry in batch:
            entry.settle()
            if self.scope.has_reader and (committed.released or not entry.release):
                self._show(entry.new_events, entry.first)
        if log.isEnabledFor(logging.DEBUG):
            self._note_saved(batch)

    async def _leave_open(self, batch: list[PendingWrite], id: str | None) -> bool:
        """Keep a question from being closed that was answered after the program gave it up: the answer stands."""
        for place, entry in enumerate(batch):
            closes = tuple([answer for answer in entry.write.closes if answer.id != id])
            if id is not None and len(closes) < len(entry.write.closes):
                given = await self._retrying(self._answer_to, id)
                entry.write = replace(entry.write, closes=closes, takes=(*entry.write.takes, id))
                self.records.make_again(self._queue[place:], given)
                return True
        return False

    async def _answer_to(self, id: str) -> Answered:
        (row,) = await self.store.read(ListAsked(self.records.ref, self.scope.branch, [id]))
        assert row.how is not None
        return Answered(id=id, value=row.value or b"", how=row.how, by=row.by, at=row.at or 0.0)

    def _note_saved(self, batch: list[PendingWrite]) -> None:
        for write in [entry.write for entry in batch]:
            note(logging.DEBUG, "saved", self.scope.session_id, write.id, source=write.header.source)

    async def _retrying(self, call: Callable[[A], Awaitable[T]], argument: A) -> T:
        """Retry the same write while the store is unavailable: its id makes a second success harmless."""
        patience, delay, begun = self.patience, FIRST_DELAY, time.monotonic()
        while True:
            try:
                return await (call(argument) if patience is None else patience.wait_for(call(argument)))
            except StoreUnavailable as error:
                left = begun + self.timeout - time.monotonic()
                if error.is_lasting or left <= 0:
                    raise
                level = logging.WARNING if delay == FIRST_DELAY else logging.DEBUG
                note(level, "waiting for the store", self.scope.session_id, self.records.head, error=error)
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, 1.0)


def _up_to_release(batch: list[PendingWrite]) -> list[PendingWrite]:
    """Return what is sent together: nothing after a record that releases the session."""
    for number, entry in enumerate(batch, 1):
        if entry.release:
            return batch[:number]
    return batch
