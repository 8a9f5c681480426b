"""`adjourn pending`: the questions that are waiting for somebody."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from adjourn._documents import questions
from adjourn.cli._server import add_server_options, with_inbox
from adjourn.cli._stores import add_store_option, add_whose_options, command
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.questions import print_each, print_questions
from adjourn.cli.output.tables import duration
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.sessions import Page, Sessions
from adjourn.sessions._inbox import TEXTS, TIMES

from .sessions import count

if TYPE_CHECKING:
    from adjourn.client import Client


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the filters."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="only this session's")
    add_whose_options(parser)
    parser.add_argument("--agent", metavar="NAME", help="only what this agent asks")
    parser.add_argument("--under", metavar="ADDRESS", help="only what is asked at this address or below it")
    parser.add_argument("--reason", help="only those with this reason, such as need_approval")
    parser.add_argument("--tag", help="only those with this tag")
    parser.add_argument("--requested-by", metavar="USER", help="only those that this user's turns ask")
    parser.add_argument("--older-than", metavar="TIME", help="only those that have been open for longer, such as 2h")
    parser.add_argument("--expires-within", metavar="TIME", help="only those that expire within this time, such as 1d")
    parser.add_argument("--limit", type=count, help="at most this many, oldest first")
    parser.add_argument("--after", metavar="CURSOR", help="go on where a page ended")
    parser.add_argument("--count", action="store_true", help="print only how many there are")
    add_store_option(parser)
    add_server_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the questions, or count them."""
    if options.count:
        if options.limit is not None or options.after is not None:
            raise UsageError("--count counts all of them: leave out --limit and --after.")
        number = with_inbox(options, lambda sessions: _count(sessions, options))
        if options.json:
            print_json({"count": number})
        else:
            print(number)
        return 0
    found, total = with_inbox(options, lambda sessions: _read(sessions, options))
    if options.json:
        print_json(questions(found))
    elif not found:
        print("Nothing waits for an answer." if not _filters(options) else "Nothing like that waits for an answer.")
    elif options.session is not None:
        print_each(found)
        answer = command(options, "answer", options.session, "--question", "TOKEN", "ANSWER")
        print(f"\nAnswer with: {answer}", file=sys.stderr)
    else:
        print_questions(found)
        print(f"\nRead one in full, and see how to answer it: {_one(options, found)}", file=sys.stderr)
    if found.next is not None:
        more = _next_page(options, found.next)
        print(f"{len(found)} of {total} questions. There are more: {more}", file=sys.stderr)
    return 0


def _one(options: argparse.Namespace, found: Page[Interrupt]) -> str:
    """Return the command that shows the questions of a session."""
    sessions = {asked.session_id for asked in found}
    return command(options, "pending", sessions.pop() if len(sessions) == 1 else "SESSION")


def _filters(options: argparse.Namespace) -> dict[str, str]:
    """Return the filters that were given, by their names."""
    return {name: value for name in (*TEXTS, *TIMES) if (value := getattr(options, name)) is not None}


def _next_page(options: argparse.Namespace, cursor: str) -> str:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in _filters(options).items()]
    session = [] if options.session is None else [options.session]
    json = ["--json"] if options.json else []
    return command(options, "pending", *session, *words, "--limit", str(options.limit), "--after", cursor, *json)


async def _read(sessions: Sessions | Client, options: argparse.Namespace) -> tuple[Page[Interrupt], int]:
    """Return the questions, and how many there are in all, other pages included."""
    await _check(sessions, options)
    found = await sessions.pending(options.session, **_wanted(options), after=options.after, limit=options.limit)
    if not found:
        await _check_readable(sessions, options)
    if found.next is None:
        return found, len(found)
    return found, await sessions.count_pending(options.session, **_wanted(options))


async def _count(sessions: Sessions | Client, options: argparse.Namespace) -> int:
    await _check(sessions, options)
    number = await sessions.count_pending(options.session, **_wanted(options))
    if not number:
        await _check_readable(sessions, options)
    return number


async def _check_readable(sessions: Sessions | Client, options: argparse.Namespace) -> None:
    """Raise if nothing was found because the store is encrypted: no filter finds anything without its keys."""
    if _filters(options):
        await sessions.pending(options.session, limit=1)


def _wanted(options: argparse.Namespace) -> dict[str, Any]:  # Any: texts and lengths of time
    return {name: duration(text) if name in TIMES else text for name, text in _filters(options).items()}


async def _check(sessions: Sessions | Client, options: argparse.Namespace) -> None:
    if options.session is not None:
        await sessions.status(options.session)  # Raises if there is no such session.
