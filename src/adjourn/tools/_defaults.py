"""Defaults as JSON: those of parameters, as their types mean them, and those of the fields of their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import fields

from adjourn._values.frozen import check_json, shorten

from ._constraints import classes_within, fields_within, translated
from ._foreign import convert_foreign, pydantic_fields
from ._same import are_same
from ._whole import PLAIN, whole


def default_data(value: Any, type_: Any) -> Any:
    """Return the JSON of a default, as its type means it; UNSET if it has none, or does not fit."""
    for each in _readings(value):
        try:
            data = whole(each)
            check_json(data, "default")
            made = msgspec.convert(data, type_, dec_hook=convert_foreign)
            if are_same(value, made) or _is_conversion(value, made):
                return whole(made)
        except Exception:  # noqa: BLE001  # protects the tool: a user's type may raise anything
            continue
    return UNSET


def _readings(value: Any) -> Iterator[Any]:
    """Yield a default, and what people also mean by it: 0 for False, and True for 1."""
    yield value
    if type(value) is bool:
        yield int(value)
    elif type(value) is int and value in (0, 1):
        yield bool(value)


def _is_conversion(value: Any, made: Any) -> bool:
    """Return whether `made` is what somebody meant who wrote `value`, with its right type.

    For example 100.0 for 100, an enum's member for its value, or a tuple for a list.
    """
    if isinstance(made, Enum):
        return made is value or made.value == value
    if isinstance(made, set | frozenset):
        parts = cast("set[Any] | frozenset[Any]", made)
        return isinstance(value, list | tuple | set | frozenset) and parts == set(cast("Iterable[Any]", value))
    if isinstance(made, list | tuple) and isinstance(value, list | tuple):
        mine, theirs = cast("Sequence[Any]", value), cast("Sequence[Any]", made)
        return len(mine) == len(theirs) and all(map(_is_conversion, mine, theirs))
    if isinstance(made, dict) and isinstance(value, dict):
        a, b = cast("dict[Any, Any]", value), cast("dict[Any, Any]", made)
        return list(a) == list(b) and all(_is_conversion(a[key], b[key]) for key in a)
    # A Decimal is written as text, and means the number that was written.
    return type(value) in PLAIN and (made == value or str(whole(made)) == str(value))


def unshown_fields(hints: Iterable[Any]) -> Iterator[str]:
    """Yield what people could not be shown of values of these types, as far as the types tell."""
    hints = list(hints)
    for owner in classes_within(hints):
        for name, private in getattr(owner, "__private_attributes__", {}).items():
            if private.default_factory is not None or private.default is not type(private)().default:
                yield f"{owner.__name__}.{name} is a private attribute with a default, which is not in its JSON"
    for owner, name, hint in fields_within(hints):
        where = f"{owner.__name__}.{name}"
        if (models := pydantic_fields(owner)) is not None:
            if models[name].exclude or getattr(models[name], "exclude_if", None):
                yield f"{where} is excluded from the JSON of its class"
            continue
        default = _default_of(owner, name)
        if default is not NODEFAULT and default is not UNSET and not _is_of_type(default, hint):
            yield f"the default of {where} is {shorten(default)}, which is not of its type"


def _default_of(owner: type[Any], name: str) -> Any:
    """Return the default of a field; none if the class makes something else of it."""
    if hasattr(owner, "__post_init__"):
        return NODEFAULT
    if (named := getattr(owner, "_field_defaults", None)) is not None:
        return named.get(name, NODEFAULT)
    if issubclass(owner, Struct):
        return next((field.default for field in fields(owner) if field.encode_name == name), NODEFAULT)
    if not dataclasses.is_dataclass(owner):
        return NODEFAULT
    default = next((field.default for field in dataclasses.fields(owner) if field.name == name), dataclasses.MISSING)
    return NODEFAULT if default is dataclasses.MISSING else default


def _is_of_type(default: Any, hint: Any) -> bool:
    try:
        type_ = translated(hint)
        return are_same(default, msgspec.convert(whole(default), type_, dec_hook=convert_foreign))
    except Exception:  # noqa: BLE001  # protects the tool: a user's type may raise anything
        return False
