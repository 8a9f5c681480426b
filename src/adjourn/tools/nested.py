"""Fields of nested classes whose annotations say more than msgspec reads: what their schemas must say instead.

The types of parameters are rewritten for msgspec. Those of a class's fields are not ours to rewrite, so that msgspec
converts them without these limits; but nested data is checked against the schema, too.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NotRequired, Required, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from .constraints import meant, says_more, translated
from .foreign import is_adapted, is_foreign


class NestedField(Struct, frozen=True, kw_only=True):
    """A field of a class that JSON is converted to; `name` is its key in JSON, `type` says all that msgspec can."""

    owner: type[Any]
    name: str
    type: Any


def noted_fields(hints: Iterable[Any]) -> list[NestedField]:
    """The fields, at any depth, whose annotations say more than msgspec reads.

    Raises:
        TypeError: what one of them says can be checked neither by msgspec nor by a schema.
    """
    return [_field(owner, name, hint) for owner, name, hint in _fields_within(hints) if says_more(hint)]


def _field(owner: type[Any], name: str, hint: Any) -> NestedField:
    type_ = translated(hint)
    if is_adapted(type_) or not _is_object(owner):
        raise TypeError(f"{owner.__qualname__}.{name} has limits that are not checked in a {_sort(owner)}; {_REMEDY}")
    return NestedField(owner=owner, name=name, type=type_)


_REMEDY = "give them as msgspec.Meta, or make it a Pydantic model"


def _fields_within(hints: Iterable[Any]) -> Iterator[tuple[type[Any], str, Any]]:
    todo, seen = list(hints), set[type[Any]]()
    while todo:
        hint = meant(todo.pop())
        todo += get_args(hint)
        owner = get_origin(hint) or hint
        if isinstance(owner, type) and owner not in seen:
            seen.add(owner)
            for name, inner in _hints(owner).items():
                todo.append(inner)
                yield owner, name, inner


def _hints(owner: type[Any]) -> Mapping[str, Any]:
    """The annotations of a class that msgspec converts to, under their names in JSON."""
    if is_foreign(owner) or not (_has_keys(owner) or hasattr(owner, "_field_defaults")):
        return {}
    try:
        hints = typing.get_type_hints(owner, localns={owner.__name__: owner}, include_extras=True)
    except (NameError, TypeError):  # msgspec, who looks at the same names, says it
        return {}
    names = {field.name: field.encode_name for field in fields(owner)} if issubclass(owner, Struct) else {}
    return {names.get(name, name): _unwrapped(hint) for name, hint in hints.items()}


def _unwrapped(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _is_object(owner: type[Any]) -> bool:
    """Whether its instances are objects in JSON, with a definition of their own in a schema."""
    is_array = issubclass(owner, Struct) and owner.__struct_config__.array_like
    return _has_keys(owner) and not is_array and not getattr(owner, "__parameters__", ())


def _has_keys(owner: type[Any]) -> bool:
    return issubclass(owner, Struct) or dataclasses.is_dataclass(owner) or typing.is_typeddict(owner)


def _sort(owner: type[Any]) -> str:
    return "generic class" if getattr(owner, "__parameters__", ()) else "class that is no Pydantic model"
