"""Creating the tables of the Postgres store, and refusing those of other versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, StoreUnavailable

from ._tables import SCHEMA

if TYPE_CHECKING:
    from psycopg import AsyncConnection

VERSION = 5
"""The version of the tables. Those of the first four were created before the first release, and are not read."""

LOCK = 0x61646A6F75726E  # "adjourn": whoever creates tables waits here for others who do


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


async def prepare(connection: AsyncConnection[Any], store: str, schema: str, patience: float) -> None:
    """Create the tables of a schema if there are none.

    The server itself gives up waiting for a lock before `patience` seconds have passed, and says so.

    Any number of processes may do this at once, and any of them may be killed.

    Raises:
        CheckpointTooNew: a newer version of Adjourn has created them.
        CheckpointCorrupt: they are from before the first release.
        StoreUnavailable: the database cannot hold every text.
        psycopg.Error: anything else.
    """
    (encoding,) = await _one(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        detail = f"the database has the encoding {encoding}; create one with `CREATE DATABASE … ENCODING 'UTF8'`"
        raise StoreUnavailable(store, detail, is_lasting=True)
    version = await _version(connection, schema) or await _create(connection, schema, patience)
    if version > VERSION:
        raise CheckpointTooNew(version, VERSION)
    if version < VERSION:
        raise CheckpointCorrupt(
            f"the schema '{schema}' of {store} was created before the first release of Adjourn, in a format that is "
            "not read any more",
            remedy="It was left as it is: give the store another schema, such as schema='adjourn2', or drop this one",
        )


async def _create(connection: AsyncConnection[Any], schema: str, patience: float) -> int:
    """Create the tables, unless another process has done so meanwhile; return their version."""
    name = quoted(schema)
    milliseconds = int(max(1, min(800 * patience, 2**31 - 1)))
    async with connection.transaction():
        # Whoever has waited for the lock must see what was done meanwhile.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await connection.execute(f"SET LOCAL lock_timeout = {milliseconds}".encode())
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})".encode())
        version = await _version(connection, schema)
        if version:
            return version
        # Asking first: whoever may use a schema, but not create one, need not have the right to.
        if not await _one(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
            await connection.execute(f"CREATE SCHEMA {name}".encode())
        versions = "versions (number bigint PRIMARY KEY, at timestamptz DEFAULT now())"
        for statement in (
            f"CREATE TABLE {name}.{versions}",
            *[each.replace("{schema}", name) for each in SCHEMA],
            f"INSERT INTO {name}.versions VALUES ({VERSION})",
        ):
            await connection.execute(statement.encode())
    return VERSION


async def _version(connection: AsyncConnection[Any], schema: str) -> int:
    found = await _one(
        connection,
        """SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relname = 'versions'""",
        schema,
    )
    if not found:
        return 0
    (version,) = await _one(connection, f"SELECT coalesce(max(number), 0) FROM {quoted(schema)}.versions")
    return version


async def _one(connection: AsyncConnection[Any], query: str, *values: object) -> tuple[Any, ...]:
    """Return the first row, an empty one if there is none."""
    cursor = await connection.execute(query.encode(), values or None)
    return await cursor.fetchone() or ()
