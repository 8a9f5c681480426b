"""`adjourn audit`: who answered what, when, and what the answer was."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from adjourn._screen import Card, Screen
from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, with_sessions
from adjourn.cli.output.documents import add_json_option, plain, print_json, question
from adjourn.cli.output.questions import place_of, pretty, tool_request
from adjourn.cli.output.tables import clock
from adjourn.printing import described
from adjourn.sessions import AuditEntry

_SIGNS = {
    None: ("⏸", "yellow", "is open"),
    "answered": ("✔", "green", "was answered"),
    "expired": ("✘", "red", "expired"),
    "abandoned": ("■", "dim", "was given up"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the options."""
    parser.add_argument("session", metavar="SESSION")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print every question of the session's branch, oldest first."""
    entries = with_sessions(options, lambda sessions: sessions.audit(options.session))
    if options.json:
        print_json([_document(entry) for entry in entries])
        return 0
    if not entries:
        print("Nobody was asked anything on this branch of the session.")
    screen = Screen(sys.stdout)
    for entry in entries:
        screen.show(_card(entry))
    return 0


def _document(entry: AuditEntry) -> dict[str, Any]:
    return {
        **question(entry.interrupt),
        "how": entry.outcome,
        "answer": plain(entry.answer),
        "by": entry.by,
        "at": None if entry.at is None else entry.at.isoformat(),
        "inherited": entry.inherited,
    }


def _card(entry: AuditEntry) -> Card:
    sign, colour, ending = _SIGNS[entry.outcome]
    return Card(sign, colour, f"{place_of(entry.interrupt)} {ending}", tuple(_rows(entry)))


def _rows(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    asked, answer = entry.interrupt, plain(entry.answer)
    if asked.prompt is not None:
        yield "asked", asked.prompt
    request = tool_request(asked)
    if request is not None:
        yield "tool", request.tool
        yield "with", pretty(request.arguments)
    elif asked.info is not None and asked.info != asked.prompt:
        yield "shown", described(plain(asked.info))
    if asked.created is not None:
        yield "since", clock(asked.created)
    if entry.outcome == "answered" or answer is not None:
        yield "answer", described(answer)
    if entry.outcome == "answered":
        yield "by", visible_line(entry.by or "(nobody was named)")
    if entry.at is not None:
        yield "at", clock(entry.at) + (", before this branch began" if entry.inherited else "")
    yield "id", visible_line(asked.id)
