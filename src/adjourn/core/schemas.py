"""JSON Schemas as they are given: which are taken, and when two of them mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from .jsonschema import JSONSchema, Part, problems

# Keywords that say something to people alone.
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
    """What is wrong with a schema, or is in it and not supported, each with its path."""
    if found := problems(schema, _SCHEMA_OF_SCHEMAS):
        return found
    known = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    return [f"$: refers to {ref}, which is not there" for ref in sorted(_refs(schema) - known)]


def essence(schema: JSONSchema) -> JSONSchema:
    """The schema without its notes, so that a change of wording makes no difference."""
    return {key: _each_part(key, value, essence) for key, value in schema.items() if key not in NOTES}


def rewritten(schema: JSONSchema, change: Callable[[JSONSchema], JSONSchema]) -> JSONSchema:
    """The schema with `change` applied to it and to every schema in it, innermost first."""
    return change({key: _each_part(key, value, lambda part: rewritten(part, change)) for key, value in schema.items()})


def _refs(schema: JSONSchema) -> set[str]:
    found = {schema["$ref"]} if "$ref" in schema else set[str]()
    for keyword, value in schema.items():
        _each_part(keyword, value, lambda part: found.update(_refs(part)))
    return found


def _each_part(keyword: str, value: Any, make: Callable[[JSONSchema], Any]) -> Any:
    """The keyword's value, with `make` applied to each schema in it."""
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
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_SIZE = {"type": "integer", "minimum": 0}
_PARTS = {"type": "array", "items": _PART, "minItems": 1}
_NAMED_PARTS = {"type": "object", "additionalProperties": _PART}

KEYWORDS: dict[str, Part] = {
    **dict.fromkeys(sorted(NOTES), True),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _SIZE),
    **dict.fromkeys(sorted(_ONE), _PART),
    **dict.fromkeys(sorted(_SEVERAL), _PARTS),
    "discriminator": {"type": "object", "properties": {"propertyName": _TEXT, "mapping": {"type": "object"}}},
    "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1}]},
    "enum": {"type": "array", "minItems": 1},
    "const": True,
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    "pattern": {"type": "string", "format": "regex"},
    "format": _TEXT,
    "contentEncoding": {"const": "base64"},
    "uniqueItems": {"type": "boolean"},
    "required": {"type": "array", "items": _TEXT},
    "properties": _NAMED_PARTS,
    "patternProperties": {**_NAMED_PARTS, "propertyNames": {"format": "regex"}},
    "$ref": {"type": "string", "pattern": r"^#/\$defs/[^/]+$"},
}
_OBJECT = {"type": "object", "additionalProperties": False}
_SCHEMA_OF_SCHEMAS: JSONSchema = {
    **_OBJECT,
    "properties": {**KEYWORDS, "$defs": _NAMED_PARTS},
    "$defs": {"part": {"anyOf": [{"type": "boolean"}, {**_OBJECT, "properties": KEYWORDS}]}},
}
