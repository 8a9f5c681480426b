"""`adjourn pending`: the questions that are waiting for somebody."""

from __future__ import annotations

import argparse
import sys

from adjourn.cli._stores import add_store_option, add_whose_options, command, with_sessions
from adjourn.cli.output.documents import add_json_option, print_json, questions
from adjourn.cli.output.questions import print_question
from adjourn.events import Interrupt
from adjourn.sessions import Sessions

from .sessions import count


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the filters."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="only this session's")
    add_whose_options(parser)
    parser.add_argument("--limit", type=count, help="at most this many, oldest first")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the questions."""
    found = with_sessions(options, lambda sessions: _read(sessions, options))
    if options.json:
        print_json(questions(found))
        return 0
    if not found:
        print("Nothing waits for an answer.")
        return 0
    for asked in found:
        print_question(asked)
    print(f"\nAnswer with: {command(options, 'answer', 'SESSION', '--question', 'TOKEN', 'ANSWER')}", file=sys.stderr)
    return 0


async def _read(sessions: Sessions, options: argparse.Namespace) -> list[Interrupt]:
    if options.session is not None:
        await sessions.status(options.session)  # Raises if there is no such session.
    return await sessions.pending(options.session, limit=options.limit)
