"""`adjourn sessions`: the sessions in a store."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, command, with_store
from adjourn.cli.output.documents import add_json_option, print_json, session
from adjourn.cli.output.tables import ago, at, print_table
from adjourn.sessions._status import status_of
from adjourn.stores import Store
from adjourn.stores.protocol import Head

STATUSES = ("running", "waiting", "failed", "cancelled", "done")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the filters."""
    parser.add_argument("--status", choices=STATUSES)
    add_whose_options(parser)
    parser.add_argument("--limit", type=count, default=50, help="at most this many, most recent first (50)")
    add_store_option(parser)
    add_json_option(parser)


def count(text: str) -> int:
    """Parse a count; argparse reports what is wrong with it."""
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(options: argparse.Namespace) -> int:
    """List the sessions."""
    heads, open_ = with_store(options, lambda store: _read(store, options))
    if options.json:
        print_json([session(head, open_[head.app, head.session]) for head in heads])
        return 0
    if not heads:
        print(f"No sessions with {' and '.join(_filters(options))}." if _filters(options) else "No sessions.")
        if options.app is not None:
            print("With --all-apps, those of other apps are listed, too.", file=sys.stderr)
        return 0
    _print(heads, open_, with_app=options.app is None)
    if any(open_[head.app, head.session] for head in heads):
        print(f"\nSee the questions with: {command(options, 'pending')}", file=sys.stderr)
    return 0


async def _read(store: Store, options: argparse.Namespace) -> tuple[list[Head], Counter[tuple[str, str]]]:
    heads = await store.sessions(app=options.app, user=options.user)
    if options.status:
        # A session stored as running has failed if its process died, so this is decided here.
        heads = [head for head in heads if status_of(head) == options.status]
    asked = await store.questions(app=options.app, user=options.user)
    return heads[: options.limit], Counter((row.app, row.session) for row in asked)


def _filters(options: argparse.Namespace) -> list[str]:
    given = {name: getattr(options, name) for name in ("status", "user", "app")}
    return [f"{name} {visible_line(value)}" for name, value in given.items() if value]


def _print(heads: list[Head], open_: Counter[tuple[str, str]], *, with_app: bool) -> None:
    titles = ("SESSION", "STATUS", "QUESTIONS", "LAST WRITTEN", "USER")
    rows = [_row(head, open_) for head in heads]
    if with_app:
        titles, rows = (*titles, "APP"), [(*row, head.app) for row, head in zip(rows, heads, strict=True)]
    print_table(titles, rows)


def _row(head: Head, open_: Counter[tuple[str, str]]) -> tuple[str, ...]:
    count = open_[head.app, head.session]
    status = status_of(head)
    if status == "waiting" and not count:
        status = "answered"  # No question is open; it waits to be resumed.
    return head.session, status, str(count or ""), ago(at(head.updated)), head.user or ""
