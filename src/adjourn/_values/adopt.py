"""Adopt values into the state: copy them, check them, and note whether plain JSON can represent them."""

from __future__ import annotations

import inspect
import math
import re
import sys
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias, cast
from uuid import UUID

from adjourn.errors import CheckpointCorrupt, NotStorable, full_name

from .frozen import FrozenDict, FrozenList
from .registry import CONSTANT, SHARED, TAG, EnumKind, FieldsKind, ModelKind, NativeKind, kind_for, kind_of, type_of
from .secret import UNNAMED, Secret

NOT_FINITE = "NaN and infinities have no JSON form: store None, or leave them out."
SURROGATES = (
    "Its text holds lone surrogates, which have no UTF-8 form: text.encode('utf-8', 'replace').decode() cleans it."
)
ZONE = "Its time zone could not be found again: use a zoneinfo.ZoneInfo by name, or a fixed offset (datetime.timezone)."
ZONE_KEY = re.compile(r"(?=.{1,100}\Z)[\w+-]+(/[\w+-]+)*", re.ASCII)
"""The names of time zones that can be stored."""

NO_FIELD = (
    "It is not a field of its class, so it would be lost: make it one, or a cached property; if it is a resource (a "
    "lock, a file, a connection), pass it in `deps` or create it where it is used."
)
UNHASHABLE = "Its members are stored as dicts or lists, which are not hashable: use tuples."

_CONVERSIONS: tuple[tuple[type[Any], str], ...] = (
    *((kind, kind.__name__) for kind in (dict, list, tuple, set, frozenset, str, bytes, bool, int, float)),
    *((kind, kind.__name__) for kind in (Decimal, datetime, date, time, timedelta, UUID)),
    (deque, "list"),
    (bytearray, "bytes"),
    (memoryview, "bytes"),
    (BaseException, "str"),
)


def remedy_for(value: Any) -> str:
    """Return advice on how to store an unsupported value; it never shows the value, which may be secret."""
    kind = type_of(value)
    if hasattr(kind, "get_secret_value"):
        return "Secrets do not belong in a checkpoint: store a reference to it, and pass the secret in `deps`."
    if isinstance(value, Enum) or kind_for(kind, kind.__qualname__) is not None:
        return f'Register its class with @stored("{kind.__name__}"), or name it in the state\'s schema.'
    if conversion := _conversion(value, kind):
        return f"Convert it first: {conversion}."
    if isinstance(value, type) or callable(value):
        return "Code is not stored: store a name, or the data that it works on."
    return (
        "If it is data, make its class a dataclass with @stored(...) above it; if it is a resource (a lock, a file, a "
        "connection, a generator), pass it in `deps` or create it where it is used."
    )


def _conversion(value: Any, kind: type[Any]) -> str:
    for base, name in _CONVERSIONS:
        if isinstance(value, base):
            return f"{name}(value)"
    if hasattr(kind, "__fspath__"):
        return "str(value)"
    return "value.tolist()" if hasattr(kind, "tolist") else ""  # arrays and numbers of NumPy


def check_annotation(annotation: Any, path: str) -> None:
    """Raise if an annotation names a class whose values can never be stored, as far as anybody can tell.

    Raises:
        NotStorable: naming the class.
    """
    if typing.is_typeddict(annotation) or typing.get_origin(annotation) is typing.Literal:
        return
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if not _may_be_stored(cast("type[Any]", annotation)):
            raise NotStorable(path, None, _remedy_for_class(annotation), type_name=full_name(annotation))
    elif typing.get_origin(annotation) in _HOLDERS:
        for inside in typing.get_args(annotation):
            check_annotation(inside, path)


def _may_be_stored(cls: type[Any]) -> bool:
    if cls in _ANYTHING or cls in _WALKS or kind_of(cls) is not None:
        return True
    is_open = inspect.isabstract(cls) or getattr(cls, "_is_protocol", False)
    return is_open or any(map(_may_be_stored, cls.__subclasses__()))


def _remedy_for_class(cls: type[Any]) -> str:
    if kind_for(cls, cls.__qualname__) is not None:
        return f'Register the class with @stored("{cls.__name__}").'
    return "Return plain data, such as text, numbers, lists, dicts, or a dataclass with @stored(...) above it."


_ANYTHING: frozenset[object] = frozenset({object, Any})
_HOLDERS = frozenset({list, dict, tuple, set, frozenset, typing.Union, types.UnionType, typing.Annotated})
"""The types in an annotation whose values consist of those of their arguments."""

MAX_DEPTH = 200
_TOO_DEEP = f"It is nested more than {MAX_DEPTH} levels deep, or contains itself: make it flatter."
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

Adopted: TypeAlias = tuple[Any, bool]


class _Refused(Exception):
    """Unwinds the walk; each level adds its step, so that paths are only built on failure."""

    def __init__(self, value: object, remedy: str) -> None:
        self.value = value
        self.remedy = remedy
        self.steps: list[str] = []

    def below(self, step: str) -> _Refused:
        self.steps.append(step)
        return self

    def place(self, path: str) -> str:
        whole = (path + "".join(reversed(self.steps))).removeprefix(".")
        return whole if len(whole) <= 200 else whole[:199] + "…"  # a value that contains itself has an endless path

    def error(self, path: str) -> NotStorable:
        return NotStorable(self.place(path), self.value, self.remedy)


class _RefusedByCheck(_Refused):
    """Refused by a native's own check, which is called again with the whole path for its message."""

    def __init__(self, value: object, check: Callable[[Any, str], None]) -> None:
        super().__init__(value, "")
        self.check = check

    def error(self, path: str) -> NotStorable:
        try:
            self.check(self.value, self.place(path))
        except NotStorable as error:
            return error
        return super().error(path)


def adopt(value: Any, path: str) -> Adopted:
    """Return a copy of a value for the state, and whether it is plain JSON (without tags).

    Raises:
        NotStorable: something in it cannot be stored; the error's path starts with `path` and leads there.
    """
    kind = type_of(value)
    if kind is str:
        if value.isascii():
            return value, True
    elif kind in CONSTANT or (kind is int and MIN_INT <= value <= MAX_INT):
        return value, True
    try:
        return _adopt(value, 0)
    except _Refused as refused:
        raise refused.error(path) from refused.__cause__
    except RecursionError:
        # The value is deep, or the caller's stack was nearly full.
        raise NotStorable(path, value, _TOO_DEEP) from None


def _adopt(value: Any, depth: int) -> Adopted:
    kind = type_of(value)
    return _WALKS.get(kind, _adopt_instance)(value, depth)


def _adopt_items(values: Iterable[Any], depth: int, place: str = "") -> tuple[list[Any], bool]:
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
            adopted, is_plain = _WALKS.get(kind, _adopt_instance)(item, depth)
            out.append(adopted)
            plain = plain and is_plain
    except _Refused as refused:
        raise refused.below(place or f"[{len(out)}]") from refused.__cause__
    return out, plain


def _adopt_list(value: list[Any], depth: int) -> Adopted:
    return _adopt_items(value, depth + 1)


def _adopt_tuple(value: tuple[Any, ...], depth: int) -> Adopted:
    items, _ = _adopt_items(value, depth + 2)
    return tuple(items), False


def _adopt_set(value: set[Any] | frozenset[Any], depth: int) -> Adopted:
    items, _ = _adopt_items(value, depth + 2, "{…}")
    return _hashed(value, items), False


def _adopt_dict(value: dict[Any, Any], depth: int) -> Adopted:
    if TAG in value:  # looks like one of our tags
        return _adopt_pairs(value, depth)
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
            out[key], is_plain = _WALKS.get(kind, _adopt_instance)(item, depth + 1)
            plain = plain and is_plain
        else:
            return out, plain
    except _Refused as refused:
        raise refused.below(_step(key)) from refused.__cause__
    return _adopt_pairs(value, depth)


def _adopt_pairs(value: dict[Any, Any], depth: int) -> Adopted:
    keys, _ = _adopt_items(value, depth + 3, ".keys()")
    values = _adopt_values(value, depth + 3).values()
    return _hashed(value, zip(keys, values, strict=True)), False


def _hashed(value: Any, items: Iterable[Any]) -> Any:
    kind = type_of(value)
    try:
        return (dict if kind is FrozenDict else kind)(items)
    except TypeError:  # frozen dicts and lists are hashable, but what they become is not
        raise _Refused(value, UNHASHABLE) from None


def _adopt_values(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    if depth > MAX_DEPTH:
        raise _Refused(value, _TOO_DEEP)
    out: dict[Any, Any] = {}
    key = None
    try:
        for key, item in value.items():
            out[key] = _adopt(item, depth)[0]
    except _Refused as refused:
        raise refused.below(_step(key)) from refused.__cause__
    return out


def _adopt_instance(value: Any, depth: int) -> Adopted:
    kind = kind_of(type_of(value))
    match kind:
        case NativeKind():
            return _adopt_native(value, kind), True
        case EnumKind():
            return value, False
        case FieldsKind():
            return _adopt_fields(value, kind, depth), False
        case _:
            raise _Refused(value, remedy_for(value))


def _adopt_native(value: Any, kind: NativeKind) -> Any:
    if kind.check is not None:
        try:
            kind.check(value, "")
        except NotStorable:
            raise _RefusedByCheck(value, kind.check) from None
    return value


def _adopt_fields(value: Any, kind: FieldsKind, depth: int) -> Any:
    if kind.refusal:
        raise _Refused(value, kind.refusal)
    fields = _adopt_values(kind.read(value), depth + 2)
    # Built here as it will be when loaded, so that what cannot be loaded is refused now.
    try:
        built = kind.build(fields, kind.unset(value))
    except Exception as error:  # protects the run from constructors, which may raise anything
        raise _Refused(
            value, f"Its own constructor refuses its fields ({type(error).__name__}): make it accept them."
        ) from error
    if (lost := kind.lost(value, built)) is not None:
        raise _Refused(getattr(value, lost, value), NO_FIELD).below(_step(lost))
    if isinstance(kind, ModelKind) and kind.read(built) != fields:
        raise _Refused(value, "Its validators change values that they have already validated: make them idempotent.")
    return built


def _adopt_text(value: str, depth: int) -> Adopted:
    _check_text(value)
    return value, True


def _check_text(value: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refused(value, SURROGATES) from None


def _adopt_int(value: int, depth: int) -> Adopted:
    return value, MIN_INT <= value <= MAX_INT


def _adopt_float(value: float, depth: int) -> Adopted:
    if not math.isfinite(value):
        raise _Refused(value, NOT_FINITE)
    return value, True


def _adopt_decimal(value: Decimal, depth: int) -> Adopted:
    if not value.is_finite():
        raise _Refused(value, NOT_FINITE)
    return value, False


def _adopt_clock(value: Any, depth: int) -> Adopted:
    zone = value.tzinfo
    if zone is not None and type_of(zone) is not timezone and not _is_named(zone):
        value = value.replace(tzinfo=_fixed(zone, value))
    return value, False


def _is_named(zone: Any) -> bool:
    """Return whether a zone can be found by its name."""
    # Imported by those who have such zones, and not by us, since few programs do.
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is None or type_of(zone) is not zoneinfo.ZoneInfo:
        return False
    try:
        zone.__reduce__()  # One that was read from a file refuses to be pickled, and could not be found by us either.
    except Exception:  # noqa: BLE001 - protects the run; it raises what the pickle module has, which is not imported here
        return False
    return ZONE_KEY.fullmatch(zone.key) is not None


def _fixed(zone: tzinfo, value: datetime | time) -> timezone:
    """Return the same offset and name for a zone of another library that has the same ones on all days."""
    try:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        if offset is not None and offset == value.utcoffset():
            unnamed = timezone(offset)
            # Some call it "+01:00" that Python calls "UTC+01:00".
            is_name = name and name.removeprefix("UTC") != unnamed.tzname(None).removeprefix("UTC")
            return timezone(offset, name) if is_name and name else unnamed
    except Exception as error:  # protects the run from zones, which may raise anything
        raise _Refused(value, ZONE) from error
    raise _Refused(value, ZONE)


def _adopt_constant(value: Any, depth: int) -> Adopted:
    return value, True


def _adopt_tagged(value: Any, depth: int) -> Adopted:
    return value, False


def _adopt_secret(value: Secret, depth: int) -> Adopted:
    if value.name is None:
        raise _Refused(value, UNNAMED)
    return value, False


_WALKS: dict[type[Any], Callable[[Any, int], Adopted]] = {
    str: _adopt_text,
    int: _adopt_int,
    float: _adopt_float,
    bool: _adopt_constant,
    type(None): _adopt_constant,
    list: _adopt_list,
    dict: _adopt_dict,
    FrozenList: _adopt_list,
    FrozenDict: _adopt_dict,
    tuple: _adopt_tuple,
    set: _adopt_set,
    frozenset: _adopt_set,
    bytes: _adopt_tagged,
    Decimal: _adopt_decimal,
    datetime: _adopt_clock,
    date: _adopt_tagged,
    time: _adopt_clock,
    timedelta: _adopt_tagged,
    UUID: _adopt_tagged,
    Secret: _adopt_secret,
}


def _step(key: Any) -> str:
    # Names after a dot, anything else in brackets. Keys that are not str or int may be long or secret.
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!r:.40}]"
    return f"[{key}]" if isinstance(key, int) and MIN_INT <= key <= MAX_INT else f"[<{type_of(key).__name__}>]"


def copy(value: Any) -> Any:
    """Return a copy of an adopted value that may be changed; immutable parts are shared."""
    try:
        return _copy(value)
    except RecursionError:
        # Adopted values are never this deep, unless the caller's stack is nearly full.
        raise CheckpointCorrupt("a value is nested too deeply to be copied") from None


def _copy(value: Any) -> Any:
    kind = type_of(value)
    return value if kind in SHARED else _COPIERS.get(kind, _copy_instance)(value)


def are_shared(items: list[Any]) -> bool:
    """Return whether all items are immutable: then a new list of them is a copy."""
    return not items or (type_of(items[0]) in SHARED and SHARED.issuperset(map(type_of, items)))


def _copy_list(value: list[Any]) -> list[Any]:
    if are_shared(value):
        return value.copy()
    return [_copy(item) for item in value]


def _copy_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    # Keys are hashable, and therefore treated as immutable.
    return {key: item if type_of(item) in SHARED else _copy(item) for key, item in value.items()}


def _copy_set(value: set[Any]) -> set[Any]:
    return {_copy(item) for item in value}


def _copy_frozen(value: tuple[Any, ...] | frozenset[Any]) -> Any:
    copied = [_copy(item) for item in value]
    same = all(new is old for new, old in zip(copied, value, strict=True))
    return value if same else type(value)(copied)


def _copy_instance(value: Any) -> Any:
    kind = kind_of(type_of(value))
    if not isinstance(kind, FieldsKind):
        return value
    fields = kind.read(value)
    copied = {name: _copy(item) for name, item in fields.items()}
    if kind.frozen and all(copied[name] is item for name, item in fields.items()):
        return value
    return kind.build(copied, kind.unset(value))


_COPIERS: dict[type[Any], Callable[[Any], Any]] = {
    list: _copy_list,
    dict: _copy_dict,
    set: _copy_set,
    tuple: _copy_frozen,
    frozenset: _copy_frozen,
}
