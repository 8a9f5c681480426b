"""Run: the handle of one run, for async code, sync code and notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from adjourn._engine.concurrency import EAGERLY, context_for_run, waiting
from adjourn._engine.entry import current_place
from adjourn._generics import Defaulted, Out_co, State_co
from adjourn.errors import AdjournError, Conflict, UsageError
from adjourn.events import FINAL, CheckpointSaved, Delta, Event, Failed
from adjourn.sessions._sync import as_twin, wait_for
from adjourn.stores.types import SessionRef

from ._driving import drive, stored_end, stored_result
from ._following import CancelMode, RunFollower, check_mode
from ._live import Ending, LiveSession
from ._loops import mark_passing, waited, wake
from ._opening import RunHandle
from ._reader import Reader, Readers, Watched
from .result import RunResult

Self_ = TypeVar("Self_")
P = ParamSpec("P")


def sync_run(
    method: Callable[Concatenate[Self_, P], Run[Out_co, State_co]],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Self_, P], RunResult[Out_co, State_co]]]:
    """Make the decorated function the sync twin of a method that returns a run."""
    name = method.__name__

    def call(self: Self_, *args: P.args, **kwargs: P.kwargs) -> RunResult[Out_co, State_co]:
        bound: Callable[P, Run[Out_co, State_co]] = getattr(self, name)
        return wait_for_run(bound(*args, **kwargs))

    return lambda twin: as_twin(twin, call, method)


def wait_for_run(run: Run[Out_co, State_co]) -> RunResult[Out_co, State_co]:
    """Return the result of a run, from sync code, whether or not an event loop is running around it."""
    return wait_for(lambda: _awaited(run), name=f"adjourn-run {run.session_id}")


async def _awaited(run: Run[Out_co, State_co]) -> RunResult[Out_co, State_co]:
    mark_passing(asyncio.get_running_loop())
    return await run


def read_from_thread(run: Run) -> Iterator[Event]:
    """Yield the events of a run that has a separate event loop and thread."""
    reader = _ThreadReader(run)
    try:
        yield from reader.events()
    finally:
        reader.leave()


LEAVING = 5.0
"""Seconds for which sync code that leaves a loop early waits for the run's safe point."""


class _ThreadReader:
    """Hands the events of a run from its thread to the one that reads, one at a time.

    Both sides may be left behind when the process ends, so nothing here keeps it from ending: the run's thread is a
    daemon, and only it waits on its event loop.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._handed: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._left = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None
        self._room = asyncio.Semaphore(1)
        work, name = (self._work,), f"adjourn-run {run.session_id}"
        self._thread = threading.Thread(target=context_for_run().run, args=work, name=name, daemon=True)
        self._thread.start()

    def events(self) -> Iterator[Event]:
        while (item := self._next()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self) -> Event | BaseException | None:
        with waiting():
            item = self._handed.get()
        self._on_loop(self._room.release)
        return item

    def _on_loop(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed, so the run has ended.
                self._loop.call_soon_threadsafe(call)

    def leave(self) -> None:
        """Stop reading; return when the run has reached its safe point, or at once if it was detached.

        A run may await something that never comes, which must not keep the process from ending. One that takes longer
        goes on to its safe point, as where async code leaves it, or until the process ends.
        """
        self._left = True
        if self._reading is not None:
            self._on_loop(self._reading.cancel)
        until = time.monotonic() + LEAVING
        while self._thread.is_alive() and not self._run.is_detached and time.monotonic() < until:
            if sys.is_finalizing():
                break  # Daemon threads stand still by now: the run ends as in a crash.
            with waiting():
                self._thread.join(0.02)

    def _work(self) -> None:
        try:
            asyncio.run(self._read_to_the_end())
        except BaseException as error:  # noqa: BLE001  # passed on to the reading thread
            self._handed.put(error)
        else:
            self._handed.put(None)

    async def _read_to_the_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        mark_passing(self._loop)
        self._reading = self._loop.create_task(self._read())
        if self._left:
            self._reading.cancel()
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._left:
                raise
        await self._run.settled()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._run.__aiter__()) as events:
            async for event in events:
                await self._room.acquire()
                self._handed.put(event)


Begin = Callable[[RunHandle], Awaitable[LiveSession | None]]


def _ending(live: LiveSession, outcome: RunResult | BaseException | None) -> Ending:
    """Return how a run that was driven here has ended."""
    if isinstance(outcome, Conflict):
        return "taken_over"  # Its lease was over, because this process or its store was too slow.
    if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
        return "failed"
    if live.status == "queued":
        return "handed_over"
    if not isinstance(outcome, RunResult):
        return "cancelled"
    return "waiting" if outcome.status == "interrupted" else outcome.status


class _OfResult:
    """An attribute that a result has and a run does not: on a run, it raises an error that says what to do."""

    # Not a __getattr__ of the run: with one, Python looks up every attribute of a run the slow way.

    def __set_name__(self, owner: type[Run], name: str) -> None:
        self._name = name

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        raise AttributeError(
            f"a Run has no {self._name!r}. Await it first: result = await run.", name=self._name, obj=run
        )


class Run(Defaulted, Generic[Out_co, State_co]):
    """One run of a session. It starts when first awaited or iterated, and that is where early errors are raised.

    Leaving the loop early stops the run at its next safe point, unless it was detached.
    """

    state: _OfResult = _OfResult()
    output: _OfResult = _OfResult()
    value: _OfResult = _OfResult()
    interrupts: _OfResult = _OfResult()
    status: _OfResult = _OfResult()

    seen: int = 0
    """The number of the last durable event that was read of it."""
    since: int | None = None
    """If another process drives it: the number of the event before it; None if it is whatever runs there now."""
    is_attached: bool = False
    is_detached: bool = False
    has_driven: bool = False
    """Whether it has run anything, or else only returns what is stored."""
    _driver: asyncio.Task[None] | None = None
    _was_asked_for: bool = False
    _last: Event | None = None
    _point: str | None = None

    def __init__(self, ref: SessionRef, begin: Begin, follower: RunFollower) -> None:
        self.session_id: str = ref.id
        self._ref = ref
        self._begin = [begin]  # Whoever takes it starts the run; taking it is atomic.
        self._starting: list[asyncio.Future[None]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._follower = follower
        self._sessions = sessions = follower.sessions
        self._readers = readers = Readers()
        if sessions.listen is not None:
            readers.listener = sessions.listen()
        self.deliver: Callable[[list[Event]], None] = readers.deliver
        self._live: LiveSession | None = None
        self._outcome: RunResult[Out_co, State_co] | BaseException | None = None
        self._cancelled: CancelMode | None = None
        self._has_started: bool = False
        self._users: int = 0

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

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled before it began."""
        return self._cancelled is not None

    @property
    def is_running(self) -> bool:
        """Whether this process drives it at the moment."""
        return self._goes_on

    # Starting and ending

    async def start(self) -> None:
        """Start the run without waiting for it; what awaiting it would raise before any work is raised here."""
        await self._start()

    async def _start(self, *, at_once: bool = False) -> None:
        """Begin, unless already begun; `at_once` drives the run here and now, until it first has to wait."""
        self._was_asked_for = True
        if self._has_started:
            return
        while not self._begin:
            await self._until_opened()
            if self._has_started:
                return
        begin = self._begin.pop()
        try:
            self._live = live = await begin(self)
        except BaseException:
            self._begin.append(begin)  # It may be tried again, also by others who wait for it to start.
            self._tell_started()
            raise
        self._has_started = True
        if live is not None:
            live.readers = readers = self._readers
            readers.log, readers.before, readers.loop = live.log, live.seq_before, live.scope.loop
            if self._cancelled is not None:
                live.cut(self._cancelled)  # It was cancelled while it was being opened.
            self._sessions.running[self.session_id] = live
            self.has_driven = live.log.lease is not None or live.log.is_unstored
            if self.has_driven and self._sessions.observer is not None:
                self._sessions.observer.began(live.scope.user_id)  # Here: it counts before its caller goes on.
            # Made without the loop's task factory, like all tasks of the engine: it is for users' tasks.
            eagerly = EAGERLY if at_once else {}
            self._driver = asyncio.Task(self._drive(live), loop=live.scope.loop, name=self.session_id, **eagerly)
        if self._starting:
            self._tell_started()

    def _tell_started(self) -> None:
        """Let others who wait for this run to start know that it did, or that they can try."""
        while self._starting:
            wake(self._starting.pop())

    async def _drive(self, live: LiveSession) -> None:
        well, before = False, live.scope.usage
        try:
            live.begin()
            if not self.has_driven:
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
            if self.has_driven and (observer := self._sessions.observer) is not None:
                took = time.perf_counter() - live.since
                observer.ended(live.scope.user_id, _ending(live, self._outcome), before, live.scope.usage, took)
            self._sessions.ended(live, well=well)
            self._readers.has_ended = True
            for queue in self._readers.queues:
                queue.tell()
            while self._waiters:
                wake(self._waiters.pop())

    async def _finish(self) -> RunResult[Out_co, State_co]:
        # Inside another run, the loop starts it: nested eager runs would exhaust Python's stack.
        await self._start(at_once=current_place.get() is None)
        if self._live is None:
            async for event in self._follower.follow(self._ref, self.seen, self.since, whole=False):
                self._note(event)
            return await self._follower.result(self._ref, self._last, self._point)
        self._users += 1
        try:
            if self._outcome is None:
                await self._until_over()
            elif time.monotonic() > self._sessions.yield_deadline:
                await asyncio.sleep(0)  # Others on the loop get their turns, however many runs one task awaits.
        except asyncio.CancelledError:
            # The awaiting task is cancelled, not the run's own: the run stops where it can be recovered, unless others
            # wait for it, too.
            if self._outcome is None and not self.is_detached and self._users == 1:
                self._cut("now")
                await self.settled()
            raise
        finally:
            self._users -= 1
        return self._result()

    def _cut(self, mode: CancelMode) -> None:
        """Ask the run to stop, from any event loop."""
        assert self._live is not None
        self._pass_on(self._live.cut, mode)

    def _pass_on(self, call: Callable[[CancelMode], None], mode: CancelMode) -> None:
        """Make a call on the run's event loop."""
        assert self._live is not None
        loop = self._live.scope.loop
        if loop is asyncio.get_running_loop():
            call(mode)
        else:
            with contextlib.suppress(RuntimeError):  # The loop is closed, so nothing goes on.
                loop.call_soon_threadsafe(call, mode)

    async def _until_over(self) -> None:
        """Wait for the run's end, as many may do; each has a separate future, so it can leave."""
        loop, runs_on = asyncio.get_running_loop(), self._live and self._live.scope.loop
        waiter = loop.create_future()
        self._waiters.append(waiter)
        if self._outcome is not None:
            return  # It ended meanwhile, in another thread.
        await (waiter if loop is runs_on else waited(waiter, runs_on, self.session_id))

    def _result(self) -> RunResult[Out_co, State_co]:
        """Return the result of the run."""
        if isinstance(self._outcome, RunResult):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    @property
    def _goes_on(self) -> bool:
        return self._live is not None and self._outcome is None

    def __await__(self) -> Generator[Any, None, RunResult[Out_co, State_co]]:
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

        What was under way runs again when the session is recovered; open questions stay open. A run that is still being
        opened, or has not been started yet, stops as soon as it has its session, before any code runs.
        """
        self._was_asked_for = True
        check_mode(mode)
        if self.is_attached:
            await self._start()
        if not self._has_started:
            self._cancelled = mode
            if not self._begin:
                await self._until_opened()
        if self._live is None:
            await self._cancel_elsewhere(mode, timeout)
            return
        self._cut(mode)
        await self.settled(timeout)
        if self._goes_on:
            self._cut("now")
            await self.settled()

    async def hand_over(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # it escalates
        """Stop the run after its current step and leave its session to whoever takes it up next, such as a worker.

        For a process that is about to end: the session is due at once, instead of when its lease is over. After
        `timeout` seconds the run stops in the middle of its step, which then runs again from its top.
        Returns when the session is released. A run that has ended, or that another process drives, is left alone.
        """
        if not self._goes_on:
            return
        self._hand_over("after_step")
        await self.settled(timeout)
        if self._goes_on:
            self._hand_over("now")
            await self.settled()

    async def give_up(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # for the store
        """Let others go on with the session although the run's code does not stop: it can record nothing more.

        The session is due at once. If the store does not reply within `timeout` seconds, it is when its lease is over.
        """
        if self._goes_on and self._live is not None:
            with contextlib.suppress(TimeoutError, AdjournError):
                async with asyncio.timeout(timeout):
                    await self._live.let_go()

    @property
    def is_handed_over(self) -> bool:
        """Whether it has ended by being handed over."""
        return self._live is not None and self._live.status == "queued" and not self._goes_on

    def _hand_over(self, mode: CancelMode) -> None:
        assert self._live is not None
        self._pass_on(self._live.hand_over, mode)

    async def _until_opened(self) -> None:
        """Wait until whoever is opening the run has done so, or has failed to."""
        waiter = asyncio.get_running_loop().create_future()
        self._starting.append(waiter)
        if not self._begin and not self._has_started:  # Else it was opened meanwhile, in another thread.
            await waited(waiter, None, self.session_id)

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
        async for _ in self._follower.follow(self._ref, self.seen, self.since, whole=False):
            pass

    async def settled(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as that of asyncio.wait
        """Return when nothing of the run goes on any more, whatever its outcome, or after `timeout` seconds."""
        if self._driver is None:
            return
        if self._driver.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._driver], timeout=timeout)
        elif self._outcome is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._until_over(), timeout)

    # Reading

    @property
    def wants_events(self) -> bool:
        """Whether anybody reads the run, or may begin to in the middle."""
        return bool(self._readers.queues) or self._readers.listener is not None

    async def __aiter__(self) -> AsyncGenerator[Event]:
        readers = self._readers
        reader = Reader(self._sessions.settings.store, self._ref, after=self.seen)
        reader.join(readers)  # Before it starts, so that nothing of it is missed.
        self._users += 1
        try:
            await self._start()
            if self._live is None:
                reader.close()
                reader.seen, reader.since = self.seen, self.since
            else:
                reader.seen = max(self.seen, readers.before)
                reader.follow_on()
            reading: AsyncGenerator[Any] = reader.items()  # Any: only a reader that finds runs yields more than events
            async with contextlib.aclosing(reading) as events:
                async for event in events:
                    if self._live is None:
                        self._note(event)
                    yield event
            if self._live is not None:
                if self._outcome is None:
                    await self._until_over()
                reader.seen = readers.before  # A caller who reads it again reads it from its beginning.
        finally:
            # What is missing then is in the log, for a reader who comes back.
            reader.close()
            self._users -= 1
            self.seen = reader.seen
            if self._live is not None and self._outcome is None and not self.is_detached and not self._users:
                self._cut("after_step")
        if self._live is not None:
            self._result()
        elif self._last is None or isinstance(self._last, Failed):
            await self._follower.result(self._ref, self._last, self._point)

    def _note(self, event: Watched) -> None:
        """Remember what shows the result of a run that somebody else drives."""
        if isinstance(event, FINAL):
            self._last = event
        elif isinstance(event, CheckpointSaved):
            self._point = event.checkpoint_id

    def watch(self, *, stay: bool = False, outlast: bool = False) -> Reader:
        """Read a run that was started, along with others, from this moment on; leaving stops nothing.

        Begin with it right after `start` and nothing is missed. An attached run is read from where it was attached:
        what is stored, then `CaughtUp`, then what happens; of a text that is being written, only what comes from then
        on. It ends with the run, or not at all if it is to `stay`. If it is to `outlast` a process that drives the run
        and dies, it waits for another one, such as a worker, to go on.
        """
        if not self._has_started:
            raise UsageError("watch() reads a run that was started: await run.start() first.")
        sessions = self._sessions
        after, since = (self.seen, self.since) if self.is_attached else (self.before, self.before)
        return Reader(
            sessions.settings.store,
            self._ref,
            after=after,
            since=since,
            find=sessions.readers_of,
            begins=not self.is_attached,
            stay=stay,
            outlast=outlast,
        )

    @property
    def before(self) -> int:
        """The number of the last event before this run, once it was started."""
        return self._readers.before if self._live is not None else self.seen

    async def text(self) -> AsyncIterator[str]:
        """Yield only the pieces of text, as they arrive."""
        async with contextlib.aclosing(self.__aiter__()) as events:
            async for event in events:
                if isinstance(event, Delta) and event.text:
                    yield event.text

    def __iter__(self) -> Iterator[Event]:
        return read_from_thread(self)
