"""Types through which data could name code: validating a text imports what it says, or calls what it is given.

Stored bytes, answers and arguments must never do that (rule C10), so such types are refused where they are declared.
"""

from __future__ import annotations

from typing import Any, cast


def why_unsafe(cls: object) -> str:
    """Return why data of a Pydantic class could name code, and what to do; empty if it could not.

    A class whose annotations are not resolved yet has no schema, and says nothing: see `is_known`.
    """
    return why_unsafe_schema(getattr(cls, "__pydantic_core_schema__", None))


def is_known(cls: object) -> bool:
    """Return whether all types of a class are resolved; Pydantic resolves the rest when it first validates."""
    return isinstance(getattr(cls, "__pydantic_core_schema__", {}), dict)


def why_unsafe_schema(schema: object) -> str:
    """Return the same for a core schema, in which Pydantic describes how it validates."""
    todo, seen = [("", schema)], set[int]()
    while todo:
        name, part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            node = cast("dict[str, Any]", part)
            if _imports(node):
                return f"{_field(name)} is an ImportString, by which data could name code to import: make it a str."
            if node.get("type") in ("callable", "call"):
                return f"{_field(name)} is a Callable, and code is not data: make it a name, and look it up yourself."
            todo += _parts(node, name)
        elif isinstance(part, list | tuple):
            todo += [(name, each) for each in cast("list[Any]", part)]
    return ""


def _field(name: str) -> str:
    return f"Its field '{name}'" if name else "It"


def _imports(node: dict[str, Any]) -> bool:
    given: Any = node.get("function")
    function = cast("dict[str, Any]", given).get("function") if isinstance(given, dict) else given
    module = str(getattr(function, "__module__", ""))
    return getattr(function, "__name__", "") == "import_string" and module.startswith("pydantic")


def _parts(node: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    """Return the schemas inside a schema, each with the name of the nearest field."""
    own = node.get("name")
    name = own if isinstance(own, str) and str(node.get("type")).endswith("-field") else name
    fields: Any = node.get("fields")
    if isinstance(fields, dict):
        return [(str(field), part) for field, part in cast("dict[str, Any]", fields).items()]
    return [(name, part) for key, part in node.items() if key not in _APART]


_APART = {"metadata", "serialization", "config", "cls", "default"}
"""What says nothing about how data is validated."""
