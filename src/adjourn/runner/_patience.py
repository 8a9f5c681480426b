"""Patience: how long a run waits for a call to its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores.protocol import Store

T = TypeVar("T")


@coroutine
def _resumed(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with something awaited whose first step was made, and that now waits for a future."""
    while True:
        try:
            step, value = steps.send, (yield waits_for)
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001  # a cancellation, or what the future raises: it is for the call
            step, value = steps.throw, error
        try:
            waits_for = step(value)
        except StopIteration as done:
            return done.value


class Patience:
    """Cancels calls to a store that take too long, with one timer for all calls of a run."""

    _since: float = 0.0
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.Handle | None = None
    _cut: bool = False

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    @coroutine
    def wait_for(self, call: Awaitable[T]) -> Generator[Any, Any, T]:
        """Return the result of a call to the store.

        Raises:
            StoreUnavailable: it took too long.
        """
        # A store that writes here and now is done with the first step, and needs no timer.
        steps = call.__await__()
        try:
            waits_for = next(steps)
        except StopIteration as done:
            return done.value
        return (yield from self._wait(_resumed(steps, waits_for)).__await__())

    async def _wait(self, call: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        self._task, self._since = asyncio.current_task(), loop.time()
        if self._timer is None:
            # Most calls are done by the loop's next turn; only one that is not needs a timer.
            self._timer = loop.call_soon(self._check, loop)
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
