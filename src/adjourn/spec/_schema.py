"""The JSON Schema of the files, for editors."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from . import _declared as declared

_FIELD = re.compile(r"^(\w+): (.+)$")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a document, made from the same declarations as the loader."""
    made = msgspec.json.schema(declared.Document)
    for name, definition in made["$defs"].items():
        if (cls := getattr(declared, name, None)) is not None:
            _describe(definition, cls)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An agent of Adjourn",
        **made,
    }


def _describe(definition: dict[str, Any], cls: type[declared.Part]) -> None:
    definition["description"] = (inspect.getdoc(cls) or "").partition("\n")[0]
    described = descriptions(cls)
    for name, property_ in definition.get("properties", {}).items():
        if name in described:
            # Beside a reference, older editors read nothing; `allOf` says the same to all.
            if "$ref" in property_:
                property_["allOf"] = [{"$ref": property_.pop("$ref")}]
            property_["description"] = described[name]


def descriptions(cls: type[declared.Part]) -> dict[str, str]:
    """Return what the docstrings of a declaration say about its fields."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each is not object and each is not msgspec.Struct:
            for line in (each.__doc__ or "").splitlines():
                if match := _FIELD.match(line.strip()):
                    found[match[1]] = match[2]
    return found
