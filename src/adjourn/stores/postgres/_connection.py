"""The store's own connections: they wait at little cost, and are given up soon when their caller is cancelled.

It imports psycopg, which is an extra, so this module is imported where a connection is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, Error
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus

from ._line import READ, Line, Waiting, deadline
from ._wire import Prepared

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_KINDNESS = 1.0  # seconds in which a server should take the request to cancel a statement
_PATIENCE = 30.0  # seconds in which it should reply


class OwnConnection(AsyncConnection[Any]):
    """A connection of the store."""

    patience: float = _PATIENCE
    """Seconds that a statement may take."""
    _line: Line | None = None

    async def result(self) -> PGresult:
        """Return the result of what was sent.

        Raises:
            psycopg.Error: it failed.
        """
        result = (await self.wait(execute(self.pgconn)))[-1]
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_from_result(result)
        return result

    @cached_property
    def prepared(self) -> Prepared:
        """What it has sent, and what of it is prepared."""
        return Prepared()

    def end(self) -> None:
        """Close the connection, on any thread, whatever it is doing."""
        self.pgconn.finish()
        if self._line is not None:
            self._line.hang_up()

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as psycopg names it
        """Wait for a statement: psycopg calls this for whatever it sends.

        Raises:
            TimeoutError: it took too long; the connection is broken off.
        """
        try:
            wanted = next(gen)
        except StopIteration as end:
            return end.value
        if wanted != READ:  # The server must take something in before all of the statement is sent.
            with deadline(self, self.patience):
                return await super().wait(_resumed(gen, wanted), interval, timeout)
        loop, line = asyncio.get_running_loop(), self._line
        if line is None or line.loop is not loop or line.is_left:
            line = self._line = Line(loop, self.pgconn.socket)
        try:
            return await line.reply_to(gen, self.patience)
        except asyncio.CancelledError:
            await self.cancel_safe()
            raise
        except Error as error:
            if line.has_waited_too_long:
                raise TimeoutError from error
            raise

    async def cancel_safe(self, *, timeout: float = _KINDNESS) -> None:  # noqa: ASYNC109 - as psycopg names it
        """Ask the server to cancel the statement, and give the connection up: nobody waits for a reply.

        psycopg would go on to wait for the reply of a server that may be silent.
        """
        with contextlib.suppress(Error):
            await super().cancel_safe(timeout=min(timeout, _KINDNESS))
        raise asyncio.CancelledError


def _resumed(statement: Waiting, wanted: Any) -> Waiting:
    """Go on with a statement that waits for this."""
    try:
        while True:
            wanted = statement.send((yield wanted))
    except StopIteration as end:
        return end.value
