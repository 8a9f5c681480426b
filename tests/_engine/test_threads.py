"""The pool of threads: bounded, and nobody waits for a thread that somebody else is about to take."""

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from adjourn._engine.concurrency import Threads

WAIT = 120.0


class Sleepy(SimpleQueue[Any]):
    """A line of jobs whose takers take their time once they have one, as threads may."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        job = super().get(block, timeout)
        time.sleep(0.02)
        return job


async def test_calls_that_wait_for_each_other_all_get_a_thread() -> None:  # rule G14
    """Also when a thread is free, and wakes up just then for the first of them."""
    pool = Threads()
    pool._jobs = Sleepy()  # pyright: ignore[reportPrivateUsage]
    await pool.run(lambda: None)
    for _ in range(5):
        barrier = threading.Barrier(3, timeout=WAIT)
        await asyncio.gather(*(_soon(number, pool, barrier) for number in range(3)))


async def _soon(number: int, pool: Threads, barrier: threading.Barrier) -> None:
    await asyncio.sleep(number / 200)
    await pool.run(barrier.wait)


async def test_no_more_threads_than_the_limit_run_and_all_calls_are_made() -> None:  # rule G14
    pool, lock, running, most = Threads(limit=3), threading.Lock(), 0, 0

    def call(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return number

    for _ in range(20):
        found = await asyncio.gather(*(pool.run(lambda number=number: call(number)) for number in range(20)))
        assert found == list(range(20))
    assert most <= 3


async def test_what_a_call_raises_leaves_its_thread_for_the_next() -> None:
    pool = Threads(limit=1)

    def fails() -> None:
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await pool.run(fails)
    assert await pool.run(lambda: 7) == 7
