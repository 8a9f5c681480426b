"""Open questions, shown to the person who decides.

A question that somebody may answer is shown whole, as it is stored: the raw arguments, with every character that would
hide something spelled out. A list has a line for each, without the tokens: nobody approves the beginning of a line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from adjourn._engine.address import Address
from adjourn._screen import Card, Screen, columns
from adjourn._text import visible_line
from adjourn.cli.ask.parsing import described_fields
from adjourn.events import Interrupt
from adjourn.printing import answer_form, described, question_rows, tool_request

from .tables import ago, clock, padded, span

_REASONS = {"need_approval": "asks for your approval", "need_input": "asks you something"}


def print_question(asked: Interrupt, number: str = "", *, before: Interrupt | None = None) -> None:
    """Show a question so that it cannot be overlooked: its place, what it asks, and what an answer must be.

    What the question `before`, right above it, says in the same words is not repeated.
    """
    screen = Screen(sys.stdout)
    title = f"{place_of(asked)} {_REASONS.get(asked.reason, f'waits: {asked.reason}')}{number}"
    screen.write("\n")
    screen.show(Card("⏸", "yellow", title, tuple(_rows(asked, before)), strong=True))


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


def _rows(asked: Interrupt, before: Interrupt | None) -> Iterator[tuple[str, str]]:
    yield from question_rows(asked, before)
    if tool_request(asked.info) is None or asked.reason != "need_approval":
        yield "answer", form_of(asked)
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
    return "yes or no" if is_yes_or_no(asked) else described_fields(asked) or answer_form(asked)
