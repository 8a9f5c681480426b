"""Following a stream of a server over as many connections as it takes."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Generic, TypeVar

from ._http import Lost, Patience, Server
from ._sse import Frame
from ._wire import Closing

Item = TypeVar("Item")
T = TypeVar("T")

SOON = 0.5
"""Seconds after which to come back to a server that has said that it closes."""

_COMMENT = Frame()


class Following(ABC, Generic[Item, T]):
    """Reads a stream. A subclass says what to ask for, and what each item is for the caller.

    It keeps what it knows between two connections, and two calls of `items`, so reading continues where it stopped.
    """

    seen: int | None = None
    """The number of the last durable event that was read."""
    is_over: bool = False

    def __init__(
        self, server: Server, decode: Callable[[bytes, str], Item | Closing | None], session_id: str | None = None
    ) -> None:
        self._server = server
        self._decode = decode
        self._session_id = session_id

    @abstractmethod
    def _open(self) -> contextlib.AbstractAsyncContextManager[AsyncGenerator[Frame]]:
        """Return the next connection."""

    @abstractmethod
    def _take(self, item: Item | None, id: str | None) -> Iterator[T]:
        """Yield what an item is for the caller; a frame without one may have an id."""

    def _end(self) -> bool:
        """Decide whether a stream that ended was all of it; return whether to connect again at once."""
        return False

    async def items(self) -> AsyncGenerator[T]:
        """Yield what comes, until it is over.

        Raises:
            ServerUnavailable: the server cannot be reached, or not for too long.
            AdjournError: it refuses.
        """
        patience = Patience(self._server, self._session_id)
        while not self.is_over:
            try:
                async with self._open() as frames:
                    async for frame in frames:
                        if frame == _COMMENT:
                            patience.heard()
                        item = None if frame.data is None else self._decode(frame.data, self._server.url)
                        if isinstance(item, Closing):
                            raise Lost("the server closes", retry_after=SOON)
                        for each in self._take(item, frame.id):
                            patience.heard()
                            yield each
                        if self.is_over:
                            return
                if self._end() or self.is_over:
                    continue
                lost = Lost("the stream ended before the turn did")
            except Lost as error:
                lost = error
            await patience.wait(lost, self.seen)
