"""Stores on the Postgres server of the tests, with a clock that a test can set."""

import itertools
from typing import ClassVar

import psycopg

from adjourn.stores import PostgresStore
from adjourn.stores.kit import ListBegun
from adjourn.testing import FakeClock
from tests.servers import postgres

TABLES = ("sessions", "branches", "records", "questions", "inbox", "inputs", "begun", "outbox")


_schemas = itertools.count(1)


def fresh_schema() -> str:
    """The name of a schema that is not there yet."""
    return f"fresh{next(_schemas)}"


class Timed:
    """Empty tables on the shared server. Their functions for the time read a row that the test writes."""

    _names: "ClassVar[itertools.count[int]]" = itertools.count(1)
    _free: ClassVar[list[str]] = []

    def __init__(self, clock: FakeClock, url: str | None = None) -> None:
        self.url = url or postgres().url
        self.clock = clock
        self._connection = psycopg.connect(postgres().url, autocommit=True)
        self.schema = self._free.pop() if self._free else f"timed{next(self._names)}"

    async def open(self) -> PostgresStore:
        """A store whose time is the clock's."""
        store = self.store()
        await store.read(ListBegun(""))  # creates the tables
        if self._execute(f"SELECT to_regclass('{self.schema}.time') IS NULL") == [(True,)]:
            self._set_clock()
        self.sync()
        return store

    def _set_clock(self) -> None:
        self._execute(f"CREATE TABLE {self.schema}.time AS SELECT 0::double precision AS now")
        for name, kind in (("moment", "STABLE"), ("clock", "VOLATILE")):
            function = f"FUNCTION {self.schema}.{name}() RETURNS double precision LANGUAGE sql {kind}"
            self._execute(f"CREATE OR REPLACE {function} AS 'SELECT now FROM {self.schema}.time'")  # noqa: S608 - names of ours

    def store(self) -> PostgresStore:
        """Another store on the same tables."""
        return PostgresStore(self.url, schema=self.schema, listen_url=postgres().url)

    def sync(self) -> None:
        """Give the server the time of the clock."""
        self._execute(f"UPDATE {self.schema}.time SET now = {self.clock()}")  # noqa: S608 - names of ours

    def drop(self) -> None:
        """Empty the tables, for the next test."""
        self._execute(";".join(f"DELETE FROM {self.schema}.{table}" for table in TABLES))  # noqa: S608 - names of ours
        self._connection.close()
        self._free.append(self.schema)

    def _execute(self, statement: str) -> list[tuple[object, ...]]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
