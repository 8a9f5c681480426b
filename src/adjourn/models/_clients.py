"""Clients of remote services, one per event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

C = TypeVar("C")


class LoopClients(Generic[C]):
    """Creates a client for each event loop that needs one, and closes it when that loop ends.

    A model is shared by runs in several threads and by sync runs, each with its own loop, but an open connection
    belongs to one loop.
    """

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._lock = threading.Lock()
        self._kept: dict[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None, None]]] = {}

    async def here(self) -> C:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            client = self._make()
            closer = self._closing(client)
            await anext(closer)
            with self._lock:
                self._kept = {other: kept for other, kept in self._kept.items() if not other.is_closed()}
                self._kept[loop] = (client, closer)
        return self._kept[loop][0]

    async def close(self) -> None:
        """Close the client of the running loop; the next use creates a new one."""
        with self._lock:
            kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept[1].aclose()

    async def _closing(self, client: C) -> AsyncGenerator[None, None]:
        # When a loop ends, it closes the async generators that were started in it; it offers no other hook.
        try:
            yield
        finally:
            await self._close(client)
