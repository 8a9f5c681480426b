"""JSON Schemas in a line, for people who are about to answer: said in short only where that is all there is to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

Form = Mapping[str, Any]  # Any: JSON

_NOTES = {"title", "description", "default"}
_LIST = {"type", "items", "minItems", "maxItems"}
_OBJECT = {"type", "properties", "required", "additionalProperties"}


def choices_of(schema: Form) -> list[str] | None:
    """The forms that a schema offers, a line for each; None if it does not, or if a line would not say all of one."""
    if "anyOf" not in schema or not schema.keys() <= {"anyOf", "discriminator", *_NOTES}:
        return None
    lines = [_line(form) for form in cast("list[Form]", schema["anyOf"])]
    return None if None in lines else cast("list[str]", lines)


def _line(form: Form) -> str | None:
    said = form.keys() - _NOTES
    if said == {"const"}:
        return json.dumps(form["const"], ensure_ascii=False)
    if said == {"enum"}:
        return " or ".join(json.dumps(each, ensure_ascii=False) for each in form["enum"])
    if said == {"type"}:
        return form["type"] if isinstance(form["type"], str) else " or ".join(form["type"])
    if form.get("type") == "array" and said <= _LIST and "items" in form:
        return _list(form)
    if form.get("properties") and said <= _OBJECT and not form.get("additionalProperties"):
        return _fields(form["properties"], form.get("required", ()))
    return None


def _list(form: Form) -> str | None:
    item, least, most = _line(form["items"]), form.get("minItems", 0), form.get("maxItems")
    if item is None:
        return None
    count = f"{least} to {most} items" if most is not None else f"{least} or more items"
    return f"list of {item}" + (f" ({least} items)" if least == most else f" ({count})" if least or most else "")


def _fields(properties: Mapping[str, Form], required: list[str]) -> str | None:
    fields: list[str] = []
    for name, form in properties.items():
        line = _line(form)
        if line is None:
            return None
        fields.append(f"{json.dumps(name, ensure_ascii=False)}{'' if name in required else ' (optional)'}: {line}")
    return f"{{{', '.join(fields)}}}"
