"""`adjourn audit`: who answered what, when, and what the answer was."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from adjourn._screen import Entry, Screen
from adjourn._text import visible_line
from adjourn._values import codec
from adjourn.cli._stores import add_app_option, add_store_option, ref_of, with_store
from adjourn.cli.output.documents import add_json_option, plain, print_json, question
from adjourn.cli.output.questions import place_of, pretty, tool_request
from adjourn.cli.output.times import at, clock
from adjourn.events import Interrupt
from adjourn.printing import described
from adjourn.sessions._log import read_interrupt
from adjourn.stores import SessionRef, Store
from adjourn.stores.protocol import AuditEntry

_SIGNS = {
    None: ("⏸", "yellow", "is open"),
    "answered": ("✔", "green", "was answered"),
    "expired": ("✘", "red", "expired"),
    "abandoned": ("■", "dim", "was given up"),
}


class Line(NamedTuple):
    """One question with how it ended."""

    asked: Interrupt
    decision: AuditEntry
    answer: Any  # Any: whatever was answered


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the session."""
    parser.add_argument("session", metavar="SESSION")
    add_app_option(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print every question of the session's branch, oldest first."""
    lines = with_store(options, lambda store: _read(store, ref_of(options)))
    if options.json:
        print_json([_document(line) for line in lines])
        return 0
    if not lines:
        print("Nobody was asked anything on this branch of the session.")
    screen = Screen(sys.stdout)
    for line in lines:
        screen.show(_entry(line))
    return 0


async def _read(store: Store, ref: SessionRef) -> list[Line]:
    return [
        Line(read_interrupt(decision.body, ref.id), decision, _answer(decision)) for decision in await store.audit(ref)
    ]


def _answer(decision: AuditEntry) -> Any:
    return plain(codec.decode(decision.value, lenient=True)) if decision.value else None


def _document(line: Line) -> dict[str, Any]:
    asked, decision, answer = line
    return {
        **question(asked),
        "how": decision.how,
        "answer": answer,
        "by": decision.by,
        "at": at(decision.at).isoformat() if decision.at is not None else None,
    }


def _entry(line: Line) -> Entry:
    sign, colour, ending = _SIGNS[line.decision.how]
    return Entry(sign, colour, f"{place_of(line.asked)} {ending}", tuple(_rows(line)))


def _rows(line: Line) -> Iterator[tuple[str, str]]:
    asked, decision, answer = line
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
    if decision.how == "answered" or answer is not None:
        yield "answer", described(answer)
    if decision.how == "answered":
        yield "by", visible_line(decision.by or "(nobody was named)")
    if decision.at is not None:
        yield "at", clock(at(decision.at))
    yield "id", visible_line(asked.id)
