"""The connections that read from a SQLite file, beside the one that writes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from adjourn.stores.kit.forks import forget_after_fork

from ._files import Connection
from ._schema import explained, is_busy

T = TypeVar("T")

Read = Callable[[sqlite3.Connection], T]

_KEPT = 4  # idle connections; more reads at once open and close their own


class Readers:
    """A few idle connections, each used by one read at a time. Reads never wait for writes."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Connection],
        timeout: float,
    ) -> None:
        self._path = path
        self._connect = connect
        self._timeout = timeout
        self._idle: deque[Connection] = deque()
        self._closed = 0
        forget_after_fork(self, Readers._forget)

    def _forget(self) -> object:
        inherited, self._idle = self._idle, deque()
        self._closed += 1
        return inherited

    def close(self) -> None:
        """Close all connections; a later read opens its own."""
        self._closed += 1
        while connection := self._take():
            connection.close()

    async def read(self, read: Read[T], *, small: bool = False) -> T:
        """Read in a thread; or at once, if it is `small` and takes less time than a thread would."""
        if small and self._idle:
            try:
                return self._once(read)
            except sqlite3.Error:
                pass  # the thread meets the same error, and can wait
        return await asyncio.to_thread(self._patiently, read)

    def _patiently(self, read: Read[T]) -> T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._once(read)
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise explained(error, self._path) from error
            time.sleep(random.uniform(0.0005, 0.005))  # rare: another process recovers or closes the file

    def _once(self, read: Read[T]) -> T:
        closed = self._closed
        connection = self._take() or self._connect()
        sound = False
        try:
            connection.check_files()
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("COMMIT")
                sound = True
        finally:
            if sound and closed == self._closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                connection.close()

    def _take(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
