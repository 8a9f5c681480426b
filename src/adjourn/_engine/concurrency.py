"""The threads that run sync functions, and how many tasks of a run may work at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]

MAX_THREADS = 64


class Threads:
    """Runs calls in at most `limit` daemon threads, started as they are needed."""

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._free = 0
        self._waiting = 0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, made in a thread with the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = copy_context()
        self._jobs.put((loop, future, lambda: context.run(call)))
        self._find_thread()
        return await future

    def _find_thread(self) -> None:
        """Have a job that was put in line done: by a free thread, by a new one, or by whichever ends its own first."""
        # Threads are counted where jobs come in, not where they wake up: one that is about to take a job is not free
        # for the next, which may be what the first one waits for.
        with self._lock:
            if self._free:
                self._free -= 1
                return
            if self._started >= self._limit:
                self._waiting += 1
                return
            self._started += 1
            name = f"adjourn-{self._started}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            _do(self._jobs.get())
            with self._lock:
                if self._waiting:
                    self._waiting -= 1
                else:
                    self._free += 1


def _do(job: Job) -> None:
    loop, future, call = job
    result, error = None, None
    if future.cancelled():
        return  # A cancel or a timeout came before a thread was free: what has not begun must not begin now.
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001  # it belongs to whoever awaits the call, Pause included
        error = raised
    try:
        loop.call_soon_threadsafe(_deliver, future, result, error)
    except RuntimeError:
        return  # The loop is closed: nobody waits for this any more.


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
_pool_pid = os.getpid()


async def in_thread(call: Callable[[], T]) -> T:
    """Make `call` in the process's pool."""
    global _pool, _pool_pid
    if _pool_pid != os.getpid():
        # After a fork the threads are gone: start anew.
        _pool, _pool_pid = Threads(), os.getpid()
    return await _pool.run(call)


class Slot:
    """A task's place among those at work.

    A task that waits for children of its own is not at work: it lends its slot, or children and parent would wait for
    one another for ever.
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
        """Have it again when the last of the children has ended; not `now` when the task itself is being ended."""
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
