"""Runs in sync code: a thin shell around the async ones, with an event loop and if need be a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from adjourn.core.events import Event

from .result import RunResult

if TYPE_CHECKING:
    from .run import Run


def wait_for(run: Run) -> RunResult:
    """The result of a run, from sync code, whether or not an event loop is running around it."""
    if not _is_loop_running():
        return asyncio.run(_awaited(run))
    outcome: list[RunResult | BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_awaited(run)))
        except BaseException as error:  # noqa: BLE001  # it belongs to the waiting thread
            outcome.append(error)

    thread = threading.Thread(target=work, name=f"adjourn-run {run.session_id}")
    thread.start()
    thread.join()
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(run: Run) -> RunResult:
    return await run


def read_from_thread(run: Run) -> Iterator[Event]:
    """The events of a run that has an event loop and a thread of its own."""
    reader = _Reader(run)
    try:
        yield from reader.events()
    finally:
        reader.leave()


class _Reader:
    """Hands the events of a run from its thread to the one that reads, one at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._handed: queue.Queue[Event | BaseException | None] = queue.Queue(maxsize=1)
        self._left = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"adjourn-run {run.session_id}", daemon=True)
        self._thread.start()

    def events(self) -> Iterator[Event]:
        while (item := self._handed.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def leave(self) -> None:
        """Stop reading; return when the run has come to its safe point, or at once if it was detached."""
        self._left = True
        if self._loop is not None and self._reading is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed, so the run has ended.
                self._loop.call_soon_threadsafe(self._reading.cancel)
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._handed.get(timeout=0.02)  # Somebody may stand there with an event in hand.
            if self._run.is_detached:
                return

    def _work(self) -> None:
        try:
            asyncio.run(self._read_to_the_end())
            self._hand(None)
        except BaseException as error:  # noqa: BLE001  # it belongs to the reading thread
            self._hand(error)

    async def _read_to_the_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read())
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._left:
                raise
        await self._run.settled()

    async def _read(self) -> None:
        async with contextlib.aclosing(self._run.__aiter__()) as events:
            async for event in events:
                await asyncio.to_thread(self._hand, event)

    def _hand(self, item: Event | BaseException | None) -> None:
        while not self._left:
            with contextlib.suppress(queue.Full):
                self._handed.put(item, timeout=0.02)
                return
