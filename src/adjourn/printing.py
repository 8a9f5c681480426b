"""Prints events and questions for people at a terminal, each on a line or a few."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import singledispatch
from typing import Any, NamedTuple, TextIO, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from adjourn import events

from ._bars import Bars
from ._engine.address import Address
from ._plain import as_data
from ._schemas.words import forms_of
from ._screen import Card, Cursor, Screen
from ._text import a_type, visible_line
from ._values.codec import Unknown
from .events import (
    Cancelled,
    Delta,
    Done,
    Event,
    Failed,
    Interrupt,
    Interrupted,
    MessageEvent,
    Progress,
    Retrying,
    ToolCallPiece,
)
from .messages import ToolCall


class _Stream(Struct):
    """The pieces of text that have come so far, and where the next one follows."""

    cursor: Cursor
    of: tuple[str, str | None]
    pieces: list[str] = []
    call: int | None = None
    written: int = 0


_streams: WeakKeyDictionary[TextIO, _Stream] = WeakKeyDictionary()
"""The streams on files whose last line has not ended yet."""


_left: WeakKeyDictionary[TextIO, set[tuple[str, str | None]]] = WeakKeyDictionary()
"""The messages on files whose line ended before they did: the rest of them follows whole, and not in pieces."""


_bars: WeakKeyDictionary[TextIO, Bars] = WeakKeyDictionary()
"""What was shown of progress on files."""


def print_event(event: Event, file: TextIO | None = None) -> None:
    """Print an event for a person, to the standard output unless a file is given.

    Colours are used on terminals only, unless `NO_COLOR` is set. Deltas are printed as they arrive, and the message
    that they add up to is not printed again; if something else comes in between, it is printed when it is whole.
    Progress is a bar on terminals, which is drawn over; elsewhere it is a line for each tenth that is done, or every
    ten seconds.
    """
    out = sys.stdout if file is None else file
    if out is None:  # A program without a console has none.
        return
    screen = Screen(out)
    if isinstance(event, Progress):
        _print_progress(event, out, screen)
        return
    if (bars := _bars.get(out)) is not None:
        bars.erase(screen)
    if isinstance(event, Delta):
        _print_piece(event, out, screen)
        return
    stream = _streams.pop(out, None)
    if stream is not None:
        screen.write("\n")
        if isinstance(event, MessageEvent) and _was_streamed(event, stream):
            if event.message.tool_calls:
                screen.show(_message(event, ()))
            return
        _leave(stream, out)
    if isinstance(event, Retrying | Interrupted | Done | Failed | Cancelled):
        _left.pop(out, None)  # What comes then begins anew.
    screen.show(shown(event))


def end_line(file: TextIO | None = None) -> None:
    """End the line of a text that is being streamed, if any: nothing of the message that it is part of follows."""
    out = sys.stdout if file is None else file
    if out is not None and _streams.pop(out, None) is not None:
        Screen(out).write("\n")


def _was_streamed(event: MessageEvent, stream: _Stream) -> bool:
    agent, message_id = stream.of
    is_it = event.agent == agent and (None in (message_id, event.message.id) or event.message.id == message_id)
    return is_it and event.message.text == "".join(stream.pieces)


def _leave(stream: _Stream, out: TextIO) -> None:
    """Remember that the line of a message has ended before it was whole."""
    if stream.of[1] is not None:  # Without an id, the next message could not be told apart from it.
        _left.setdefault(out, set()).add(stream.of)


def _print_progress(event: Progress, out: TextIO, screen: Screen) -> None:
    end_line(out)
    _bars.setdefault(out, Bars()).show(event, shown(event), screen)


def _print_piece(piece: Delta, out: TextIO, screen: Screen) -> None:
    of, stream = (piece.agent, piece.call_id or piece.message_id), _streams.get(out)
    if of in _left.get(out, ()):
        return
    if stream is not None and stream.of != of:
        end_line(out)  # Another message has begun, and the rest of the first one may follow whole.
        _leave(stream, out)
        stream = None
    if stream is None:
        stream = _streams[out] = _Stream(screen.begin(Card("●", "blue", piece.agent or "assistant")), of)
    stream.pieces.append(piece.text)
    if piece.reasoning:
        stream.cursor = screen.extend(piece.reasoning, stream.cursor, "dim")
    stream.cursor = screen.extend(piece.text, stream.cursor)
    if piece.tool_call is not None:
        sign = _sign_of_life(piece.tool_call, stream)
        stream.cursor = screen.extend(sign, stream.cursor, "dim") if sign else stream.cursor


PER_DOT = 200
"""Characters of a call's arguments that a dot stands for while a model writes them."""


def _sign_of_life(piece: ToolCallPiece, stream: _Stream) -> str:
    """Return what shows that a call is being written: its name once, then now and then a dot."""
    if not piece.name:
        return ""
    begins = stream.call != piece.index
    before = 0 if begins else stream.written
    stream.call, stream.written = piece.index, before + len(piece.arguments)
    dots = "." * (stream.written // PER_DOT - before // PER_DOT)
    return (f"{' ' if stream.pieces[:-1] else ''}[{visible_line(piece.name)}] " if begins else "") + dots


# Data


def described(value: Any) -> str:  # Any: whatever users show
    """Return a value for people to read: text as it is, fields a line each, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        data = msgspec.to_builtins(_fields(value), enc_hook=as_data)
        if isinstance(data, Mapping) and data:
            return "\n".join(_field(key, item) for key, item in cast("Mapping[Any, Any]", data).items())
        return _json(data)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _fields(value: Any) -> Any:
    """Return structs as their fields, without the tags of stored types, which mean nothing to a person."""
    match value:
        case Unknown():
            return _fields(value.data)
        case Struct():
            return {name: _fields(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            return {key: _fields(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple():
            return [_fields(each) for each in cast("list[Any]", value)]
        case _:
            return value


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
    return Card("▶", "blue", _node_place(event) + attempt)


@shown.register
def _(event: events.NodeEnd) -> Card:
    if event.error is not None:
        return Card("✘", "red", f"{_node_place(event)} failed", (("", event.error),))
    how = "from the cache" if event.cached else _duration(event.seconds)
    return Card("✔", "green", f"{_node_place(event)}, {how}")


def _node_place(event: events.NodeStart | events.NodeEnd) -> str:
    place = _place(event.address, event.node)
    return f"{place} ({event.title})" if event.title else place


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
    shown_before = (None, *event.interrupts)
    questions = zip(event.interrupts, shown_before, strict=False)
    return Card("⏸", "yellow", title, tuple(row for asked, before in questions for row in _question(asked, before)))


def _question(asked: Interrupt, before: Interrupt | None) -> Iterator[tuple[str, str]]:
    if asked.node:
        yield "node", asked.node
    yield from question_rows(asked, before)
    yield "answer", answer_form(asked)
    yield "id", visible_line(asked.id) + (f", key {visible_line(asked.key)}" if asked.key is not None else "")
    if asked.expires is not None:
        yield "until", _time(asked.expires)


class ToolRequest(NamedTuple):
    """A tool call that is waiting for approval, as far as it is stored."""

    tool: str
    arguments: Mapping[str, Any]  # Any: JSON
    reach: str = ""


def tool_request(info: Any) -> ToolRequest | None:
    """Return the tool call that a question shows, if any."""
    facts = _fields(info)
    if not isinstance(facts, dict):
        return None
    tool, arguments, reach = map(cast("dict[str, Any]", facts).get, ("tool", "arguments", "reach"))
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        return None
    return ToolRequest(tool, cast("dict[str, Any]", arguments), str(reach or ""))


def question_rows(asked: Interrupt, before: Interrupt | None = None) -> Iterator[tuple[str, str]]:
    """Yield what a question asks and shows; `before` is the question that stands right above it, if any."""
    request = tool_request(asked.info)
    for label, text in (("title", asked.title), ("summary", asked.summary), ("about", asked.description)):
        if text is not None:
            yield label, text
    if asked.prompt is not None and not (request and _repeats(asked.prompt, request)):
        yield "asks", asked.prompt
    if request is not None:
        yield "tool", request.tool
        yield "with", described(request.arguments)
        if request.reach:
            above = None if before is None else tool_request(before.info)
            yield "reach", "as above" if above is not None and above.reach == request.reach else request.reach
    elif asked.info is not None and asked.info != asked.prompt:
        yield "shows", described(asked.info)


def _repeats(prompt: str, request: ToolRequest) -> bool:
    """Return whether a prompt only repeats what is shown in full anyway."""
    return msgspec.json.encode(request.arguments).decode() in prompt


def answer_form(asked: Interrupt) -> str:
    """Describe, for a person, what an answer looks like."""
    if asked.choices:
        return " or ".join(map(described, asked.choices))
    if asked.schema is None:
        return "anything"
    if decisions := _decisions(asked.schema):
        return f"yes or no, or a decision: {', '.join(decisions)}"
    return "\n".join(map(visible_line, forms_of(asked.schema)))


def _decisions(schema: Mapping[str, Any]) -> list[str]:
    """Return the decisions that an approval takes, whose fields the documentation explains; none for other schemas."""
    told_apart = cast("dict[str, Any]", schema.get("discriminator", {}))
    forms = cast("dict[str, str]", told_apart.get("mapping", {}))
    is_ours = told_apart.get("propertyName") == "decision" and not any(forms.values())
    return sorted(map(visible_line, forms)) if is_ours else []


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
    texts = (amount, _place(event.address, ""), event.message)
    return Card("…", "dim", " ".join(filter(None, texts)))
