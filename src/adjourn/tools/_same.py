"""Whether two values are the same in everything that code can see of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ._whole import field_names

_UNSEEN = frozenset({"__pydantic_fields_set__"})
"""What a Pydantic model knows of how it was made, which is not part of what it holds."""


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are of the same types, and hold the same, at every level.

    `==` will not do: True equals 1, and a class may compare as it likes, or leave out fields. What a value holds is
    what `copy.copy` takes along: private and excluded fields are part of it. A value that cannot be copied is the same
    only as itself. An int is the same as an equal float: it is the default of a field that people typed `float`.
    """
    try:
        return _are_same(one, other)
    except (TypeError, RecursionError):  # It cannot be copied, or holds itself.
        return False


def _are_same(one: Any, other: Any) -> bool:
    kind = cast("type[Any]", type(one))
    if one is other or kind is not type(other):
        return one is other or ({kind, type(other)} == _NUMBERS and one == other)
    return _BY_TYPE.get(kind, _are_same_parts)(one, other)


def _are_same_plain(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # NaN is the same as NaN, and 0.0 is not -0.0.


def _are_same_lists(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(_are_same, one, other))


def _are_same_sets(one: Any, other: Any) -> bool:
    return {(type(each), each) for each in one} == {(type(each), each) for each in other}


def _are_same_dicts(one: Any, other: Any) -> bool:
    names = one.keys() - _UNSEEN
    return names == other.keys() - _UNSEEN and all(_are_same(one[name], other[name]) for name in names)


def _are_same_parts(one: Any, other: Any) -> bool:
    return _are_same_lists(_parts(one), _parts(other))


def _parts(value: Any) -> list[Any]:
    """Return what a copy of the value would be made from."""
    names = field_names(cast("type[Any]", type(value)))
    if names is not None:
        # A default that was never set is in the class, not in the object.
        fields = {name: getattr(value, name, None) for name in names}
        return [{**getattr(value, "__dict__", {}), **fields}]
    parts = value.__reduce_ex__(4)
    if isinstance(parts, str):
        return [parts]
    made, given, state, items, pairs = (*cast("tuple[Any, ...]", parts), None, None, None)[:5]
    return [made, given, state, list(items or ()), list(pairs or ())]


_NUMBERS = {int, float}

_BY_TYPE: dict[type[Any], Callable[[Any, Any], bool]] = {
    **dict.fromkeys((str, int, float, bool, bytes), _are_same_plain),
    **dict.fromkeys((list, tuple), _are_same_lists),
    **dict.fromkeys((set, frozenset), _are_same_sets),
    dict: _are_same_dicts,
}
