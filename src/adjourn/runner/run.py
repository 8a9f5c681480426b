"""Run: the handle of one run, for async code, sync code and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Literal, Self

from adjourn.core.errors import UsageError
from adjourn.core.events import FINAL, CheckpointSaved, Delta, Event, Failed

from .driving import cut, drive, stored_result
from .live import Live
from .result import RunResult
from .sync import read_from_thread

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]
MODES = ("now", "after_model", "after_tools", "after_step")

Begin = Callable[["Run"], Awaitable[Live | None]]


async def _begun(_: Run) -> Live | None:
    raise AssertionError("a run begins once")


class Run:
    """One run of a session. It starts when it is first awaited or iterated, and errors before any work come there.

    Leaving the loop early stops the run at its next safe point, unless it was detached.
    """

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
        self.wants_events = False
        self._begin = begin
        self._follow = follow
        self._log = stored
        self._stored = result
        self._stop = stop
        self._ended = ended
        self._limit = buffer_size
        self._live: Live | None = None
        self._driver: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[RunResult]
        self._is_awaited = False
        self._starting: asyncio.Future[None] | None = None
        self._events: deque[tuple[int, Event]] = deque()
        self._told = 0
        self._news = asyncio.Event()
        self.seen = 0
        self.since: int | None = None
        self.is_attached = False
        self._behind = False
        self._last: Event | None = None
        self._point: str | None = None
        self.is_detached = False
        self._following = False

    def __repr__(self) -> str:
        state = "not started" if self._driver is None else "ended" if self._driver.done() else "running"
        return f"<Run of session {self.session_id}, {state}>"

    def __getattr__(self, name: str) -> Any:
        hint = (
            " Await it first: result = await run."
            if name in ("state", "output", "value", "interrupts", "status")
            else ""
        )
        raise AttributeError(f"a Run has no {name!r}.{hint}", name=name, obj=self)

    # Starting and ending

    async def _start(self) -> None:
        if self._driver is not None or self._following:
            return
        if self._starting is not None:
            await asyncio.shield(self._starting)
            return
        loop = asyncio.get_running_loop()
        self._starting = loop.create_future()
        begin, self._begin = self._begin, _begun  # It holds the call, which holds this run.
        try:
            self._live = live = await begin(self)
        except BaseException as error:
            self._begin = begin  # It may be tried again.
            self._fail_start(error)
            raise
        if live is None:
            self._following = True
        else:
            self._outcome = loop.create_future()
            self._driver = loop.create_task(self._drive(live))
        self._starting.set_result(None)

    def _fail_start(self, error: BaseException) -> None:
        starting, self._starting = self._starting, None
        if starting is not None and not starting.done():
            starting.set_exception(error)
            starting.exception()  # Whoever waits for it hears it; nobody has to.

    async def _drive(self, live: Live) -> None:
        well = False
        try:
            if live.journal.lease is None and not live.journal.volatile:
                result = stored_result(live)
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
            self._news.set()

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
            if event.seq is None and isinstance(event, FINAL):
                self._last = event  # It is in no log; it comes after all that is.
            elif not self._behind and (len(self._events) < self._limit or self._is_unsaved(event)):
                self._events.append((self._told, event))
            elif event.seq is not None:
                self._behind = True
        self._news.set()

    def _is_unsaved(self, event: Event) -> bool:
        # With durability "pause" a reader is told before the log is, so that it cannot be read from there.
        return event.seq is not None and self._live is not None and self._live.journal.tells_unsaved

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
        while True:
            self._news.clear()
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
                await self._news.wait()
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
