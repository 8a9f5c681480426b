"""`adjourn cancel`, `fork`, `delete`, `prune` and `repair`: what is done to sessions without their programs."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from adjourn._text import counted, visible_line
from adjourn.errors import UsageError
from adjourn.sessions import SessionStatus
from adjourn.sessions._retention import ENDED
from adjourn.stores import Repairs, Store

from ._asking import is_terminal, typed
from ._errors import REFUSED
from ._options import JSON, SERVER, SESSION, STORE, WHOSE, arg, takes
from ._printing import duration, hint, print_json
from ._stores import AnySessions, AnyStatus, command, program_words, with_sessions, with_store, with_stored

if TYPE_CHECKING:
    pass


MODES = ("now", "after_model", "after_tools", "after_step")
_POLL = 0.1


@takes(
    SESSION,
    arg("--mode", choices=MODES, default="now", help="where it may stop (now)"),
    arg("--wait", metavar="SECONDS", type=float, default=60.0, help="how long to wait for it (60)"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def cancel(options: argparse.Namespace) -> int:
    """Ask the process that runs the session to stop, and wait until it has."""
    before, after = with_sessions(options, lambda sessions: _cancel(sessions, options))
    owner = _owner(before)
    is_stopped = owner is not None and _owner(after) is None
    name = visible_line(options.session)
    if options.json:
        print_json({"session_id": options.session, "status": after.status, "stopped": is_stopped})
    elif owner is None:
        print(f"Nobody runs session '{name}': it is {before.status}. There is nothing to stop.")
    elif is_stopped:
        print(f"Session '{name}' is {after.status}.")
    else:
        print(
            f"{visible_line(owner)} was asked to stop session '{name}' and has not stopped within {options.wait:g} s."
        )
    if not options.json and after.status in ("cancelled", "failed"):
        hint(f"Go on with: {command(options, 'recover', *program_words(options), options.session)}")
    return 0 if is_stopped else REFUSED


async def _cancel(sessions: AnySessions, options: argparse.Namespace) -> tuple[AnyStatus, AnyStatus]:
    """Return the status before and after."""
    before = after = await sessions.status(options.session)
    if (owner := _owner(before)) is not None:
        await sessions.cancel(options.session, options.mode)
        deadline = time.monotonic() + options.wait
        while _owner(after) == owner and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
            after = await sessions.status(options.session)
    return before, after


def _owner(status: AnyStatus) -> str | None:
    if isinstance(status, SessionStatus):
        return status.owner
    return "The server" if status.status == "running" else None


@takes(
    SESSION,
    arg("--checkpoint", metavar="ID", help="where to start; see `adjourn tree` (default: the head)"),
    arg("--to", metavar="SESSION", help="the id of the new session (default: a random one)"),
    arg("--again", action="store_true", help="let approvals that have acted count once more"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def fork(options: argparse.Namespace) -> int:
    """Fork the session and print how to continue."""
    if options.to == options.session:
        raise UsageError(f"--to {options.to}: the new session needs a different id.")
    new, status = with_sessions(options, lambda sessions: _fork(sessions, options))
    if options.json:
        print_json({"session_id": new, "forked_from": options.session})
        return 0
    print(f"Session '{visible_line(new)}' begins as '{visible_line(options.session)}' was.")
    program = program_words(options)
    words = ("chat", *program, "--session", new) if status == "done" else ("resume", *program, new)
    print(f"Go on with: {command(options, *words)}")
    return 0


async def _fork(sessions: AnySessions, options: argparse.Namespace) -> tuple[str, str]:
    """Return the new session, and its status."""
    new = await sessions.fork(options.session, checkpoint_id=options.checkpoint, to=options.to, again=options.again)
    return new, (await sessions.status(new)).status


@takes(
    SESSION,
    arg("--yes", action="store_true", help="do not ask for confirmation"),
    *WHOSE,
    STORE,
    *SERVER,
    JSON,
)
def delete(options: argparse.Namespace) -> int:
    """Remove the session, once confirmed."""
    with_sessions(options, lambda sessions: sessions.status(options.session))
    if not options.yes and not _confirmed(options):
        print("Nothing is removed.")
        return 1
    with_sessions(options, lambda sessions: sessions.delete(options.session))
    if options.json:
        print_json({"session_id": options.session, "deleted": True})
    else:
        print(f"Session '{visible_line(options.session)}' is removed.")
    return 0


def _confirmed(options: argparse.Namespace) -> bool:
    if options.json or not is_terminal():
        raise UsageError("Deleting cannot be undone. Confirm with --yes.")
    question = f"Remove session '{visible_line(options.session)}' with all its checkpoints and answers? [y/n] "
    try:
        return typed(question).lower() in ("y", "yes")
    except EOFError:
        return False


@takes(
    arg("session", metavar="SESSION", nargs="?", help="the session whose old checkpoints are removed"),
    arg("--all", action="store_true", help="remove old checkpoints of all sessions"),
    arg("--keep", metavar="N", type=int, help="keep the last N checkpoints of each session"),
    arg("--older-than", metavar="TIME", help="keep what is newer than this, such as 12h, 30d or 2w"),
    arg(
        "--sessions",
        action="store_true",
        help="remove whole sessions that have ended and were last written longer ago than --older-than",
    ),
    arg(
        "--status",
        metavar="STATUS",
        action="append",
        help=f"with --sessions: remove those with this status, such as waiting; again for more ({', '.join(ENDED)})",
    ),
    arg("--dry-run", action="store_true", help="with --sessions: say what would be removed, and remove nothing"),
    *WHOSE,
    STORE,
    JSON,
)
def prune(options: argparse.Namespace) -> int:
    """Remove it and print how much was removed."""
    _check_prune(options)
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


def _check_prune(options: argparse.Namespace) -> None:
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
            old = with_stored(options, lambda sessions: sessions.old_sessions(age or 0.0, statuses=statuses))
            counts = Counter(each.status for each in old)
            return {"dry_run": True, "sessions": [each.session_id for each in old], "statuses": dict(counts)}
        removed = with_stored(options, lambda sessions: sessions.clean_up(age or 0.0, statuses=statuses))
        return {"sessions": removed}
    if options.all:
        count = with_stored(options, lambda sessions: sessions.prune_all(keep=options.keep, older_than=age))
        return {"records": count}
    records = with_stored(options, lambda sessions: sessions.prune(options.session, keep=options.keep, older_than=age))
    return {"session_id": options.session, "records": records}


def _by_status(found: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(found["statuses"].items()))
    return f" ({counts})" if counts else ""


@takes(STORE, JSON)
def repair(options: argparse.Namespace) -> int:
    """Repair the store; others may use it meanwhile."""
    sessions = with_store(options, _repair)
    if options.json:
        print_json({"sessions": sessions})
    elif sessions is None:
        print(
            "There is nothing to repair: this store has no indexes apart from its sessions. "
            "`adjourn audit --verify --all` checks the sessions."
        )
    else:
        print(f"The indexes were made again from {counted(sessions, 'session')}.")
    return 0


async def _repair(store: Store) -> int | None:
    return await store.repair() if isinstance(store, Repairs) else None
