"""Readers of a live run: each has its own queue of events, and may be on another event loop than the run."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque

from msgspec.structs import replace

from adjourn.errors import Conflict
from adjourn.events import FINAL, Delta, Event, Progress, Retrying, is_muted

from ._drafts import Drafts

_passing: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def mark_passing(loop: asyncio.AbstractEventLoop) -> None:
    """Note that an event loop is for one run only: it closes when that has ended."""
    _passing.add(loop)


def is_passing(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop is for one run only."""
    return loop in _passing


BUFFER = 256
"""How many events wait in memory for a slow reader; it reads the others from the store."""
LOOK = 1.0
"""Seconds between looks at the event loop of a run, while somebody waits for it on another one."""


def wake(waiter: asyncio.Future[None]) -> None:
    """Let whoever waits go on, on whichever event loop that is."""
    loop = waiter.get_loop()
    try:
        if asyncio.get_running_loop() is loop:
            if not waiter.done():
                waiter.set_result(None)
            return
    except RuntimeError:
        pass
    try:
        loop.call_soon_threadsafe(_wake, waiter)
    except RuntimeError:
        return  # The loop is closed: nobody is waiting there any more.


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def waited(waiter: asyncio.Future[None], loop: asyncio.AbstractEventLoop | None, session_id: str) -> None:
    """Wait for something that is to happen on an event loop.

    Raises:
        Conflict: that loop was closed before it happened.
    """
    if loop is None or loop is asyncio.get_running_loop():
        await waiter
        return
    while not waiter.done():
        await asyncio.wait([waiter], timeout=LOOK)
        if loop.is_closed() and not waiter.done():
            raise Conflict(session_id, "the event loop of its run is closed")


class EventQueue:
    """The events of a run that one reader has not read yet; `seen` is the number of the last one that it has.

    `first` is the number of the first event of the run, as far as this reader knows; `told` of the last that came in.
    Of a reader who is `behind`, the log has what is missing here; with `is_unsaved`, it has nothing yet. Events come in
    on the run's thread.
    """

    def __init__(self, seen: int, told: int) -> None:
        self.events: deque[tuple[int, Event]] = deque()
        self.seen: int = seen
        self.told: int = told
        self.first: int = seen + 1
        self.behind: bool = told > 0
        self.is_unsaved: bool = False
        self._news: asyncio.Future[None] | None = None

    def put(self, events: list[Event]) -> None:
        """Add events, and let the reader know; what is already `behind` stays in the log."""
        for event in events:
            number = event.seq
            if number is not None:
                if not self.told:
                    self.first, self.seen = number, number - 1
                    self.events = deque([(self.seen, waiting) for _, waiting in self.events])  # They came before it.
                self.told = number
                if is_muted(event):
                    continue
            if self.behind:
                continue
            if len(self.events) < BUFFER or (number is not None and self.is_unsaved):
                self.events.append((self.told, event))
            elif number is not None:
                self.behind = True
            else:
                self._squeeze(event)
        if self._news is not None:
            self.tell()

    def _squeeze(self, event: Event) -> None:
        """Keep of a live event what a reader who falls behind must not miss: pieces, which join the one before."""
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

    def tell(self) -> None:
        """Let the reader know that there is something new."""
        news = self._news
        if news is not None:
            self._news = None
            wake(news)

    def expect(self) -> asyncio.Future[None]:
        """Return what is done when something new comes after this call."""
        self._news = news = asyncio.get_running_loop().create_future()
        return news

    @property
    def has_news(self) -> bool:
        """Whether there is something to read."""
        return bool(self.events) or self.behind


def _joined(last: Delta, piece: Delta) -> list[Delta]:
    """Return two pieces as one; text and a tool call, or two calls, stay apart."""
    one, other = last.tool_call, piece.tool_call
    if one is None and other is None:
        return [replace(last, text=last.text + piece.text, reasoning=last.reasoning + piece.reasoning)]
    if one is not None and other is not None and one.index == other.index:
        return [replace(last, tool_call=replace(other, arguments=one.arguments + other.arguments))]
    return [last, piece]


_changing_readers = threading.Lock()
_LAST = frozenset(FINAL)  # Looked up for every streamed token: a set is faster than a tuple of classes.


class Readers:
    """Those who read one run, and what it is writing if somebody may begin to read in the middle."""

    __slots__ = ("drafts", "has_ended", "last", "queues")

    def __init__(self, drafts: Drafts | None) -> None:
        self.drafts: Drafts | None = drafts
        self.queues: tuple[EventQueue, ...] = ()
        self.has_ended: bool = False
        self.last: Event | None = None
        """The last event of the run, if it is not in the log: it comes after everything that is."""

    def deliver(self, events: list[Event]) -> None:
        """Take events from the run; a reader who falls behind reads durable ones from the log later."""
        if events and type(last := events[-1]) in _LAST and last.seq is None:
            self.last = last
            events = events[:-1]
        if self.drafts is not None:
            for event in events:
                self.drafts.note(event)
        for queue in self.queues:
            queue.put(events)

    def add(self, queue: EventQueue) -> None:
        """Let a reader have what happens from now on."""
        with _changing_readers:
            self.queues = (*self.queues, queue)

    def remove(self, queue: EventQueue) -> None:
        """Let a reader go; what it has not read is in the log."""
        with _changing_readers:
            self.queues = tuple(each for each in self.queues if each is not queue)

    def end(self) -> None:
        """Let every reader know that the run has ended."""
        self.has_ended = True
        for queue in self.queues:
            queue.tell()
