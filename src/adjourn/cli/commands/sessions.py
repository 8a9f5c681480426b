"""`adjourn sessions`: the sessions in a store."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import AsyncIterator

from adjourn._documents import session
from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, command, with_store
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.tables import ago, at, print_table
from adjourn.sessions._questions import questions_of
from adjourn.sessions._status import status_of
from adjourn.stores import Store
from adjourn.stores.kit import Audit, ListSessions
from adjourn.stores.types import Head, Status

Key = tuple[str, str]
"""The app and the id of a session."""

STATUSES = ("queued", "running", "waiting", "answered", "expired", "failed", "cancelled", "done")

# A session stored as running has failed if its process died; what waits may have been answered, or have expired.
_STORED: dict[str | None, tuple[Status, ...]] = {
    "failed": ("failed", "running"),
    "answered": ("waiting",),
    "expired": ("waiting",),
}
_PAGE = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the filters."""
    parser.add_argument("--status", choices=STATUSES)
    add_whose_options(parser)
    parser.add_argument("--limit", type=count, default=50, help="at most this many, most recent first (50)")
    add_store_option(parser)
    add_json_option(parser)


def count(text: str) -> int:
    """Parse how many to list; argparse reports what is wrong with it."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """List the sessions."""
    heads, open_, statuses = with_store(options, lambda store: _read(store, options))
    if options.json:
        print_json([session(head, open_[head.app, head.session]) for head in heads])
        return 0
    if not heads:
        print(f"No sessions with {' and '.join(_filters(options))}." if _filters(options) else "No sessions.")
        if options.app is not None:
            print("With --all-apps, those of other apps are listed, too.", file=sys.stderr)
        return 0
    _print(heads, open_, statuses, with_app=options.app is None)
    if any(open_[head.app, head.session] for head in heads):
        print(f"\nSee the questions with: {command(options, 'pending')}", file=sys.stderr)
    return 0


async def _read(store: Store, options: argparse.Namespace) -> tuple[list[Head], Counter[Key], dict[Key, str]]:
    """Return the sessions, how many questions each has open, and the status that each is shown with."""
    heads: list[Head] = []
    open_: Counter[Key] = Counter()
    statuses: dict[Key, str] = {}
    for stored in _STORED.get(options.status, (options.status,)):
        found: list[Head] = []
        async for head in _listed(store, options, stored):
            if len(found) == options.limit:
                break
            open_[_key(head)] = len(await questions_of(store, head))
            statuses[_key(head)] = shown = await _status(store, head, open_)
            if options.status in (None, status_of(head), shown):
                found.append(head)
        heads += found
    heads.sort(key=lambda head: head.updated, reverse=True)
    return heads[: options.limit], open_, statuses


async def _listed(store: Store, options: argparse.Namespace, stored: Status | None) -> AsyncIterator[Head]:
    """Yield sessions that are stored with a status, most recent first."""
    after = None
    while True:
        page = await store.read(
            ListSessions(app=options.app, user=options.user, status=stored, after=after, limit=_PAGE)
        )
        for head in page:
            yield head
        if len(page) < _PAGE:
            return
        after = page[-1].cursor


def _key(head: Head) -> Key:
    return head.app, head.session


async def _status(store: Store, head: Head, open_: Counter[Key]) -> str:
    status = status_of(head)
    if status != "waiting" or open_[_key(head)]:
        return status
    # Without an open question, it waits to be resumed; what nobody answered has expired.
    return "expired" if any(row.how is None for row in await store.read(Audit(head.ref))) else "answered"


def _filters(options: argparse.Namespace) -> list[str]:
    given = {name: getattr(options, name) for name in ("status", "user", "app")}
    return [f"{name} {visible_line(value)}" for name, value in given.items() if value]


def _print(heads: list[Head], open_: Counter[Key], statuses: dict[Key, str], *, with_app: bool) -> None:
    titles = ("SESSION", "STATUS", "QUESTIONS", "LAST WRITTEN", "USER")
    rows = [_row(head, open_, statuses) for head in heads]
    if with_app:
        titles, rows = (*titles, "APP"), [(*row, head.app) for row, head in zip(rows, heads, strict=True)]
    print_table(titles, rows)


def _row(head: Head, open_: Counter[Key], statuses: dict[Key, str]) -> tuple[str, ...]:
    count = open_[_key(head)]
    return head.session, statuses[_key(head)], str(count or ""), ago(at(head.updated)), head.user or ""
