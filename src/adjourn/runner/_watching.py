"""Watching: reading a session from any event on, whoever runs it, with what is being written at the moment."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TypeAlias

import msgspec

from adjourn.events import FINAL, Event
from adjourn.sessions._news import news_of
from adjourn.sessions._status import owner_of
from adjourn.stores.kit import GetHead
from adjourn.stores.types import Head, SessionRef

from ._drafts import Draft
from ._following import NET, POLL, RunFollower
from ._live import LiveSession
from ._reading import EventQueue, Readers, waited


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="caught_up"):
    """What was stored before has been read, up to the event number `seq`; what follows is new."""

    seq: int


Watched: TypeAlias = Event | CaughtUp | Draft
"""What somebody who watches a session reads."""


class _Joined:
    """A run of this process that a watcher reads along with."""

    def __init__(self, live: LiveSession, readers: Readers, queue: EventQueue) -> None:
        self.live = live
        self.readers = readers
        self.queue = queue
        self.is_level: bool = False
        """Whether the watcher has what is being written, so that pieces of it can follow."""
        self._told: int | None = None

    def begin(self, told: int) -> None:
        """Read a run that has just begun: the log has its events up to number `told`, and the queue all others."""
        self._told = told if told > self.queue.seen else None
        self.queue.behind, self.is_level = False, True

    @property
    def is_behind(self) -> bool:
        """Whether the log has events that are not in the queue."""
        return self._told is not None or self.queue.behind

    def read_log_first(self) -> int | None:
        """Return up to which event to read the log, None for all of it; what comes from here on is queued.

        If pieces were not queued before, they will have to come from the drafts.
        """
        told = None if self.queue.behind else self._told
        self.is_level = self.is_level and not self.queue.behind
        self._told, self.queue.behind = None, False
        return told

    def level(self) -> list[Draft]:
        """Return what is being written, whose pieces so far are thereby read."""
        self.is_level = True
        durable = [(number, event) for number, event in self.queue.events if event.seq is not None]
        self.queue.events.clear()
        self.queue.events.extend(durable)
        return [] if self.readers.drafts is None else self.readers.drafts.now()

    def next_event(self) -> Event | None:
        """Return the next event that has come in; None if there is none."""
        queue = self.queue
        while queue.events:
            number, event = queue.events.popleft()
            # The log may have overtaken the queue: then a live event is also too old.
            if number > queue.seen or (number == queue.seen and event.seq is None):
                queue.seen = number
                return event
        return None

    async def news(self) -> None:
        """Wait until something comes in, or the run has ended."""
        news = self.queue.expect()
        if not self.queue.has_news and not self.readers.has_ended:  # Else it came meanwhile, from another thread.
            await waited(news, self.live.scope.loop, self.live.ref.id)

    @property
    def has_read_all(self) -> bool:
        """Whether every durable event that has come in is read."""
        queue = self.queue
        return not self.is_behind and not any(event.seq is not None for _, event in queue.events)


class Watch:
    """Reads one session from the event after number `after` on.

    Between two reads, `seen` is the number of the last durable event that was yielded. A watcher holds no lease and
    stops nothing when it leaves.
    """

    def __init__(
        self,
        follower: RunFollower,
        ref: SessionRef,
        *,
        after: int,
        since: int | None,
        stay: bool,
        outlast: bool,
        begins: bool,
    ) -> None:
        """Begin to watch, with a run of this process from this moment on.

        `since` is the number of the event before the run whose end is also the end of this, unless it is to `stay`;
        None for the run that is live now. If it is to `outlast` the process that drives the run, and that dies, it
        waits for another one to go on. With `begins`, the run has just begun, and nothing was emitted before.
        """
        self.seen: int = after
        self._follower = follower
        self._sessions = follower.sessions
        self._ref = ref
        self._since = since
        self._stay = stay
        self._outlast = outlast
        self._has_caught_up = begins
        self._is_over = False
        self._joined = self._join()
        if self._joined is not None and begins:
            self._joined.begin(self._joined.live.journal.tail.seq)

    def close(self) -> None:
        """Stop reading along; whoever reads to the end, or closes `items`, need not call this."""
        if self._joined is not None:
            self._joined.readers.remove(self._joined.queue)
            self._joined = None

    def _join(self) -> _Joined | None:
        """Read along with the run of this process, if there is one: it has what is not stored, too."""
        live = self._sessions.running_as(self._ref)
        if live is None or live.readers is None or live.readers.has_ended:
            return None
        journal = live.journal
        told = journal.tail.seq if journal.is_logged(has_ended=False) else 0
        queue = EventQueue(self.seen, told)
        queue.is_unsaved = journal.emits_unsaved
        live.scope.has_reader = True
        live.readers.add(queue)
        if self._since is None:
            self._since = live.seq_before
        return _Joined(live, live.readers, queue)

    async def items(self) -> AsyncGenerator[Watched]:
        """Yield what happens, until the run has ended, or for as long as the caller reads."""
        try:
            while True:
                reading = self._follow() if self._joined is None else self._read_along(self._joined)
                async with contextlib.aclosing(reading) as items:
                    async for item in items:
                        if isinstance(item, FINAL):
                            self.seen = item.seq or self.seen
                        yield item
                        if self._is_last(item):
                            # It may have ended while what was missed was being read.
                            for each in self._catch_up():
                                yield each
                            return
                if self._is_over:
                    return
        finally:
            self.close()

    def _waits_for_others(self, head: Head) -> bool:
        """Return whether to go on watching a session that nobody runs."""
        # As "running" is stored what a process was running that has died.
        return self._stay or head.status == "queued" or (self._outlast and head.status == "running")

    def _is_last(self, item: Watched) -> bool:
        if self._stay or not isinstance(item, FINAL):
            return False
        return item.seq is None or self._since is None or item.seq > self._since

    def _catch_up(self) -> list[CaughtUp]:
        if self._has_caught_up:
            return []
        self._has_caught_up = True
        return [CaughtUp(seq=self.seen)]

    # A run of this process

    async def _read_along(self, joined: _Joined) -> AsyncGenerator[Watched]:
        """Yield the events of a run that this process drives, until it has ended or has lost its session."""
        queue, readers = joined.queue, joined.readers
        while True:
            has_ended = readers.has_ended
            if joined.is_behind:
                async for event in self._read_log(queue, joined.read_log_first()):
                    yield event
            if not joined.is_level and joined.has_read_all:
                drafts = joined.level()
                for item in (*self._catch_up(), *drafts):
                    yield item
            while (event := joined.next_event()) is not None:
                self.seen = queue.seen
                yield event
            if joined.is_behind or not joined.is_level:
                continue
            if has_ended:
                break
            await joined.news()
        self.close()
        if readers.last is not None:
            yield readers.last

    async def _read_log(self, queue: EventQueue, told: int | None) -> AsyncGenerator[Event]:
        async for event in self._follower.logged(self._ref, queue.seen):
            number = event.seq or queue.seen
            if told is not None and number > told:
                return
            queue.seen = self.seen = number
            yield event

    # A run of another process, or none

    async def _follow(self) -> AsyncGenerator[Watched]:
        """Yield stored events until this process runs the session, or there is nothing more to wait for."""
        store, pause = self._follower.sessions.settings.store, POLL[0]
        async with news_of(store, (self._ref.app, self._ref.id)) as news:
            while (head := await store.read(GetHead(self._ref))) is not None:
                self._since = head.seq if self._since is None else self._since
                found = False
                async for event in self._follower.logged(self._ref, self.seen):
                    self.seen, found = event.seq or self.seen, True
                    yield event
                if found:
                    pause = POLL[0]
                    continue
                self._joined = self._join()
                if self._joined is not None:
                    return
                for item in self._catch_up():
                    yield item
                if owner_of(head) is None and not self._waits_for_others(head):
                    break
                pause = min(2 * pause, POLL[1])
                await news.wait(NET if news.has_hints else pause)
        self._is_over = True
