"""A connection to Postgres that is given up soon when its caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_KINDNESS = 1.0  # seconds in which a server should take the request to cancel a statement


@cache
def connection_class() -> type[AsyncConnection[Any]]:
    """Return the class of the store's own connections; psycopg is an extra, so it is made when it is needed."""
    from psycopg import AsyncConnection, Error  # noqa: PLC0415 - an extra

    class OwnConnection(AsyncConnection[Any]):
        async def cancel_safe(self, *, timeout: float = _KINDNESS) -> None:  # noqa: ASYNC109 - as psycopg names it
            """Ask the server to cancel the statement, and give the connection up: nobody waits for a reply.

            psycopg calls this when whoever waits for the statement is cancelled. It would go on to wait for the reply
            of a server that may be silent.
            """
            with contextlib.suppress(Error):
                await super().cancel_safe(timeout=min(timeout, _KINDNESS))
            raise asyncio.CancelledError

    return OwnConnection
