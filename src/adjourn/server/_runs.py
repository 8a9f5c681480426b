"""The runs of a server's process: those that requests begin, and those that its worker takes up."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, Conflict, StoreUnavailable, UnfinishedRun, describe, text_of
from adjourn.runner import Run, Runner, Worker
from adjourn.runner._due import Key, Source
from adjourn.stores.types import Due

from ._api import OnPending
from ._callers import Caller
from ._errors import ApiError
from ._metrics import Metrics

log = logger("adjourn.server")

LAST = 5.0
"""Seconds that code has to end, after the grace, when it is cancelled; then its session is given up."""


class _Worker(Worker):
    """A worker that counts why it goes on with sessions, and begins no inputs of callers who are at their limit."""

    def __init__(self, runners: list[Runner], metrics: Metrics, *, concurrency: int) -> None:
        super().__init__(runners, concurrency=concurrency)
        self._metrics = metrics
        self._passed_over: bool = False
        metrics.callers.on_end = self._look_at_passed_over

    async def _follow(self, key: Key, due: Due, run: Run) -> None:
        self._metrics.take_up(due)
        await super()._follow(key, due, run)

    def _may_begin(self, due: Due) -> bool:
        if due.why != "input" or not self._is_full(due.user):
            return super()._may_begin(due)
        self._passed_over = True
        return False

    def _is_full(self, user: str | None) -> bool:
        opening = sum(due.user == user for key, due in self._busy.items() if key not in self._runs)
        return self._metrics.callers.is_full(user, opening)

    async def _due(self, source: Source, limit: int) -> list[Due]:
        listed = await super()._due(source, limit)
        found = [due for due in listed if self._may_begin(due)]
        if len(found) < len(listed) >= limit:
            # The inputs of callers who are at their limit must not hide what waits for others.
            full = {due.user for due in listed if due.user is not None and self._is_full(due.user)}
            found += await source.due(limit, sorted(full))
        return found

    def _look_at_passed_over(self) -> None:
        if self._passed_over:
            self._passed_over = False
            self._wake.set()


class Runs:
    """Starts runs, which then belong to the process and to nobody's connection, and hands them over when it ends."""

    def __init__(self, runners: list[Runner], metrics: Metrics, *, concurrency: int) -> None:
        self.metrics = metrics
        self.is_draining: bool = False
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()  # Those that have ended are forgotten.
        self._logging: set[asyncio.Task[None]] = set()
        self._worker = _Worker(runners, metrics, concurrency=concurrency)
        self._working = contextlib.AsyncExitStack()

    def check_open(self) -> None:
        """Refuse to begin anything while the process is about to end."""
        if self.is_draining:
            raise ApiError("draining", "This server is about to stop.", "Try again; another one will answer.")

    async def start(self, run: Run, caller: Caller) -> Run:
        """Start a run of a caller's; what is refused is raised here, before anything is sent."""
        run.detach()
        self._runs.add(run)
        await run.start()
        logging = asyncio.create_task(_log_failure(run))
        self._logging.add(logging)
        logging.add_done_callback(self._logging.discard)
        return run

    async def start_turn(self, run: Run, caller: Caller, on_pending: OnPending) -> Run:
        """Start a turn of a caller's.

        Raises:
            UnfinishedRun: the one before it was to be finished first, and its code has failed.
        """
        try:
            return await self.start(run, caller)
        except (AdjournError, ApiError):
            raise
        except Exception as error:  # protects the client from whatever the code of the turn before has raised
            if on_pending != "finish":
                raise
            log.warning("session %s failed: %s", visible_line(run.session_id), visible_line(str(describe(error))))
            raise UnfinishedRun(run.session_id, "failed") from error

    async def work(self) -> None:
        """Begin to take up what is due: answered, submitted, expired, or left behind by processes that are gone.

        Raises:
            StoreError: the store cannot be used, and waiting would not help.
        """
        await self._working.enter_async_context(self._worker)

    def replace(self, runners: list[Runner]) -> None:
        """Take sessions up with these runners from now on; what has begun goes on as it began."""
        self._worker.replace(runners)

    async def stop(self, grace: float) -> None:
        """Begin nothing more, let every run end its step, and leave the rest to whoever takes it up next."""
        if self.is_draining:
            return
        self.is_draining = True
        runs = list(self._runs)
        stops = [asyncio.ensure_future(run.hand_over(grace)) for run in runs]
        stops.append(asyncio.ensure_future(self._stop_working(grace)))
        _, late = await asyncio.wait(stops, timeout=grace + LAST)
        for stop in late:
            stop.cancel()
        for run in runs:
            await run.give_up(LAST)  # Of those that have ended, nothing is left to give up.

    async def _stop_working(self, grace: float) -> None:
        await self._worker.stop(grace)
        await self._working.aclose()


async def _log_failure(run: Run) -> None:
    """Log why a run fails: its client may not be told, or may be gone. The worker does so for what it takes up."""
    await run.settled()
    if not run.has_driven:
        return
    try:
        await run
    except (Conflict, StoreUnavailable):
        return  # It has not failed: another process goes on with it.
    except Exception as error:  # noqa: BLE001  # whatever the agent's code raised
        why = visible_line(f"{type(error).__name__}: {text_of(error)}")
        log.warning("session %s failed: %s", visible_line(run.session_id), why)
