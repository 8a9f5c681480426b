"""Comparing values as they are stored: two are the same if nobody could tell them apart after a reload."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from operator import is_
from typing import Any
from uuid import UUID

from adjourn.errors import NotStorable

from . import codec
from .registry import FieldsKind, kind_of, type_of

# Equal instances of these are stored alike. Not so decimals ("1.0" and "1.00"), times of two zones, sets ({1} and
# {True}), or a user's classes, whose `==` may mean or do anything.
_EXACT = frozenset({str, int, bool, type(None), bytes, date, timedelta, UUID})


def same(old: Any, new: Any) -> bool:
    """Return whether a value is the same as a stored one, in all its parts; unlike in Python, 1 and True are not."""
    if old is new:
        return True
    cls = type_of(old)
    if cls is not type_of(new):
        return False
    if cls in _EXACT:
        return old == new
    if cls is list or cls is tuple:
        return len(old) == len(new) and all_same(old, new)
    if cls is dict:
        return len(old) == len(new) and all_same(old, new) and all_same(old.values(), new.values())
    return _are_stored_alike(old, new)


def all_same(olds: Iterable[Any], news: Iterable[Any]) -> bool:
    """Return whether values are the same, pair by pair, up to the end of the shorter collection."""
    # Most are the very same objects, which is found out fast.
    return all(map(is_, olds, news)) or all(map(same, olds, news))


def _are_stored_alike(old: Any, new: Any) -> bool:
    kind = kind_of(type_of(old))
    if isinstance(kind, FieldsKind):
        return same(kind.read(old), kind.read(new)) and kind.unset(old) == kind.unset(new)
    try:
        return codec.encode(old, plain=False) == codec.encode(new, plain=False)
    except NotStorable:
        return False  # Whoever stores the new one is told what is wrong with it.
