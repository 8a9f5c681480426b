"""Waiting across event loops: a run may be awaited, read and cancelled on another one than its own."""

from __future__ import annotations

import asyncio
import weakref

from adjourn.errors import Conflict

_passing: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def mark_passing(loop: asyncio.AbstractEventLoop) -> None:
    """Note that an event loop is for one run only: it closes when that has ended."""
    _passing.add(loop)


def is_passing(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop is for one run only."""
    return loop in _passing


LOOK = 1.0
"""Seconds between looks at the event loop of a run, while a task on another one waits for it."""


def wake(waiter: asyncio.Future[None]) -> None:
    """End the wait of a task, on whichever event loop that is."""
    loop = waiter.get_loop()
    try:
        if asyncio.get_running_loop() is loop:
            if not waiter.done():
                waiter.set_result(None)
            return
    except RuntimeError:
        pass
    try:
        loop.call_soon_threadsafe(_wake, waiter)
    except RuntimeError:
        return  # The loop is closed: no task waits there any more.


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def waited(waiter: asyncio.Future[None], loop: asyncio.AbstractEventLoop | None, session_id: str) -> None:
    """Wait for something that is to happen on an event loop.

    Raises:
        Conflict: that loop was closed before it happened.
    """
    if loop is None or loop is asyncio.get_running_loop():
        await waiter
        return
    while not waiter.done():
        await asyncio.wait([waiter], timeout=LOOK)
        if loop.is_closed() and not waiter.done():
            raise Conflict(session_id, "the event loop of its run is closed")
