"""The tables of `kit.tables` in SQLite: the schema, and the statements that write and read their rows.

A table whose key below its session is a number has one number as its key, with the session's in the high bits: then a
row costs one tree instead of two. What is numbered in the order of writing is stored in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.rows import MAX_RECORDS
from adjourn.stores.kit.tables import BEGUN, TABLES, Column, Kind, Table, quoted

R = TypeVar("R", bound=msgspec.Struct)

BITS = MAX_RECORDS.bit_length() - 1
"""How many low bits of a key stand for the place of a row in its session."""

_TYPES: dict[Kind, str] = {
    "int": "INTEGER",
    "float": "REAL",
    "text": "TEXT",
    "bytes": "BLOB",
    "flag": "INTEGER",
    "texts": "TEXT",  # as JSON; empty if there are none
}


class Rows(Generic[R]):
    """How the rows of one table are stored."""

    def __init__(self, table: Table[R]) -> None:
        self.table = table
        self.is_packed: bool = table.of_session and table.serial is None
        """Whether the number of the session and the place in it are one column, `key`."""
        at = "key" if self.is_packed else "session"
        self._prefix: tuple[str, ...] = (at,) if table.of_session else ()
        # The store numbers sessions itself, since their numbers are parts of keys.
        unwritten = table.key if self.is_packed else (table.serial,) if table.of_session else ()
        written = [each for each in table.columns if each.field not in unwritten]
        self._get = cast("Callable[[R], tuple[Any, ...]]", attrgetter(*[each.field for each in written]))
        self._texts_written = [place for place, each in enumerate(written) if each.kind == "texts"]
        self._texts = [place for place, each in enumerate(table.columns) if each.kind == "texts"]
        names = [*self._prefix, *[quoted(each.name) for each in written]]
        verb = "INSERT OR IGNORE" if table is BEGUN else "INSERT"
        self.insert: str = f"{verb} INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        key = ("key",) if self.is_packed else (*self._prefix, *[self._name(each) for each in table.key])
        found_by = key if self._prefix or table.serial is None else (table.serial,)
        self.where: str = " AND ".join(f"{each} = ?" for each in found_by)
        """What finds a row by the values that `place` returns."""
        self.delete: str = f"DELETE FROM {table.name} WHERE {self.where}"
        self.schema: tuple[str, ...] = tuple(self._schema(key))

    def _name(self, field: str) -> str:
        return next(quoted(each.name) for each in self.table.columns if each.field == field)

    def columns(self, of: str, left_out: Collection[str] = (), until: str | None = None) -> str:
        """Return what a query selects of a table by its name there, in the order of the row's fields, `until` one.

        Bytes that are `left_out` come back empty.
        SQLite keeps whatever type a row was given; reading bytes leaves damage to those who know what the bytes mean.
        """
        end = None if until is None else self.table.fields.index(until)
        columns = self.table.columns[:end]
        return ", ".join(["x''" if each.field in left_out else self._selected(of, each) for each in columns])

    def _selected(self, of: str, column: Column) -> str:
        if self.is_packed and column.field in self.table.key:
            return f"{of}.key & {MAX_RECORDS - 1}"
        name = f"{of}.{quoted(column.name)}"
        return f"CAST({name} AS BLOB)" if column.kind == "bytes" else name

    def _schema(self, key: tuple[str, ...]) -> Iterator[str]:
        table = self.table
        # The bodies come last: what is before them can be read without them.
        stored = sorted(table.columns, key=lambda each: (each.kind == "bytes", each.field != table.serial))
        columns = [_declared(each, is_serial=each.field == table.serial) for each in stored]
        if self.is_packed:
            kept = [text for each, text in zip(stored, columns, strict=True) if each.field not in table.key]
            yield f"CREATE TABLE {table.name} (key INTEGER PRIMARY KEY, {', '.join(kept)})"
        else:
            columns[1:1] = [f"{each} INTEGER NOT NULL" for each in self._prefix]
            is_slim = table.serial is None and all(each.kind != "bytes" for each in stored)
            columns += [f"PRIMARY KEY ({', '.join(key)})"] * is_slim
            yield f"CREATE TABLE {table.name} ({', '.join(columns)}){' WITHOUT ROWID' * is_slim}"
            if not is_slim:
                yield f"CREATE UNIQUE INDEX {table.name}_key ON {table.name} ({', '.join(key)})"
        for index in table.indexes:
            where = f" WHERE {index.where}" if index.where else ""
            yield f"CREATE INDEX {index.name} ON {table.name} ({', '.join(map(quoted, index.columns))}){where}"

    def values(self, row: R, session: int = 0) -> tuple[Any, ...]:
        """Return the values that `insert` writes for a row, below a session by its number."""
        values = self._get(row)
        if self.is_packed:
            return (session << BITS | getattr(row, self.table.key[0]), *values)
        if self._texts_written:
            texts = list(values)
            for place in self._texts_written:
                texts[place] = _text_of(texts[place])
            return (session, *texts)
        return (session, *values) if self._prefix else values

    def given(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values that `update` writes."""
        return [
            _text_of(cast("tuple[str, ...]", each)) if isinstance(each, tuple) else each for each in values.values()
        ]

    def place(self, session: int, key: Sequence[Any]) -> tuple[Any, ...]:
        """Return what finds the row with a key, below a session by its number."""
        if self.is_packed:
            return (session << BITS | key[0],)
        return (session, *key) if self._prefix else (*key,)

    def plain(self, values: Sequence[Any], session: str) -> Sequence[Any]:
        """Return the values of `columns` with texts as tuples.

        Raises:
            CheckpointCorrupt: they are not what was written.
        """
        found = list(values)
        for place in self._texts:
            if place < len(found):
                found[place] = read_texts(found[place], session) if found[place] != "" else ()
        return found

    @cache  # noqa: B019  # There is one object for each table.
    def update(self, fields: tuple[str, ...]) -> str:
        """Return the statement that sets some columns of one row."""
        changes = ", ".join(f"{self._name(each)} = ?" for each in fields)
        return f"UPDATE {self.table.name} SET {changes} WHERE {self.where}"

    def delete_all(self, session: int) -> tuple[str, tuple[int, ...]]:
        """Return the statement that removes all rows of a session, and its values."""
        if not self.is_packed:
            return f"DELETE FROM {self.table.name} WHERE session = ?", (session,)
        first = session << BITS
        return f"DELETE FROM {self.table.name} WHERE key BETWEEN ? AND ?", (first, first + MAX_RECORDS - 1)


def _declared(column: Column, *, is_serial: bool) -> str:
    rest = " PRIMARY KEY" if is_serial else "" if column.is_optional else " NOT NULL"
    return f"{quoted(column.name)} {_TYPES[column.kind]}{rest}"


def _text_of(texts: tuple[str, ...]) -> str:
    return msgspec.json.encode(texts).decode() if texts else ""


def read_texts(stored: object, session: str) -> tuple[str, ...]:
    """Return the texts in a column.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    try:
        return () if stored == "" else _texts.decode(cast("str", stored))
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise CheckpointCorrupt(f"texts in the row of a question are damaged ({error})", session) from error


_texts = msgspec.json.Decoder(tuple[str, ...])

ROWS: dict[Table[Any], Rows[Any]] = {table: Rows(table) for table in TABLES}

SCHEMA: tuple[str, ...] = tuple([statement for rows in ROWS.values() for statement in rows.schema])
