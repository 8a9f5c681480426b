"""Statements that write, with their parameters as the bytes that Postgres takes.

For each value, psycopg finds out anew how to send it. A store writes the same few statements again and again, whose
types stand in them, so this takes half the time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ._text import escaped, unescaped

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from ._connection import OwnConnection


_LONG, _DOUBLE, _INTEGER = struct.Struct("!q"), struct.Struct("!d"), struct.Struct("!i")
_ONE_DIMENSION = struct.Struct("!iiIii")  # dimensions, whether it has nulls, the type of its items, length, first index


def _pack_text(value: str) -> bytes:
    return escaped(value).encode()


def _pack_flag(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _pack_bytes(value: bytes) -> bytes:
    return value


# By its name: the number of the type, that of its arrays, and how a value is packed.
_TYPES: dict[str, tuple[int, int, Callable[[Any], bytes]]] = {
    "boolean": (16, 1000, _pack_flag),
    "bytea": (17, 1001, _pack_bytes),
    "bigint": (20, 1016, _LONG.pack),
    "text": (25, 1009, _pack_text),
    "double precision": (701, 1022, _DOUBLE.pack),
}
_UNPACK: dict[int, Callable[[bytes], Any]] = {
    20: lambda data: _LONG.unpack(data)[0],
    25: lambda data: unescaped(data.decode()),
    701: lambda data: _DOUBLE.unpack(data)[0],
}


def _packing(kind: str) -> tuple[int, Callable[[Any], bytes]]:
    """Return the number of a type, and how a value of it is packed."""
    number, of_arrays, pack = _TYPES[kind.removesuffix("[]")]
    if not kind.endswith("[]"):
        return number, pack

    def pack_array(values: Sequence[Any]) -> bytes:
        parts = [_ONE_DIMENSION.pack(1, None in values, number, len(values), 1)]
        for value in values:
            data = None if value is None else pack(value)
            parts += [_INTEGER.pack(-1)] if data is None else [_INTEGER.pack(len(data)), data]
        return b"".join(parts)

    return of_arrays, pack_array


class _Statement(msgspec.Struct, frozen=True):
    text: bytes
    parameters: tuple[tuple[str, Callable[[Any], bytes]], ...]
    types: tuple[int, ...]
    formats: tuple[int, ...]


@cache
def _compiled(statement: bytes) -> _Statement:
    """Return a statement whose parameters, `%(name)b::type`, have numbers; each has its type."""
    found: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        name, kind = match.groups()
        found[name] = kind
        return f"${list(found).index(name) + 1}::{kind}"

    kinds = "|".join(map(re.escape, (f"{name}{end}" for name in _TYPES for end in ("[]", ""))))
    text = re.sub(rf"%\((\w+)\)b::({kinds})", numbered, statement.decode()).replace("%%", "%")
    packings = [_packing(kind) for kind in found.values()]
    parameters = [(name, pack) for name, (_, pack) in zip(found, packings, strict=True)]
    types = tuple([number for number, _ in packings])
    return _Statement(text.encode(), tuple(parameters), types, (1,) * len(types))


async def write(connection: OwnConnection, statement: bytes, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement whose parameters have types, and return its rows.

    Raises:
        psycopg.Error: it failed.
    """
    known, pgconn, prepared = _compiled(statement), connection.pgconn, connection.prepared
    given = [None if (value := values[name]) is None else pack(value) for name, pack in known.parameters]
    name = prepared.name_of(statement)
    if name is None and connection.prepare_threshold is not None:
        name = prepared.next_name(statement)
        if name is not None:
            pgconn.send_prepare(name, known.text, known.types)
            await connection.result()
            prepared.note(statement, name)
    if name is None:
        pgconn.send_query_params(known.text, given, known.types, known.formats, 1)
    else:
        pgconn.send_query_prepared(name, given, known.formats, 1)
    return _rows(await connection.result())


def _rows(result: PGresult) -> list[tuple[Any, ...]]:
    unpack = [_UNPACK[result.ftype(column)] for column in range(result.nfields)]
    return [
        tuple(
            [
                None if (data := result.get_value(row, column)) is None else each(data)
                for column, each in enumerate(unpack)
            ]
        )
        for row in range(result.ntuples)
    ]
