"""The one connection that writes to a SQLite file, and the thread that gathers writes into transactions."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from adjourn.errors import AdjournError, StoreError
from adjourn.stores.kit.forks import forget_after_fork
from adjourn.stores.kit.hints import Fanout

from ._files import Connection
from ._ledger import SQLiteLedger
from ._schema import explained, forget_log, grow_log, is_busy, is_disk_error, no_text, set_log_length

T = TypeVar("T")

# What a write does, given a ledger inside a transaction and the store's time.
Operation = Callable[[SQLiteLedger, float], T]

_GROUP = 512  # the most writes in one transaction: the first of them waits for the last
_MANY = 32  # with this many writes in one transaction, the log may grow long
_EMPTYING = 0.5  # seconds that a removal waits for others to stop reading the log
_SLOW = 0.005  # seconds; a longer write would hold up everything else on the loop,
_WARY = 10  # so after one, lone runs write in the thread until this many in a row were quick


class Job(NamedTuple):
    """A write that was accepted, and who waits for it."""

    operation: Operation[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    deadline: float
    removes: bool


class WriteResult(NamedTuple):
    """The result of a write."""

    result: Any
    error: BaseException | None


class Writer:
    """Makes writes durable, in the order in which they were given.

    All writes that wait are done in one transaction, with one wait for the disk. A lone run that waits for each of its
    writes gains nothing by that and would pay for two thread switches a step; so while nobody else writes, its writes
    are done at once on its own thread, unless the disk was recently slow or the file locked. The run must yield
    to others on its loop now and then: once one of them also writes, nobody is alone.

    Between two calls:

    - `_gate` guards `_inbox`, `_thread`, `_leaving` and `_accepted`. `_disk` guards the connection: the thread and
      a lone run use it in turn. A lone run never waits for it: it goes through the thread instead.
    - While `_accepted` equals `_settled`, no write waits in the thread or is under way there. A lone run reads both
      without a lock. It may miss a write that another thread has just given, which is as if it had come first.
    - `_session` and `_task` only say whether a run is alone. They may be stale: then a write costs two thread switches.
    - A thread that was stopped does what it accepted. The next one waits for its end, so no write overtakes another.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Connection],
        clock: Callable[[], float],
        timeout: float,
        hints: Fanout,
    ) -> None:
        """Write to the file at `path`; who listens to `hints` hears of what others may wait for once it is durable."""
        self._path = path
        self._connect = connect
        self._clock = clock
        self._timeout = timeout
        self._hints = hints
        self._forget()
        forget_after_fork(self, Writer._forget)

    def _forget(self) -> object:
        """Start over, and return the ledger with its connection: even to close it would end locks of the parent."""
        inherited = getattr(self, "_ledger", None)
        self._gate = threading.Lock()  # guards the four fields that follow
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._leaving: threading.Thread | None = None
        self._accepted = 0
        self._settled = 0  # of those; only the thread updates it
        self._disk = threading.Lock()  # guards the connection
        self._ledger: SQLiteLedger | None = None
        self._long_log = False
        self._remains = False  # whether the log still holds removed data
        self._session: tuple[str, str] | None = None  # which run wrote last and has not ended,
        self._task: weakref.ref[asyncio.Task[Any]] | None = None  # and in which task
        self._wary = 0  # how many more quick writes until one may hold up a loop
        return inherited

    async def submit(self, operation: Operation[T], *, removes: bool = False) -> T:
        """Do a write and return its result once it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._accept(Job(operation, future, loop, time.monotonic() + self._timeout, removes))
        return await future

    async def submit_removal(self, operation: Operation[T]) -> T:
        """Do a write that removes something, and return when it is also gone from the write-ahead log."""
        return await self.submit(operation, removes=True)

    async def submit_for(
        self,
        session: tuple[str, str],
        operation: Operation[T],
        *,
        begins: bool = False,
        ends: bool = False,
        gathered: bool = False,
    ) -> T:
        """Do a write of a run: its first, its last, or one in between.

        What has `gathered` behind a run comes from one that goes on without waiting.
        """
        is_lone = not gathered and self._is_lone(session, waits=begins or ends)
        self._session = None if ends else session
        if is_lone and self._disk.acquire(blocking=False):
            try:
                if self._ledger is not None:
                    return self._transact(self._ledger, operation)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise explained(error, self._path) from error
            finally:
                self._disk.release()
        return await self.submit(operation)

    def foreign_writes(self) -> object:
        """Return something that changes when another connection, as that of another process, has written."""
        try:
            with self._disk:
                return self._open().connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise explained(error, self._path) from error

    def stop(self) -> None:
        """Finish what was accepted and close the connection; a later write opens it again."""
        with self._gate:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._inbox.put(None)
                self._inbox = SimpleQueue()
                self._leaving = thread
        if thread is None:
            with self._disk:
                self._disconnect()
        elif thread is not threading.current_thread():  # as when the garbage collector runs there
            thread.join()

    def _is_lone(self, session: tuple[str, str], waits: bool) -> bool:
        """Return whether a run waits for this write, nobody else writes, and the disk is quick.

        A run that saves in the background makes a new task for what has gathered; one that writes in the same
        task again has waited.
        """
        task = asyncio.current_task()
        if self._task is None or self._task() is not task:
            self._task = None if task is None else weakref.ref(task)
            if not waits:
                return False
        is_alone = self._session in (None, session) and self._accepted == self._settled
        return is_alone and not self._wary and not self._remains

    def _accept(self, job: Job) -> None:
        with self._gate:
            if self._thread is None:
                # A daemon, so that it does not keep the interpreter alive; the store's finalizer stops it cleanly.
                work = (self._inbox, self._leaving)
                thread = threading.Thread(target=self._work, args=work, name="adjourn-sqlite", daemon=True)
                thread.start()
                self._thread = thread
            self._accepted += 1
            self._inbox.put(job)

    def _work(self, inbox: SimpleQueue[Job | None], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # its writes come first
        while self._serve(inbox):
            pass
        with self._disk:
            self._disconnect()

    def _serve(self, inbox: SimpleQueue[Job | None]) -> bool:
        """Do the writes that wait, at least one; return False at the end."""
        jobs = _gather(inbox)
        if not jobs:
            return False
        self._settle(jobs, inbox)
        return True

    def _settle(self, jobs: list[Job], inbox: SimpleQueue[Job | None] | None) -> None:
        """Do the writes in one transaction, or one by one if any of them fails.

        While the file is locked, writes that come in join them: the more processes share a file, the longer each waits
        for its turn, and the more it does with it.
        """
        while jobs:
            try:
                with self._disk:
                    ledger = self._open()
                    attempts = partial(_attempt_all, [job.operation for job in jobs])
                    outcomes = self._transact(ledger, attempts, are_many=len(jobs) >= _MANY)
            except sqlite3.Error as error:
                if is_busy(error):
                    self._give_up(jobs, error)
                    self._wait()
                    if inbox is not None:
                        jobs += _waiting(inbox, _GROUP - len(jobs))
                    continue
                failure: Exception = explained(error, self._path)
            except Exception as error:  # noqa: BLE001 - passed on to its caller; the thread also serves others
                failure = error
            else:
                self._finish(jobs, outcomes)
                return
            if len(jobs) == 1:
                self._finish(jobs, [WriteResult(None, failure)])
                return
            for job in jobs:
                self._settle([job], None)  # None joins: they would overtake the others.
            return

    def _give_up(self, jobs: list[Job], error: sqlite3.Error) -> None:
        """Drop the writes that have waited for too long, which are the first."""
        now = time.monotonic()
        if jobs[0].deadline <= now:
            late = [job for job in jobs if job.deadline <= now]
            del jobs[: len(late)]
            self._finish(late, [WriteResult(None, explained(error, self._path)) for _ in late])

    def _finish(self, jobs: list[Job], outcomes: list[WriteResult]) -> None:
        removes = any(job.removes for job in jobs)
        if removes or (self._remains and jobs):
            self._empty_log(_EMPTYING if removes else 0.0)
        self._settled += len(jobs)
        _deliver(jobs, outcomes)

    def _empty_log(self, seconds: float) -> None:
        """Empty the log, which still holds removed data; while somebody reads it, the next write tries again."""
        deadline = time.monotonic() + seconds
        self._remains = not self._try_to_empty_log()
        while self._remains and time.monotonic() < deadline:
            time.sleep(0.001)
            self._remains = not self._try_to_empty_log()

    def _try_to_empty_log(self) -> bool:
        try:
            with self._disk:
                connection = self._open().connection
                if not forget_log(connection):
                    return False
                grow_log(connection)
        except (sqlite3.Error, StoreError):
            return False  # the removal is still durable, and the next write meets the same trouble
        return True

    def _wait(self) -> None:
        self._wary = _WARY
        # SQLite's lock is not fair between processes; short waits of random length make it so. They are shorter than
        # most transactions, since nobody writes while the next one to do so sleeps.
        time.sleep(random.uniform(0.0002, 0.002))

    def _open(self) -> SQLiteLedger:
        if self._ledger is None:
            self._ledger = SQLiteLedger(self._connect(), self._hints)
            self._long_log = False
        return self._ledger

    def _transact(self, ledger: SQLiteLedger, operation: Operation[T], *, are_many: bool = False) -> T:
        ledger.connection.check_files(before_write=True)
        if (are_many or ledger.is_shared) != self._long_log:
            self._long_log = not self._long_log
            set_log_length(ledger.connection, long=self._long_log)
        try:
            ledger.begin()
            now = self._clock()
            result = operation(ledger, now)
            ledger.commit()
        except BaseException as error:
            if ledger.has_begun:
                ledger.roll_back()
            if isinstance(error, UnicodeEncodeError):
                raise no_text(error) from error
            if isinstance(error, sqlite3.Error) and is_disk_error(error):
                self._disconnect()
            raise
        if self._clock() - now > _SLOW:
            self._wary = _WARY
        elif self._wary:
            self._wary -= 1
        return result

    def _disconnect(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.connection.close()


def _attempt_all(operations: Sequence[Operation[Any]], ledger: SQLiteLedger, now: float) -> list[WriteResult]:
    return [_attempt(operation, ledger, now) for operation in operations]


def _attempt(operation: Operation[Any], ledger: SQLiteLedger, now: float) -> WriteResult:
    """Do one write of a transaction. A refusal that has changed nothing does not affect the others."""
    changes = ledger.changes
    try:
        return WriteResult(operation(ledger, now), None)
    except AdjournError as refusal:
        if ledger.changes != changes:
            raise
        return WriteResult(None, refusal)


def _gather(inbox: SimpleQueue[Job | None]) -> list[Job]:
    """Return all waiting writes, at least one; none at the end."""
    first = inbox.get()
    return [] if first is None else [first, *_waiting(inbox, _GROUP - 1)]


def _waiting(inbox: SimpleQueue[Job | None], most: int) -> list[Job]:
    """Return the writes that wait now."""
    jobs: list[Job] = []
    while len(jobs) < most and not inbox.empty():
        job = inbox.get()
        if job is None:
            inbox.put(None)  # for next time: these come first
            break
        jobs.append(job)
    return jobs


def _deliver(jobs: list[Job], outcomes: list[WriteResult]) -> None:
    waiting: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], WriteResult]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        waiting.setdefault(job.loop, []).append((job.future, outcome))
    for loop, settled in waiting.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nobody is waiting there any more
            loop.call_soon_threadsafe(_resolve, settled)


def _resolve(settled: list[tuple[asyncio.Future[Any], WriteResult]]) -> None:
    for future, (result, error) in settled:
        if future.done():
            continue  # the caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
