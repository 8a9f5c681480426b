"""Check whether a value fits a type annotation, for values that enter a run from outside."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
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
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
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
        elif _is_alias(type_):
            type_ = type_.__value__
        elif _is_alias(get_origin(type_)):
            type_ = _aliased(type_)
        else:
            return type_


def _is_alias(type_: Any) -> bool:
    return type(type_).__name__ == "TypeAliasType"  # `type X = ...`, Python 3.12


def _aliased(type_: Any) -> Any:
    """Return what a generic alias stands for with these arguments: for `type Pair[T] = tuple[T, T]`, of `Pair[int]`."""
    alias: Any = get_origin(type_)
    value, given = alias.__value__, dict(zip(alias.__type_params__, get_args(type_), strict=False))
    if wanted := getattr(value, "__parameters__", ()):
        return value[tuple(given.get(each, Any) for each in wanted)]
    return given.get(value, value) if isinstance(value, TypeVar) else value


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
        return f"expected the keys of {type_name(kind)}, but {', '.join(map(repr, lacking))} is missing"
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
    return f"expected {type_name(type_)}, got {shorten(value)} ({type_name(type(value))})"


def type_name(type_: Any) -> str:
    """Return a type as people write it."""
    if isinstance(type_, type) and not get_args(type_):
        return type_.__qualname__
    # Neither modules nor type variables say anything to whoever gave the wrong thing.
    return re.sub(r"\[~.*?\]", "", re.sub(r"\b(?:\w+\.)+(?=\w)", "", repr(type_)))


# Quick checks, for values that are checked at every step

Check = Callable[[Any], bool]

_DEEPEST = 5
"""How far inside a type a quick check looks, as a type may contain itself."""


def is_checked(type_: Any) -> bool:
    """Return whether there are values that do not fit a type."""
    type_ = _unwrapped(type_)
    if type_ is object or type_ is Any:
        return False
    if get_origin(type_) in (Union, UnionType):
        return all(map(is_checked, get_args(type_)))
    return type_ is None or get_origin(type_) is not None or isinstance(type_, type)


def exact_types(type_: Any) -> frozenset[type]:
    """Return classes whose own instances fit a type, whatever is in them."""
    type_ = _unwrapped(type_)
    if get_origin(type_) in (Union, UnionType):
        return frozenset[type]().union(*map(exact_types, get_args(type_)))
    kind = NoneType if type_ is None else type_
    if kind in _NUMBERS:
        return frozenset(_NUMBERS[kind])
    is_plain = isinstance(kind, type) and get_origin(kind) is None and not hasattr(kind, "__required_keys__")
    return frozenset({kind}) if is_plain else frozenset()


def quick_check(type_: Any, depth: int = 0) -> Check:
    """Return a check that is true only for values that fit a type; `misfit` is slower, and has the last word."""
    plain = _unwrapped(type_)
    exact, origin, types = exact_types(plain), get_origin(plain), get_args(plain)
    if not is_checked(plain):
        return _always
    if depth < _DEEPEST and origin in (Union, UnionType):
        checks = [quick_check(each, depth + 1) for each in types]
        return lambda value: type(value) in exact or any(check(value) for check in checks)
    if depth < _DEEPEST and origin in (list, set, frozenset):
        items = _items_check(types[0], depth)
        return lambda value: type(value) is origin and items(value)
    if depth < _DEEPEST and origin is dict:
        keys, values = (_items_check(each, depth) for each in types)
        return lambda value: type(value) is dict and keys(value) and values(cast("dict[Any, Any]", value).values())
    return lambda value: type(value) in exact


def _items_check(type_: Any, depth: int) -> Check:
    """Return a check of all items; where their classes say it all, it is made without a call for each."""
    if not is_checked(type_):
        return _always
    exact, check = exact_types(type_), quick_check(type_, depth + 1)
    return lambda items: exact.issuperset(map(type, items)) or all(map(check, items))


def _always(value: object) -> bool:
    return True


def partial_type(type_: Any) -> Any:
    """Return a TypedDict of which no key is required, for a TypedDict; other types as they are."""
    plain: Any = _unwrapped(type_)
    if not is_typeddict(plain):
        return type_
    return TypedDict(plain.__name__, dict(_hints(plain)), total=False)  # pyright: ignore[reportArgumentType]  # its fields are only known at run time
