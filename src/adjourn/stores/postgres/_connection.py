"""The store's own connections: they wait at little cost, and are given up soon when their caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ._line import READ, Line, Waiting, deadline

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGresult

    _Base = AsyncConnection[Any]
else:
    _Base = object  # psycopg is an extra: `connection_class` adds its class

_KINDNESS = 1.0  # seconds in which a server should take the request to cancel a statement
_PATIENCE = 30.0  # seconds in which it should reply
_COMMAND_OK, _TUPLES_OK = 1, 2  # of libpq: how a statement ended that did not fail
_OFTEN = 5  # how often a connection sends a statement before it is prepared
_MOST = 100  # how many are prepared on one connection


class Prepared:
    """What a connection has sent, and what of it is prepared."""

    def __init__(self) -> None:
        self._uses: dict[bytes, int] = {}
        self._names: dict[bytes, bytes] = {}

    def name_of(self, statement: bytes) -> bytes | None:
        """Return the name under which a statement is prepared, if it is."""
        return self._names.get(statement)

    def next_name(self, statement: bytes) -> bytes | None:
        """Return the name under which a statement that is to be sent should be prepared; None if it should not."""
        uses = self._uses[statement] = self._uses.get(statement, 0) + 1
        return b"adjourn_%d" % len(self._names) if uses > _OFTEN and len(self._names) < _MOST else None

    def note(self, statement: bytes, name: bytes) -> None:
        """Take note that it was prepared."""
        self._names[statement] = name


class OwnConnection(_Base):
    """A connection of the store; `connection_class` has the class to open one with."""

    patience: float = _PATIENCE
    """Seconds that a statement may take."""
    _execute: ClassVar[Any]  # what waits for the result of a statement
    _line: Line | None = None

    @cached_property
    def prepared(self) -> Prepared:
        """What it has sent, and what of it is prepared."""
        return Prepared()

    async def result(self) -> PGresult:
        """Return the result of what was sent.

        Raises:
            psycopg.Error: it failed.
        """
        result = (await self.wait(self._execute(self.pgconn)))[-1]
        if result.status not in (_COMMAND_OK, _TUPLES_OK):
            from psycopg.errors import error_from_result  # noqa: PLC0415 - an extra

            raise error_from_result(result)
        return result

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
        except Exception as error:
            if line.has_waited_too_long:
                raise TimeoutError from error
            raise

    async def cancel_safe(self, *, timeout: float = _KINDNESS) -> None:  # noqa: ASYNC109 - as psycopg names it
        """Ask the server to cancel the statement, and give the connection up: nobody waits for a reply.

        psycopg would go on to wait for the reply of a server that may be silent.
        """
        from psycopg import Error  # noqa: PLC0415 - an extra

        with contextlib.suppress(Error):
            await super().cancel_safe(timeout=min(timeout, _KINDNESS))
        raise asyncio.CancelledError


@cache
def connection_class() -> type[OwnConnection]:
    """Return the class that opens the store's connections."""
    from psycopg import AsyncConnection  # noqa: PLC0415 - an extra
    from psycopg.generators import execute  # noqa: PLC0415

    return type("Connection", (OwnConnection, AsyncConnection), {"_execute": staticmethod(execute)})


def _resumed(statement: Waiting, wanted: Any) -> Waiting:
    """Go on with a statement that waits for this."""
    try:
        while True:
            wanted = statement.send((yield wanted))
    except StopIteration as end:
        return end.value
