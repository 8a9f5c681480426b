"""Waiting for what the server sends, at little cost, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from psycopg import AsyncConnection

Waiting: TypeAlias = Generator[Any, Any, Any]  # Any: psycopg's, of whatever is waited for

READ = 1
"""What a statement of psycopg waits for, and is told, if there is something to read."""


class Line:
    """The socket of a connection, watched by one event loop.

    `hang_up` must follow when the connection is closed.

    It is watched under a number of its own, from the first statement until the connection ends or another loop uses it.
    To begin and end that with every statement takes longer than anything else that a reply needs here.
    """

    _number: int = -1

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self.loop = loop
        self.has_waited_too_long = False
        self._statement: Waiting | None = None
        self._reply: asyncio.Future[Any] | None = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._gate = threading.Lock()  # guards the number, which means another file once it is closed
        self._number = os.dup(number)
        loop.add_reader(self._number, self._read)

    def __del__(self) -> None:
        self._close()  # its loop is gone

    @property
    def is_left(self) -> bool:
        """Whether it is not watched any more."""
        return self._number < 0

    async def reply_to(self, statement: Waiting, patience: float) -> Any:
        """Return the result of a statement that waits for something to read; break the line off if that takes too long.

        Raises:
            psycopg.Error: it failed.
        """
        self._statement, self._reply = statement, self.loop.create_future()
        self._due = self.loop.time() + patience
        if self._timer is None:
            self._timer = self.loop.call_at(self._due, self._look)
        try:
            return await self._reply
        finally:
            self._statement = self._reply = None

    def _read(self) -> None:
        reply, statement = self._reply, self._statement
        if reply is None or statement is None:
            self.leave()  # The server hangs up, or another loop uses the connection by now.
        elif not reply.done():
            try:
                wanted = statement.send(READ)
            except StopIteration as end:
                reply.set_result(end.value)
            except Exception as error:  # noqa: BLE001 - passed on to whoever waits
                reply.set_exception(error)
            else:
                assert wanted == READ, "all of the statement was sent"

    def _look(self) -> None:
        """Break the line off if its reply is overdue. The timer is set seldom, since most replies come soon."""
        self._timer = None
        if self._reply is None:
            return
        if self.loop.time() < self._due:
            self._timer = self.loop.call_at(self._due, self._look)
            return
        # Cancelling the statement would be kinder, but the server that does not reply would have to take part in it.
        self.has_waited_too_long = True
        self.hang_up()

    def hang_up(self) -> None:
        """End the connection, on any thread; the loop then stops watching."""
        with self._gate:
            if not self.is_left:
                break_off(self._number)

    def leave(self) -> None:
        """Stop watching; on the thread of the loop."""
        if not self.is_left:
            self.loop.remove_reader(self._number)
            self._close()

    def _close(self) -> None:
        with self._gate:
            if not self.is_left:
                os.close(self._number)
                self._number = -1


@contextmanager
def deadline(connection: AsyncConnection[Any], seconds: float) -> Generator[None]:
    """Break a connection off if what is done inside takes too long.

    Raises:
        TimeoutError: it took too long.
    """
    timer = asyncio.get_running_loop().call_later(seconds, break_off, connection.pgconn.socket)
    began = time.monotonic()
    try:
        yield
    except Exception as error:
        if time.monotonic() - began >= seconds:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def break_off(number: int) -> None:
    """End the connection of a socket, so that nobody waits for it any more."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as line:
        line.shutdown(socket.SHUT_RDWR)
