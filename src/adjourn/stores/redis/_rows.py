"""The tables of `kit.tables` on a Redis server: how their rows are packed into the fields of hashes, and unpacked.

A session's row is a hash with a field for each column, so that a script can compare and count. A row of any other
table is one value, an array of its columns in msgpack, in a hash of its table. A change of some columns is put in front
of it, so that nothing has to be read to write it. A few columns have fields of their own: those that are read, or
removed, without the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.effects import Later
from adjourn.stores.kit.reading import session_row
from adjourn.stores.kit.rows import SessionRow
from adjourn.stores.kit.tables import BEGUN, BRANCHES, INPUTS, OUTBOX, QUESTIONS, RECORDS, SESSIONS, Kind, Table

R = TypeVar("R", bound=msgspec.Struct)

Packed: TypeAlias = "msgspec.Raw | list[msgspec.Raw | float | bool]"
"""A packed row: as one value or, if the script has to put something in, as its parts. A number is a time, so many
seconds after that of writing, and `True` is the row's number in the order of writing."""

_CHANGE = b"\xc1"  # begins what is put in front of a row; msgpack never does
_SERIAL = True
_EMPTY: Mapping[Kind, object] = {"flag": False, "bytes": b""}

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def marked(data: bytes) -> msgspec.Raw:
    """Return bytes marked as text: the scripts of Redis 7 know no other strings, and do not look into them."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4) + data)


class Rows(Generic[R]):
    """How the rows of one table are packed.

    Columns `apart` have fields of their own, which are not there if the column is empty, unless it is `needed`. What is
    `elsewhere` is not in the row at all.
    """

    def __init__(
        self,
        table: Table[R],
        *,
        apart: Sequence[str] = (),
        needed: Sequence[str] = (),
        elsewhere: Mapping[str, object] | None = None,
    ) -> None:
        self.table = table
        self.apart: tuple[str, ...] = tuple(apart)
        self._needed = frozenset(needed)
        self._elsewhere = frozenset(elsewhere or ())
        self._place = {name: place for place, name in enumerate(table.fields)}
        self._get = cast("Callable[[R], tuple[Any, ...]]", attrgetter(*table.fields))
        kinds: dict[str, Kind] = {each.field: each.kind for each in table.columns}
        empty = {name: _EMPTY[kinds[name]] for name in apart} | dict(elsewhere or {})
        self._left_out = [(self._place[name], value) for name, value in empty.items()]
        self._serial = None if table.serial is None else self._place[table.serial]
        self._of_script = [
            place for name, place in self._place.items() if kinds[name] == "float" or name == table.serial
        ]

    def fields(self, key: object) -> list[str]:
        """Return the fields that the row with a key may have in its hash."""
        return [f":{key}", *[f"{each}:{key}" for each in self.apart]]

    def insert(self, key: object, row: R) -> list[Any]:
        """Return the fields of a new row, each followed by its value."""
        values = list(self._get(row))
        found: list[Any] = [f":{key}", None]
        for name in self.apart:
            value = values[self._place[name]]
            if value or name in self._needed:
                found += [f"{name}:{key}", marked(value) if type(value) is bytes else "1"]
        found[1] = self.pack(row)
        return found

    def pack(self, row: R) -> Packed:
        """Return the row, without what has fields of its own."""
        values = list(self._get(row))
        for place, empty in self._left_out:
            values[place] = empty
        own = [each for each in self._of_script if each == self._serial or type(values[each]) is Later]
        return marked(_pack(values)) if not own else self._in_parts(values, own)

    def _in_parts(self, values: list[Any], own: Sequence[int]) -> Packed:
        parts: list[msgspec.Raw | float | bool] = []
        before, start = _head(0x90, 0xDC, len(values)), 0
        for place in own:
            parts.append(marked(before + _members(values[start:place])))
            parts.append(_SERIAL if place == self._serial else values[place].plus)
            before, start = b"", place + 1
        if start < len(values):
            parts.append(marked(_members(values[start:])))
        return parts

    def change(self, values: Mapping[str, Any]) -> Packed:
        """Return new values of some columns, to be put in front of the row."""
        parts: list[tuple[bytes, float | None]] = []
        text, size = b"", 0
        for name, value in values.items():
            if name in self.apart or name in self._elsewhere:
                continue
            size += 1
            if type(value) is Later:
                parts.append((text + _pack(name), value.plus))
                text = b""
            else:
                text += _pack(name) + _pack(value)
        head = _head(0x80, 0xDE, size)
        length = len(head) + len(text) + sum(len(each) + 9 for each, _ in parts)
        front = _CHANGE + length.to_bytes(4) + head
        found: list[msgspec.Raw | float | bool] = []
        for each, plus in parts:
            found += [marked(front + each), cast("float", plus)]
            front = b""
        return [*found, marked(front + text)]

    def values(self, stored: bytes | None, apart: Sequence[bytes | None], session: str, what: str) -> list[Any]:
        """Return the values of a row, as its table has them, from what is in its fields; they are yet to be checked.

        Raises:
            CheckpointCorrupt: they are not what was written.
        """
        if stored is None:
            raise CheckpointCorrupt(f"{what} is gone", session)
        try:
            changes: list[dict[str, Any]] = []
            while stored[:1] == _CHANGE:
                end = 5 + int.from_bytes(stored[1:5])
                changes.append(_unpack(stored[5:end]))
                stored = stored[end:]
            found = _unpack(stored)
            if not isinstance(found, list):
                raise CheckpointCorrupt(f"{what} is damaged", session)
            values = cast("list[Any]", found)
            for name, value in zip(self.apart, apart, strict=False):
                if value is not None or name in self._needed:
                    values[self._place[name]] = True if value == b"1" and name == "full" else value
            for change in reversed(changes):
                for name, value in change.items():
                    values[self._place[name]] = value
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, AttributeError, TypeError) as error:
            raise CheckpointCorrupt(f"{what} is damaged ({error})", session) from error
        return values

    def field(self, values: Sequence[Any], name: str) -> Any:
        """Return one of the values of a row by its name; None if there are fewer."""
        place = self._place[name]
        return values[place] if place < len(values) else None


def _head(few: int, many: int, count: int) -> bytes:
    """Return what an array or map of msgpack begins with."""
    return bytes([few | count]) if count < 16 else bytes([many]) + count.to_bytes(2)


def _members(values: list[Any]) -> bytes:
    return _pack(values)[1 if len(values) < 16 else 3 :]


ROWS_OF_BRANCHES = Rows(BRANCHES)
ROWS_OF_RECORDS = Rows(RECORDS, apart=("full", "events", "body"), needed=("body",))
# What a question is filed under is in `listed` for as long as it is open.
ROWS_OF_QUESTIONS = Rows(QUESTIONS, elsewhere={"terms": ()})
ROWS_OF_INPUTS = Rows(INPUTS, apart=("body",))
ROWS_OF_BEGUN = Rows(BEGUN)
ROWS_OF_NOTICES = Rows(OUTBOX)

ROWS: Mapping[Table[Any], Rows[Any]] = {
    each.table: each
    for each in (
        ROWS_OF_BRANCHES,
        ROWS_OF_RECORDS,
        ROWS_OF_QUESTIONS,
        ROWS_OF_INPUTS,
        ROWS_OF_BEGUN,
        ROWS_OF_NOTICES,
    )
}


# The session's row


def column(value: Any) -> str | float:
    """Return a value as the script puts it into a column of the session's row: text, or a time by its own clock."""
    if type(value) is str:
        return value
    if type(value) is Later:
        return value.plus
    return repr(value) if type(value) is float else str(value)


def read_session(values: Sequence[bytes], id: str) -> SessionRow:
    """Return a session's row from the fields and values of its hash.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    fields = dict(zip(values[::2], values[1::2], strict=True))
    found = [0, *[_READ[kind](fields.get(name)) for name, kind in _COLUMNS]]
    if found[1] != id:
        raise CheckpointCorrupt(f"its row is that of session {found[1]!r}", id)
    return session_row(found)


def text(value: bytes | None) -> object:
    """Return text, or the bytes as they are if they are not text: the check of the column reports them."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def number(value: bytes | None) -> object:
    """Return a whole number, or the bytes as they are if they are not one."""
    return int(value) if value is not None and (value == b"-1" or (value.isdigit() and len(value) < 20)) else value


def _time(value: bytes | None) -> object:
    try:
        return None if value is None else float(value)
    except ValueError:
        return value


_READ: Mapping[Kind, Callable[[bytes | None], object]] = {"text": text, "int": number, "float": _time}
_COLUMNS: list[tuple[bytes, Kind]] = [(each.field.encode(), each.kind) for each in SESSIONS.columns[1:]]
