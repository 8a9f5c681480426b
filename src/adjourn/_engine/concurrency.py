"""Threads that run sync functions, how many tasks of a run may work at once, and how a run is stopped."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from msgspec import Struct

from adjourn.errors import ThreadsUsedUp

T = TypeVar("T")
Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]

# A task that never has to wait is then over before the event loop sees it; Python 3.11 pays a turn of the loop.
EAGERLY: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

MAX_THREADS = 64
"""How many threads of the process may work at once."""
MAX_OF_A_SESSION = 32
"""How many of them one session may use at once, so that some are left for the others."""


class Threads:
    """Runs calls in daemon threads, started as they are needed, of which at most `limit` work at once.

    A thread that waits (`waiting`) is not at work: it lends its place, so that there may be more threads. When it has
    waited, it goes on at once, since what it holds may be what others wait for; those above the limit end with their
    calls.
    """

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limit = limit
        self._inner: Threads | None = None
        self.forget()

    def forget(self) -> None:
        """Start over, as in the child of a fork, which has none of the threads."""
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._lent = 0
        self._free = 0
        self._waiting = 0
        if self._inner is not None:
            self._inner.forget()

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread and return its result, with the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = copy_context()
        if _threads.get() is not self:
            context.run(_threads.set, self)
        self._jobs.put((loop, future, lambda: context.run(call)))
        try:
            self._find_thread()
        except RuntimeError:
            future.cancel()  # Whoever takes the job later must not make the call any more.
            raise
        return await future

    def inner(self) -> Threads:
        """Return the pool of those for whom a thread of this one waits: they need not wait for a place here."""
        with self._lock:
            if self._inner is None:
                self._inner = Threads(self._limit)
            return self._inner

    def lend(self) -> None:
        """Lend the place of the calling thread to a queued job, or to one that comes."""
        with self._lock:
            self._lent += 1
            if self._waiting:
                self._waiting -= 1
                with suppress(RuntimeError):  # The job goes on waiting.
                    self._start()

    def take_back(self) -> None:
        """End a loan."""
        with self._lock:
            self._lent -= 1

    def _find_thread(self) -> None:
        """Get a queued job done: by a free thread, by a new one, or by whichever finishes first."""
        # Threads are counted where jobs come in, not where they wake up: one that is about to take a job is not free
        # for the next, which the first one may be waiting for.
        with self._lock:
            if self._free:
                self._free -= 1
                return
            if self._started - self._lent >= self._limit:
                self._waiting += 1
                return
            self._start()

    def _start(self) -> None:
        """Start a thread for a queued job; with the lock held, so that a thread or a waiting job is counted.

        Raises:
            RuntimeError: the system has no thread for it.
        """
        try:
            threading.Thread(target=self._work, name="adjourn-worker", daemon=True).start()
        except RuntimeError:
            self._waiting += 1
            raise
        self._started += 1

    def _work(self) -> None:
        _worker.pool = self
        while True:
            _do(self._jobs.get())
            with self._lock:
                if self._started - self._lent > self._limit:
                    self._started -= 1
                    return
                if self._waiting:
                    self._waiting -= 1
                else:
                    self._free += 1


class _Worker(threading.local):
    """The pool that the current thread works for, and for how many things it waits, its place lent."""

    pool: Threads | None = None
    waits: int = 0


_worker = _Worker()


@contextmanager
def waiting() -> Generator[None]:
    """Let the calling thread wait inside: if it is one of a pool, another may work in its place."""
    pool = _worker.pool
    if pool is None:
        yield
        return
    if not _worker.waits:
        pool.lend()
    _worker.waits += 1
    try:
        yield
    finally:
        _worker.waits -= 1
        if not _worker.waits:
            pool.take_back()


def context_for_run() -> Context:
    """Return a copy of the caller's context for a run that its thread waits for, with a separate pool of threads.

    Those who wait for this thread, for example for a lock that it holds, may have all places of its own pool.
    """
    context = copy_context()
    context.run(_threads.set, _threads.get().inner())
    return context


def _do(job: Job) -> None:
    loop, future, call = job
    result, error = None, None
    if future.cancelled():
        return  # A cancel or a timeout came before a thread was free: the call must not start now.
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001  # passed on to whoever awaits the call, Pause included
        error = raised
    try:
        loop.call_soon_threadsafe(_deliver, future, result, error)
    except RuntimeError:
        return  # The loop is closed: nobody is waiting for this any more.


def _deliver(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return  # A timeout or a cancel came first: the late result is dropped.
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("a sync function raised StopIteration"))
    else:
        future.set_exception(error)


_pool = Threads()
_threads: ContextVar[Threads] = ContextVar("adjourn_threads", default=_pool)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


async def in_thread(call: Callable[[], T]) -> T:
    """Run `call` in one of the process's threads."""
    pool = _worker.pool
    if pool is None:
        return await _threads.get().run(call)
    # An event loop that itself runs in a worker, which has nothing to do until the call is over.
    with waiting():
        return await pool.inner().run(call)


class Share:
    """A session's share of the threads: at most `limit` of its calls run at once, and others wait for one to end.

    A thread cannot be killed. One whose call was cancelled, or took too long, is left behind and counts until it ends;
    when all of them are left behind, calls are refused instead of waiting. The lock is needed because calls end in
    their threads.
    """

    def __init__(self, limit: int, session_id: str) -> None:
        self._limit = limit
        self._session_id = session_id
        self._lock = threading.Lock()
        self._busy = 0
        self._left_behind = 0
        self._line: deque[asyncio.Future[None]] = deque()

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in the process's pool.

        Raises:
            ThreadsUsedUp: all threads of the session are left behind.
        """
        await self._enter()
        held = _Held(self)
        try:
            return await in_thread(partial(held.run, call))
        except BaseException:  # A cancel, or no thread could be started; what the call itself raises has ended it.
            self._leave_behind(held)
            raise

    async def _enter(self) -> None:
        with self._lock:
            if self._left_behind >= self._limit:
                raise ThreadsUsedUp(self._session_id, self._limit)
            if self._busy < self._limit:
                self._busy += 1
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(left_behind=False)  # It was given a thread at the same moment.
            raise

    def end(self, *, left_behind: bool) -> None:
        """Give the thread of a call that has ended to the next in line."""
        with self._lock:
            self._left_behind -= left_behind
            turn = self._line.popleft() if self._line else None
            if turn is None:
                self._busy -= 1
        if turn is not None and not _tell(turn, self._hand_over, turn):
            self.end(left_behind=False)  # Its event loop is closed: nobody is waiting there.

    def _hand_over(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self.end(left_behind=False)
        else:
            turn.set_result(None)

    def _leave_behind(self, held: _Held) -> None:
        match held.leave():
            case "waiting":
                self.end(left_behind=False)  # It has not begun, and never will.
            case "running":
                self._count_left_behind()
            case "over":
                pass

    def _count_left_behind(self) -> None:
        with self._lock:
            self._left_behind += 1
            refused = list(self._line) if self._left_behind >= self._limit else []
            if refused:
                self._line.clear()
        for turn in refused:
            _tell(turn, _refuse, turn, ThreadsUsedUp(self._session_id, self._limit))


class _Held:
    """A thread that a session holds, for one call; `leave` and the end of the call may come at the same moment."""

    __slots__ = ("_lock", "_share", "_state")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lock = threading.Lock()
        self._state: Literal["waiting", "running", "left", "over"] = "waiting"

    def run(self, call: Callable[[], T]) -> T:
        """Run the call, in its thread."""
        with self._lock:
            if self._state == "over":
                raise asyncio.CancelledError  # Nobody is waiting for it, so it must not start now.
            self._state = "running"
        try:
            return call()
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            was_left, self._state = self._state == "left", "over"
        self._share.end(left_behind=was_left)

    def leave(self) -> Literal["waiting", "running", "over"]:
        """Note that nobody waits for the call any more, and return how far it got; a running one goes on."""
        with self._lock:
            before = self._state
            assert before != "left", "it is left once"
            self._state = "left" if before == "running" else "over"
            return before


def _tell(turn: asyncio.Future[None], call: Callable[..., None], *arguments: object) -> bool:
    """Schedule a call on the event loop that waits for a turn; return whether that loop is still open."""
    try:
        turn.get_loop().call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return False
    return True


def _refuse(turn: asyncio.Future[None], error: Exception) -> None:
    if not turn.done():
        turn.set_exception(error)


class Slot:
    """A task's place among those at work.

    A task that waits for its children is not at work: it lends its slot, or children and parent would wait for each
    other forever.
    """

    __slots__ = ("_held", "_lent", "_over", "_slots")

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._held = False
        self._over = False
        self._lent = 0

    async def __aenter__(self) -> Slot:
        await self._slots.acquire()
        self._held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        self._let_go()

    def lend(self) -> None:
        """Let go of the slot while a child runs."""
        self._lent += 1
        self._let_go()

    async def take_back(self, *, now: bool) -> None:
        """Take the slot back when the last of the children has ended; not `now` when the task itself is being ended."""
        self._lent -= 1
        if now and not self._lent and not self._over:
            await self._slots.acquire()
            self._held = True
            if self._over:  # It has ended meanwhile.
                self._let_go()

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()


class Cancellation(Struct, eq=False):
    """Whether and how the run is to stop, and the tasks that are in user code, which a cancel may cut short."""

    mode: str | None = None
    tasks: set[asyncio.Task[Any] | None] = set()

    @contextmanager
    def reaching(self, task: asyncio.Task[Any] | None) -> Generator[None]:
        """Let a cancel cut short what a task does inside; a frame above may have added it already."""
        is_inner = task in self.tasks
        self.tasks.add(task)
        try:
            yield
        finally:
            if not is_inner:
                self.tasks.discard(task)

    def cancel(self, mode: str) -> None:
        """Stop at the next safe point, or with mode "now" in the middle of user code."""
        self.mode = mode
        if mode == "now":
            for task in list(self.tasks):
                if task is not None:
                    task.cancel()
