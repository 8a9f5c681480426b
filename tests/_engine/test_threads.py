"""The pool of threads: bounded, and nobody waits for a thread that somebody else is about to take."""

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from adjourn._engine.concurrency import Share, Threads, _threads, waiting  # pyright: ignore[reportPrivateUsage]
from adjourn.errors import ThreadsUsedUp
from tests.no_threads import no_more_threads

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


# When the system has no more threads


@pytest.mark.parametrize("is_shared", [False, True])
async def test_calls_that_get_no_thread_fail_and_are_never_made(is_shared: bool) -> None:  # rule G14
    """And no place is lost with them, of the pool and of the session."""
    pool, made = Threads(limit=2), list[int]()
    _threads.set(pool)
    run = Share(2, "s").run if is_shared else pool.run
    async with asyncio.timeout(WAIT):
        for number in range(5):
            with no_more_threads(), pytest.raises(RuntimeError, match="new thread"):
                await run(lambda number=number: made.append(number))
        for _ in range(3):
            barrier = threading.Barrier(2, timeout=WAIT)
            await asyncio.gather(run(barrier.wait), run(barrier.wait))
        assert await asyncio.gather(*(run(lambda: 7) for _ in range(10))) == [7] * 10
    assert made == []


async def test_a_wait_goes_on_when_no_thread_can_be_started_in_its_place() -> None:  # rule G14
    pool, queued, go = Threads(limit=1), threading.Event(), threading.Event()

    def waits() -> None:
        assert queued.wait(WAIT)
        with no_more_threads(), waiting():
            assert go.wait(WAIT)

    first = asyncio.create_task(pool.run(waits))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.run(lambda: 7))
    await asyncio.sleep(0)
    queued.set()
    go.set()
    async with asyncio.timeout(WAIT):
        await first
        assert await second == 7
        assert await asyncio.gather(*(pool.run(lambda: 8) for _ in range(3))) == [8] * 3


# Threads that wait


class Counter:
    """Counts the calls that work at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


async def test_a_thread_that_waits_lends_its_place_and_no_more():  # rule G14
    """Those that wait are not counted; those that work never exceed the limit while none comes back."""
    pool, go, working = Threads(limit=3), threading.Event(), Counter()
    here: list[int] = []

    def waits() -> None:
        with waiting():
            assert go.wait(WAIT)

    def works() -> None:
        with working:
            here.append(1)

    waiters = [asyncio.create_task(pool.run(waits)) for _ in range(10)]
    async with asyncio.timeout(WAIT):
        await asyncio.gather(*(pool.run(works) for _ in range(50)))
    go.set()
    await asyncio.gather(*waiters)
    assert len(here) == 50
    assert working.most <= 3


async def test_threads_above_the_limit_end_when_the_wait_is_over():  # rule G14
    pool, go = Threads(limit=2), threading.Event()
    before = set(threading.enumerate())

    def waits() -> None:
        with waiting():
            assert go.wait(WAIT)

    calls = [asyncio.create_task(pool.run(waits)) for _ in range(20)]
    async with asyncio.timeout(WAIT):
        await pool.run(lambda: None)
        go.set()
        await asyncio.gather(*calls)
        while len(set(threading.enumerate()) - before) > 2:  # noqa: ASYNC110  # threads end by themselves
            await asyncio.sleep(0.005)
    assert await pool.run(lambda: 7) == 7


def test_waiting_outside_of_the_pool_lends_nothing():
    with waiting():
        pass


async def test_a_wait_within_a_wait_lends_one_place():  # rule G14
    pool, go = Threads(limit=1), threading.Event()

    def waits() -> None:
        with waiting(), waiting():
            assert go.wait(WAIT)

    call = asyncio.create_task(pool.run(waits))
    async with asyncio.timeout(WAIT):
        assert await pool.run(lambda: 1) == 1
        go.set()
        await call
        assert await pool.run(lambda: 7) == 7


# The threads of one session


class Gate:
    """Calls that begin, and end when they are let."""

    def __init__(self) -> None:
        self.begun = 0
        self._lock = threading.Lock()
        self.open = threading.Event()

    def __call__(self) -> None:
        with self._lock:
            self.begun += 1
        assert self.open.wait(WAIT)

    async def until_begun(self, number: int) -> None:
        async with asyncio.timeout(WAIT):
            while self.begun < number:  # noqa: ASYNC110  # the calls begin in threads
                await asyncio.sleep(0.005)


async def left_behind(share: Share, gate: Gate) -> None:
    """Let a call be cancelled while it runs."""
    begun = gate.begun
    call = asyncio.create_task(share.run(gate))
    await gate.until_begun(begun + 1)
    call.cancel()
    await asyncio.wait([call])


async def test_a_session_uses_its_share_of_the_threads_and_no_more() -> None:  # attack 16
    share, gate = Share(2, "s"), Gate()
    calls = [asyncio.create_task(share.run(gate)) for _ in range(5)]
    await gate.until_begun(2)
    other, other_gate = Share(2, "t"), Gate()
    other_gate.open.set()
    await other.run(other_gate)
    assert gate.begun == 2
    gate.open.set()
    await asyncio.gather(*calls)
    assert gate.begun == 5
    assert await share.run(lambda: 7) == 7


async def test_a_call_that_is_cancelled_while_it_waits_never_begins() -> None:
    share, gate, later = Share(1, "s"), Gate(), list[int]()
    first = asyncio.create_task(share.run(gate))
    await gate.until_begun(1)
    waiting = [asyncio.create_task(share.run(lambda number=number: later.append(number))) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    gate.open.set()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    assert later == [0, 2]
    assert await share.run(lambda: 7) == 7


async def test_calls_are_refused_when_all_threads_are_left_behind() -> None:  # attack 16, failures 66
    share, gate = Share(2, "s"), Gate()
    await left_behind(share, gate)
    begun = asyncio.create_task(share.run(gate))
    await gate.until_begun(2)
    waits = asyncio.create_task(share.run(lambda: 7))
    await asyncio.sleep(0)
    begun.cancel()
    for refused in (waits, share.run(lambda: 7)):
        with pytest.raises(ThreadsUsedUp, match=r"Session 's' has 2 threads that do not end.*a timeout of their own"):
            await refused
    gate.open.set()
    async with asyncio.timeout(WAIT):
        while True:  # until the threads have ended
            try:
                assert await share.run(lambda: 7) == 7
            except ThreadsUsedUp:
                await asyncio.sleep(0.005)
            else:
                break


def test_who_waits_on_a_loop_that_is_closed_holds_nobody_up() -> None:
    share, gate = Share(1, "s"), Gate()

    async def goes_away() -> None:
        first = asyncio.ensure_future(share.run(gate))
        await gate.until_begun(1)
        second = asyncio.ensure_future(share.run(lambda: None))
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()

    asyncio.run(goes_away())
    gate.open.set()

    async def comes_after() -> int:
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    return await share.run(lambda: 7)
                except ThreadsUsedUp:
                    await asyncio.sleep(0.005)

    assert asyncio.run(comes_after()) == 7
