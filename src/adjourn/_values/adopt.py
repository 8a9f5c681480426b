"""Adopting a value: when it enters the state it is copied, checked, and marked if JSON alone cannot carry it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from adjourn.errors import NotStorable

from .frozen import FrozenDict, FrozenList
from .kinds import EnumKind, FieldsKind, ModelKind, NativeKind, kind_for, type_of
from .registry import CONSTANT, TAG, kind_of

NOT_FINITE = "NaN and infinities have no JSON form: store None, or leave it out."
SURROGATES = (
    "Its text holds lone surrogates, which have no UTF-8 form: text.encode('utf-8', 'replace').decode() cleans it."
)
ZONED_TIME = "A time in a named zone has no offset without its day: store a datetime, or a time without zone."
UNHASHABLE = "Its members are stored as dicts or lists, which cannot be keys: use tuples."

_CONVERSIONS: tuple[tuple[type[Any], str], ...] = (
    *((kind, kind.__name__) for kind in (dict, list, tuple, set, frozenset, str, bytes, bool, int, float)),
    *((kind, kind.__name__) for kind in (Decimal, datetime, date, time, timedelta, UUID)),
    (deque, "list"),
    (bytearray, "bytes"),
    (memoryview, "bytes"),
    (BaseException, "str"),
)


def remedy_for(value: Any) -> str:
    """Say how to store what is not stored as it is; the value itself is never shown, since it may be secret."""
    kind = type_of(value)
    if hasattr(kind, "get_secret_value"):
        return "Secrets do not belong in a checkpoint: store a reference to it, and pass the secret in `deps`."
    if isinstance(value, Enum) or kind_for(kind, kind.__qualname__) is not None:
        return f'Register its class with @stored("{kind.__name__}"), or name it in the state\'s schema.'
    if conversion := _conversion(value, kind):
        return f"Convert it first: {conversion}."
    if isinstance(value, type) or callable(value):
        return "Code is not stored: store a name or the data that it works on."
    return (
        "If it is data, make its class a dataclass with @stored(...) above it; if it is a resource (a lock, a file, a "
        "connection, a generator), pass it in `deps` or make it where it is used."
    )


def _conversion(value: Any, kind: type[Any]) -> str:
    for base, name in _CONVERSIONS:
        if isinstance(value, base):
            return f"{name}(value)"
    if hasattr(kind, "__fspath__"):
        return "str(value)"
    return "value.tolist()" if hasattr(kind, "tolist") else ""  # arrays, and numpy's numbers


MAX_DEPTH = 200
_TOO_DEEP = f"It is nested more than {MAX_DEPTH} levels deep, or contains itself: make it flatter."
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

Owned: TypeAlias = tuple[Any, bool]


class _Refused(Exception):
    """Unwinds the walk; every level adds its step, so that no path is built while all is well."""

    def __init__(self, value: object, remedy: str) -> None:
        self.value = value
        self.remedy = remedy
        self.steps: list[str] = []

    def below(self, step: str) -> _Refused:
        self.steps.append(step)
        return self

    def place(self, path: str) -> str:
        whole = (path + "".join(reversed(self.steps))).removeprefix(".")
        return whole if len(whole) <= 200 else whole[:199] + "…"  # a value that contains itself has no last step

    def error(self, path: str) -> NotStorable:
        return NotStorable(self.place(path), self.value, self.remedy)


class _RefusedByCheck(_Refused):
    """A native's own check refused: it is asked again with the whole path, for its own words."""

    def __init__(self, value: object, check: Callable[[Any, str], None]) -> None:
        super().__init__(value, "")
        self.check = check

    def error(self, path: str) -> NotStorable:
        try:
            self.check(self.value, self.place(path))
        except NotStorable as error:
            return error
        return super().error(path)


def adopt(value: Any, path: str) -> Owned:
    """Give the state's own copy of a value, and whether that is JSON as it stands (no tags needed).

    A datetime's zone becomes its offset: what a zone's name means changes with time and place.

    Raises:
        NotStorable: something in it cannot be stored; the error's path leads there from `path`.
    """
    kind = type_of(value)
    if kind is str:
        if value.isascii():
            return value, True
    elif kind in CONSTANT or (kind is int and MIN_INT <= value <= MAX_INT):
        return value, True
    try:
        return _own(value, 0)
    except _Refused as refused:
        raise refused.error(path) from refused.__cause__
    except RecursionError:
        # The caller's own stack was nearly full; the value is not to blame for more than its depth.
        raise NotStorable(path, value, _TOO_DEEP) from None


def _own(value: Any, depth: int) -> Owned:
    kind = type_of(value)
    return _WALKS.get(kind, _own_instance)(value, depth)


def _own_items(values: Iterable[Any], depth: int, place: str = "") -> tuple[list[Any], bool]:
    if depth > MAX_DEPTH:
        raise _Refused(values, _TOO_DEEP)
    out: list[Any] = []
    plain = True
    try:
        for item in values:
            kind = type_of(item)
            if kind in CONSTANT or (kind is str and item.isascii()) or (kind is int and MIN_INT <= item <= MAX_INT):
                out.append(item)
                continue
            owned, is_plain = _WALKS.get(kind, _own_instance)(item, depth)
            out.append(owned)
            plain = plain and is_plain
    except _Refused as refused:
        raise refused.below(place or f"[{len(out)}]") from refused.__cause__
    return out, plain


def _own_list(value: list[Any], depth: int) -> Owned:
    return _own_items(value, depth + 1)


def _own_tuple(value: tuple[Any, ...], depth: int) -> Owned:
    items, _ = _own_items(value, depth + 2)
    return tuple(items), False


def _own_set(value: set[Any] | frozenset[Any], depth: int) -> Owned:
    items, _ = _own_items(value, depth + 2, "{…}")
    return _hashed(value, items), False


def _own_dict(value: dict[Any, Any], depth: int) -> Owned:
    if TAG in value:  # a look-alike of our own tags
        return _own_pairs(value, depth)
    if depth >= MAX_DEPTH:
        raise _Refused(value, _TOO_DEEP)
    out: dict[str, Any] = {}
    plain, key = True, None
    try:
        for key, item in value.items():
            if type(key) is not str:
                break
            if not key.isascii():
                _check_text(key)
            kind = type_of(item)
            if kind in CONSTANT or (kind is str and item.isascii()) or (kind is int and MIN_INT <= item <= MAX_INT):
                out[key] = item
                continue
            out[key], is_plain = _WALKS.get(kind, _own_instance)(item, depth + 1)
            plain = plain and is_plain
        else:
            return out, plain
    except _Refused as refused:
        raise refused.below(_step(key)) from refused.__cause__
    return _own_pairs(value, depth)


def _own_pairs(value: dict[Any, Any], depth: int) -> Owned:
    keys, _ = _own_items(value, depth + 3, ".keys()")
    values = _own_values(value, depth + 3).values()
    return _hashed(value, zip(keys, values, strict=True)), False


def _hashed(value: Any, items: Iterable[Any]) -> Any:
    kind = type_of(value)
    try:
        return (dict if kind is FrozenDict else kind)(items)
    except TypeError:  # frozen dicts and lists can be hashed, and what they become cannot
        raise _Refused(value, UNHASHABLE) from None


def _own_values(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    if depth > MAX_DEPTH:
        raise _Refused(value, _TOO_DEEP)
    out: dict[Any, Any] = {}
    key = None
    try:
        for key, item in value.items():
            out[key] = _own(item, depth)[0]
    except _Refused as refused:
        raise refused.below(_step(key)) from refused.__cause__
    return out


def _own_instance(value: Any, depth: int) -> Owned:
    kind = kind_of(type_of(value))
    match kind:
        case NativeKind():
            return _own_native(value, kind), True
        case EnumKind():
            return value, False
        case FieldsKind():
            return _own_fields(value, kind, depth), False
        case _:
            raise _Refused(value, remedy_for(value))


def _own_native(value: Any, kind: NativeKind) -> Any:
    if kind.check is not None:
        try:
            kind.check(value, "")
        except NotStorable:
            raise _RefusedByCheck(value, kind.check) from None
    return value


def _own_fields(value: Any, kind: FieldsKind, depth: int) -> Any:
    if kind.refusal:
        raise _Refused(value, kind.refusal)
    fields = _own_values(kind.read(value), depth + 2)
    # Built here as it will be when it is loaded: what cannot be loaded is refused now.
    try:
        built = kind.build(fields, kind.unset(value))
    except Exception as error:  # protects the run from constructors, which may raise anything
        raise _Refused(
            value, f"Its own constructor refuses its fields ({type(error).__name__}): let it take them."
        ) from error
    if isinstance(kind, ModelKind) and kind.read(built) != fields:
        raise _Refused(value, "Its validators change what they have validated before: let them leave that as it is.")
    return built


def _own_text(value: str, depth: int) -> Owned:
    _check_text(value)
    return value, True


def _check_text(value: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refused(value, SURROGATES) from None


def _own_int(value: int, depth: int) -> Owned:
    return value, MIN_INT <= value <= MAX_INT


def _own_float(value: float, depth: int) -> Owned:
    if not math.isfinite(value):
        raise _Refused(value, NOT_FINITE)
    return value, True


def _own_decimal(value: Decimal, depth: int) -> Owned:
    if not value.is_finite():
        raise _Refused(value, NOT_FINITE)
    return value, False


def _own_datetime(value: datetime, depth: int) -> Owned:
    if value.tzinfo is not None:
        offset = value.utcoffset()
        value = value.replace(tzinfo=None if offset is None else timezone(offset))
    return value, False


def _own_time(value: time, depth: int) -> Owned:
    if value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None:  # a named zone has no offset without a day
            raise _Refused(value, ZONED_TIME)
        value = value.replace(tzinfo=timezone(offset))
    return value, False


def _own_constant(value: Any, depth: int) -> Owned:
    return value, True


def _own_tagged(value: Any, depth: int) -> Owned:
    return value, False


_WALKS: dict[type[Any], Callable[[Any, int], Owned]] = {
    str: _own_text,
    int: _own_int,
    float: _own_float,
    bool: _own_constant,
    type(None): _own_constant,
    list: _own_list,
    dict: _own_dict,
    FrozenList: _own_list,
    FrozenDict: _own_dict,
    tuple: _own_tuple,
    set: _own_set,
    frozenset: _own_set,
    bytes: _own_tagged,
    Decimal: _own_decimal,
    datetime: _own_datetime,
    date: _own_tagged,
    time: _own_time,
    timedelta: _own_tagged,
    UUID: _own_tagged,
}


def _step(key: Any) -> str:
    # As a person writes a path: a name after a dot, anything else in brackets. Other keys may be long, or secret.
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r:.40}]"
    return f"[{key}]" if isinstance(key, int) and MIN_INT <= key <= MAX_INT else f"[<{type_of(key).__name__}>]"
