"""`adjourn pending`: the questions that are waiting for somebody."""

from __future__ import annotations

import argparse
import sys

from adjourn.cli._stores import add_store_option, command, with_sessions, with_store
from adjourn.cli.output.documents import add_json_option, print_json, questions
from adjourn.cli.output.questions import print_question
from adjourn.events import Interrupt
from adjourn.sessions import Sessions
from adjourn.sessions._questions import shown
from adjourn.stores import Store

from .sessions import add_filters, count


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the filters."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="only this session's")
    add_filters(parser)
    parser.add_argument("--limit", type=count, help="at most this many, oldest first")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the questions."""
    if options.session is not None:
        found = with_sessions(options, lambda sessions: _of_one(sessions, options))
    else:
        found = with_store(options, lambda store: _of_all(store, options))
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


async def _of_one(sessions: Sessions, options: argparse.Namespace) -> list[Interrupt]:
    await sessions.status(options.session, user_id=options.user)
    return await sessions.pending(options.session, limit=options.limit)


async def _of_all(store: Store, options: argparse.Namespace) -> list[Interrupt]:
    return [shown(row) for row in await store.questions(app=options.app, user=options.user, limit=options.limit)]
