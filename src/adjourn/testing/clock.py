"""Time and ids under the control of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count


class FakeClock:
    """A clock that only moves when `advance` is called. Call it, from any thread, to get its time."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Advance the clock and return the new time."""
        with self._lock:
            self._now += seconds
            return self._now


def count_ids(prefix: str = "") -> Callable[[], str]:
    """Return a function that makes ids by counting: "1", "2", ... after the prefix."""
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"
