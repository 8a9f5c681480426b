"""`adjourn delete`: removes a session completely."""

from __future__ import annotations

import argparse

from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, with_sessions
from adjourn.cli.ask.asking import is_terminal, typed
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the options."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
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
