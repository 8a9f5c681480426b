"""`adjourn prune`: removes what is old."""

from __future__ import annotations

import argparse
from typing import Any  # of JSON documents

from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, with_sessions, with_store
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.tables import duration
from adjourn.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to remove."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="the session whose old checkpoints are removed")
    parser.add_argument("--keep", metavar="N", type=int, help="keep the last N checkpoints of the session")
    parser.add_argument("--older-than", metavar="TIME", help="keep what is newer than this, such as 12h, 30d or 2w")
    parser.add_argument(
        "--sessions",
        action="store_true",
        help="remove whole sessions that nobody runs and that were last written longer ago than --older-than",
    )
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Remove it and print how much was removed."""
    _check(options)
    removed = _prune(options)
    if options.json:
        print_json(removed)
    elif options.sessions:
        print(f"Removed {_count(len(removed['sessions']), 'session')}.")
    else:
        print(f"Removed {_count(removed['records'], 'record')} of session '{visible_line(options.session)}'.")
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.sessions and (options.session or options.keep is not None or not options.older_than):
        raise UsageError("prune --sessions takes --older-than TIME, and neither a SESSION nor --keep.")
    if not options.sessions and options.session is None:
        raise UsageError("Which session? Give SESSION, or --sessions --older-than TIME to remove old sessions.")
    if not options.sessions and options.keep is None and not options.older_than:
        raise UsageError("What should be removed? Give --keep N, --older-than TIME, or both.")
    if options.keep is not None and options.keep < 0:
        raise UsageError(f"--keep {options.keep}: give 0 or more.")


def _prune(options: argparse.Namespace) -> dict[str, Any]:
    age = duration(options.older_than).total_seconds() if options.older_than else None
    if options.sessions:
        removed = with_store(options, lambda store: store.delete_idle(age or 0.0, app=options.app, user=options.user))
        return {"sessions": [ref.id for ref in removed]}
    records = with_sessions(
        options, lambda sessions: sessions.prune(options.session, keep=options.keep, older_than=age)
    )
    return {"session_id": options.session, "records": records}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
