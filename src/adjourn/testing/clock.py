"""Time and ids that a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count


class FakeClock:
    """A clock that stands still until it is told to go on. Call it for its time, from any thread."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """The time in seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Let time pass, and return the new time."""
        with self._lock:
            self._now += seconds
            return self._now


def count_ids(prefix: str = "") -> Callable[[], str]:
    """A source of ids that counts: "1", "2", ... after the prefix."""
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"
