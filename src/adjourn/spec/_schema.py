"""The JSON Schema of the files, for editors."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from . import _declared as declared


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
    described = declared.descriptions(cls)
    for name, property_ in definition.get("properties", {}).items():
        if name in described:
            # Beside a reference, older editors read nothing; `allOf` says the same to all.
            if "$ref" in property_:
                property_["allOf"] = [{"$ref": property_.pop("$ref")}]
            property_["description"] = described[name]
