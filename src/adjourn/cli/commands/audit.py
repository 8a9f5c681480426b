"""`adjourn audit`: who answered what, when, and what the answer was; and whether that is what was written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from adjourn._documents import Question, plain
from adjourn._screen import Card, Screen
from adjourn._text import counted, visible_line
from adjourn.cli._stores import KEY_VARIABLE, add_store_option, add_whose_options, with_sessions
from adjourn.cli.output.decisions import decided
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.questions import place_of
from adjourn.cli.output.tables import clock
from adjourn.errors import UsageError
from adjourn.printing import described, question_rows
from adjourn.sessions import AuditEntry, Problem, Sessions, Verification

_SIGNS = {
    None: ("⏸", "yellow", "is open"),
    "answered": ("✔", "green", "was answered"),
    "expired": ("✘", "red", "expired"),
    "abandoned": ("■", "dim", "was given up"),
}

_UNSIGNED = "only against changes by somebody who cannot make the digests again"
_NAMED = 5
"""How many records or questions are named that have the same problem; --json names all of them."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the options."""
    parser.add_argument("session", metavar="SESSION", nargs="?")
    parser.add_argument("--all-branches", action="store_true", help="also what was asked on branches that were left")
    parser.add_argument("--verify", action="store_true", help="check that the log is as it was written; 1 if it is not")
    parser.add_argument("--all", action="store_true", help="with --verify: all sessions")
    parser.add_argument("--head", metavar="DIGEST", help="with --verify: what an earlier --verify printed as head")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print every question of the session's branch, oldest first, or the result of verifying it."""
    _check(options)
    if options.verify:
        return _verify(options)
    entries = with_sessions(
        options, lambda sessions: sessions.audit(options.session, all_branches=options.all_branches)
    )
    if options.json:
        print_json([_document(entry) for entry in entries])
        return 0
    if not entries:
        where = "in the session" if options.all_branches else "on this branch of the session"
        print(f"Nobody was asked anything {where}.")
    screen = Screen(sys.stdout)
    for entry in entries:
        screen.show(_card(entry))
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.verify and (options.all or options.head):
        raise UsageError("--all and --head belong to --verify.")
    if options.all and (options.session or options.head):
        raise UsageError("--all takes neither a SESSION nor --head.")
    if not options.all and options.session is None:
        raise UsageError("Which session? Give SESSION, or --verify --all to verify all of them.")


def _verify(options: argparse.Namespace) -> int:
    async def verify(sessions: Sessions) -> list[Verification]:
        if options.all:
            return await sessions.verify_all()
        return [await sessions.verify(options.session, head=options.head)]

    found = with_sessions(options, verify)
    if options.json:
        documents = [{**asdict(each), "sound": each.is_sound} for each in found]
        print_json(documents if options.all else documents[0])
    else:
        _print_verified(found, each_one=not options.all)
    return 0 if all(each.is_sound for each in found) else 1


def _print_verified(found: list[Verification], *, each_one: bool) -> None:
    screen = Screen(sys.stdout)
    for each in found:
        if each_one or not each.is_sound:
            screen.show(_verified_card(each))
    if not each_one:
        sound = sum(each.is_sound for each in found)
        print(f"{sound} of {len(found)} sessions are as they were written.")
        if sound and not any(each.signed for each in found):
            print(f"No audit key is given, so it was checked {_UNSIGNED}.")


def _verified_card(found: Verification) -> Card:
    named = visible_line(f"Session '{found.session_id}'")
    if found.signed:
        return Card("✔", "green", f"{named} is as it was written, and signed", tuple(_verified_rows(found)))
    if found.is_sound:
        return Card("✔", "yellow", f"{named} is as it was written, but NOT signed", tuple(_verified_rows(found)))
    return Card("✘", "red", f"{named} is NOT as it was written", tuple(_verified_rows(found)))


def _verified_rows(found: Verification) -> Iterator[tuple[str, str]]:
    yield from _problem_rows(found.problems)
    yield "checked", f"{counted(found.records, 'record')}, {counted(found.answers, 'answer')}"
    if found.is_sound and not found.signed:
        yield "without", f"an audit key ({KEY_VARIABLE}): {_UNSIGNED}"
    if found.untaken:
        yield "not yet", f"{counted(found.untaken, 'answer')} that no run has taken up"
    if found.pruned:
        gone = f"records before {', '.join(found.pruned)}"
        yield "pruned", gone + (f", with the proof of {counted(found.unproved, 'answer')}" if found.unproved else "")
    if found.head is not None:
        yield "head", found.head


def _problem_rows(problems: Sequence[Problem]) -> Iterator[tuple[str, str]]:
    """Yield what was changed; what is said of many records in the same words is said once."""
    places: dict[str, list[str]] = {}
    for each in problems:
        places.setdefault(each.what, []).append(each.where)
    for what, found in places.items():
        named = [place for place in found[:_NAMED] if place]
        if len(found) > _NAMED:
            named.append(f"{len(found) - _NAMED:,} more")
        yield "changed", visible_line(f"{'; '.join(named)}: {what}" if named else what)


def _document(entry: AuditEntry) -> dict[str, Any]:
    return {
        **asdict(Question.of(entry.interrupt)),
        "how": entry.outcome,
        "answer": plain(entry.answer),
        "message": entry.message,
        "by": entry.by,
        "at": None if entry.at is None else entry.at.isoformat(),
        "inherited": entry.inherited,
        "again": entry.again,
        "branch": entry.branch,
    }


def _card(entry: AuditEntry) -> Card:
    sign, colour, ending = _SIGNS[entry.outcome]
    return Card(sign, colour, f"{place_of(entry.interrupt)} {ending}", tuple(_rows(entry)))


def _rows(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    asked, answer = entry.interrupt, plain(entry.answer)
    if asked.prompt is not None:
        yield "asked", asked.prompt
    yield from ((label, text) for label, text in question_rows(asked) if label not in ("asks", "reach"))
    if asked.created is not None:
        yield "since", clock(asked.created)
    if entry.outcome == "answered" or answer is not None:
        yield "answer", decided(asked, answer) or described(answer)
    if entry.message is not None:
        yield "said", entry.message
    if entry.outcome == "answered":
        yield "by", visible_line(entry.by or "(nobody was named)")
    if entry.at is not None:
        yield "at", clock(entry.at) + (", before this branch began" if entry.inherited else "")
    if entry.again:
        yield "again", "it had acted before this branch began, and was let count once more"
    yield "id", visible_line(asked.id)
