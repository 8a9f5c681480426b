"""From what a person types to the answer that a question wants."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from adjourn._schemas.answers import choices_of, problems
from adjourn._schemas.jsonschema import resolved
from adjourn.errors import InvalidAnswer
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


_WORDS = {
    **dict.fromkeys(("y", "yes", "true", "ok", "approve", "approved"), True),
    **dict.fromkeys(("n", "no", "false", "reject", "refuse", "refused"), False),
}


def parse(text: str, asked: Interrupt) -> Any:
    """Return the answer that a text means: a choice, yes or no, JSON if the schema expects it, else the text itself.

    Raises:
        InvalidAnswer: the schema takes none of these.
    """
    text = text.strip()
    for value in _readings(text, asked):
        if accepts(asked, value):
            return value
    best = _word(text) if isinstance(_word(text), bool) else parse_data(text)
    raise InvalidAnswer(asked.session_id, asked.id, problems(best, asked.schema))


def accepts(asked: Interrupt, value: Any) -> bool:
    """Return whether the question's schema accepts this answer."""
    return not problems(value, asked.schema)


def parse_data(text: str) -> Any:
    """Return a text as JSON data if it is JSON, but quoted text and anything else as it is."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _readings(text: str, asked: Interrupt) -> Iterator[Any]:
    """Yield what a text may mean, most likely first."""
    named = [choice for choice in asked.choices if text in (choice, json.dumps(choice, ensure_ascii=False))]
    yield from named
    if isinstance(word := _word(text), bool) and (asked.schema is not None or asked.reason == "need_approval"):
        yield word
    if asked.choices and text.isascii() and text.isdigit() and 0 < int(text) <= len(asked.choices):
        yield asked.choices[int(text) - 1]
    if asked.schema is not None:
        yield parse_data(text)
    yield text


def _word(text: str) -> bool | None:
    return _WORDS.get(text.lower())
