"""News: wakes whoever waits for something new in a store, by the store's hints, or else after a while."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import TypeAlias

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import text_of
from adjourn.stores.protocol import Hints, Store
from adjourn.stores.types import SessionRef

log = logger("adjourn.stores")

AGAIN = 1.0
"""Seconds after which a store is listened to again whose hints have ended."""

Of: TypeAlias = tuple[str, str | None] | None
"""Whose hints somebody hears: those of a session of an app, of an app (None for the session), or all."""

Hear = Callable[[SessionRef | None], None]
"""Receives a hint: at a session, or (None) that anything may have changed."""


class _Listening:
    """Listens to the hints of a store on one event loop, once for all who wait there, and while anybody does."""

    def __init__(self, store: Hints) -> None:
        self._store = store
        self._hearing: dict[Of, list[Hear]] = {}
        # In no context and without the loop's task factory: it belongs to all who wait, not to the first of them.
        self._task = asyncio.Task(self._listen(), loop=asyncio.get_running_loop(), context=Context())

    @property
    def is_heard(self) -> bool:
        return bool(self._hearing)

    def add(self, of: Of, hear: Hear) -> None:
        self._hearing.setdefault(of, []).append(hear)

    def remove(self, of: Of, hear: Hear) -> None:
        self._hearing[of].remove(hear)
        if not self._hearing[of]:
            del self._hearing[of]

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _listen(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._store.hints()) as hints:
                    async for ref in hints:
                        self._pass_on(ref)
            except Exception as error:  # noqa: BLE001  # protects those who wait: they look now and then anyway
                log.debug("hints are not heard: %s", visible_line(text_of(error)))
            await asyncio.sleep(AGAIN)

    def _pass_on(self, ref: SessionRef | None) -> None:
        for of in list(self._hearing) if ref is None else ((ref.app, ref.id), (ref.app, None), None):
            for hear in self._hearing.get(of, ()):
                hear(ref)


_here: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hints, _Listening]] = weakref.WeakKeyDictionary()


@contextlib.asynccontextmanager
async def hearing(store: Store, hear: Hear, of: Of = None) -> AsyncGenerator[None]:
    """Pass on the hints of a store, if it gives any: all that come in from now on, and None once it is listened to."""
    if not isinstance(store, Hints):
        yield
        return
    here = _here.setdefault(asyncio.get_running_loop(), {})
    if store not in here:
        here[store] = _Listening(store)
    listening = here[store]
    listening.add(of, hear)
    try:
        yield
    finally:
        listening.remove(of, hear)
        if not listening.is_heard:
            del here[store]
            await listening.end()


class News:
    """What somebody waits for who would otherwise have to look again and again."""

    def __init__(self, *, has_hints: bool) -> None:
        self.has_hints = has_hints
        """Whether the store gives hints, so that looking now and then is only the net below them."""
        self._arrived = asyncio.Event()

    def hear(self, _: SessionRef | None) -> None:
        """End the present wait, or the next one."""
        self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Return when there may be something new, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        self._arrived.clear()


@contextlib.asynccontextmanager
async def news_of(store: Store, of: Of = None) -> AsyncGenerator[News]:
    """Listen for news of one session, of an app, or of all sessions of a store."""
    news = News(has_hints=isinstance(store, Hints))
    async with hearing(store, news.hear, of):
        yield news
