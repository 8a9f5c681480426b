"""Connections for every event loop of a process.

A connection of psycopg belongs to no event loop while nobody waits for it. So one pool serves all loops and threads,
and loops that come and go, as sync code makes them, find open connections.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from adjourn.stores.kit.forks import forget_after_fork

from ._driver import PoolTimeout, ready

if TYPE_CHECKING:
    from ._connection import OwnConnection

_Waiter: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]

_LOOK = 1.0  # seconds after which whoever waits looks again: a wake-up dies with its loop


class Pool:
    """Up to `size` connections, each used by one caller at a time."""

    def __init__(self, connect: Callable[[], Awaitable[OwnConnection]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._forget()
        forget_after_fork(self, Pool._forget)

    def _forget(self) -> object:
        """Start over, and return the connections: even to close one would end it for the parent."""
        inherited = getattr(self, "_idle", None)
        self._gate = threading.Lock()  # guards everything that follows
        self._idle: list[OwnConnection] = []
        self._waiters: deque[_Waiter] = deque()
        self._open = 0
        self._closed = 0
        return inherited

    def close(self) -> None:
        """Close all connections, those that are in use when they are given back; a later call opens others."""
        with self._gate:
            self._closed += 1
            idle, self._idle = self._idle, []
            self._open -= len(idle)
        for connection in idle:
            connection.end()

    def take_idle(self) -> tuple[OwnConnection, int] | None:
        """Lend a connection that nobody uses, if there is one; see `give_back`."""
        with self._gate:
            connection = self._pop_sound()
            return None if connection is None else (connection, self._closed)

    async def take(self, patience: float) -> tuple[OwnConnection, int]:
        """Lend a connection, with what `give_back` wants to know.

        Raises:
            PoolTimeout: there was none for `patience` seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        is_new = True
        while True:
            with self._gate:
                closed, connection = self._closed, self._pop_sound()
                if connection is not None:
                    return connection, closed
                if self._open < self._size:
                    self._open += 1
                    break
                waiter = (loop, loop.create_future())
                # Whoever was overtaken keeps its place.
                (self._waiters.append if is_new else self._waiters.appendleft)(waiter)
                is_new = False
            await self._wait(waiter, deadline - loop.time())
        try:
            return await self._connect(), closed
        except BaseException:
            self._let_go()
            raise

    async def _wait(self, waiter: _Waiter, patience: float) -> None:
        if patience <= 0:
            self._leave(waiter)
            raise PoolTimeout
        try:
            async with asyncio.timeout(min(patience, _LOOK)):
                await waiter[1]
        except TimeoutError:
            self._leave(waiter)
        except asyncio.CancelledError:
            if not self._leave(waiter):
                self._wake_next()  # it was woken for a connection that it does not take
            raise

    def _leave(self, waiter: _Waiter) -> bool:
        """Stop waiting; return whether nobody had woken it."""
        with self._gate:
            try:
                self._waiters.remove(waiter)
            except ValueError:
                return False
            return True

    def _pop_sound(self) -> OwnConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not _has_spoken(connection):
                return connection
            connection.end()
            self._open -= 1
        return None

    def give_back(self, connection: OwnConnection, closed: int) -> None:
        """Take a connection back; one that was broken meanwhile is not used again."""
        if connection.closed or closed != self._closed or connection.pgconn.transaction_status:
            connection.end()  # a transaction that was left open, or a statement that still runs, ends with it
            self._let_go()
            return
        with self._gate:
            self._idle.append(connection)
        self._wake_next()

    def _let_go(self) -> None:
        with self._gate:
            self._open -= 1
        self._wake_next()

    def _wake_next(self) -> None:
        while True:
            with self._gate:
                if not self._waiters:
                    return
                loop, future = self._waiters.popleft()
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:
                continue  # its loop is closed
            return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _has_spoken(connection: OwnConnection) -> bool:
    """Return whether the server has sent something to an idle connection: mostly that it hangs up."""
    try:
        return bool(ready([connection.pgconn.socket], 0))
    except Exception:  # noqa: BLE001  # protects the caller: whatever is wrong, another connection is opened
        return True
