"""Parameters as the bytes that Postgres takes: what arrives there is what was given."""

import asyncio
import gc
from typing import Any

import psycopg
import pytest

from adjourn.stores.postgres._connection import connection_class
from adjourn.stores.postgres._line import Line
from adjourn.stores.postgres._wire import write
from tests.servers import postgres

VALUES: dict[str, list[Any]] = {  # Any: whatever a column may hold
    "bigint": [0, 1, -1, 2**63 - 1, -(2**63)],
    "double precision": [0.0, -0.5, 1e300, 1763337600.123456],
    "text": ["", "a", "é😀", "\\", "\0", "\\0", "a\\\0b", "100 %"],
    "boolean": [True, False],
    "bytea": [b"", b"\0\xff\\"],
}
KEPT = ("bigint", "double precision", "text")  # what a statement that writes returns


@pytest.mark.parametrize("kind", VALUES)
async def test_values_arrive_as_they_were_given(kind: str):
    async with await connection_class().connect(postgres().url, autocommit=True) as connection:
        connection.prepare_threshold = 5
        for value in [*VALUES[kind], None]:
            expected = value.replace("\\", "\\\\").replace("\0", "\\0") if isinstance(value, str) else value
            for _ in range(8):  # prepared or not
                await connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS kept (one {kind}, many {kind}[])".encode())
                inserted = f"INSERT INTO kept VALUES (%(one)b::{kind}, %(many)b::{kind}[])".encode()  # noqa: S608 - types of ours
                assert await write(connection, inserted, {"one": value, "many": [value, None, value]}) == []
                cursor = await connection.execute("SELECT * FROM kept")
                assert await cursor.fetchall() == [(expected, [expected, None, expected])]
                await connection.execute("TRUNCATE kept")
            if kind in KEPT:
                again = f"SELECT %(one)b::{kind}, 5::bigint %% 3".encode()
                assert await write(connection, again, {"one": value}) == [(value, 2)]


async def test_an_error_is_that_of_psycopg_and_the_connection_goes_on():
    async with await connection_class().connect(postgres().url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await write(connection, b"INSERT INTO missing VALUES (%(one)b::bigint)", {"one": 1})
        assert await write(connection, b"SELECT %(one)b::bigint", {"one": 1}) == [(1,)]


async def test_a_statement_that_does_not_fit_into_the_socket_is_sent_and_what_follows_too():
    large = b"x" * 20_000_000
    async with await connection_class().connect(postgres().url, autocommit=True) as connection:
        for _ in range(2):
            assert await write(connection, b"SELECT length(%(one)b::bytea)::bigint", {"one": large}) == [(len(large),)]
            assert await write(connection, b"SELECT %(one)b::bigint", {"one": 1}) == [(1,)]


def test_a_connection_serves_one_loop_after_the_other_and_leaves_none_watching():
    before = watched()
    with asyncio.Runner() as first, asyncio.Runner() as second:
        connection = first.run(connection_class().connect(postgres().url, autocommit=True))
        for runner in (first, second, first, second, second):
            assert runner.run(write(connection, b"SELECT %(one)b::bigint", {"one": 1})) == [(1,)]
        assert watched() - before
        connection.end()
        for runner in (first, second) * 1000:
            runner.run(asyncio.sleep(0))
            if not watched() - before:
                break
        assert not watched() - before


def watched() -> set[Line]:
    return {each for each in gc.get_objects() if isinstance(each, Line) and not each.is_left}
