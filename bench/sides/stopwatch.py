"""Time and memory of one call."""

import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter, process_time
from types import FrameType

Call = Callable[[], Awaitable[object]]


async def seconds(call: Call) -> float:
    """The seconds that one call takes."""
    start = perf_counter()
    await call()
    return perf_counter() - start


async def cpu_seconds(call: Call) -> float:
    """The CPU time that this process takes while one call is made: what else the machine does hardly changes it."""
    start = process_time()
    await call()
    return process_time() - start


async def typical(call: Call, *, budget: float = 0.5, least: int = 2) -> float:
    """The median seconds of as many calls as fit into `budget` seconds; the first only warms up."""
    times: list[float] = []
    end = perf_counter() + budget
    while len(times) < least or perf_counter() < end:
        times.append(await seconds(call))
    return median(times[1:])


async def python_calls(call: Call) -> float:
    """The Python calls of one call, which hardly depend on the machine: the least of a few, as timers come between."""
    found: list[int] = []
    for _ in range(5):
        count = 0

        def note(frame: FrameType, event: str, arg: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            await call()
        finally:
            sys.setprofile(None)
        found.append(count)
    return min(found)


async def bytes_kept(call: Call, *, times: int, warm_up: int = 100) -> float:
    """The bytes that one call leaves allocated, on the average of `times` calls."""
    for _ in range(warm_up):
        await call()
    tracemalloc.start()
    before = _live_bytes()
    for _ in range(times):
        await call()
    kept = _live_bytes() - before
    tracemalloc.stop()
    return kept / times


def _live_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
