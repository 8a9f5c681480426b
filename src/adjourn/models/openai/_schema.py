"""Structured answers: the schema of an answer as chat completions take it, in strict mode where it can be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from adjourn._schemas.jsonschema import plain_root
from adjourn._schemas.types import types_of
from adjourn.errors import UsageError

Json = dict[str, Any]  # Any: JSON as the provider defines it

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_KEPT = ("type", "enum", "const", "$ref", "title", "description")
"""Keywords of strict mode whose values contain no other schemas."""
_HINTS = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("format", "minItems", "maxItems", "uniqueItems", "contentEncoding", "default", "examples", "deprecated"),
}
"""Keywords that not all servers support in strict mode; the model reads them in the description instead."""
_SILENT = {"discriminator", "readOnly", "writeOnly", "$schema", "$id", "$comment"}
_INNER = {"properties", "required", "additionalProperties", "items", "anyOf", "$defs"}
_DESCRIBES = {"type", "anyOf", "$ref", "enum", "const"}


def response_format(schema: Mapping[str, Any]) -> Json:
    """Return the request for an answer that fits a schema.

    Raises:
        UsageError: the schema is not that of an object.
    """
    whole = plain_root(schema)
    if whole.get("type") != "object":
        raise UsageError(
            f"The schema of a structured answer is of type {whole.get('type')!r}, but chat completions return only "
            "objects. Put it into a field of an object."
        )
    name = _NOT_A_NAME.sub("_", str(whole.get("title", "answer")))[:64]
    strict = strict_schema(whole)
    wanted = {"name": name, "schema": whole if strict is None else strict, "strict": strict is not None}
    return {"type": "json_schema", "json_schema": wanted}


class _NotStrict(Exception):
    """Strict mode cannot express the schema."""


def strict_schema(schema: Mapping[str, Any]) -> Json | None:
    """Return the schema as strict mode accepts it, or None if it cannot express it.

    Objects are closed and all of their fields required, so an answer also fits the schema that was given, as far as
    strict mode goes: the rest is checked when the answer is read.
    """
    try:
        return _strict(schema)
    except _NotStrict:
        return None


def _strict(given: object) -> Json:
    if not isinstance(given, Mapping):
        raise _NotStrict
    schema = cast("Mapping[str, Any]", given)
    if not schema.keys() & _DESCRIBES or schema.keys() - _INNER - _HINTS - _SILENT - set(_KEPT):
        raise _NotStrict
    if isinstance(schema.get("type"), list) and {"object", "array"} & set(schema["type"]):
        raise _NotStrict
    if schema.get("type") == "array" and "items" not in schema:
        raise _NotStrict
    if "$ref" in schema and "$defs" not in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside a reference
    made = _plain(schema)
    if "items" in schema:
        made["items"] = _strict(schema["items"])
    if "anyOf" in schema:
        made["anyOf"] = [_strict(each) for each in schema["anyOf"]]
    if "$defs" in schema:
        made["$defs"] = {name: _strict(each) for name, each in schema["$defs"].items()}
    return made | _object(schema) if schema.get("type") == "object" else made


def _plain(schema: Mapping[str, Any]) -> Json:
    """Return what contains no other schemas; an enum gets a type, which some servers insist on."""
    made = {name: schema[name] for name in _KEPT if name in schema}
    if "type" not in made and ("enum" in made or "const" in made):
        made |= types_of(made["enum"] if "enum" in made else [made["const"]])
    hints = [f"{name}: {schema[name]}" for name in schema if name in _HINTS]
    if hints:
        made["description"] = " ".join([*filter(None, [schema.get("description")]), f"({'; '.join(hints)})"])
    return made


def _object(schema: Mapping[str, Any]) -> Json:
    """Return the fields of an object; one with fields of any name cannot be closed."""
    if "properties" not in schema or schema.get("additionalProperties", False) is not False:
        raise _NotStrict
    properties = {name: _strict(each) for name, each in schema["properties"].items()}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}
