"""What to do instead, for each sort of value that cannot be stored."""

from __future__ import annotations

from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from .kinds import kind_for, type_of

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
