"""Time that passes for an event loop, and for nobody who waits for a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores.kit import StoreRequest
from adjourn.testing import FaultStore

T = TypeVar("T")


class _Clock:
    """The clock of an event loop, put forward."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.ahead = 0.0

    def __call__(self) -> float:
        return self.time() + self.ahead


def _put_forward(seconds: float) -> bool:
    """Put the clock of this event loop forward; return False if it has one that only goes by itself."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        return False
    clock = loop.time
    if not isinstance(clock, _Clock):
        clock = loop.time = _Clock(clock)
    clock.ahead += seconds
    return True


async def pass_time(seconds: float) -> None:
    """Let so much time pass for all that waits in this event loop."""
    await asyncio.sleep(0 if _put_forward(seconds) else seconds)


class AwayStore(FaultStore):
    """A store that is away for long: whenever it fails, so many seconds pass."""

    def __init__(self, *args: Any, seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds = seconds

    async def write(self, request: StoreRequest[T]) -> T:
        number = self.calls + 1
        fails = number >= self.fail_at and (self.times is None or number < self.fail_at + self.times)
        if fails and self.mode == "hang":
            _put_forward(self._seconds)
        try:
            return await super().write(request)
        except StoreUnavailable:
            _put_forward(self._seconds)
            raise
