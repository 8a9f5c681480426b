"""`adjourn prune`: removes what is old."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any  # of JSON documents

from adjourn._text import counted, visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, with_sessions
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.tables import duration
from adjourn.errors import UsageError
from adjourn.sessions._retention import ENDED


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to remove."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="the session whose old checkpoints are removed")
    parser.add_argument("--all", action="store_true", help="remove old checkpoints of all sessions")
    parser.add_argument("--keep", metavar="N", type=int, help="keep the last N checkpoints of each session")
    parser.add_argument("--older-than", metavar="TIME", help="keep what is newer than this, such as 12h, 30d or 2w")
    parser.add_argument(
        "--sessions",
        action="store_true",
        help="remove whole sessions that have ended and were last written longer ago than --older-than",
    )
    parser.add_argument(
        "--status",
        metavar="STATUS",
        action="append",
        help=f"with --sessions: remove those with this status, such as waiting; again for more ({', '.join(ENDED)})",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --sessions: say what would be removed, and remove nothing"
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
        done, counts = ("Would remove", _by_status(removed)) if options.dry_run else ("Removed", "")
        print(f"{done} {counted(len(removed['sessions']), 'session')}{counts}.")
    else:
        whose = "all sessions" if options.all else f"session '{visible_line(options.session)}'"
        print(f"Removed {counted(removed['records'], 'record')} of {whose}.")
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.sessions and (options.session or options.all or options.keep is not None or not options.older_than):
        raise UsageError("prune --sessions takes --older-than TIME, and neither a SESSION nor --all or --keep.")
    if options.status and not options.sessions:
        raise UsageError("--status belongs to --sessions.")
    if options.dry_run and not options.sessions:
        raise UsageError("--dry-run belongs to --sessions.")
    if not options.sessions and (options.session is None) != options.all:
        raise UsageError(
            "Which session? Give SESSION, or --all for all of them, or --sessions --older-than TIME to remove whole "
            "sessions."
        )
    if not options.sessions and options.keep is None and not options.older_than:
        raise UsageError("What should be removed? Give --keep N, --older-than TIME, or both.")
    if options.keep is not None and options.keep < 0:
        raise UsageError(f"--keep {options.keep}: give 0 or more.")


def _prune(options: argparse.Namespace) -> dict[str, Any]:
    age = duration(options.older_than).total_seconds() if options.older_than else None
    if options.sessions:
        statuses = options.status or ENDED
        if options.dry_run:
            old = with_sessions(options, lambda sessions: sessions.old_sessions(age or 0.0, statuses=statuses))
            counts = Counter(each.status for each in old)
            return {"dry_run": True, "sessions": [each.session_id for each in old], "statuses": dict(counts)}
        removed = with_sessions(options, lambda sessions: sessions.clean_up(age or 0.0, statuses=statuses))
        return {"sessions": removed}
    if options.all:
        count = with_sessions(options, lambda sessions: sessions.prune_all(keep=options.keep, older_than=age))
        return {"records": count}
    records = with_sessions(
        options, lambda sessions: sessions.prune(options.session, keep=options.keep, older_than=age)
    )
    return {"session_id": options.session, "records": records}


def _by_status(found: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(found["statuses"].items()))
    return f" ({counts})" if counts else ""
