"""Prints events and questions for people at a terminal, each on a line or a few."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import singledispatch
from typing import Any, TextIO, cast
from weakref import WeakKeyDictionary

import msgspec

from adjourn import events

from ._engine.address import Address
from ._schemas.jsonschema import resolved
from ._screen import Card, Screen
from ._text import a_type, visible_line
from .events import Delta, Event, Interrupt, MessageEvent
from .messages import ToolCall

Form = Mapping[str, Any]  # Any: JSON

_NOTES = {"title", "description", "default"}
_LIST = {"type", "items", "minItems", "maxItems"}
_OBJECT = {"type", "properties", "required", "additionalProperties"}


def choices_of(schema: Form) -> list[str] | None:
    """Return the forms that a schema offers, a line each; None if a line cannot describe each in full."""
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


class _Stream(msgspec.Struct):
    """The pieces of text that have come so far, and the column where the next one follows."""

    column: int
    pieces: list[str] = []


_streams: WeakKeyDictionary[TextIO, _Stream] = WeakKeyDictionary()
"""The streams on files whose last line has not ended yet."""


def print_event(event: Event, file: TextIO | None = None) -> None:
    """Print an event for a person, to the standard output unless a file is given.

    Colours are used on terminals only, unless `NO_COLOR` is set. Deltas are printed as they arrive, and the message
    that they add up to is not printed again.
    """
    out = sys.stdout if file is None else file
    if out is None:  # A program without a console has none.
        return
    screen = Screen(out)
    if isinstance(event, Delta):
        _print_piece(event, out, screen)
        return
    stream = _streams.pop(out, None)
    if stream is not None:
        screen.write("\n")
        if isinstance(event, MessageEvent) and event.message.text == "".join(stream.pieces):
            if event.message.tool_calls:
                screen.show(_message(event, ()))
            return
    screen.show(shown(event))


def _print_piece(piece: Delta, out: TextIO, screen: Screen) -> None:
    stream = _streams.get(out)
    if stream is None:
        stream = _streams[out] = _Stream(screen.begin(Card("●", "blue", piece.agent or "assistant")))
    stream.pieces.append(piece.text)
    if piece.reasoning:
        stream.column = screen.extend(piece.reasoning, stream.column, "dim")
    stream.column = screen.extend(piece.text, stream.column)


# Data


def described(value: Any) -> str:  # Any: whatever users show
    """Return a value for people to read: text as it is, mappings a line per field, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        data = msgspec.to_builtins(value, enc_hook=repr)
        if isinstance(value, msgspec.Struct) and isinstance(data, dict):
            # The tag of a stored type means nothing to a person.
            cast("dict[str, Any]", data).pop(value.__struct_config__.tag_field or "", None)
        if isinstance(data, Mapping) and data:
            return "\n".join(_field(key, item) for key, item in cast("Mapping[Any, Any]", data).items())
        return _json(data)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _field(key: Any, value: Any) -> str:
    name = key if isinstance(key, str) and key.isidentifier() else _json(key)
    if isinstance(value, str) and "\n" in value:
        return "\n    ".join([f"{name}:", *value.split("\n")])
    return f"{name}: {_json(value)}"


def _json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    inner = cast("list[Any]", value) if isinstance(value, list) else [value]
    is_nested = any(isinstance(item, dict | list) for item in inner)
    return json.dumps(value, ensure_ascii=False, indent=2) if is_nested and len(line) > 100 else line


def _place(address: str, name: str) -> str:
    """Return an address below the running program, for people: `research › review 2`."""
    try:
        segments = Address.parse(address)[1:]
    except ValueError:
        return name
    return " › ".join(" ".join(filter(None, (segment.id, segment.sub_id))) for segment in segments) or name


def _call(call: ToolCall) -> tuple[str, str]:
    return "call", f"{visible_line(call.name)} ({visible_line(call.id)})\n{described(call.arguments)}"


# What each event shows


@singledispatch
def shown(event: Event) -> Card:
    """Return what is printed for an event."""
    raise TypeError(f"print_event was called with {a_type(event)}. Pass an event of a run.")


@shown.register
def _(event: events.MessageEvent) -> Card:
    has_text = event.message.text or not event.message.tool_calls
    return _message(event, (("", event.message.text),) if has_text else ())


def _message(event: MessageEvent, text: tuple[tuple[str, str], ...]) -> Card:
    message = event.message
    who = f"{message.role} {message.name}" if message.name else message.role
    return Card("●", "blue", event.agent or who, (*text, *map(_call, message.tool_calls)))


@shown.register
def _(event: events.ToolCalled) -> Card:
    return Card("→", "blue", f"{event.call.name} ({event.call.id})", (("", described(event.call.arguments)),))


@shown.register
def _(event: events.ToolResult) -> Card:
    title = f"{event.tool} ({event.call_id})"
    if event.error == "refused":
        return Card("✘", "yellow", f"{title} was refused", (("", event.result),) if event.result else ())
    if event.error is not None:
        return Card("✘", "red", f"{title} failed", (("", event.error),))
    return Card("←", "blue", title, (("", event.result),))


@shown.register
def _(event: events.Transfer) -> Card:
    return Card("⇒", "blue", f"{event.agent} hands over to {event.target}" if event.agent else f"to {event.target}")


@shown.register
def _(event: events.Exit) -> Card:
    return Card("■", "green", "exit", (("", event.result),) if event.result else ())


@shown.register
def _(event: events.BreakLoop) -> Card:
    return Card("■", "green", f"{event.agent} leaves its loop".strip())


@shown.register
def _(event: events.NodeStart) -> Card:
    attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return Card("▶", "blue", _place(event.address, event.node) + attempt)


@shown.register
def _(event: events.NodeEnd) -> Card:
    how = "from the cache" if event.cached else _duration(event.seconds)
    return Card("✔", "green", f"{_place(event.address, event.node)}, {how}")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


@shown.register
def _(event: events.CheckpointSaved) -> Card:
    return Card("·", "dim", f"checkpoint {event.checkpoint_id}, {event.source} {event.step}")


@shown.register
def _(event: events.Custom) -> Card:
    return Card("•", "blue", _place(event.address, "emitted"), (("", described(event.data)),))


@shown.register
def _(event: events.Interrupted) -> Card:
    count = len(event.interrupts)
    title = f"waits for {'an answer' if count == 1 else f'{count} answers'}, checkpoint {event.checkpoint_id}"
    return Card("⏸", "yellow", title, tuple(row for asked in event.interrupts for row in _question(asked)))


def _question(asked: Interrupt) -> Iterator[tuple[str, str]]:
    if asked.prompt is not None:
        yield "asks", asked.prompt
    if asked.info is not None and asked.info != asked.prompt:
        yield "shows", described(asked.info)
    yield "answer", answer_form(asked)
    yield "id", visible_line(asked.id) + (f", key {visible_line(asked.key)}" if asked.key is not None else "")
    if asked.expires is not None:
        yield "until", _time(asked.expires)


def answer_form(asked: Interrupt) -> str:
    """Describe, for a person, what an answer looks like."""
    if asked.choices:
        return " or ".join(map(described, asked.choices))
    if asked.schema is None:
        return "anything"
    schema = resolved(asked.schema, asked.schema)
    choices = choices_of(schema)
    if choices is not None:
        return "\n".join(map(visible_line, choices))
    fields, required = schema.get("properties", {}), schema.get("required", ())
    if not fields or not all(map(_is_plain, fields.values())):
        return str(schema["type"]) if _is_plain(schema) else _json(asked.schema)
    names = {name: name if name in required else f"{name} (optional)" for name in fields}
    return "\n".join(f"{visible_line(names[name])}: {field['type']}" for name, field in fields.items())


def _is_plain(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and isinstance(cast("dict[str, Any]", schema).get("type"), str)
        and schema.keys() <= _SAID
    )


_SAID = {"type", "title", "description", "default"}


def _time(moment: datetime) -> str:
    return moment.astimezone().isoformat(" ", "seconds")


@shown.register
def _(event: events.Done) -> Card:
    return Card("✔", "green", "done", (("", event.output),) if event.output else ())


@shown.register
def _(event: events.Failed) -> Card:
    return Card("✘", "red", f"failed with {event.error}", (("", event.message),))


@shown.register
def _(event: events.Cancelled) -> Card:
    return Card("■", "yellow", f"cancelled ({event.mode}), can be recovered")


@shown.register
def _(event: events.Retrying) -> Card:
    title = f"attempt {event.attempt} of {event.max_attempts} failed, again in {_duration(event.delay)}"
    return Card("↻", "yellow", title, (("", event.error),))


@shown.register
def _(event: events.Progress) -> Card:
    done = "" if event.done is None else f"{event.done:g}"
    amount = done if event.fraction is None else f"{event.fraction:.0%}"
    return Card("…", "dim", f"{amount} {event.message}".strip())
