"""`adjourn delete`: removes a session whole."""

from __future__ import annotations

import argparse

from adjourn._owner import is_dead, process_id
from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, check_session, with_store
from adjourn.cli.ask.terminal import is_terminal, typed
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError
from adjourn.stores import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Take the session."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--yes", action="store_true", help="do not ask whether it is meant")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Remove it, once that is confirmed."""
    with_store(options, lambda store: check_session(store, options.session))
    if not options.yes and not _confirmed(options):
        print("Nothing is removed.")
        return 1
    with_store(options, lambda store: _delete(store, options.session))
    if options.json:
        print_json({"session_id": options.session, "deleted": True})
    else:
        print(f"Session '{visible_line(options.session)}' is removed.")
    return 0


async def _delete(store: Store, session_id: str) -> None:
    head = await store.head(session_id)
    if head is not None and head.owner is not None and is_dead(head.owner):
        # Nobody runs it any more: its lease is taken over, and is over at once.
        await store.claim(session_id, process_id(), 0.0, after=head.checkpoint, over=head.owner)
    await store.delete(session_id)


def _confirmed(options: argparse.Namespace) -> bool:
    if options.json or not is_terminal():
        raise UsageError("Deleting cannot be undone. Say --yes.")
    question = f"Remove session '{visible_line(options.session)}' with all its checkpoints and answers? [y/n] "
    try:
        return typed(question).lower() in ("y", "yes")
    except EOFError:
        return False
