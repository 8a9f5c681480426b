"""Worker: goes on with the sessions of some runners that are due, whoever began them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from adjourn._checks import is_count, is_number, is_positive
from adjourn._hiding import logger
from adjourn._text import undotted, visible_line
from adjourn.errors import (
    CheckpointNotFound,
    Conflict,
    SessionBusy,
    StoreUnavailable,
    UnfinishedRun,
    UsageError,
    describe,
)
from adjourn.sessions._news import hearing
from adjourn.sessions._sync import sync_twin, wait_for
from adjourn.stores.types import Due, SessionRef

from ._due import SPREAD, Ahead, Key, SetAside, Source, sources_of
from ._live import Ending
from .run import Run
from .runner import Runner

_log = logger("adjourn.worker")

GAP = 0.02
"""Seconds after a look at the stores in vain, at least; and looking in vain takes at most a twentieth of the time."""

LAST = 5.0
"""Seconds that a worker waits, after its grace, for code that does not end when it is cancelled."""

WHY = {"answer": "answered", "question": "a question expired", "lease": "nobody runs it", "input": "submitted"}


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs of a worker ended in which way, and how many sessions could not go on in its process."""

    done: int = 0
    waiting: int = 0
    failed: int = 0
    cancelled: int = 0
    handed_over: int = 0
    taken_over: int = 0
    left_alone: int = 0


class Worker:
    """Goes on with sessions that are due: answered, expired, submitted, or left behind by a process that is gone.

    Any number of workers may share a store: of those that try to take a session up, one succeeds. A session that cannot
    go on here, because `deps`, a class or its program is missing, is left as it is, for a worker that has them.

    Between two turns of its event loop:

    - `_busy` has each session from when it was chosen until its task has ended, so it is chosen once at a time here;
      `_runs` has those whose run was started.
    - `_ahead` is a list of some moments ago. A session in it may have been taken up elsewhere since: the claim decides.
    - `_aside` has sessions that could not go on here, and when each is tried again.
    - Once `_deadline` is set, no session is chosen any more. One that is just being opened looks at it when it is open.
    - `_wake` says that it is worth looking at the stores now. Hints may be lost, so it also looks after every `poll`.
    """

    def __init__(
        self,
        runners: Runner | Iterable[Runner],
        *,
        concurrency: int = 10,
        per_user: int | None = None,
        poll: float = 1.0,
        grace: float = 30.0,
    ) -> None:
        """Make a worker for the sessions of these runners, which may have different stores and apps.

        runners: whose sessions to take up; each needs a store, and `deps` if its program uses them.
        concurrency: how many sessions may run at once in this worker.
        per_user: how many of these may be of the same user; None for no limit. Sessions of nobody are not limited.
        poll: seconds between looks at the stores, about; hints of a store wake the worker earlier.
        grace: seconds that runs have to finish their steps when the worker is told to stop.

        Raises:
            UsageError: there are no runners, one has no store, or an option cannot be used.
        """
        if not is_count(concurrency):
            raise UsageError(f"concurrency={concurrency!r}: give the number of sessions to run at once, 1 or more.")
        if per_user is not None and not is_count(per_user):
            raise UsageError(f"per_user={per_user!r}: give a number of sessions, 1 or more, or None for no limit.")
        if not is_positive(poll):
            raise UsageError(f"poll={poll!r}: give a number of seconds above zero.")
        self.runners: tuple[Runner, ...] = _checked(runners)
        self.concurrency: int = concurrency
        self.per_user: int | None = per_user
        self.poll: float = poll
        self.grace: float = _checked_grace(grace)
        self._sources = sources_of(self.runners)
        self._aside = SetAside(poll)
        self._ahead = Ahead()
        self._busy: dict[Key, Due] = {}
        self._runs: dict[Key, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: Counter[str] = Counter()
        self._wake: asyncio.Event = asyncio.Event()
        self._told: asyncio.Event = asyncio.Event()  # set when it is told to stop
        self._looked: asyncio.Event = asyncio.Event()  # set when it has looked at all stores once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[WorkerCounts] | None = None
        self._deadline: float | None = None  # when the grace is over; None unless it was told to stop

    @property
    def counts(self) -> WorkerCounts:
        """How its runs have ended so far."""
        return WorkerCounts(**self._ended)

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, and takes nothing more up."""
        return self._deadline is not None

    def replace(self, runners: Runner | Iterable[Runner]) -> None:
        """Take sessions up with these runners from now on; runs that have begun go on as they began.

        It is called on the event loop of the worker.

        Raises:
            UsageError: they are not on the stores, and of the apps, of the runners before; nothing has changed then.
        """
        given = _checked(runners)
        sources = sources_of(given)
        if len(sources) != len(self._sources) or not all(
            old.serves(new) for old, source in zip(self._sources, sources, strict=True) for new in source.runners
        ):
            raise UsageError("Worker.replace: give runners on the same stores, and of the same apps, as before.")
        for old, new in zip(self._sources, sources, strict=True):
            old.adopt(new)
        self.runners = given
        self._aside = SetAside(self.poll)  # What could not go on before may do so now.
        self._ahead = Ahead()
        self._wake.set()

    # Running and stopping

    async def run(self, *, install_signal_handlers: bool = True) -> WorkerCounts:
        """Take up what is due until the worker is stopped, and return how its runs ended.

        SIGTERM and SIGINT stop it as `stop` does, and a second one stops it at once, unless it is not to install signal
        handlers. They are only installed in the main thread.

        Raises:
            UsageError: it is running already.
            StoreError: a store cannot be used, and waiting would not help.
        """
        self._check_idle()
        self._loop, self._deadline = asyncio.get_running_loop(), None
        self._wake, self._told, self._looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        try:
            with self._signals() if install_signal_handlers else contextlib.nullcontext():
                try:
                    await self._serve()
                finally:
                    await self._leave()
        finally:
            self._loop = None
        return self.counts

    def _check_idle(self) -> None:
        if self._loop is not None:
            raise UsageError("This worker is running already. Make another one to run two.")

    def run_sync(self) -> WorkerCounts:
        """Do what `run` does, from sync code."""
        return wait_for(self.run, name="adjourn-worker")

    async def __aenter__(self) -> Self:
        self._check_idle()
        self._serving = asyncio.create_task(self.run(install_signal_handlers=False))
        try:
            await asyncio.sleep(0)  # From here on it can be stopped.
            await self._has_looked(self._serving)
        except asyncio.CancelledError:
            # Nobody leaves a block that was not entered: without this, the worker would go on, with nobody to stop it.
            self._serving.cancel()
            await asyncio.wait([self._serving])
            raise
        if self._serving.done():
            await self._serving  # A store cannot be used: it raises why.
        return self

    async def _has_looked(self, serving: asyncio.Task[WorkerCounts]) -> None:
        """Return when it has looked at all stores once, or has ended."""
        looked = asyncio.create_task(self._looked.wait())
        try:
            await asyncio.wait([serving, looked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            looked.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        await self.stop()
        await self._serving

    async def stop(self, grace: float | None = None) -> None:
        """Take nothing more up, let every run finish its step, and return when all sessions are released.

        After `grace` seconds, by default those of the worker, runs stop in the middle of a step, which then runs again
        from its top. Other workers go on at once with what is unfinished. It may be called from any thread and loop.
        """
        seconds = self.grace if grace is None else _checked_grace(grace)
        if self._loop is None:
            return
        if self._loop is asyncio.get_running_loop():
            await self._stop(seconds)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop(seconds), self._loop))

    @sync_twin(stop)
    def stop_sync(self) -> None:
        """Do what `stop` does, from sync code."""

    async def _stop(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        self._wake.set()
        self._told.set()
        # A session that is just being taken up looks at the deadline when it is open.
        handing = [asyncio.create_task(run.hand_over(grace)) for run in self._runs.values()]
        if handing:
            await asyncio.wait(handing, timeout=grace + LAST)

    async def _leave(self) -> None:
        """Wait until all sessions are released; a worker that ends without being told to gives them no time."""
        if not self.is_stopping:
            await self._stop(0)
        # A second signal brings the deadline forward, so it is looked at again and again.
        while self._tasks and (left := (self._deadline or 0.0) + LAST - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=min(left, 0.25))
        for (_, session), run in list(self._runs.items()):
            _log.warning("%s: does not stop, and is given up, so that others can go on with it", visible_line(session))
            await run.give_up(LAST)
            self._ended["handed_over"] += 1
        for task in self._tasks:
            task.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """Stop on the first signal, and at once on the second; a third one ends the process as it usually would."""
        if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
            yield
            return
        loop, names = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        stops: set[asyncio.Task[None]] = set()

        def on_signal() -> None:
            if not self.is_stopping:
                _log.info("stopping (sessions running: %d, grace: %g s)", len(self._busy), self.grace)
                stops.add(loop.create_task(self._stop(self.grace)))
                return
            _log.info("stopping at once")
            remove()
            stops.add(loop.create_task(self._stop(0)))

        def remove() -> None:
            for name in names:
                loop.remove_signal_handler(name)

        for name in names:
            loop.add_signal_handler(name, on_signal)
        try:
            yield
        finally:
            remove()

    # Looking for work

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as listening:
            for source in self._sources:
                await listening.enter_async_context(hearing(source.store, self._hear))
            while not self.is_stopping:
                self._wake.clear()
                began = time.monotonic()
                is_in_vain = len(self._busy) < self.concurrency and not await self._look_unless_told()
                self._looked.set()
                ended = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.poll * random.uniform(0.5, 1.5)):
                        await self._wake.wait()
                if is_in_vain:
                    # There may be a hint for every commit of others.
                    rest = min(max(GAP, 19 * (ended - began)), self.poll)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ended + rest - time.monotonic()):
                            await self._told.wait()

    def _hear(self, ref: SessionRef | None) -> None:
        """Look at the stores now, unless the hint is at what runs here, or is another app's."""
        for number, source in enumerate(self._sources):
            if ref is None:
                self._wake.set()
            elif ref.app == source.app and (number, ref.id) not in self._busy:
                self._ahead.drop((number, ref.id))
                self._wake.set()

    async def _look_unless_told(self) -> bool:
        """Do what `_look` does, but do not wait for a store that hangs when the worker is told to stop."""
        look, told = asyncio.create_task(self._look()), asyncio.create_task(self._told.wait())
        try:
            await asyncio.wait([look, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not look.done():
                look.cancel()
                await asyncio.wait([look], timeout=LAST)
        # One that was told to stop may still have been refused.
        return look.result() if look.done() and not look.cancelled() else True

    async def _look(self) -> bool:
        """Take up what is due, as far as there is room; return whether there was anything."""
        found = not self._ahead.is_used_up() and self._begin_ahead()
        if not self.is_stopping and len(self._busy) < self.concurrency:
            self._ahead = Ahead(await self._all_listed())
            found = self._begin_ahead() or found
        return found

    def _begin_ahead(self) -> bool:
        """Begin with what was listed, as far as there is room; return whether there was anything."""
        found = bool(self._ahead)
        while self._ahead and not self.is_stopping and len(self._busy) < self.concurrency:
            key, due = self._ahead.pop()
            if key not in self._busy and key not in self._aside and self._may_begin(due):
                self._begin(key, due)
        return found

    async def _all_listed(self) -> list[tuple[Key, Due]]:
        """List what is due in all stores and can be taken up here."""
        most = SPREAD * self.concurrency
        found: list[tuple[Key, Due]] = []
        for number, source in enumerate(self._sources):
            listed = await self._listed(source, most + len(self._aside))
            keyed = [((number, due.session), due) for due in listed]
            found += [(key, due) for key, due in keyed if key not in self._busy and key not in self._aside][:most]
        return found

    def _may_begin(self, due: Due) -> bool:
        return due.user not in self._full_users()

    async def _due(self, source: Source, limit: int) -> list[Due]:
        return await source.due(limit, self._full_users())

    def _full_users(self) -> list[str]:
        """Return the users who have as many sessions here as one may have."""
        if self.per_user is None:
            return []
        counted = Counter(due.user for due in self._busy.values() if due.user is not None)
        return [user for user, count in counted.items() if count >= self.per_user]

    async def _listed(self, source: Source, limit: int) -> list[Due]:
        """List what is due in a source; while its store is away, nothing is."""
        try:
            found = await self._due(source, limit)
        except Exception as error:  # protects the other sources, and this one once its store is back
            is_temporary = isinstance(error, StoreUnavailable) and not error.is_lasting
            if not is_temporary and not source.was_seen:
                raise  # It is the first look: whoever started the worker is still there to hear about it.
            if not source.is_away:
                _log.warning("the store of app %s is away: %s", visible_line(source.app), _line(error))
            source.is_away = True
            return []
        if source.is_away:
            _log.warning("the store of app %s is back", visible_line(source.app))
        source.is_away, source.was_seen = False, True
        return found

    # Running what was found

    def _begin(self, key: Key, due: Due) -> None:
        self._busy[key] = due
        task = asyncio.create_task(self._take_up(key, due))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_up(self, key: Key, due: Due) -> None:
        try:
            run = await self._opened(key, due)
            if run is not None:
                self._runs[key] = run
                if self._deadline is not None:
                    await run.hand_over(max(0.0, self._deadline - time.monotonic()))
                await self._follow(key, due, run)
        finally:
            self._runs.pop(key, None)
            del self._busy[key]
            self._wake.set()

    async def _opened(self, key: Key, due: Due) -> Run | None:
        """Start the run of a session; None if others were faster, or it cannot go on here."""
        refusal: Exception | None = None
        for runner in self._sources[key[0]].runners_for(due.program):
            run = runner.advance(due.session)
            run.detach()
            try:
                await run.start()
            except (SessionBusy, Conflict, CheckpointNotFound):
                self._ahead.note_miss()
                return None
            except UnfinishedRun:
                self._aside.add(key)  # It failed or was cancelled since, so it waits for a person.
                return None
            except Exception as error:  # noqa: BLE001  # protects the worker: whatever is missing here, or user code raises
                refusal = error
            else:
                return run
        if refusal is not None:
            self._set_aside(key, refusal)
        return None

    def _set_aside(self, key: Key, refusal: Exception) -> None:
        is_new = self._aside.add(key)
        if is_new and not isinstance(refusal, StoreUnavailable):
            self._ended["left_alone"] += 1
            _log.warning("%s: cannot go on here, and is left as it is: %s", visible_line(key[1]), _line(refusal))

    async def _follow(self, key: Key, due: Due, run: Run) -> None:
        """Wait for the end of a run; a failure is its session's business."""
        name, began = visible_line(due.session), time.monotonic()
        _log.info("%s: taken up (%s)", name, WHY[due.why])
        try:
            result: Any = await run
        except asyncio.CancelledError:
            raise
        except Conflict as conflict:
            # Its lease was over, because this process or its store was too slow.
            ending, failure = "taken_over", _line(conflict)
        except BaseException as error:  # noqa: BLE001  # protects the worker: the run is stored as failed, whatever it raised
            ending, failure = "failed", _line(error)
        else:
            ending, failure = _ending(run, result.status), ""
        if not run.has_driven:
            # There was nothing to do, although it is due: clocks differ. It must not be taken up again and again.
            self._aside.add(key)
            return
        self._aside.forget(key)
        self._ended[ending] += 1
        level = logging.WARNING if failure else logging.INFO
        took = time.monotonic() - began
        _log.log(level, "%s: %s after %.1f s%s", name, ending.replace("_", " "), took, failure and f": {failure}")


def _ending(run: Run, status: Literal["done", "interrupted", "cancelled"]) -> Ending:
    if run.is_handed_over:
        return "handed_over"
    return "waiting" if status == "interrupted" else status


def _line(error: BaseException) -> str:
    failure = describe(error)
    return visible_line(undotted(f"{failure['type']}: {failure['message']}"))


def _checked(runners: Runner | Iterable[Runner]) -> tuple[Runner, ...]:
    given = [runners] if isinstance(runners, Runner) else runners
    if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"Worker({given!r}): give runners, such as Worker([runner]).")
    found = tuple(given)
    if not found:
        raise UsageError("A Worker needs at least one runner: Worker([runner]).")
    for each in found:
        if not isinstance(each, Runner):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"Worker: {each!r} is not a Runner. Make one of it: Runner(..., store=...).")
        if not each.has_store:
            raise UsageError(
                f"The runner of '{each.program.name}' keeps its sessions to itself, in memory, so a worker would find "
                "nothing. Give it a store: Runner(..., store='sqlite:///file.db')."
            )
    return found


def _checked_grace(seconds: float) -> float:
    if not is_number(seconds) or seconds < 0:
        raise UsageError(f"grace={seconds!r}: give a number of seconds, 0 or more.")
    return seconds
