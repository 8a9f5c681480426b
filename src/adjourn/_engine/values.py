"""Values in frames: what users may give, what records hold, and types that this process lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw

from adjourn._values import codec
from adjourn._values.frozen import check_text
from adjourn._values.registry import is_known_tag
from adjourn.errors import ProgramChanged, UsageError

from .address import address_of
from .memos import NONE
from .record import tags_in

GONE = object()
"""Marks a session value that was deleted."""


def check_tags(path: str, *encoded: object) -> None:
    """Refuse encoded values of types that this process lacks.

    Raises:
        ProgramChanged: naming the type.
    """
    for tag in tags_in(*encoded):
        if not is_known_tag(tag):
            raise ProgramChanged(
                address_of(path), f"no class is registered here as '{tag}': import the module that defines it"
            )


def check_value_name(key: str) -> None:
    """Refuse the name of a session value that callers and programs cannot write.

    Raises:
        UsageError: it is not text, or is reserved for what the library itself keeps.
    """
    try:
        check_text(key, "The name of a session value")
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    if key.startswith("~"):
        raise UsageError(
            f"The session value {key!r} begins with '~': such values are the library's own. Choose another name."
        )


def adopt_value(key: str, value: object) -> Any:
    """Return a session value as the session's own.

    Raises:
        UsageError: its name is not text, or is reserved.
        NotStorable: it cannot be kept.
    """
    check_value_name(key)
    return codec.adopt(value, f"values[{key!r}]")[0]


def value_or(value: object, default: Any) -> Any:  # Any: the field's own type, which pyright cannot see through UNSET
    """Return a stored field, or its default when the record left it out."""
    return default if value is UNSET else value


def lower_values(values: Mapping[str, object]) -> dict[str, list[Raw]]:
    """Return session values as records keep them: a list of one, or an empty one for a deleted value."""
    return {key: [] if value is GONE else [encoded(value)] for key, value in values.items()}


def lift_values(stored: Mapping[str, list[Raw]]) -> dict[str, Any]:
    """Return session values from a record."""
    return {key: codec.decode(raws[0]) if raws else GONE for key, raws in stored.items()}


def encoded(value: object) -> Raw:
    """Return an owned value as raw JSON."""
    return Raw(codec.encode(value, plain=False))


def decoded(raw: Raw) -> Any:  # Any: it is the user's value
    """Return the value of stored raw JSON, None if there is none."""
    return None if raw is NONE else codec.decode(raw)
