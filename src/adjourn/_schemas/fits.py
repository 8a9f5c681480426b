"""Check whether a value fits a type annotation, for values that enter a run from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from adjourn._values.frozen import shorten

_WRAPPERS = (Annotated, Required, NotRequired, Final, ClassVar)
_ATOMS = frozenset({str, int, float, bool})
# What type checkers accept as a number; a bool is not one here, although it is an int in Python.
_NUMBERS: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), complex: (int, float, complex)}


def misfit(value: object, type_: Any) -> str | None:
    """Return why a value does not fit a type, with the place inside it, or `None` if it fits.

    Containers are checked in full, instances of classes only by their class. What cannot be checked fits.
    """
    if type_ is type(value) and type_ in _ATOMS:
        return None
    type_ = _unwrapped(type_)
    origin = get_origin(type_)
    if origin is Literal:
        fits = any(type(value) is type(choice) and value == choice for choice in get_args(type_))
        return None if fits else _expected(type_, value)
    if origin in (Union, UnionType):
        return _misfit_union(value, type_)
    kind = NoneType if type_ is None else origin or type_
    if not isinstance(kind, type):  # Any, a type variable, an unresolved name
        return None
    if hasattr(kind, "__required_keys__"):
        return _misfit_typed_dict(value, kind)
    return _misfit_items(value, type_, kind) if _is_instance(value, kind) else _expected(type_, value)


def _unwrapped(type_: Any) -> Any:
    while True:
        if get_origin(type_) in _WRAPPERS:
            type_ = get_args(type_)[0]
        elif hasattr(type_, "__supertype__"):  # NewType
            type_ = type_.__supertype__
        elif type(type_).__name__ == "TypeAliasType":  # `type X = ...`, Python 3.12
            type_ = type_.__value__
        else:
            return type_


def _is_instance(value: object, kind: type) -> bool:
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that is not runtime-checkable
        return True


def _misfit_union(value: object, type_: Any) -> str | None:
    found = [misfit(value, member) for member in get_args(type_)]
    if None in found:
        return None
    inside = [reason for reason in found if reason is not None and reason.startswith("[")]
    return inside[0] if len(inside) == 1 else _expected(type_, value)


def _misfit_typed_dict(value: object, kind: Any) -> str | None:
    if not isinstance(value, dict):
        return _expected(kind, value)
    items = cast("dict[str, object]", value)
    if lacking := sorted(kind.__required_keys__ - items.keys()):
        return f"expected the keys of {_name(kind)}, but {', '.join(map(repr, lacking))} is missing"
    hints = _hints(kind)
    return _first((key, item, hints[key]) for key, item in items.items() if key in hints)


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except NameError:  # a name that exists only for type checkers
        return {}


def _misfit_items(value: object, type_: Any, kind: type) -> str | None:
    types = get_args(type_)
    if kind.__module__ not in ("builtins", "collections", "collections.abc") or not isinstance(value, Collection):
        return None  # the meaning of other classes' type parameters is unknown
    if kind is tuple:
        return _misfit_tuple(cast("tuple[object, ...]", value), type_)
    if isinstance(value, Mapping) and len(types) == 2:
        items = cast("Mapping[object, object]", value)
        keys = _first((key, key, types[0]) for key in items)
        return keys or _first((key, item, types[1]) for key, item in items.items())
    items = cast("Collection[object]", value)
    return _first((i, item, types[0]) for i, item in enumerate(items)) if len(types) == 1 else None


def _misfit_tuple(value: tuple[object, ...], type_: Any) -> str | None:
    types: tuple[Any, ...] = get_args(type_)
    if types[1:] == (...,):
        types = types[:1] * len(value)
    elif len(types) != len(value) and type_ is not tuple:
        return _expected(type_, value)
    return _first((i, item, each) for i, (item, each) in enumerate(zip(value, types, strict=False)))


def _first(places: Iterable[tuple[object, object, Any]]) -> str | None:
    for key, item, type_ in places:
        if reason := misfit(item, type_):
            return f"[{key!r}]{reason}" if reason.startswith("[") else f"[{key!r}]: {reason}"
    return None


def _expected(type_: Any, value: object) -> str:
    return f"expected {_name(type_)}, got {shorten(value)} ({_name(type(value))})"


def _name(type_: Any) -> str:
    return type_.__qualname__ if isinstance(type_, type) else repr(type_).replace("typing.", "")
