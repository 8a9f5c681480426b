"""What `Annotated` says about a parameter, in the terms of msgspec: descriptions and limits.

Beside msgspec's own `Meta` these are plain text (a description), annotated-types, and Pydantic's `Field` and kin.
Whatever Pydantic has that msgspec cannot express makes the whole annotation Pydantic's.
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

from ._foreign import adapted, is_adapted, is_foreign

Notes = dict[str, Any]

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_LOWER, _UPPER = ("gt", "ge", "min_length"), ("lt", "le", "max_length")
_WORDS = ("title", "description", "examples", "extra_json_schema", "extra")
_UNIONS = (Union, types.UnionType)


class _Untold(Exception):
    """Pydantic knows something about a type that msgspec has no word for."""


def translated(hint: Any) -> Any:
    """The annotation as msgspec takes it, with the same limits.

    Raises:
        TypeError: a limit belongs to no type in the annotation, or nobody here knows what it means.
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
        return Union[tuple(inner)] if is_plain else adapted(hint)  # noqa: UP007  # of types that are known only now
    return hint if inner == list(arguments) else _rebuilt(origin, inner)


def meant(hint: Any) -> Any:
    """What a `NewType` or `type X = ...` stands for; anything else is meant as it is."""
    while True:
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # of Python 3.12
            hint = hint.__value__
        else:
            return hint


def words_of(hint: Any) -> Mapping[str, Any]:
    """The description and other words for people that an annotation carries."""
    hint = meant(hint)
    if get_origin(hint) is not Annotated:
        return {}
    try:
        notes = _notes(hint.__metadata__)
    except _Untold as untold:
        notes = cast("Notes", untold.args[0])
    return {name: notes[name] for name in _WORDS if notes.get(name) is not None}


def _rebuilt(origin: Any, arguments: list[Any]) -> Any:
    return origin[tuple(arguments)]


def _annotated(hint: Any, arguments: tuple[Any, ...]) -> Any:
    base = translated(arguments[0])
    try:
        notes = _notes(hint.__metadata__)
    except _Untold:
        return adapted(hint)
    limits = {name: notes[name] for name in _LIMITS if notes.get(name) is not None}
    if is_adapted(base) and (limits or _is_union(arguments[0])):
        base, limits = adapted(hint), {}
    for name, limit in limits.items():
        base = _limited(base, name, limit)
    words = {name: notes[name] for name in _WORDS if notes.get(name) is not None}
    return Annotated[base, Meta(**words)] if words else base


def says_more(hint: Any) -> bool:
    """Whether an annotation says something that msgspec does not read."""
    hint = meant(hint)
    if get_origin(hint) is Annotated and any(_is_ours_to_tell(item) for item in hint.__metadata__):
        return True
    return any(says_more(argument) for argument in get_args(hint) if get_origin(hint) is not Literal)


def _is_ours_to_tell(item: Any) -> bool:
    try:
        return not isinstance(item, Meta) and bool(_note(item))
    except (TypeError, _Untold):
        return True


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in _UNIONS


def _limited(type_: Any, name: str, limit: Any) -> Any:
    """The type with one more limit; of a union, those members to which it can belong."""
    if not _is_union(type_):
        limited = Annotated[type_, Meta(**{name: limit})]
        mi.type_info(limited)
        return limited
    members = [_limited_if_possible(member, name, limit) for member in get_args(type_)]
    if members == list(get_args(type_)):
        raise TypeError(f"{name} belongs to none of the types in {type_}")
    return Union[tuple(members)]  # noqa: UP007  # as above


def _limited_if_possible(type_: Any, name: str, limit: Any) -> Any:
    try:
        return _limited(type_, name, limit)
    except TypeError:
        return type_


# Reading metadata


def _notes(metadata: Iterable[Any]) -> Notes:
    notes: Notes = {}
    untold: list[Any] = []
    for item in metadata:
        try:
            notes |= _stricter(notes, _note(item))
        except _Untold:
            untold.append(item)
    if untold:
        raise _Untold(notes)
    return notes


def _stricter(notes: Notes, more: Notes) -> Notes:
    """The later notes, with limits that are no wider than the earlier ones."""
    both = more.keys() & notes.keys() & set(_LIMITS)
    return {**more, **{name: _strictest(name, notes[name], more[name]) for name in both}}


def _strictest(name: str, first: Any, second: Any) -> Any:
    if name in _LOWER or name in _UPPER:
        return max(first, second) if name in _LOWER else min(first, second)
    if first != second:
        raise TypeError(f"it has {name} twice, {first!r} and {second!r}; give one that says both")
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
    if isinstance(item, Iterable):  # Interval and Len, which stand for several
        return _notes(cast("Iterable[Any]", item))
    found = {name: getattr(item, name) for name in _LIMITS if getattr(item, name, None) is not None}
    if not found and not hasattr(item, "documentation") and not hasattr(item, "unit"):
        raise TypeError(f"{item!r} cannot be told to a model; check it in your code")
    return found


def _note_of_pydantic(item: Any) -> Notes:
    if hasattr(item, "metadata") and hasattr(item, "description"):  # a Field
        words = {"description": item.description, "examples": item.examples}
        if getattr(item, "discriminator", None) is not None:
            raise _Untold
        return {**_notes(item.metadata), **{name: word for name, word in words.items() if word is not None}}
    if isinstance(item, Iterable):  # StringConstraints
        return _notes(cast("Iterable[Any]", item))
    told: dict[str, Any] = getattr(item, "__dict__", {})
    given = {name: value for name, value in told.items() if value is not None}
    if not given or not given.keys() <= {"pattern", "strict"} or not isinstance(given.get("pattern", ""), str):
        raise _Untold
    return {name: value for name, value in given.items() if name == "pattern"}


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
