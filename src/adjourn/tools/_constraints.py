"""Translate the metadata of `Annotated` parameters, descriptions and limits, into msgspec's terms.

Besides msgspec's own `Meta`, it can be plain text (a description), annotated-types, or Pydantic's `Field` and the like.
If msgspec cannot express a Pydantic constraint, the whole annotation is handled by Pydantic.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast, get_args, get_origin

from msgspec import Meta, Struct
from msgspec import inspect as mi
from msgspec.structs import fields

from ._foreign import adapted, is_adapted, is_foreign, pydantic_fields

Notes = dict[str, Any]

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_LOWER, _UPPER = ("gt", "ge", "min_length"), ("lt", "le", "max_length")
_WORDS = ("title", "description", "examples", "extra_json_schema", "extra")
_UNIONS = (Union, types.UnionType)


class _Inexpressible(Exception):
    """A Pydantic constraint that msgspec cannot express."""


def translated(hint: Any) -> Any:
    """Return the annotation in the form msgspec accepts, with the same limits.

    Raises:
        TypeError: a limit applies to no type in the annotation, or its meaning is unknown.
    """
    hint = meant(hint)
    if is_foreign(hint):
        return adapted(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(hint, arguments)
    if origin in (None, Literal) or not arguments:
        return hint
    inner = [translated(argument) for argument in arguments]
    if origin in _UNIONS:
        is_plain = not any(is_adapted(part) for part in inner) or len(set(inner) - {types.NoneType}) == 1
        return Union[tuple(inner)] if is_plain else adapted(hint)  # noqa: UP007  # the types are only known at run time
    return hint if inner == list(arguments) else _rebuilt(origin, inner)


def meant(hint: Any) -> Any:
    """Return what a `NewType` or `type X = ...` stands for; anything else is returned unchanged."""
    while True:
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12 and later
            hint = hint.__value__
        else:
            return hint


def words_of(hint: Any) -> Mapping[str, Any]:
    """Return the description and other human-readable notes of an annotation."""
    hint = meant(hint)
    if get_origin(hint) is not Annotated:
        return {}
    try:
        notes = _notes(hint.__metadata__)
    except _Inexpressible as error:
        notes = cast("Notes", error.args[0])
    return {name: notes[name] for name in _WORDS if notes.get(name) is not None}


def _rebuilt(origin: Any, arguments: list[Any]) -> Any:
    return origin[tuple(arguments)]


def _annotated(hint: Any, arguments: tuple[Any, ...]) -> Any:
    base = translated(arguments[0])
    try:
        notes = _notes(hint.__metadata__)
    except _Inexpressible:
        return adapted(hint)
    limits = {name: notes[name] for name in _LIMITS if notes.get(name) is not None}
    if is_adapted(base) and (limits or _is_union(arguments[0])):
        base, limits = adapted(hint), {}
    for name, limit in limits.items():
        base = _limited(base, name, limit)
    words = {name: notes[name] for name in _WORDS if notes.get(name) is not None}
    return Annotated[base, Meta(**words)] if words else base


def says_more(hint: Any) -> bool:
    """Return whether an annotation contains metadata that msgspec does not read."""
    hint = meant(hint)
    if get_origin(hint) is Annotated and any(_msgspec_ignores(item) for item in hint.__metadata__):
        return True
    return any(says_more(argument) for argument in get_args(hint) if get_origin(hint) is not Literal)


def _msgspec_ignores(item: Any) -> bool:
    try:
        return not isinstance(item, Meta) and bool(_note(item))
    except (TypeError, _Inexpressible):
        return True


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in _UNIONS


def _limited(type_: Any, name: str, limit: Any) -> Any:
    """Return the type with one more limit; in a union, it is added to the members that support it."""
    if not _is_union(type_):
        limited = Annotated[type_, Meta(**{name: limit})]
        mi.type_info(limited)
        return limited
    members = [_limited_if_possible(member, name, limit) for member in get_args(type_)]
    if members == list(get_args(type_)):
        raise TypeError(f"{name} does not apply to any type in {type_}")
    return Union[tuple(members)]  # noqa: UP007  # as above


def _limited_if_possible(type_: Any, name: str, limit: Any) -> Any:
    try:
        return _limited(type_, name, limit)
    except TypeError:
        return type_


# Reading metadata


def _notes(metadata: Iterable[Any]) -> Notes:
    notes: Notes = {}
    inexpressible: list[Any] = []
    for item in metadata:
        try:
            notes |= _stricter(notes, _note(item))
        except _Inexpressible:
            inexpressible.append(item)
    if inexpressible:
        raise _Inexpressible(notes)
    return notes


def _stricter(notes: Notes, more: Notes) -> Notes:
    """Return the later notes, with limits no wider than the earlier ones."""
    both = more.keys() & notes.keys() & set(_LIMITS)
    return {**more, **{name: _strictest(name, notes[name], more[name]) for name in both}}


def _strictest(name: str, first: Any, second: Any) -> Any:
    if name in _LOWER or name in _UPPER:
        return max(first, second) if name in _LOWER else min(first, second)
    if first != second:
        raise TypeError(f"it has {name} twice, {first!r} and {second!r}; combine them into one")
    return first


def _note(item: Any) -> Notes:
    home = type(item).__module__.partition(".")[0]
    if isinstance(item, str):
        return {"description": item}
    if isinstance(item, Meta):
        return {
            name: getattr(item, name, None) for name in (*_LIMITS, *_WORDS) if getattr(item, name, None) is not None
        }
    if home == "annotated_types":
        return _limit_of(item)
    if home == "pydantic":
        return _note_of_pydantic(item)
    documentation = getattr(item, "documentation", None)  # typing_extensions.Doc
    return {"description": documentation} if isinstance(documentation, str) else {}


def _limit_of(item: Any) -> Notes:
    if isinstance(item, Iterable):  # Interval and Len, which combine several limits
        return _notes(cast("Iterable[Any]", item))
    found = {name: getattr(item, name) for name in _LIMITS if getattr(item, name, None) is not None}
    if not found and not hasattr(item, "documentation") and not hasattr(item, "unit"):
        raise TypeError(f"{item!r} cannot be described to a model; check it in your code")
    return found


def _note_of_pydantic(item: Any) -> Notes:
    if hasattr(item, "metadata") and hasattr(item, "description"):  # a Field
        words = {"description": item.description, "examples": item.examples}
        if getattr(item, "discriminator", None) is not None:
            raise _Inexpressible
        return {**_notes(item.metadata), **{name: word for name, word in words.items() if word is not None}}
    if isinstance(item, Iterable):  # StringConstraints
        return _notes(cast("Iterable[Any]", item))
    attributes: dict[str, Any] = getattr(item, "__dict__", {})
    given = {name: value for name, value in attributes.items() if value is not None}
    if not given or not given.keys() <= {"pattern", "strict"} or not isinstance(given.get("pattern", ""), str):
        raise _Inexpressible
    return {name: value for name, value in given.items() if name == "pattern"}


class NestedField(Struct, frozen=True, kw_only=True):
    """A field of a class that JSON is converted to; `name` is its JSON key, `type` its type in msgspec's terms."""

    owner: type[Any]
    name: str
    type: Any


def noted_fields(hints: Iterable[Any]) -> list[NestedField]:
    """Return the fields, at any depth, whose annotations contain metadata that msgspec does not read.

    Raises:
        TypeError: neither msgspec nor a schema can check one of them.
    """
    found = ((owner, name, hint) for owner, name, hint in fields_within(hints) if not is_foreign(owner))
    return [_field(owner, name, hint) for owner, name, hint in found if says_more(hint)]


def _field(owner: type[Any], name: str, hint: Any) -> NestedField:
    type_ = translated(hint)
    if is_adapted(type_) or not _is_object(owner):
        raise TypeError(f"{owner.__qualname__}.{name} has limits that are not checked in a {_sort(owner)}; {_REMEDY}")
    return NestedField(owner=owner, name=name, type=type_)


_REMEDY = "use msgspec.Meta, or make it a Pydantic model"


def fields_within(hints: Iterable[Any]) -> Iterator[tuple[type[Any], str, Any]]:
    """Yield the fields of all classes in annotations, at any depth: the class, the JSON key, and the annotation."""
    return ((owner, name, inner) for owner in classes_within(hints) for name, inner in _hints(owner).items())


def classes_within(hints: Iterable[Any]) -> Iterator[type[Any]]:
    """Yield all classes in annotations, at any depth, each once."""
    todo, seen = list(hints), set[type[Any]]()
    while todo:
        hint = meant(todo.pop())
        todo += get_args(hint)
        owner = get_origin(hint) or hint
        if isinstance(owner, type) and owner not in seen:
            seen.add(owner)
            todo += _hints(owner).values()
            yield owner


def _hints(owner: type[Any]) -> Mapping[str, Any]:
    """Return the annotations of a class that JSON is converted to, by their JSON names."""
    if (found := pydantic_fields(owner)) is not None:
        return {name: field.annotation for name, field in found.items()}
    if is_foreign(owner) or not (_has_keys(owner) or hasattr(owner, "_field_defaults")):
        return {}
    try:
        hints = typing.get_type_hints(owner, localns={owner.__name__: owner}, include_extras=True)
    except (NameError, TypeError):  # msgspec resolves the same names and reports it
        return {}
    names = {field.name: field.encode_name for field in fields(owner)} if issubclass(owner, Struct) else {}
    return {names.get(name, name): _unwrapped(hint) for name, hint in hints.items()}


def _unwrapped(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _is_object(owner: type[Any]) -> bool:
    """Return whether its instances are JSON objects, with a separate definition in a schema."""
    is_array = issubclass(owner, Struct) and owner.__struct_config__.array_like
    return _has_keys(owner) and not is_array and not getattr(owner, "__parameters__", ())


def _has_keys(owner: type[Any]) -> bool:
    return issubclass(owner, Struct) or dataclasses.is_dataclass(owner) or typing.is_typeddict(owner)


def _sort(owner: type[Any]) -> str:
    return "generic class" if getattr(owner, "__parameters__", ()) else "class that is not a Pydantic model"
