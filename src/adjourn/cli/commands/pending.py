"""`adjourn pending`: the questions that wait for somebody."""

from __future__ import annotations

import argparse
import sys

from adjourn.cli._stores import add_store_option, check_session, command, ref_of, with_store
from adjourn.cli.output.documents import add_json_option, print_json, questions
from adjourn.cli.output.questions import open_questions, print_question
from adjourn.events import Interrupt
from adjourn.stores import Store

from .sessions import add_filters, count


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the session, or filters."""
    parser.add_argument("session", metavar="SESSION", nargs="?", help="only this session's")
    add_filters(parser)
    parser.add_argument("--limit", type=count, help="at most so many, the oldest first")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the questions."""
    found = with_store(options, lambda store: _read(store, options))
    if options.json:
        print_json(questions(found))
        return 0
    if not found:
        print("Nothing waits for an answer.")
        return 0
    for asked in found:
        print_question(asked)
    several = len({asked.session_id for asked in found}) < len(found)
    naming = ("--question", "ID") if several else ()
    print(f"\nAnswer with: {command(options, 'answer', 'SESSION', *naming, 'ANSWER')}", file=sys.stderr)
    return 0


async def _read(store: Store, options: argparse.Namespace) -> list[Interrupt]:
    if options.session is not None:
        await check_session(store, ref_of(options))
    ref = None if options.session is None else ref_of(options)
    return await open_questions(store, ref, app=options.app, user=options.user, limit=options.limit)
