"""JSON Schemas in a few words, for people who are about to answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from .jsonschema import JSONSchema, Part, resolved

_NOTES = {"title", "description", "default", "examples", "discriminator", "$defs"}
"""Keywords that limit nothing."""

_OBJECT = {"type", "properties", "required"}
_LIST = {"type", "items", "minItems", "maxItems"}

_COMBINED = {"anyOf": " or ", "oneOf": " or ", "allOf": " and "}

_DEPTH = 4
"""How many references are followed into one another: types may refer to themselves, and are then only named."""


def forms_of(schema: JSONSchema) -> list[str]:
    """Describe what fits a schema: a line for each alternative, or for each field if it is one kind of object."""
    words = _Words(schema, _DEPTH)
    forms = list(words.alternatives(schema))
    if len(forms) > 1:
        return list(dict.fromkeys(map(words.line, forms)))
    only = words.followed(forms[0])
    return words.fields(only) if _is_object(only) else [words.line(only)]


def _is_object(part: Part) -> bool:
    return (
        isinstance(part, dict)
        and bool(part.get("properties"))
        and part.keys() <= _OBJECT | _NOTES | {"additionalProperties"}
        and part.get("additionalProperties", False) is False
    )


class _Words:
    """Describes parts of one schema."""

    def __init__(self, root: JSONSchema, depth: int) -> None:
        self._root = root
        self._depth = depth

    def followed(self, part: Part) -> Part:
        """Return what a reference refers to, and anything else as it is."""
        return resolved(part, self._root) if isinstance(part, dict) and "$ref" in part else part

    def alternatives(self, part: Part, depth: int = _DEPTH) -> Iterator[Part]:
        """Yield the forms that a schema offers; alternatives within alternatives mean nothing to people."""
        whole = self.followed(part) if depth else part
        if isinstance(whole, dict) and whole.keys() - _NOTES in ({"anyOf"}, {"oneOf"}):
            for each in cast("list[Part]", whole.get("anyOf") or whole.get("oneOf")):
                yield from self.alternatives(each, depth - ("$ref" in cast("JSONSchema", part)))
        else:
            yield part

    def line(self, part: Part) -> str:
        """Describe a part completely, on one line: keywords that have no words here are named as they are."""
        if isinstance(part, bool):
            return "anything" if part else "nothing"
        if "$ref" in part:
            return self._reference(part)
        words, said = self._kind(part)
        limits = [f"{key}: {_json(value)}" for key, value in part.items() if key not in said | _NOTES]
        return f"{words} ({', '.join(limits)})" if limits else words

    def _reference(self, part: JSONSchema) -> str:
        if not self._depth:
            return str(part["$ref"]).rpartition("/")[2]
        return _Words(self._root, self._depth - 1).line(self.followed(part))

    def _kind(self, part: JSONSchema) -> tuple[str, set[str]]:
        """Return what kind of value it is, and the keywords that say so."""
        if "const" in part:
            return _json(part["const"]), {"const", "type"}
        if "enum" in part:
            return " or ".join(map(_json, part["enum"])), {"enum", "type"}
        for keyword, between in _COMBINED.items():
            if keyword in part:
                return self._joined(part[keyword], between), {keyword}
        return self._typed(part)

    def _typed(self, part: JSONSchema) -> tuple[str, set[str]]:
        kind, more = part.get("type", "anything"), part.get("additionalProperties")
        if kind == "array" and "items" in part:
            return f"list of {self.line(part['items'])}{_count(part)}", _LIST
        if kind == "object" and part.get("properties"):
            closed = {"additionalProperties"} if more is False else set[str]()
            return f"{{{', '.join(self.fields(part, quoted=True))}}}", _OBJECT | closed
        if kind == "object" and isinstance(more, dict):
            return f"object of {self.line(cast('JSONSchema', more))}", {"type", "additionalProperties"}
        return kind if isinstance(kind, str) else " or ".join(kind), {"type"}

    def _joined(self, parts: list[Part], between: str) -> str:
        return between.join(dict.fromkeys(self.line(each) for part in parts for each in self.alternatives(part)))

    def fields(self, part: Part, *, quoted: bool = False) -> list[str]:
        """Describe the fields of an object."""
        schema = cast("JSONSchema", part)
        required = schema.get("required", ())
        return [
            f"{_json(name) if quoted else name}{'' if name in required else ' (optional)'}: {self.line(field)}"
            for name, field in cast("dict[str, Part]", schema["properties"]).items()
        ]


def _count(part: JSONSchema) -> str:
    least, most = part.get("minItems", 0), part.get("maxItems")
    if most is None:
        return f" ({least} or more items)" if least else ""
    return f" ({least} items)" if least == most else f" ({least} to {most} items)"


def _json(value: Any) -> str:  # Any: JSON
    return json.dumps(value, ensure_ascii=False)
