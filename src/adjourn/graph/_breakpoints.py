"""Breakpoints: the question that a graph asks before or after a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from adjourn._schemas import answers
from adjourn.errors import UsageError

from ._node import Plan
from .schema import Schema
from .state import attributes


def prompt_at(plan: Plan, before: list[str], after: list[str]) -> str:
    """Return the text that people read at a breakpoint before or after these nodes."""
    nodes = plan.nodes
    ended, coming = ([nodes[name].title for name in names if name in nodes] for names in (after, before))
    places = [f"after {', '.join(ended)}"] * bool(ended) + [f"before {', '.join(coming)}"] * bool(coming)
    return f"Graph '{plan.name}' pauses {' and '.join(places)}. Go on? Keys that you give overwrite the state."


def answer_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema of an answer at a breakpoint: whether to go on, or fields of the state to overwrite."""
    properties = {name: _field_schema(channel.type) for name, channel in schema.channels.items()}
    state = {"type": "object", "properties": properties, "additionalProperties": schema.extra}
    # The prompt asks whether to go on, so yes is an answer, too.
    return {"anyOf": [{"type": "null"}, {"enum": [True, "yes"]}, state]}


def _field_schema(type_: Any) -> dict[str, Any]:
    try:
        found = answers.schema_of(type_)
    except UsageError:
        return {}
    # Definitions that are referenced would have to be at the root of the schema.
    return {} if found is None or "$defs" in found else found


def given_fields(schema: Schema, answer: Any) -> Mapping[str, Any]:
    """Return the fields that an answer overwrites: those of a mapping, or of an instance of the schema's class."""
    if isinstance(answer, Mapping):
        return cast("Mapping[str, Any]", answer)
    return attributes(schema, answer) if schema.cls is not None and isinstance(answer, schema.cls) else {}
