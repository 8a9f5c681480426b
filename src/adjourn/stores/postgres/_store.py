"""A store in PostgreSQL: sessions of many processes on many machines."""

# An override is documented where it is declared.

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from adjourn.errors import StoreUnavailable, UsageError
from adjourn.stores.types import SessionRef

from . import _driver as driver
from ._facts import Row
from ._line import deadline
from ._pool import Pool
from ._requests import PostgresRequests
from ._schema import prepare
from ._wakeups import Wakeups
from ._wire import write

if TYPE_CHECKING:
    from ._connection import OwnConnection
    from ._driver import AnyConnection

    _Send: TypeAlias = Callable[[OwnConnection, bytes, Mapping[str, Any]], Awaitable[list[Row]]]

_SHORTLY = 1.0  # seconds that the last hints of a process may take

N = TypeVar("N", int, float)


class PostgresStore(PostgresRequests):
    """Keeps sessions in a PostgreSQL database, in a schema of their own.

    Every request is one statement, so no transaction is ever open while user code runs, and a pooler such as PgBouncer
    may be in between, in transaction mode. Times are the server's. The tables are created at the first call.
    Safe to use from any loop, thread or process, even after a fork; after `close`, the next call connects again.

    `listen_url` reaches the server itself where `url` leads to a pooler. `pool_size` is how many connections a process
    opens at most, besides one for its leases. `timeout` is how many seconds a call may take. Options may also follow
    the URL, `?schema=adjourn&pool_size=10`, and then count.

    Raises:
        UsageError: the URL does not name a database, or an option is wrong.
    """

    def __init__(
        self,
        url: str,
        *,
        listen_url: str | None = None,
        schema: str = "adjourn",
        pool_size: int = 10,
        timeout: float = 30.0,
    ) -> None:
        url, given = driver.split_options(url)
        listen_url, schema = given.get("listen_url", listen_url), given.get("schema", schema)
        pool_size = _number(given, "pool_size", int, pool_size)
        timeout = _number(given, "timeout", float, timeout)
        if not isinstance(pool_size, int) or isinstance(pool_size, bool) or pool_size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"PostgresStore(pool_size={pool_size!r}): give the number of connections, 1 or more.")
        if not isinstance(timeout, int | float) or not timeout > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"PostgresStore(timeout={timeout!r}): give a number of seconds above 0.")
        driver.check_schema(schema)
        super().__init__(schema)
        self.schema: str = schema
        self._address = driver.address_of(url, schema, timeout)
        listen_address = (
            self._address if listen_url is None else driver.address_of(listen_url, schema, timeout, "listen_url")
        )
        self._timeout = timeout
        self._is_ready = False
        connect = partial(self._address.connect, timeout)
        self._pool = Pool(connect, pool_size)
        # Leases must be renewed even when all other connections are busy, or their runs would lose them.
        self._lifeline = Pool(connect, 1)
        self._wakeups = Wakeups(self._address, listen_address, timeout)
        weakref.finalize(self, _close, _SHORTLY, self._wakeups, self._pool, self._lifeline)

    def __repr__(self) -> str:
        return f"PostgresStore('{self._address}', schema={self._address.schema!r})"

    def on(self, connection: AnyConnection) -> TransactionStore:
        """Return the same store on a connection of yours, in your transaction: it commits and rolls back with it.

        The connection may be a sync or an async one of psycopg. The tables must be there. Call `notify` of what is
        returned once you have committed, so that others look at once.

        Raises:
            UsageError: it is no connection of psycopg.
        """
        driver.check_is_connection(connection)
        return TransactionStore(self._address, self._wakeups, connection)

    async def fetch(
        self, statement: bytes, values: Mapping[str, Any], *, session: str | None = None, reserved: bool = False
    ) -> list[Row]:
        # A plan for any values would be a bad one for listings, which depend on how common something is.
        send = driver.run if session is not None else driver.run_unprepared
        return await self._fetch(self._lifeline if reserved else self._pool, send, statement, values, session)

    async def _fetch(
        self, pool: Pool, send: _Send, statement: bytes, values: Mapping[str, Any], session: str | None
    ) -> list[Row]:
        try:
            return await self._run(pool, send, statement, values, session)
        except StoreUnavailable as error:
            if driver.lacks_tables(error):
                self._is_ready = False
            if driver.cannot_write(error):
                pool.close()  # another server may have taken over, and new connections find it
            if not driver.was_cut(error):
                raise
        # Such as one that lay idle until the server ended it. Nothing was done on it.
        return await self._run(pool, send, statement, values, session)

    async def _run(
        self, pool: Pool, send: _Send, statement: bytes, values: Mapping[str, Any], session: str | None
    ) -> list[Row]:
        with driver.Explaining(self._address, session, self._timeout):
            connection, closed = pool.take_idle() or await pool.take(self._timeout)
            try:
                if not self._is_ready:
                    with deadline(connection, self._timeout):
                        await prepare(connection, str(self._address), self._address.schema, self._timeout)
                    self._is_ready = True
                return await send(connection, statement, values)
            except Exception as error:
                if driver.has_lost_statements(error):
                    connection.end()
                raise
            finally:
                pool.give_back(connection, closed)

    async def try_to(self, statement: bytes, values: Mapping[str, Any], session: str) -> list[Row]:
        try:
            return await self._fetch(self._pool, write, statement, values, session)
        except StoreUnavailable as refused:
            if driver.was_passing_conflict(refused):
                return []
            raise

    def hint(self, ref: SessionRef) -> None:
        self._wakeups.send(ref)

    async def hints(self) -> AsyncGenerator[SessionRef | None]:
        with self._wakeups.fanout.listening() as listener, self._wakeups.hearing() as ear:
            if ear.hears:
                yield None  # otherwise this comes as soon as it hears
            while True:
                for ref in await listener.wait():
                    yield ref

    async def close(self) -> None:
        # In a thread: the last hints are still sent.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _close, self._timeout, self._wakeups, self._pool, self._lifeline)


class TransactionStore(PostgresRequests):
    """A Postgres store inside a transaction of its user: see `PostgresStore.on`."""

    def __init__(self, address: driver.Address, wakeups: Wakeups, connection: AnyConnection) -> None:
        super().__init__(address.schema)
        self.is_in_transaction: bool = True
        self._address = address
        self._wakeups = wakeups
        self._connection = connection
        self._news: list[SessionRef] = []

    def __repr__(self) -> str:
        return f"PostgresStore('{self._address}', schema={self._address.schema!r}).on(connection)"

    async def fetch(
        self, statement: bytes, values: Mapping[str, Any], *, session: str | None = None, reserved: bool = False
    ) -> list[Row]:
        try:
            with driver.Explaining(self._address, session):
                return await driver.run(self._connection, statement, values)
        except StoreUnavailable as error:
            if not driver.lacks_tables(error):
                raise
            detail = "its tables are not there; call the store itself once, such as `await store.read(ListSessions())`"
            raise StoreUnavailable(str(self._address), detail, is_lasting=True) from error.__cause__

    async def try_to(self, statement: bytes, values: Mapping[str, Any], session: str) -> list[Row]:
        return await self.fetch(statement, values, session=session)

    def hint(self, ref: SessionRef) -> None:
        self._news.append(ref)

    def notify(self) -> None:
        """Let others know of what was written; call it after the commit. Without it, they notice a little later."""
        news, self._news = self._news, []
        for ref in news:
            self._wakeups.send(ref)

    async def close(self) -> None:
        pass  # the connection is its user's


def _number(given: Mapping[str, str], name: str, kind: Callable[[str], N], default: N) -> N:
    try:
        return kind(given[name]) if name in given else default
    except ValueError:
        raise UsageError(f"The URL of Postgres has {name}={given[name]}. Give a number.") from None


def _close(seconds: float, wakeups: Wakeups, *pools: Pool) -> None:
    for pool in pools:
        pool.close()
    wakeups.close(seconds)
