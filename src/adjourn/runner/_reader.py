"""The reader: a session's log from any event on, and then what happens, whichever process runs it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.events import FINAL, Delta, Done, Event, Interrupted, Progress, Retrying, is_muted
from adjourn.sessions._log import read_events
from adjourn.sessions._news import news_of
from adjourn.sessions._span import Span, final_state, open_at, spans
from adjourn.sessions._status import owner_of
from adjourn.stores.kit import GetHead, ListEvents
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, SessionRef

from ._log import LogWriter
from ._loops import waited, wake

WAITING = 256
"""How many events wait in memory for a slow reader; it reads the others from the store."""

PAGES = (100, 6400)
"""Records whose events are read at once: at first, and at most."""

POLL = (0.01, 0.25)
"""Seconds between polls of a session that another process runs: the first and the longest."""

NET = 1.0
"""Seconds between polls if the store gives hints, which may be lost; that an owner dies is never hinted at."""


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="caught_up"):
    """What was stored before has been read, up to the event number `seq`; what follows is new.

    It comes again when a reader that stays meets a run in its middle, or was too slow and has read what it missed.
    """

    seq: int


Watched: TypeAlias = Event | CaughtUp
"""What a `Reader` reads."""

_LAST = frozenset(FINAL)  # Looked up for every streamed token: a set is faster than a tuple of classes.


class Reader:
    """Reads one session from the event after number `after` on.

    A reader holds no lease, and stops nothing when it leaves. It has two sources. The log has every durable event, once
    that is stored. While this process runs the session, the run also puts what it emits into `_queue`, live events
    included. Between two items:

    - `seen` is the number of the last durable event that was yielded. Events up to `seen` are dropped: both sources may
      have one, as a reader joins the queue before it looks into the log. A live event that was emitted before event
      `seen` is dropped, too, as the log has overtaken it.
    - `_queue` is None while no run of this process is read. Then the log is followed.
    - `_until` is not 0 if the log has events that the queue lacks: those after `seen`, up to this number. They come
      before what is in the queue. That is so after joining a run, and after the queue was full.
    - `_is_level` says that the reader gets live events. It does not after joining a run in its middle, and after the
      queue was full, until it has read everything else and is told so by `CaughtUp`. Then it can look up elsewhere what
      it missed, such as the beginning of a text. Only a reader that finds runs is ever not level.

    A run on another thread may emit at any time. So `has_ended` is read before the queue is, and the queue is filled
    again before its `told` is read.
    """

    def __init__(
        self,
        store: Store,
        ref: SessionRef,
        *,
        after: int,
        since: int | None = None,
        whole: bool = True,
        find: Callable[[SessionRef], Readers | None] | None = None,
        begins: bool = False,
        stay: bool = False,
        outlast: bool = False,
    ) -> None:
        """Read after an event, up to the end of the run that began after event `since` (None: that is live now).

        With `find`, runs of this process are read along from this moment on, and `CaughtUp` is yielded, unless the run
        just `begins`. The reader does not end with the run if it is to `stay`; and if it is to `outlast` a process that
        drives the run and dies, it waits for another one to continue. Unless `whole`, a pause comes without its
        questions, and an end without its state.
        """
        self.seen: int = after
        self.since: int | None = since
        self._queue: EventQueue | None = None
        self._store = store
        self._ref = ref
        self._whole = whole
        self._find = find
        self._stay = stay
        self._outlast = outlast
        self._until: int = 0
        self._is_level: bool = find is None
        self._has_caught_up: bool = begins or find is None
        self._is_over: bool = False
        if find is not None and (readers := find(ref)) is not None:
            self.join(readers)
            self.follow_on()
            self._is_level = begins

    def join(self, readers: Readers) -> None:
        """Let a run queue what it emits from now on, even before it has begun; then `follow_on` is called."""
        self._queue = queue = readers.add()
        if readers.opening:
            queue.put(readers.opening)

    def follow_on(self) -> None:
        """Read the run that was joined, now that it has begun: what it emitted before is in the log."""
        queue = self._queue
        assert queue is not None
        writer = queue.readers.log
        assert writer is not None
        if self.since is None:
            self.since = queue.readers.before
        queue.is_unsaved = writer.emits_unsaved
        if not queue.readers.has_ended:
            writer.scope.has_reader = True  # It may have been started by a caller who did not read it.
        last = writer.tail.seq
        # A run on another thread may have emitted something since it was joined, but the reader lacks what was before.
        until = queue.since if queue.told == last else last
        if self.seen < until and not writer.is_unstored:
            self._until, queue.told = until, last

    @property
    def listener(self) -> Listener | None:
        """What hears the run of this process that is read at the moment."""
        return None if self._queue is None else self._queue.readers.listener

    def close(self) -> None:
        """Stop reading along; a caller who reads to the end, or closes `items`, need not call this."""
        if self._queue is not None:
            self._queue.readers.remove(self._queue)
            self._queue = None

    async def items(self) -> AsyncGenerator[Watched]:  # noqa: PLR0912  # a call less for every token
        """Yield what happens, until the run has ended, or for as long as the caller reads."""
        loop = asyncio.get_running_loop()
        try:
            while not self._is_over:
                queue = self._queue
                if queue is None or self._until:
                    async with contextlib.aclosing(self._missed() if self._until else self._follow()) as items:
                        async for item in items:
                            yield item
                            if self._is_last(item):
                                break
                    continue
                has_ended, queue.is_elsewhere = queue.readers.has_ended, queue.readers.loop is not loop
                while queue.events:
                    number, event = queue.events.popleft()
                    if event.seq is not None:
                        if number <= self.seen:
                            continue
                        self.seen = number
                    elif 0 < number < self.seen or not self._is_level:
                        continue  # Number 0 is before the run's first durable event: nothing can have overtaken it.
                    yield event
                    if type(event) in _LAST and self._is_last(event):
                        break
                else:
                    found = self._after_queue(queue, has_ended=has_ended)
                    if found is None:
                        await queue.news(self._ref.id)
                    for item in found or ():
                        yield item
                        self._is_last(item)
            if not self._has_caught_up:  # The run has ended while what was missed was being read.
                yield CaughtUp(seq=self.seen)
        finally:
            self.close()

    def _after_queue(self, queue: EventQueue, *, has_ended: bool) -> list[Watched] | None:
        """Return what follows when everything in the queue is read; None if that has yet to happen."""
        readers = queue.readers
        if queue.behind:
            self._until, self._is_level = queue.refill(), self._find is None
            return []
        if not self._is_level:
            self._is_level = self._has_caught_up = True
            return [CaughtUp(seq=self.seen)]
        if not has_ended:
            return None
        self.close()
        self._is_over = self._find is None
        return [] if readers.last is None else [readers.last]

    def _is_last(self, item: Watched) -> bool:
        """Return, and remember, whether an item is the end of the run that is read."""
        if isinstance(item, FINAL) and not self._stay:
            self._is_over = item.seq is None or self.since is None or item.seq > self.since
        return self._is_over

    async def _missed(self) -> AsyncGenerator[Event]:
        """Yield the events that the log has and the queue lacks."""
        until, self._until = self._until, 0
        async for event in logged(self._store, self._ref, self.seen):
            number = event.seq or self.seen
            if number > until:
                return
            self.seen = number
            yield event

    async def _follow(self) -> AsyncGenerator[Watched]:
        """Yield stored events until this process runs the session, or there is nothing more to wait for."""
        store, pause = self._store, POLL[0]
        async with news_of(store, (self._ref.app, self._ref.id)) as news:
            while (head := await store.read(GetHead(self._ref))) is not None:
                self.since = head.seq if self.since is None else self.since
                found = False
                async for event in logged(store, self._ref, self.seen, whole=self._whole):
                    self.seen, found = event.seq or self.seen, True
                    yield event
                if found:
                    pause = POLL[0]
                    continue
                if self._find is not None and (readers := self._find(self._ref)) is not None:
                    self.join(readers)
                    self.follow_on()
                    self._is_level = False
                    return
                if not self._has_caught_up:
                    self._has_caught_up = True
                    yield CaughtUp(seq=self.seen)
                if owner_of(head) is None and not self._waits_for_others(head):
                    break
                pause = min(2 * pause, POLL[1])
                await news.wait(NET if news.has_hints else pause)
        self._is_over = True

    def _waits_for_others(self, head: Head) -> bool:
        """Return whether to keep reading a session that no process runs."""
        # As "running" is stored what a process was running that has died.
        return self._stay or head.status == "queued" or (self._outlast and head.status == "running")


# What a run of this process emits


class EventQueue:
    """What one reader has not taken yet of what a run emits, each event with the number of the durable one before it.

    The run puts events in on its thread, and never waits; the reader takes them out on its own. `told` is the number of
    the last durable event that came in; every one after number `since` did, up to it. Of a reader who is `behind`,
    nothing is queued any more until it asks for it: the log has what is missing. With `is_unsaved` the log may not have
    it yet, so durable events are queued all the same.
    """

    def __init__(self, readers: Readers) -> None:
        self.readers: Readers = readers
        self.events: deque[tuple[int, Event]] = deque()
        self.told: int = 0
        self.since: int = 0
        self.behind: bool = False
        self.is_unsaved: bool = False
        self.is_elsewhere: bool = False
        """Whether its reader is on another event loop than the run."""
        self._news: asyncio.Future[None] | None = None

    def put(self, events: Sequence[Event]) -> None:
        """Add events, and let the reader know."""
        for event in events:
            number = event.seq
            if number is not None:
                if number != self.told + 1:
                    self.since = number - 1
                self.told = number
                if is_muted(event):
                    continue
            if self.behind:
                continue
            if len(self.events) < WAITING or (number is not None and self.is_unsaved):
                self.events.append((self.told, event))
            elif number is not None:
                self.behind = True
            else:
                self._squeeze(event)
        if self._news is not None:
            self.tell()

    def _squeeze(self, event: Event) -> None:
        """Keep of a live event what a reader who falls behind must not miss: pieces, which join the one before."""
        if self.is_elsewhere:
            # Its reader may take out any event meanwhile, so none can be changed: at most, one text's pieces wait here.
            if isinstance(event, Delta | Retrying):
                self.events.append((self.told, event))
            return
        number, last = self.events[-1]
        if isinstance(last, Delta) and isinstance(event, Delta):
            if last.address == event.address and last.call_id == event.call_id:
                self.events.pop()
                self.events.extend((number, joined) for joined in _joined(last, event))
        elif isinstance(event, Delta | Retrying):  # Without the latter, text that it makes void would remain.
            self.events.append((self.told, event))
        elif isinstance(event, Progress):
            self._supersede(event)

    def _supersede(self, report: Progress) -> None:
        """Let a task's latest report of its progress take the place of the one that waits here, if any."""
        for place in range(len(self.events) - 1, -1, -1):
            number, event = self.events[place]
            if isinstance(event, Progress) and event.address == report.address:
                self.events[place] = number, report
                return
        self.events.append((self.told, report))

    def refill(self) -> int:
        """Queue events again; return the number of the last one that the log has in their place."""
        self.behind = False  # First, as the run may emit at any time: what both have is read once.
        return self.told

    def tell(self) -> None:
        """Let the reader know that there is something new."""
        news = self._news
        if news is not None:
            self._news = None
            wake(news)

    async def news(self, session_id: str) -> None:
        """Wait until something comes in, or the run has ended."""
        self._news = news = asyncio.get_running_loop().create_future()
        if not (self.events or self.behind or self.readers.has_ended):  # Else it came meanwhile, from another thread.
            await waited(news, self.readers.loop, session_id)


def _joined(last: Delta, piece: Delta) -> list[Delta]:
    """Return two pieces as one; text and a tool call, or two calls, stay apart."""
    one, other = last.tool_call, piece.tool_call
    if one is None and other is None:
        return [replace(last, text=last.text + piece.text, reasoning=last.reasoning + piece.reasoning)]
    if one is not None and other is not None and one.index == other.index:
        return [replace(last, tool_call=replace(other, arguments=one.arguments + other.arguments))]
    return [last, piece]


class Listener(Protocol):
    """Hears all events of one run of this process, on its thread, before its readers have them."""

    def note(self, event: Event) -> None:
        """Hear an event; it must not raise anything."""
        ...


_changing_readers = threading.Lock()


class Readers:
    """Those who read one run of this process; `before` is the number of the last event before it.

    The run has no `log` before it has its session.
    """

    # No __init__, which would be one more call for every run.
    log: LogWriter | None = None
    loop: asyncio.AbstractEventLoop | None = None
    before: int = 0
    queues: tuple[EventQueue, ...] = ()
    listener: Listener | None = None
    opening: tuple[Event, ...] = ()
    """What the run emitted while it got its session, if it has a listener: then readers may join it right after."""
    has_ended: bool = False
    last: Event | None = None
    """The last event of the run, if it is not in the log: it comes after everything that is."""

    def deliver(self, events: list[Event]) -> None:
        """Take events from the run."""
        if events and type(last := events[-1]) in _LAST and last.seq is None:
            self.last = last
            events = events[:-1]
        if self.listener is not None:
            if self.log is None:
                self.opening += tuple(events)
            for event in events:
                self.listener.note(event)
        for queue in self.queues:
            queue.put(events)

    def add(self) -> EventQueue:
        """Return a queue of what happens from now on."""
        queue = EventQueue(self)
        with _changing_readers:
            self.queues = (*self.queues, queue)
        return queue

    def remove(self, queue: EventQueue) -> None:
        """Let a reader go; what it has not read is in the log."""
        with _changing_readers:
            self.queues = tuple(each for each in self.queues if each is not queue)


# What is stored


async def logged(store: Store, ref: SessionRef, after: int, *, whole: bool = True) -> AsyncIterator[Event]:
    """Yield the events after a number that are stored by now, as readers of a run get them.

    Unless `whole`, a pause comes without its questions, and an end without its state.
    """
    async for page in pages(store, ref, after):
        completed = await _completed(store, ref, page) if whole else {}
        for event, point in page:
            read = completed.get(point) if isinstance(event, Done | Interrupted) else None
            if isinstance(read, CheckpointCorrupt):
                raise read
            if not is_muted(event):
                yield read or event


async def pages(store: Store, ref: SessionRef, after: int) -> AsyncIterator[list[tuple[Event, str]]]:
    """Yield every stored event after a number with the checkpoint that holds it, in ever larger pages.

    The states of a page are read together, and reading those of its end means to read everything before it: with
    pages of one size, the whole would take time that grows with the square of its length.
    """
    size = PAGES[0]
    try:
        while batches := await store.read(ListEvents(ref, after, limit=size)):
            page = [(event, batch.id) for batch in batches for event in read_events(batch)]
            page = [(event, point) for event, point in page if event.seq is not None and event.seq > after]
            if not page:
                return
            after, size = page[-1][0].seq or after, min(2 * size, PAGES[1])
            yield page
    except CheckpointNotFound:
        return  # It has been forgotten or deleted since, and its events with it.


async def _completed(
    store: Store, ref: SessionRef, page: list[tuple[Event, str]]
) -> dict[str, Event | CheckpointCorrupt]:
    """Return, by checkpoint, the pauses of a page with their questions and the ends with their states.

    Those of checkpoints that have been pruned are left out.
    """
    ends = {point: event for event, point in page if isinstance(event, Done | Interrupted)}
    found: dict[str, Event | CheckpointCorrupt] = {}
    async for points, span in spans(store, ref, list(reversed(ends))):
        for point in points:
            read = await _whole(store, ends[point], span, point) if isinstance(span, Span) else span
            if not isinstance(read, CheckpointNotFound):
                found[point] = read
    return found


async def _whole(store: Store, event: Done | Interrupted, span: Span, point: str) -> Event | CheckpointCorrupt:
    try:
        tree = span.fold_to(point)
        if isinstance(event, Done):
            return replace(event, state=final_state(tree))
        asked = await open_at(store, span.loaded_at(point), tree)
    except CheckpointCorrupt as damage:
        return damage
    return replace(event, interrupts=asked)
