"""Hints: which sessions have something new, for whoever would otherwise look again and again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

from adjourn.stores.types import SessionRef

from .forks import forget_after_fork

MOST = 1000
"""How many sessions wait for a listener to hear of them; with more, it hears that anything may have changed."""


class Listener:
    """Gathers hints for one listener until it asks for them. They may come from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._news: dict[SessionRef | None, None] = {}
        self._arrived = asyncio.Event()

    def put(self, ref: SessionRef | None) -> None:
        """Add a hint, and wake the listener if this is the first it has not heard."""
        with self._lock:
            is_first = not self._news
            if ref is None or len(self._news) >= MOST:
                self._news = {None: None}
            elif None not in self._news:
                self._news[ref] = None
        if is_first:
            with contextlib.suppress(RuntimeError):  # Its loop was closed, so nobody listens any more.
                self._loop.call_soon_threadsafe(self._arrived.set)

    async def wait(self, seconds: float | None = None) -> list[SessionRef | None]:
        """Return the hints that have come in, as soon as there is one, or none after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        with self._lock:
            news, self._news = list(self._news), {}
            self._arrived.clear()
        return news


class Fanout:
    """Passes hints on to everybody who listens, in any thread and on any event loop."""

    def __init__(self) -> None:
        self._forget()
        forget_after_fork(self, Fanout._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self.listeners: tuple[Listener, ...] = ()

    def publish(self, ref: SessionRef | None) -> None:
        """Let everybody know that a session, or (None) anything, may have changed."""
        if self.listeners:
            name = None if ref is None else SessionRef(ref.id, ref.app)
            for listener in self.listeners:
                listener.put(name)

    @contextmanager
    def listening(self) -> Generator[Listener]:
        """Listen from now on, on the running event loop."""
        listener = Listener()
        with self._lock:
            self.listeners = (*self.listeners, listener)
        try:
            yield listener
        finally:
            with self._lock:
                self.listeners = tuple([each for each in self.listeners if each is not listener])

    async def subscribe(self) -> AsyncGenerator[SessionRef | None]:
        """Yield hints, first None: what has changed before is not hinted at."""
        with self.listening() as listener:
            yield None
            while True:
                for ref in await listener.wait():
                    yield ref
