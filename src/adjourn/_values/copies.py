"""Copies of adopted values, for readers that may change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjourn.errors import CheckpointCorrupt

from .kinds import FieldsKind, type_of
from .registry import SHARED, kind_of


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


def _copy_list(value: list[Any]) -> list[Any]:
    if not value or (type_of(value[0]) in SHARED and SHARED.issuperset(map(type_of, value))):
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
