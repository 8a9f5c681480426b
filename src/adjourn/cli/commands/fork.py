"""`adjourn fork`: a new session that begins as another one was at a checkpoint."""

from __future__ import annotations

import argparse

from adjourn._text import visible_line
from adjourn.cli._stores import add_store_option, add_whose_options, command, with_sessions
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError
from adjourn.sessions import Sessions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and the checkpoint."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--checkpoint", metavar="ID", help="where to start; see `adjourn tree` (default: the head)")
    parser.add_argument("--to", metavar="SESSION", help="the id of the new session (default: a random one)")
    parser.add_argument("--again", action="store_true", help="let approvals that have acted count once more")
    add_whose_options(parser)
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Fork the session and print how to continue."""
    if options.to == options.session:
        raise UsageError(f"--to {options.to}: the new session needs a different id.")
    new, status = with_sessions(options, lambda sessions: _fork(sessions, options))
    if options.json:
        print_json({"session_id": new, "forked_from": options.session})
        return 0
    print(f"Session '{visible_line(new)}' begins as '{visible_line(options.session)}' was.")
    words = ("chat", "MODULE:ATTRIBUTE", "--session", new) if status == "done" else ("resume", "MODULE:ATTRIBUTE", new)
    print(f"Go on with: {command(options, *words)}")
    return 0


async def _fork(sessions: Sessions, options: argparse.Namespace) -> tuple[str, str]:
    """Return the new session, and its status."""
    new = await sessions.fork(options.session, checkpoint_id=options.checkpoint, to=options.to, again=options.again)
    return new, (await sessions.status(new)).status
