"""Patience: how long a run waits for a call to its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores.protocol import Store

T = TypeVar("T")


class Patience:
    """Cancels a call to the store that takes too long, with one timer for all calls of a run.

    At most one call is under way, and `_task` makes it: a timer for each would cost more than most calls. The timer
    looks when the first call could be too late, and again when the one that is then under way could be.
    """

    _since: float = 0.0
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    _cut: bool = False

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def wait_for(self, call: Awaitable[T]) -> T:
        """Return the result of a call to the store.

        Raises:
            StoreUnavailable: it took too long.
        """
        loop = asyncio.get_running_loop()
        self._task, self._since = asyncio.current_task(loop), loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check, loop)
        try:
            return await call
        except asyncio.CancelledError:
            if not self._was_cut():
                raise
            raise StoreUnavailable(repr(self._store), f"no answer within {self._seconds:g} s") from None
        finally:
            self._task = None

    def _was_cut(self) -> bool:
        """Return whether the cancellation that reached the current task was ours; if so, undo it."""
        was_cut, self._cut = self._cut, False
        task = asyncio.current_task()
        if was_cut and task is not None:
            task.uncancel()
        return was_cut

    def stop(self) -> None:
        """Stop the timer: there are no more calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        left = self._since + self._seconds - loop.time()
        if left <= 0:
            self._cut = True
            self._task.cancel()
        else:
            self._timer = loop.call_later(left, self._check, loop)
