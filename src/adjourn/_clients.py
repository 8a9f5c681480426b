"""Clients of remote services, one per event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Generic, TypeVar

C = TypeVar("C")


class LoopClients(Generic[C]):
    """Creates a client for each event loop that needs one, and closes it when that loop ends.

    A model or store is shared by runs in several threads and by sync runs, each with its own loop, but an open
    connection belongs to one loop. `headers` belong to every request of these clients.
    """

    def __init__(
        self,
        make: Callable[[], C],
        close: Callable[[C], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.headers = headers or {}
        self._make = make
        self._close = close
        self._lock = threading.Lock()
        self._kept: dict[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None, None]]] = {}
        weakref.finalize(self, _let_go, self._kept).atexit = False

    async def here(self) -> C:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        if kept is None:
            client = self._make()
            closer = _closing(client, self._close)
            await anext(closer)
            kept = (client, closer)
            with self._lock:
                for ended in [other for other in self._kept if other.is_closed()]:
                    del self._kept[ended]
                self._kept[loop] = kept
        return kept[0]

    async def close(self) -> None:
        """Close the client of the running loop; the next use creates a new one."""
        with self._lock:
            kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept[1].aclose()


async def _closing(client: C, close: Callable[[C], Awaitable[None]]) -> AsyncGenerator[None, None]:
    # When a loop ends, it closes the async generators that were started in it; it offers no other hook.
    try:
        yield
    finally:
        await close(client)


def _let_go(kept: dict[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None, None]]]) -> None:
    """Close the clients of a model or store that nobody uses any more, each in its loop."""
    for loop, (_, closer) in kept.items():
        with contextlib.suppress(RuntimeError):  # The loop has ended, and has closed it.
            loop.call_soon_threadsafe(_close_soon, loop, closer)


def _close_soon(loop: asyncio.AbstractEventLoop, closer: AsyncGenerator[None, None]) -> None:
    task = loop.create_task(closer.aclose())
    _closers.add(task)
    task.add_done_callback(_closers.discard)


_closers: set[asyncio.Task[None]] = set()
"""The tasks that close clients; event loops do not hold on to them."""
