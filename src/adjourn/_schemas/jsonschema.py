"""Validate data against a JSON Schema.

This covers the part of the standard that msgspec and Pydantic generate; `mistakes` reports schemas that use more. A
format without an entry in `_FORMATS` is only an annotation, as in the standard.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec

from adjourn._values.frozen import check_json

from .patterns import BadPattern, TooHard, Work, pattern

JSONSchema = dict[str, Any]
Part = JSONSchema | bool

MAX_PROBLEMS = 20

NO_NUMBER = "text that is no number"
"""The format of a text that could not be meant as a number."""


class _Place(NamedTuple):
    """The place in the data that is being checked.

    `refs` are the references followed at this place, to detect endless ones. `known` caches the problems that
    references found: without it, nested alternatives would take twice as long with every level. `work` is what is left
    of the time for regular expressions.
    """

    path: str
    root: JSONSchema
    known: dict[tuple[str, int, str], list[str]]
    work: Work
    refs: frozenset[str] = frozenset()

    def below(self, key: str | int) -> _Place:
        path = f"{self.path}[{key}]" if isinstance(key, int) else f"{self.path}.{key}"
        return _Place(path, self.root, self.known, self.work)


# A check takes the data, the keyword's value, the schema that contains it and the place.
_Check = Callable[[Any, Any, JSONSchema, _Place], Iterable[str]]


def problems(data: object, schema: JSONSchema | None) -> list[str]:
    """Return the problems of plain JSON data with a schema, each with its path; none if it fits or without a schema."""
    try:
        check_json(data, "$")
    except (TypeError, ValueError) as error:
        return [str(error)]
    return problems_of_json(data, schema)


class Encoded(str):
    """The base64 form of bytes: text only where a schema says so, since elsewhere nobody would decode it."""

    __slots__ = ()


def problems_of_json(data: object, schema: JSONSchema | None) -> list[str]:
    """Return what `problems` does, for data that is known to be JSON, or has `Encoded` bytes in it."""
    root = schema or {}
    try:
        return list(islice(_problems(data, root, _Place("$", root, {}, Work())), MAX_PROBLEMS))
    except RecursionError:  # alternatives may be nested at each level of the data
        return ["$: is nested too deeply for its schema"]
    except TooHard:
        return ["$: is too long to be compared with the patterns of its schema"]


def resolved(schema: Part, root: JSONSchema) -> JSONSchema:
    """Follow a chain of references to its end; return an empty schema if it has none."""
    for _ in root.get("$defs", {}):
        if isinstance(schema, dict) and "$ref" in schema:
            schema = _target(schema["$ref"], root)
    return schema if isinstance(schema, dict) and "$ref" not in schema else {}


def plain_root(schema: Mapping[str, Any]) -> JSONSchema:
    """Return the schema with its root inlined: where providers ask for an object, they do not accept a reference."""
    prefix, _, name = str(schema.get("$ref", "")).rpartition("/")
    if prefix != "#/$defs" or name not in schema.get("$defs", {}):
        return dict(schema)
    return {**schema["$defs"][name], "$defs": schema["$defs"]}


def _target(ref: str, root: JSONSchema) -> Part:
    return root["$defs"][ref.removeprefix("#/$defs/")]


def _problems(data: Any, schema: Part, at: _Place) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{at.path}: expected nothing here, got {_show(data)}"
    elif "type" in schema and not _has_type(data, schema["type"]) and not _is_encoded(data, schema):
        yield f"{at.path}: expected {_type_words(schema['type'])}, got {_show(data)}"
    else:
        for keyword, value in schema.items():
            if check := CHECKS.get(keyword):
                yield from check(data, value, schema, at)


# Types of data


_KINDS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _kind(data: object) -> str:
    if isinstance(data, dict):
        return "object"
    if isinstance(data, list | tuple):
        return "array"
    return _KINDS.get(type(data), "bytes" if type(data) is Encoded else "null")


def _is_encoded(data: object, schema: JSONSchema) -> bool:
    return type(data) is Encoded and "contentEncoding" in schema


def _has_type(data: object, types: str | list[str]) -> bool:
    if isinstance(types, list):
        return any(_has_type(data, name) for name in types)
    kind = _kind(data)
    if types == "number" and kind == "integer":
        return abs(cast("int", data)) < 1 << 1023  # there is no float for larger ones
    return kind == types or (types == "integer" and isinstance(data, float) and data.is_integer())


def _type_words(types: str | list[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)


def _key(data: Any) -> object:
    """Return a key that is equal for what JSON Schema calls equal: 1 and 1.0, but not 1 and true."""
    if isinstance(data, bool):
        return ("boolean", data)
    if isinstance(data, dict):
        return ("object", frozenset((name, _key(value)) for name, value in _items(cast("object", data))))
    if isinstance(data, list | tuple):
        return ("array", *(_key(item) for item in cast("list[Any]", data)))
    return data


def _items(data: object) -> Iterable[tuple[str, Any]]:
    return cast("dict[str, Any]", data).items() if isinstance(data, dict) else ()


def _show(data: object) -> str:
    text = "bytes" if type(data) is Encoded else msgspec.json.encode(data, enc_hook=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"


# Keywords for single values


def _limit(kinds: tuple[str, ...], fits: Callable[[Any, Any], bool], words: str, unit: str = "") -> _Check:
    """Return a check of a number or, with a unit, of a length."""

    def check(data: Any, limit: float, schema: JSONSchema, at: _Place) -> Iterator[str]:
        if _kind(data) in kinds and not fits(len(data) if unit else data, limit):
            yield f"{at.path}: expected {words} {limit}{unit}, got {_show(data)}"

    return check


def _is_multiple(data: float, of: float) -> bool:
    # In decimal, where 0.3 is a multiple of 0.1, and with integers, since the remainder of decimals is not exact.
    numerator, denominator = Decimal(str(data)).as_integer_ratio()
    of_numerator, of_denominator = Decimal(str(of)).as_integer_ratio()
    return numerator * of_denominator % (of_numerator * denominator) == 0


def _enum(data: Any, values: list[Any], schema: JSONSchema, at: _Place) -> Iterator[str]:
    if all(_key(data) != _key(value) for value in values):
        yield f"{at.path}: expected {_choice_words(values)}, got {_show(data)}"


def _const(data: Any, value: Any, schema: JSONSchema, at: _Place) -> Iterator[str]:
    return _enum(data, [value], schema, at)


def _choice_words(values: list[Any]) -> str:
    return ("one of " if len(values) > 1 else "") + ", ".join(map(_show, values))


def _pattern(data: Any, source: str, schema: JSONSchema, at: _Place) -> Iterator[str]:
    if isinstance(data, str) and not _matches(source, data, at):
        yield f"{at.path}: expected text that matches {source}, got {_show(data)}"


def _matches(source: str, text: str, at: _Place) -> bool:
    try:
        return pattern(source).search(text, at.work)
    except BadPattern:
        return False  # `mistakes` reports these: nobody has checked this schema.


def _format(data: Any, name: str, schema: JSONSchema, at: _Place) -> Iterator[str]:
    if isinstance(data, str) and name in _FORMATS and not _FORMATS[name](data):
        yield f"{at.path}: expected the format {name}, got {_show(data)}"


def _reads_as(kind: type) -> Callable[[str], bool]:
    # With msgspec, since it converts the value in the end.
    def check(text: str) -> bool:
        try:
            msgspec.convert(text, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


def _is_no_number(text: str) -> bool:
    return not _FORMATS["decimal"](text)


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _reads_as(datetime),  # the offset is optional, as in Pydantic and msgspec
    "date": _reads_as(date),
    "time": _reads_as(time),
    "partial-time": _reads_as(time),
    "duration": _reads_as(timedelta),
    "uuid": _reads_as(UUID),
    "decimal": _reads_as(Decimal),
    "base64": _reads_as(bytes),
    "regex": _is_pattern,
    NO_NUMBER: _is_no_number,
}


# Keywords for arrays and objects


def _unique_items(data: Any, wanted: bool, schema: JSONSchema, at: _Place) -> Iterator[str]:
    if wanted and isinstance(data, list | tuple):
        items = cast("list[Any]", data)
        if len({_key(item) for item in items}) < len(items):
            yield f"{at.path}: expected no duplicate items, got {_show(items)}"


def _prefix_items(data: Any, parts: list[Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    if isinstance(data, list | tuple):
        for i, (item, part) in enumerate(zip(cast("list[Any]", data), parts, strict=False)):
            yield from _problems(item, part, at.below(i))


def _other_items(data: Any, part: Part, schema: JSONSchema, at: _Place) -> Iterator[str]:
    if isinstance(data, list | tuple):
        first = len(schema.get("prefixItems", ()))
        for i, item in enumerate(cast("list[Any]", data)[first:], first):
            yield from _problems(item, part, at.below(i))


def _required(data: Any, names: list[str], schema: JSONSchema, at: _Place) -> Iterator[str]:
    if isinstance(data, dict):
        yield from (f"{at.path}: lacks '{name}'" for name in names if name not in data)


def _properties(data: Any, parts: dict[str, Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    for name, value in _items(data):
        if name in parts:
            yield from _problems(value, parts[name], at.below(name))


def _pattern_properties(data: Any, parts: dict[str, Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    for name, value in _items(data):
        for source, part in parts.items():
            if _matches(source, name, at):
                yield from _problems(value, part, at.below(name))


def _other_properties(data: Any, part: Part, schema: JSONSchema, at: _Place) -> Iterator[str]:
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in _items(data):
        if name in named or any(_matches(source, name, at) for source in patterns):
            continue
        if part is False:
            yield f"{at.path}: has the unknown key '{name}'; known: {_listing(named)}"
        else:
            yield from _problems(value, part, at.below(name))


def _listing(names: Iterable[str]) -> str:
    text = ", ".join(names) or "none"
    return text if len(text) <= 100 else text[:99] + "…"


def _property_names(data: Any, part: Part, schema: JSONSchema, at: _Place) -> Iterator[str]:
    for name, _ in _items(data):
        yield from _problems(name, part, at._replace(path=f"{at.path} (a key)"))


# Keywords that combine schemas


def _ref(data: Any, ref: str, schema: JSONSchema, at: _Place) -> Iterator[str]:
    if ref in at.refs:
        return iter([f"{at.path}: the schema refers to itself endlessly, through {ref}"])
    found = _problems(data, _target(ref, at.root), at._replace(refs=at.refs | {ref}))
    # With the path, since equal scalars may be one object at several places.
    key = (ref, id(data), at.path)
    if key not in at.known:
        at.known[key] = list(islice(found, MAX_PROBLEMS))
    return iter(at.known[key])


def _all_of(data: Any, parts: list[Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    for part in parts:
        yield from _problems(data, part, at)


def _any_of(data: Any, parts: list[Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    found = list[list[str]]()
    tag = schema.get("discriminator", {}).get("propertyName")
    if isinstance(data, dict) and isinstance(given := cast("JSONSchema", data).get(tag), str):
        parts = [part for part in parts if not _has_other_tag(part, tag, given)] or parts
    for part in parts:
        found.append(list(islice(_problems(data, part, at), MAX_PROBLEMS)))
        if not found[-1]:
            return
    yield from _nearest(data, schema, parts, found, at)


def _has_other_tag(part: Part, tag: str, given: str) -> bool:
    """Return whether an alternative is one for another tag, so that it need not be looked at."""
    if not isinstance(part, dict):
        return False
    if "anyOf" in part:
        return all(_has_other_tag(each, tag, given) for each in part["anyOf"])
    return part.get("properties", {}).get(tag, {}).get("const", given) != given


def _one_of(data: Any, parts: list[Part], schema: JSONSchema, at: _Place) -> Iterator[str]:
    found = [list(islice(_problems(data, part, at), MAX_PROBLEMS)) for part in parts]
    if all(found):
        yield from _nearest(data, schema, parts, found, at)
    elif found.count([]) > 1:
        yield f"{at.path}: fits {found.count([])} alternatives, expected exactly one, got {_show(data)}"


def _discriminator(data: Any, value: JSONSchema, schema: JSONSchema, at: _Place) -> Iterator[str]:
    # The alternatives check the same, but Pydantic requires the tag even if its schema has a default for it.
    tag, known = value.get("propertyName"), list(value.get("mapping", ()))
    if isinstance(data, dict) and tag is not None:
        given = cast("JSONSchema", data).get(tag)
        if given is None:
            yield f"{at.path}: lacks '{tag}'"
        elif known and isinstance(given, str):
            yield from _enum(given, known, schema, at.below(tag))


def _nearest(data: Any, schema: JSONSchema, parts: list[Part], found: list[list[str]], at: _Place) -> Iterable[str]:
    """Return the problems with the alternative that was probably meant, or a list of the alternatives."""
    if any(_discriminator(data, schema.get("discriminator", {}), schema, at)):
        return []  # reported there
    kinds = [_alternatives(part, at.root) for part in parts]
    likely = [problems for types, problems in zip(kinds, found, strict=True) if _may_be(data, types)]
    if _kind(data) in ("object", "array") and likely:
        other_tag = f"{at.path}.{schema.get('discriminator', {}).get('propertyName')}:"
        return min(likely, key=lambda problems: (problems[0].startswith(other_tag), len(problems)))
    words = dict.fromkeys(_words(type_) for types in kinds for type_ in types)
    return [f"{at.path}: expected {' or '.join(words)}, got {_show(data)}"]


def _alternatives(part: Part, root: JSONSchema) -> list[JSONSchema]:
    schema = resolved(part, root)
    return [resolved(inner, root) for inner in schema["anyOf"]] if "anyOf" in schema else [schema]


def _may_be(data: object, types: list[JSONSchema]) -> bool:
    return any("type" in type_ and _has_type(data, type_["type"]) for type_ in types)


def _words(schema: JSONSchema) -> str:
    if "const" in schema or "enum" in schema:
        return _choice_words(schema["enum"] if "enum" in schema else [schema["const"]])
    words = _type_words(schema.get("type", "something else"))
    limits = ", ".join(f"{key} {schema[key]}" for key in schema if key in _LIMITS)
    return f"{words} with {limits}" if limits else words


_NUMBER, _TEXT, _ARRAY, _OBJECT = ("integer", "number"), ("string",), ("array",), ("object",)
_LIMITS: dict[str, _Check] = {
    "minimum": _limit(_NUMBER, operator.ge, "at least"),
    "maximum": _limit(_NUMBER, operator.le, "at most"),
    "exclusiveMinimum": _limit(_NUMBER, operator.gt, "more than"),
    "exclusiveMaximum": _limit(_NUMBER, operator.lt, "less than"),
    "multipleOf": _limit(_NUMBER, _is_multiple, "a multiple of"),
    "minLength": _limit(_TEXT, operator.ge, "at least", " characters"),
    "maxLength": _limit(_TEXT, operator.le, "at most", " characters"),
    "minItems": _limit(_ARRAY, operator.ge, "at least", " items"),
    "maxItems": _limit(_ARRAY, operator.le, "at most", " items"),
    "minProperties": _limit(_OBJECT, operator.ge, "at least", " keys"),
    "maxProperties": _limit(_OBJECT, operator.le, "at most", " keys"),
    "pattern": _pattern,
    "format": _format,
}
CHECKS: dict[str, _Check] = _LIMITS | {
    "contentEncoding": _format,
    "enum": _enum,
    "const": _const,
    "uniqueItems": _unique_items,
    "prefixItems": _prefix_items,
    "items": _other_items,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _other_properties,
    "propertyNames": _property_names,
    "$ref": _ref,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "discriminator": _discriminator,
}


# Keywords that are only annotations for people.
NOTES = frozenset(
    {
        "$comment",
        "$schema",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_ONE = frozenset({"items", "additionalProperties", "propertyNames"})
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "$defs"})


def mistakes(schema: JSONSchema) -> list[str]:
    """Return the mistakes and unsupported keywords in a schema, each with its path."""
    if found := problems(schema, _SCHEMA_OF_SCHEMAS):
        return found
    known = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    if undefined := sorted(_refs(schema) - known):
        return [f"$: refers to {ref}, which is not defined" for ref in undefined]
    endless = [f"$: $defs.{name} refers to itself endlessly" for name in _endless(schema.get("$defs", {}))]
    return [*endless, *(f"$: the pattern {source} {why}" for source, why in _bad_patterns(schema))]


def _endless(defs: JSONSchema) -> list[str]:
    """Return the definitions that no data can be checked against, since they lead back to themselves at one place."""
    left = {name: {ref.removeprefix("#/$defs/") for ref in _refs_in_place(part)} for name, part in defs.items()}
    while ended := [name for name, refs in left.items() if not refs & left.keys()]:
        for name in ended:
            del left[name]
    return sorted(left)


def _refs_in_place(part: Part) -> set[str]:
    """Return the references to what is checked at the same place of the data."""
    if isinstance(part, bool):
        return set()
    inner = [_refs_in_place(each) for keyword in ("allOf", "anyOf", "oneOf") for each in part.get(keyword, ())]
    return set[str]().union(*inner, [part["$ref"]] if "$ref" in part else [])


def _bad_patterns(schema: JSONSchema) -> Iterator[tuple[str, str]]:
    """Return the regular expressions that cannot be compared with a text in bounded time, and why."""
    for source in sorted(patterns_in(schema)):
        try:
            pattern(source)
        except BadPattern as error:
            yield source, str(error)


def patterns_in(schema: JSONSchema) -> set[str]:
    """Return the regular expressions in a schema."""
    found = {schema["pattern"]} if "pattern" in schema else set[str]()
    found.update(schema.get("patternProperties", ()))
    for keyword, value in schema.items():
        _each_part(keyword, value, lambda part: found.update(patterns_in(part)))
    return found


def essence(schema: JSONSchema, *, keep: str = "") -> JSONSchema:
    """Return the schema without annotations (but one to `keep`), so that a change of wording makes no difference."""
    notes = NOTES - {keep}
    inner = partial(essence, keep=keep)
    return {key: _each_part(key, value, inner) for key, value in schema.items() if key not in notes}


def rewritten(schema: JSONSchema, change: Callable[[JSONSchema], JSONSchema]) -> JSONSchema:
    """Return the schema with `change` applied to it and to every schema in it, innermost first."""
    return change({key: _each_part(key, value, lambda part: rewritten(part, change)) for key, value in schema.items()})


def _refs(schema: JSONSchema) -> set[str]:
    found = {schema["$ref"]} if "$ref" in schema else set[str]()
    for keyword, value in schema.items():
        _each_part(keyword, value, lambda part: found.update(_refs(part)))
    return found


def _each_part(keyword: str, value: Any, make: Callable[[JSONSchema], Any]) -> Any:
    """Return the keyword's value, with `make` applied to each schema in it."""
    if keyword in _ONE:
        return _made(value, make)
    if keyword in _SEVERAL:
        return [_made(part, make) for part in value]
    if keyword in _NAMED:
        return {name: _made(part, make) for name, part in cast("dict[str, Part]", value).items()}
    return value


def _made(part: Part, make: Callable[[JSONSchema], Any]) -> Any:
    return part if isinstance(part, bool) else make(part)


_PART = {"$ref": "#/$defs/part"}
_TYPE = {"enum": ["null", "boolean", "integer", "number", "string", "array", "object"]}
_A_STRING = {"type": "string"}
_A_NUMBER = {"type": "number"}
_SIZE = {"type": "integer", "minimum": 0}
_PARTS = {"type": "array", "items": _PART, "minItems": 1}
_NAMED_PARTS = {"type": "object", "additionalProperties": _PART}

KEYWORDS: dict[str, Part] = {
    **dict.fromkeys(sorted(NOTES), True),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _A_NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _SIZE),
    **dict.fromkeys(sorted(_ONE), _PART),
    **dict.fromkeys(sorted(_SEVERAL), _PARTS),
    "discriminator": {"type": "object", "properties": {"propertyName": _A_STRING, "mapping": {"type": "object"}}},
    "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]},
    "enum": {"type": "array", "minItems": 1},
    "const": True,
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    "pattern": {"type": "string", "format": "regex"},
    "format": _A_STRING,
    "contentEncoding": {"const": "base64"},
    "uniqueItems": {"type": "boolean"},
    "required": {"type": "array", "items": _A_STRING, "uniqueItems": True},
    "properties": _NAMED_PARTS,
    "patternProperties": {**_NAMED_PARTS, "propertyNames": {"format": "regex"}},
    "$ref": {"type": "string", "pattern": r"^#/\$defs/[^/]+$"},
}
_AN_OBJECT = {"type": "object", "additionalProperties": False}
_SCHEMA_OF_SCHEMAS: JSONSchema = {
    **_AN_OBJECT,
    "properties": {**KEYWORDS, "$defs": _NAMED_PARTS},
    "$defs": {"part": {"anyOf": [{"type": "boolean"}, {**_AN_OBJECT, "properties": KEYWORDS}]}},
}
