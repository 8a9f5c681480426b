"""Run: the handle of one run, for async code, sync code and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from adjourn._engine.frame import current_place
from adjourn.events import FINAL, CheckpointSaved, Delta, Event, Failed, Retrying, is_muted
from adjourn.sessions._sync import wait_for
from adjourn.stores.protocol import SessionRef

from ._driving import drive, stored_end, stored_result
from ._following import CancelMode, RunFollower, check_mode
from ._live import LiveSession
from ._opening import Reader
from .result import RunResult


def wait_for_run(run: Run) -> RunResult:
    """Return the result of a run, from sync code, whether or not an event loop is running around it."""
    return wait_for(lambda: _awaited(run), name=f"adjourn-run {run.session_id}")


async def _awaited(run: Run) -> RunResult:
    return await run


def read_from_thread(run: Run) -> Iterator[Event]:
    """Yield the events of a run that has a separate event loop and thread."""
    reader = _Reader(run)
    try:
        yield from reader.events()
    finally:
        reader.leave()


class _Reader:
    """Hands the events of a run from its thread to the one that reads, one at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._handed: queue.Queue[Event | BaseException | None] = queue.Queue(maxsize=1)
        self._left = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"adjourn-run {run.session_id}", daemon=True)
        self._thread.start()

    def events(self) -> Iterator[Event]:
        while (item := self._handed.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def leave(self) -> None:
        """Stop reading; return when the run has reached its safe point, or at once if it was detached."""
        self._left = True
        if self._loop is not None and self._reading is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed, so the run has ended.
                self._loop.call_soon_threadsafe(self._reading.cancel)
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._handed.get(timeout=0.02)  # The run may be waiting to hand over an event.
            if self._run.is_detached:
                return

    def _work(self) -> None:
        try:
            asyncio.run(self._read_to_the_end())
            self._hand(None)
        except BaseException as error:  # noqa: BLE001  # passed on to the reading thread
            self._hand(error)

    async def _read_to_the_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read())
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._left:
                raise
        await self._run.settled()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._run.__aiter__()) as events:
            async for event in events:
                await asyncio.to_thread(self._hand, event)

    def _hand(self, item: Event | BaseException | None) -> None:
        while not self._left:
            with contextlib.suppress(queue.Full):
                self._handed.put(item, timeout=0.02)
                return


# A run that never has to wait is then over before the event loop sees it; Python 3.11 pays a turn of the loop.
_EAGERLY: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

Begin = Callable[[Reader], Awaitable[LiveSession | None]]


class _OfResult:
    """An attribute that a result has and a run does not: on a run, it raises an error that says what to do."""

    # Not a __getattr__ of the run: with one, Python looks up every attribute of a run the slow way.

    def __set_name__(self, owner: type[Run], name: str) -> None:
        self._name = name

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        raise AttributeError(
            f"a Run has no {self._name!r}. Await it first: result = await run.", name=self._name, obj=run
        )


class Run:
    """One run of a session. It starts when first awaited or iterated, and that is where early errors are raised.

    Leaving the loop early stops the run at its next safe point, unless it was detached.
    """

    state = _OfResult()
    output = _OfResult()
    value = _OfResult()
    interrupts = _OfResult()
    status = _OfResult()

    wants_events: bool = False
    seen: int = 0
    since: int | None = None
    is_attached: bool = False
    is_detached: bool = False
    _live: LiveSession | None = None
    _driver: asyncio.Task[None] | None = None
    _outcome: RunResult | BaseException | None = None
    _waiters: tuple[asyncio.Future[None], ...] = ()
    _was_asked_for: bool = False
    _has_started: bool = False
    _started: asyncio.Future[None] | None = None
    _news: asyncio.Event | None = None
    _told: int = 0
    _behind: bool = False
    _last: Event | None = None
    _point: str | None = None

    def __init__(self, ref: SessionRef, begin: Begin, follower: RunFollower) -> None:
        self.session_id = ref.id
        self._ref = ref
        self._begin: Begin | None = begin
        self._follower = follower
        self._sessions = follower.sessions
        self._events: deque[tuple[int, Event]] = deque()

    def __repr__(self) -> str:
        state = "not started" if self._live is None else "running" if self._outcome is None else "ended"
        return f"<Run of session {self.session_id}, {state}>"

    def __del__(self) -> None:
        if not self._was_asked_for:
            # As for a coroutine: whoever forgot the await would otherwise wonder why nothing happens.
            warnings.warn(
                f"The run of session '{self.session_id}' was never awaited or iterated, so it did not start.",
                RuntimeWarning,
                stacklevel=1,
                source=self,
            )

    # Starting and ending

    async def _start(self, *, at_once: bool = False) -> None:
        """Begin, unless already begun; `at_once` drives the run here and now, until it first has to wait."""
        self._was_asked_for = True
        if self._has_started:
            return
        begin, self._begin = self._begin, None
        if begin is None:
            self._started = self._started or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._started)
            return
        try:
            self._live = live = await begin(self)
        except BaseException as error:
            self._begin = begin  # It may be tried again.
            self._tell_started(error)
            raise
        self._has_started = True
        if live is not None:
            self._sessions.running[self.session_id] = live
            # Made without the loop's task factory, like all tasks of the engine: it is for users' tasks.
            eagerly = _EAGERLY if at_once else {}
            self._driver = asyncio.Task(self._drive(live), loop=live.scope.loop, name=self.session_id, **eagerly)
        if self._started is not None:
            self._tell_started(None)

    def _tell_started(self, error: BaseException | None) -> None:
        """Let others who wait for this run to start know that it did, or why it did not."""
        started, self._started = self._started, None
        if started is None or started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)
            started.exception()  # Mark it as retrieved: those who wait get it, but nobody has to wait.

    async def _drive(self, live: LiveSession) -> None:
        live.begin()
        well = False
        try:
            if live.journal.lease is None and not live.journal.is_unstored:
                self._outcome = result = stored_result(live)
                self.deliver([stored_end(live, result)])
            else:
                self._outcome = result = await drive(live)
                well = result.status != "cancelled"
        except asyncio.CancelledError as error:
            self._outcome = error
            raise
        except BaseException as error:  # noqa: BLE001  # passed on to whoever awaits or reads the run
            self._outcome = error
        finally:
            self._sessions.ended(live, well=well)
            if self._news is not None:
                self._news.set()
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def _finish(self) -> RunResult:
        # Inside another run, the loop starts it: nested eager runs would exhaust Python's stack.
        await self._start(at_once=current_place.get() is None)
        if self._live is None:
            async for _ in self._read():
                pass
            return await self._follower.result(self._ref, self._last, self._point)
        try:
            if self._outcome is None:
                await self._until_over()
            elif time.monotonic() > self._sessions.yield_deadline:
                await asyncio.sleep(0)  # Others on the loop get their turns, however many runs one task awaits.
        except asyncio.CancelledError:
            # The awaiting task is cancelled, not the run's own: the run stops where it can be recovered.
            if self._outcome is None and not self.is_detached:
                self._live.cut("now")
                await self.settled()
            raise
        return self._result()

    async def _until_over(self) -> None:
        """Wait for the run's end, as many may do; each has a separate future, so it can leave."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        await waiter

    def _result(self) -> RunResult:
        """Return the result of the run."""
        if isinstance(self._outcome, RunResult):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    @property
    def _goes_on(self) -> bool:
        return self._live is not None and self._outcome is None

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._finish().__await__()

    async def __aenter__(self) -> Self:
        self._was_asked_for = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._goes_on and not self.is_detached:
            await self.cancel("after_step")

    def detach(self) -> None:
        """Let the run go on when its reader leaves."""
        self.is_detached = True

    async def cancel(self, mode: CancelMode = "now", timeout: float | None = None) -> None:  # noqa: ASYNC109  # it escalates
        """Stop the run and wait until it has stopped; after `timeout` seconds a milder mode becomes "now".

        What was under way runs again when the session is recovered; open questions stay open.
        """
        self._was_asked_for = True
        check_mode(mode)
        if self.is_attached:
            await self._start()
        if self._live is None:
            await self._cancel_elsewhere(mode, timeout)
            return
        self._live.cut(mode)
        await self.settled(timeout)
        if self._goes_on:
            self._live.cut("now")
            await self.settled()

    async def _cancel_elsewhere(self, mode: CancelMode, seconds: float | None) -> None:
        if not self._has_started or not await self._follower.stop(self._ref, mode):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._until_it_ends()
        except TimeoutError:
            await self._follower.stop(self._ref, "now")
            await self._until_it_ends()

    async def _until_it_ends(self) -> None:
        async for _ in self._follower.follow(self._ref, self.seen, self.since):
            pass

    async def settled(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as that of asyncio.wait
        """Return when nothing of the run goes on any more, whatever its outcome, or after `timeout` seconds."""
        if self._driver is not None:
            await asyncio.wait([self._driver], timeout=timeout)

    # Reading

    def deliver(self, events: list[Event]) -> None:
        """Take events from the run; a reader who falls behind reads durable ones from the log later."""
        if not self.wants_events:
            return
        limit = self._sessions.settings.buffer_size
        for event in events:
            if event.seq is not None:
                self.seen = self.seen if self._told else event.seq - 1
                self._told = event.seq
                if is_muted(event):
                    continue
            elif type(event) in FINAL:
                self._last = event  # It is not in the log; it comes after everything that is.
                continue
            if not self._behind and (len(self._events) < limit or self._is_unsaved(event)):
                self._events.append((self._told, event))
            elif event.seq is not None:
                self._behind = True
            elif not self._behind:
                self._squeeze(event)
        self._tell_reader()

    def _tell_reader(self) -> None:
        if self._news is not None:
            self._news.set()

    def _is_unsaved(self, event: Event) -> bool:
        # With durability "pause" a reader gets events before the log does, so they cannot be read from there.
        return event.seq is not None and self._live is not None and self._live.journal.emits_unsaved

    def _squeeze(self, event: Event) -> None:
        """Keep of a live event what a reader who falls behind must not miss: text, which joins the piece before it."""
        number, last = self._events[-1]
        if isinstance(last, Delta) and isinstance(event, Delta):
            if last.address == event.address and last.call_id == event.call_id:
                text, reasoning = last.text + event.text, last.reasoning + event.reasoning
                self._events[-1] = number, replace(last, text=text, reasoning=reasoning)
        elif isinstance(event, Delta | Retrying):  # Without the latter, text that it makes void would remain.
            self._events.append((self._told, event))

    async def __aiter__(self) -> AsyncGenerator[Event]:
        self.wants_events = True
        await self._start()
        if self._live is not None:
            self._live.scope.has_reader = True  # The run may have been started by somebody who did not read it.
        try:
            async with contextlib.aclosing(self._read()) as events:
                async for event in events:
                    yield event
        finally:
            # Nobody reads now, so nothing is kept in memory; a reader who comes back reads the log.
            self.wants_events, self._behind = False, True
            self._events.clear()
            if self._live is not None and self._outcome is None and not self.is_detached:
                self._live.cut("after_step")
        if self._live is not None:
            if self._outcome is None:
                await self._until_over()
            self._result()
        elif self._last is None or isinstance(self._last, Failed):
            await self._follower.result(self._ref, self._last, self._point)

    async def _read(self) -> AsyncGenerator[Event]:
        if self._live is None:
            async with contextlib.aclosing(self._follower.follow(self._ref, self.seen, self.since)) as events:
                async for event in events:
                    self._note(event)
                    yield event
            return
        self._news = news = self._news or asyncio.Event()
        while True:
            news.clear()
            has_ended = self._outcome is not None
            while self._events:
                number, event = self._events.popleft()
                # The log may have overtaken the queue: then a live event is also too old.
                if number > self.seen or (number == self.seen and event.seq is None):
                    self.seen = number
                    yield event
            if self._behind:
                # From here on events are queued again; those that the log has by now are not read twice.
                self._behind = False
                async for event in self._follower.logged(self._ref, self.seen):
                    self.seen = event.seq or self.seen
                    yield event
            elif has_ended:
                break
            else:
                await news.wait()
        if self._last is not None:
            yield self._last

    def _note(self, event: Event) -> None:
        """Remember what shows the result of a run that somebody else drives."""
        self.seen = event.seq or self.seen
        if isinstance(event, FINAL):
            self._last = event
        elif isinstance(event, CheckpointSaved):
            self._point = event.checkpoint_id

    async def text(self) -> AsyncIterator[str]:
        """Yield only the pieces of text, as they arrive."""
        async with contextlib.aclosing(self.__aiter__()) as events:
            async for event in events:
                if isinstance(event, Delta) and event.text:
                    yield event.text

    def __iter__(self) -> Iterator[Event]:
        return read_from_thread(self)
