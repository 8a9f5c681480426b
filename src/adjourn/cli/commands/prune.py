"""`adjourn prune`: removes what is old."""

from __future__ import annotations

import argparse
import time
from typing import Any  # of JSON documents

from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, check_session, ref_of, with_store
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.times import duration
from adjourn.errors import UsageError
from adjourn.stores import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Take what may go."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="the session whose old checkpoints go")
    parser.add_argument("--keep", metavar="N", type=int, help="keep the last N checkpoints of the session")
    parser.add_argument("--older-than", metavar="TIME", help="keep what is younger, such as 12h, 30d or 2w")
    parser.add_argument(
        "--sessions",
        action="store_true",
        help="remove whole sessions that nobody runs and that were last written longer ago than --older-than",
    )
    parser.add_argument(
        "--app", metavar="NAME", help="the app that the session belongs to (adjourn), or sessions of which go (all)"
    )
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Remove it, and say how much went."""
    _check(options)
    removed = with_store(options, lambda store: _prune(store, options))
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
        raise UsageError("Which session? Give SESSION, or --sessions --older-than TIME to remove old ones whole.")
    if not options.sessions and options.keep is None and not options.older_than:
        raise UsageError("What may go? Give --keep N, --older-than TIME, or both.")
    if options.keep is not None and options.keep < 0:
        raise UsageError(f"--keep {options.keep}: give 0 or more.")


async def _prune(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    age = duration(options.older_than).total_seconds() if options.older_than else None
    if options.sessions:
        return {"sessions": [gone.id for gone in await store.delete_idle(age or 0.0, app=options.app)]}
    await check_session(store, ref_of(options))
    before = None if age is None else time.time() - age
    return {
        "session_id": options.session,
        "records": await store.prune(ref_of(options), keep=options.keep, before=before),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
