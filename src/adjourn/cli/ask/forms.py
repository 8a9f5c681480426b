"""Answers with several fields: what to ask for, one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from adjourn._schemas.answers import choices_of
from adjourn._schemas.jsonschema import resolved
from adjourn.events import Interrupt

_KINDS = {"boolean": "yes or no", "string": "text", "integer": "whole number", "number": "number"}


def fields_of(asked: Interrupt) -> Mapping[str, Interrupt]:
    """Return the fields of an answer to ask for one by one; none unless all of them are plain."""
    root = asked.schema or {}
    schema = resolved(root, root)
    if schema.get("type") != "object":
        return {}
    fields = {name: _field(asked, resolved(part, root)) for name, part in schema.get("properties", {}).items()}
    return fields if all(map(kind_of, fields.values())) else {}


def _field(asked: Interrupt, part: dict[str, Any]) -> Interrupt:
    schema = {**part, "$defs": (asked.schema or {}).get("$defs", {})}
    return Interrupt(id=asked.id, session_id=asked.session_id, schema=schema, choices=choices_of(schema))


def required_of(asked: Interrupt) -> Collection[str]:
    """Return the required fields of an answer."""
    return resolved(asked.schema or {}, asked.schema or {}).get("required", ())


def kind_of(field: Interrupt) -> str:
    """Return what to type for a field; empty if it is not plain."""
    kind = _KINDS.get(str((field.schema or {}).get("type")), "")
    texts = [choice for choice in field.choices if isinstance(choice, str)]
    return " or ".join(texts) if texts and len(texts) == len(field.choices) else kind


def described_fields(asked: Interrupt) -> str:
    """Describe the fields of an answer for people, a line each."""
    required = required_of(asked)
    return "\n".join(
        f"{name}: {kind_of(field)}{'' if name in required else ' (optional)'}"
        for name, field in fields_of(asked).items()
    )
