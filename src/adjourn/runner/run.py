"""Run: the handle of one run, for async code, sync code and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Literal, Self

from msgspec.structs import replace

from adjourn.core.errors import UsageError
from adjourn.core.events import FINAL, CheckpointSaved, Delta, Event, Failed, ModelRetrying, is_muted

from .driving import cut, drive, stored_end, stored_result
from .live import Live
from .result import RunResult
from .sync import read_from_thread

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")

Begin = Callable[["Run"], Awaitable[Live | None]]


async def _begun(_: Run) -> Live | None:
    raise AssertionError("a run begins once")


class _OfResult:
    """A name that a result has and a run has not: asked of a run, it says what to do."""

    # Not a __getattr__ of the run: with one, Python looks up every attribute of a run the slow way.

    def __set_name__(self, owner: type[Run], name: str) -> None:
        self._name = name

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        raise AttributeError(
            f"a Run has no {self._name!r}. Await it first: result = await run.", name=self._name, obj=run
        )


class Run:
    """One run of a session. It starts when it is first awaited or iterated, and errors before any work come there.

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
    _live: Live | None = None
    _driver: asyncio.Task[None] | None = None
    _outcome: asyncio.Future[RunResult]
    _is_awaited: bool = False
    _is_starting: bool = False
    _was_asked_for: bool = False
    _started: asyncio.Future[None] | None = None
    _following: bool = False
    _news: asyncio.Event | None = None
    _told: int = 0
    _behind: bool = False
    _last: Event | None = None
    _point: str | None = None

    def __init__(
        self,
        session_id: str,
        *,
        begin: Begin,
        follow: Callable[[str, int, int | None], AsyncGenerator[Event]],
        stored: Callable[[str, int], AsyncIterator[Event]],
        result: Callable[[str, Event | None, str | None], Awaitable[RunResult]],
        stop: Callable[[str, CancelMode], Awaitable[bool]],
        ended: Callable[..., None],
        buffer_size: int,
    ) -> None:
        self.session_id = session_id
        self._begin = begin
        self._follow = follow
        self._log = stored
        self._stored = result
        self._stop = stop
        self._ended = ended
        self._limit = buffer_size
        self._events: deque[tuple[int, Event]] = deque()

    def __repr__(self) -> str:
        state = "not started" if self._driver is None else "ended" if self._driver.done() else "running"
        return f"<Run of session {self.session_id}, {state}>"

    def __del__(self) -> None:
        if not self._was_asked_for:
            # As for a coroutine: whoever forgot the await would else wonder why nothing happens.
            warnings.warn(
                f"The run of session '{self.session_id}' was never awaited or iterated, so it did not start.",
                RuntimeWarning,
                stacklevel=1,
                source=self,
            )

    # Starting and ending

    async def _start(self) -> None:
        self._was_asked_for = True
        if self._driver is not None or self._following:
            return
        loop = asyncio.get_running_loop()
        if self._is_starting:
            self._started = self._started or loop.create_future()
            await asyncio.shield(self._started)
            return
        self._is_starting = True
        begin, self._begin = self._begin, _begun  # It holds the call, which holds this run.
        try:
            self._live = live = await begin(self)
        except BaseException as error:
            self._begin, self._is_starting = begin, False  # It may be tried again.
            self._tell_started(error)
            raise
        if live is None:
            self._following = True
        else:
            self._outcome = loop.create_future()
            # Made without the loop's factory, as the engine makes its tasks: it is for tasks of users.
            self._driver = asyncio.Task(self._drive(live), loop=loop)
        if self._started is not None:
            self._tell_started(None)

    def _tell_started(self, error: BaseException | None) -> None:
        """Tell others who wait for this run to start that it did, or why it did not."""
        started, self._started = self._started, None
        if started is None or started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)
            started.exception()  # Whoever waits for it hears it; nobody has to.

    async def _drive(self, live: Live) -> None:
        well = False
        try:
            if live.journal.lease is None and not live.journal.volatile:
                result = stored_result(live)
                self.deliver([stored_end(live, result)])
            else:
                result = await drive(live)
                well = result.status != "cancelled"
            self._open_outcome().set_result(result)
        except asyncio.CancelledError:
            self._outcome.cancel()
            raise
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits or reads the run
            self._open_outcome().set_exception(error)
            self._outcome.exception()  # Nobody has to.
        finally:
            self._ended(live, well=well)
            self._tell_reader()

    def _open_outcome(self) -> asyncio.Future[RunResult]:
        if self._outcome.cancelled():
            # Its only awaiter was cancelled just now, and has not had its turn yet; others may still ask.
            self._outcome = asyncio.get_running_loop().create_future()
        return self._outcome

    async def _finish(self) -> RunResult:
        await self._start()
        if self._driver is None:
            async for _ in self._read():
                pass
            return await self._stored(self.session_id, self._last, self._point)
        try:
            return await self._result()
        except asyncio.CancelledError:
            # Whoever awaits is cancelled, not the run's own task: it stops at a point from which it can be recovered.
            if not self._driver.done() and self._live is not None and not self.is_detached:
                cut(self._live, "now")
                await asyncio.wait([self._driver])
            raise

    async def _result(self) -> RunResult:
        """What the run comes to; many may wait for it, and each may leave."""
        if self._is_awaited or self._outcome.done():
            return await asyncio.shield(self._outcome)
        self._is_awaited = True
        try:
            # Without a shield, which costs a turn of the loop: whoever leaves takes only this future along.
            return await self._outcome
        finally:
            self._is_awaited = False
            if self._outcome.cancelled() and self._driver is not None and not self._driver.done():
                self._outcome = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._finish().__await__()

    async def __aenter__(self) -> Self:
        self._was_asked_for = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is not None and not self._driver.done() and not self.is_detached:
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
        if self._driver is None or self._live is None:
            await self._cancel_elsewhere(mode, timeout)
            return
        cut(self._live, mode)
        done, _ = await asyncio.wait([self._driver], timeout=timeout)
        if not done:
            cut(self._live, "now")
            await asyncio.wait([self._driver])

    async def _cancel_elsewhere(self, mode: CancelMode, seconds: float | None) -> None:
        if not self._following or not await self._stop(self.session_id, mode):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._until_it_ends()
        except TimeoutError:
            await self._stop(self.session_id, "now")
            await self._until_it_ends()

    async def _until_it_ends(self) -> None:
        async for _ in self._follow(self.session_id, self.seen, self.since):
            pass

    async def settled(self) -> None:
        """Return when nothing of the run goes on any more, whatever became of it."""
        if self._driver is not None:
            await asyncio.wait([self._driver])

    # Reading

    def deliver(self, events: list[Event]) -> None:
        """Take events from the run; a reader who falls behind reads durable ones from the log later."""
        if not self.wants_events:
            return
        for event in events:
            if event.seq is not None:
                self.seen = self.seen if self._told else event.seq - 1
                self._told = event.seq
                if is_muted(event):
                    continue
            elif type(event) in FINAL:
                self._last = event  # It is in no log; it comes after all that is.
                continue
            if not self._behind and (len(self._events) < self._limit or self._is_unsaved(event)):
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
        # With durability "pause" a reader is told before the log is, so that it cannot be read from there.
        return event.seq is not None and self._live is not None and self._live.journal.tells_unsaved

    def _squeeze(self, event: Event) -> None:
        """Keep of a live event what a reader who falls behind must not miss: text, which joins the piece before it."""
        number, last = self._events[-1]
        if isinstance(last, Delta) and isinstance(event, Delta):
            if last.address == event.address and last.call_id == event.call_id:
                text, reasoning = last.text + event.text, last.reasoning + event.reasoning
                self._events[-1] = number, replace(last, text=text, reasoning=reasoning)
        elif isinstance(event, Delta | ModelRetrying):  # Without the latter, what it makes void would stand.
            self._events.append((self._told, event))

    async def __aiter__(self) -> AsyncGenerator[Event]:
        self.wants_events = True
        await self._start()
        try:
            async with contextlib.aclosing(self._read()) as events:
                async for event in events:
                    yield event
        finally:
            # Nobody reads now, so nothing is kept in memory; one who comes back reads the log.
            self.wants_events, self._behind = False, True
            self._events.clear()
            if self._driver is not None and not self._driver.done() and not self.is_detached and self._live is not None:
                cut(self._live, "after_step")
        if self._driver is not None:
            await self._result()
        elif self._last is None or isinstance(self._last, Failed):
            await self._stored(self.session_id, self._last, self._point)

    async def _read(self) -> AsyncGenerator[Event]:
        if self._driver is None:
            async with contextlib.aclosing(self._follow(self.session_id, self.seen, self.since)) as events:
                async for event in events:
                    self._note(event)
                    yield event
            return
        self._news = news = self._news or asyncio.Event()
        while True:
            news.clear()
            has_ended = self._driver.done()
            while self._events:
                number, event = self._events.popleft()
                # The log may have overtaken the queue: then a live event is too old, too.
                if number > self.seen or (number == self.seen and event.seq is None):
                    self.seen = number
                    yield event
            if self._behind:
                # From here on events are queued again; what the log has of them by now is not read twice.
                self._behind = False
                async for event in self._log(self.session_id, self.seen):
                    self.seen = event.seq or self.seen
                    yield event
            elif has_ended:
                break
            else:
                await news.wait()
        if self._last is not None:
            yield self._last

    def _note(self, event: Event) -> None:
        """Remember of a run that somebody else drives what tells its result."""
        self.seen = event.seq or self.seen
        if isinstance(event, FINAL):
            self._last = event
        elif isinstance(event, CheckpointSaved):
            self._point = event.checkpoint_id

    async def text(self) -> AsyncIterator[str]:
        """Only the pieces of text, as they arrive."""
        async with contextlib.aclosing(self.__aiter__()) as events:
            async for event in events:
                if isinstance(event, Delta) and event.text:
                    yield event.text

    def __iter__(self) -> Iterator[Event]:
        return read_from_thread(self)


def check_mode(mode: str) -> None:
    """Refuse a cancel mode that does not exist."""
    if mode not in MODES:
        raise UsageError(f"cancel(mode={mode!r}): use one of {', '.join(MODES)}.")
