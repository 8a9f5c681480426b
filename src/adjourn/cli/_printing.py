"""What commands print: JSON, tables, times, questions and decisions, for people who read them at a terminal.

A question that somebody may answer is shown whole, as it is stored: the raw arguments, with every character that would
hide something spelled out. A list has a line for each, without the tokens: nobody approves the beginning of a line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from adjourn._engine.address import Address
from adjourn._schemas.answers import choices_of
from adjourn._schemas.jsonschema import resolved
from adjourn._screen import Card, Screen, columns
from adjourn._text import visible, visible_line
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.printing import answer_form, described, question_rows, tool_request

_encoder = msgspec.json.Encoder(enc_hook=repr)


def print_json(data: Any) -> None:  # Any: JSON data
    """Print one document on one line."""
    sys.stdout.write(_encoder.encode(data).decode() + "\n")
    sys.stdout.flush()


_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def at(seconds: float) -> datetime:
    """Return the moment of a store's timestamp."""
    return datetime.fromtimestamp(seconds, UTC)


def clock(moment: datetime) -> str:
    """Return a moment in local time."""
    return moment.astimezone().isoformat(" ", "seconds")


def ago(moment: datetime) -> str:
    """Return how long ago a moment was, or how long until it comes."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float, units: int = 2) -> str:
    """Return a length of time in its largest unit and the next smaller one, or in so many."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{int(count)} {unit}" if count else "")
    return " ".join(filter(None, parts[:units])) or "less than a second"


def duration(text: str) -> timedelta:
    """Parse a length of time: `90s`, `15m`, `12h`, `30d`, `2w`.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise UsageError(f"{text!r} is not a length of time. Write a number and a unit: 90s, 15m, 12h, 30d or 2w.")
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise UsageError(f"{text!r} is too long.") from None


_COLOURS = {
    "waiting": "yellow",
    "answered": "yellow",
    "expired": "yellow",
    "failed": "red",
    "done": "green",
    "running": "blue",
}


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles; where a terminal is too narrow for that, a line for each cell. Nothing is cut."""
    screen = Screen(sys.stdout)
    shown = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(map(columns, cells)) for cells in zip(titles, *shown, strict=True)]
    if not screen.fits(sum(widths) + 2 * (len(widths) - 1)):
        for name, *cells in rows:
            lines = [f"{title.lower()}: {cell}" for title, cell in zip(titles[1:], cells, strict=True) if cell]
            screen.show(Card("●", _COLOURS.get(cells[0].partition(" ")[0], "blue"), name, (("", "\n".join(lines)),)))
        return
    print(screen.painted(_line(titles, widths), "dim"))
    for row in shown:
        print(_line([_painted(screen, cell, width) for cell, width in zip(row, widths, strict=True)], None))


def _line(cells: Sequence[str], widths: Sequence[int] | None) -> str:
    if widths is not None:
        cells = [padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(cells).rstrip()


def padded(cell: str, width: int) -> str:
    """Return a cell as wide as its column."""
    return cell + " " * (width - columns(cell))


def _painted(screen: Screen, cell: str, width: int) -> str:
    colour = _COLOURS.get(cell.partition(" ")[0])
    return screen.painted(cell, colour) + " " * (width - columns(cell)) if colour else padded(cell, width)


_KINDS = {
    "boolean": "yes or no",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "object": "JSON object",
    "array": "JSON list",
    "null": "null",
}
_FORMATS = {
    "date": "date, such as 2026-12-31",
    "date-time": "date and time, such as 2026-12-31T14:30:00",
    "time": "time of day, such as 14:30:00",
    "duration": "length of time, such as PT90M",
    "decimal": "number",
}
_ONE = {"text", "null", "yes or no"}
"""Kinds that are said without an article."""


def in_words(problem: str) -> str:
    """Return why an answer does not fit, for people who know no JSON Schema."""
    place, _, what = problem.partition(": ")
    place = place.removeprefix("$").removeprefix(".")
    if found := re.fullmatch(r"expected (.*), got (.*)", what, re.DOTALL):
        names = found[1].removeprefix("the format ").split(" or ")
        kinds = [_FORMATS.get(name) or _KINDS.get(name) for name in names]
        wanted = [
            name if kind is None else kind if kind in _ONE else f"a {kind}"
            for name, kind in zip(names, kinds, strict=True)
        ]
        what = f"it takes {' or '.join(wanted)}, not {found[2]}"
    return f"{place}: {what}" if place else what


def fields_of(asked: Interrupt) -> Mapping[str, Interrupt]:
    """Return the fields of an answer to ask for one by one; none unless all of them are plain."""
    root = asked.schema or {}
    schema = resolved(root, root)
    if schema.get("type") != "object":
        return {}
    fields = {name: _part(asked, resolved(part, root)) for name, part in schema.get("properties", {}).items()}
    return fields if all(map(kind_of, fields.values())) else {}


def _part(asked: Interrupt, part: dict[str, Any]) -> Interrupt:
    schema = {**part, "$defs": (asked.schema or {}).get("$defs", {})}
    return Interrupt(id=asked.id, session_id=asked.session_id, schema=schema, choices=choices_of(schema))


def required_of(asked: Interrupt) -> Collection[str]:
    """Return the required fields of an answer."""
    return resolved(asked.schema or {}, asked.schema or {}).get("required", ())


def kind_of(field: Interrupt) -> str:
    """Return what to type for a field; empty if it is not plain."""
    schema = field.schema or {}
    type_ = str(schema.get("type"))
    kind = "" if type_ in ("object", "array", "null") else _KINDS.get(type_, "")
    kind = _FORMATS.get(str(schema.get("format")), kind) if type_ == "string" else kind
    texts = [choice for choice in field.choices if isinstance(choice, str)]
    return " or ".join(texts) if texts and len(texts) == len(field.choices) else kind


def described_fields(asked: Interrupt) -> str:
    """Describe the fields of an answer for people, a line each."""
    required = required_of(asked)
    return "\n".join(
        f"{name}: {kind_of(field)}{'' if name in required else ' (optional)'}"
        for name, field in fields_of(asked).items()
    )


_REASONS = {"need_approval": "asks for your approval", "need_input": "asks you something"}


def print_question(asked: Interrupt, number: str = "", *, before: Interrupt | None = None) -> None:
    """Show a question so that it cannot be overlooked: its place, what it asks, and what an answer must be.

    What the question `before`, right above it, says in the same words is not repeated.
    """
    screen = Screen(sys.stdout)
    title = f"{place_of(asked)} {_REASONS.get(asked.reason, f'waits: {asked.reason}')}{number}"
    screen.write("\n")
    screen.show(Card("⏸", "yellow", title, tuple(_question_rows(asked, before)), strong=True))


def print_each(found: Sequence[Interrupt]) -> None:
    """Show questions one below the other."""
    for asked, before in zip(found, (None, *found), strict=False):
        print_question(asked, before=before)


_LEAST = 30
"""The columns that a question gets in a list; where there are fewer, it gets a row of its own."""


def print_questions(found: Sequence[Interrupt]) -> None:
    """List questions with a line for each; on a terminal, as much of it as fits."""
    screen = Screen(sys.stdout)
    rows = [("SESSION", "OPEN FOR", "EXPIRES", "QUESTION"), *map(_listed, found)]
    if not any(each.expires for each in found):
        rows = [(session, age, question) for session, age, _, question in rows]
    widths = [max(map(columns, cells)) for cells in zip(*rows, strict=True)][:-1]
    margin = sum(widths) + 2 * len(widths)
    fits = screen.fits(margin + _LEAST)
    for number, (*cells, question) in enumerate(rows):
        facts = "".join(padded(cell, width + 2) for cell, width in zip(cells, widths, strict=True))
        line = (
            f"{facts}{_cut(screen, question, margin)}" if fits else f"{facts.rstrip()}\n  {_cut(screen, question, 2)}"
        )
        screen.write((line if number else screen.painted(line, "dim")) + "\n")


def _cut(screen: Screen, text: str, margin: int) -> str:
    shown = screen.cut(text, margin)
    return shown if shown == text else f"{shown}…"


def _listed(asked: Interrupt) -> tuple[str, str, str, str]:
    """Return a question as it stands in a list: its session, for how long it has been open, until when, and itself."""
    now = datetime.now(UTC)
    age = "" if asked.created is None else span(max((now - asked.created).total_seconds(), 1), 1)
    expires = "" if asked.expires is None else f"in {span(max((asked.expires - now).total_seconds(), 1), 1)}"
    request = tool_request(asked.info)
    asks = ", ".join(described(request.arguments).split("\n")) if request else asked.prompt or described(asked.info)
    asks = asked.summary or (f"{asked.title}: {asks}" if asked.title else asks)
    tags = f" [{', '.join(asked.tags)}]" if asked.tags else ""
    question = " ".join(f"{place_of(asked, in_short=True)}{tags}: {asks}".split())
    return visible_line(asked.session_id), age, expires, visible_line(question)


def place_of(asked: Interrupt, *, in_short: bool = False) -> str:
    """Return where a question was asked, for people: `TicketBooker › book_ticket (call_1)`, in short without ids."""
    try:
        segments = list(Address.parse(asked.address))
    except ValueError:
        return asked.address
    named = segments[1:] if len(segments) > 1 and segments[0].type == "runnable" else segments
    names = [each.id + (f" ({each.sub_id})" if each.sub_id and not in_short else "") for each in named]
    return " › ".join([*names[:-1], asked.node] if asked.node else names)


def is_yes_or_no(asked: Interrupt) -> bool:
    """Return whether the answer is yes or no."""
    return bool(asked.choices) and all(isinstance(choice, bool) for choice in asked.choices)


_DECISIONS = "yes or no, other arguments, or a result in place of the tool's"


def _question_rows(asked: Interrupt, before: Interrupt | None) -> Iterator[tuple[str, str]]:
    yield from question_rows(asked, before)
    is_call = tool_request(asked.info) is not None and asked.reason == "need_approval"
    yield "answer", _DECISIONS if is_call and not is_yes_or_no(asked) else form_of(asked)
    if asked.expires is not None:
        yield "until", f"{clock(asked.expires)}, {ago(asked.expires)}"
    if asked.removed_after is not None:
        yield "removed", f"{clock(asked.removed_after)}, {ago(asked.removed_after)}, unless the session goes on before"
    if asked.created is not None:
        yield "since", f"{clock(asked.created)}, {ago(asked.created)}"
    if asked.requested_by is not None:
        yield "for", visible_line(asked.requested_by)
    if asked.priority:
        yield "urgency", str(asked.priority)
    if asked.link is not None:
        yield "link", visible_line(asked.link)
    yield "reason", asked.reason
    if asked.tags:
        yield "tags", visible_line(", ".join(asked.tags))
    yield "id", visible_line(asked.id) + (f", key {visible_line(asked.key)}" if asked.key is not None else "")
    yield "session", visible_line(asked.session_id)
    if asked.token:
        yield "token", visible_line(asked.token)


def form_of(asked: Interrupt) -> str:
    """Describe what an answer must be."""
    if is_yes_or_no(asked):
        return "yes or no"
    is_plain = (asked.schema or {}).keys() <= {"type", "format", "title", "description"} and not asked.choices
    return described_fields(asked) or (is_plain and kind_of(asked)) or answer_form(asked)


def say(text: str, colour: str | None = None) -> None:
    """Print a line for the person."""
    screen = Screen(sys.stdout)
    text = screen.prose(text)
    screen.write((screen.painted(text, colour) if colour else text) + "\n")


def hint(text: str) -> None:
    """Print what can be done next to standard error, apart from the output."""
    screen = Screen(sys.stderr)
    screen.write(screen.painted(visible(text), "dim") + "\n")
