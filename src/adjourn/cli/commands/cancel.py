"""`adjourn cancel`: stops a session that runs, wherever it does."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

from adjourn._text import visible_line
from adjourn.cli._failures import REFUSED
from adjourn.cli._server import add_server_options, with_inbox
from adjourn.cli._stores import add_store_option, add_whose_options, command, server_url
from adjourn.cli.ask.asking import hint
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.sessions import Sessions, SessionStatus
from adjourn.stores import SessionRef
from adjourn.stores.kit import Cancel

if TYPE_CHECKING:
    from adjourn.client import Client, SessionInfo

MODES = ("now", "after_model", "after_tools", "after_step")
_POLL = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session and when to stop."""
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--mode", choices=MODES, default="now", help="where it may stop (now)")
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=60.0, help="how long to wait for it (60)")
    add_whose_options(parser)
    add_store_option(parser)
    add_server_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Ask the process that runs the session to stop, and wait until it has."""
    before, after = with_inbox(options, lambda sessions: _cancel(sessions, options))
    was_running = _is_running(before)
    is_stopped = was_running and not _is_running(after)
    if options.json:
        print_json({"session_id": options.session, "status": after.status, "stopped": is_stopped})
        return 0 if is_stopped else REFUSED
    name = visible_line(options.session)
    if not was_running:
        print(f"Nobody runs session '{name}': it is {before.status}. There is nothing to stop.")
    elif not is_stopped:
        owner = visible_line(before.owner or "") if isinstance(before, SessionStatus) else "The server"
        print(f"{owner} was asked to stop session '{name}' and has not stopped within {options.wait:g} s.")
    else:
        print(f"Session '{name}' is {after.status}.")
    if after.status in ("cancelled", "failed"):
        program = [] if server_url(options) else ["MODULE:ATTRIBUTE"]
        hint(f"Go on with: {command(options, 'recover', *program, options.session)}")
    return 0 if is_stopped else REFUSED


def _is_running(status: SessionStatus | SessionInfo) -> bool:
    return status.owner is not None if isinstance(status, SessionStatus) else status.status == "running"


async def _cancel(
    sessions: Sessions | Client, options: argparse.Namespace
) -> tuple[SessionStatus | SessionInfo, SessionStatus | SessionInfo]:
    """Return the status before and after."""
    before = after = await sessions.status(options.session)
    if not _is_running(before):
        return before, after
    if isinstance(sessions, Sessions) and isinstance(before, SessionStatus):
        await sessions.store.write(Cancel(SessionRef(options.session, before.app_name, before.user_id), options.mode))
    elif not isinstance(sessions, Sessions):
        await sessions.cancel(options.session, options.mode)
    deadline = time.monotonic() + options.wait
    while _is_same_run(before, after) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL)
        after = await sessions.status(options.session)
    return before, after


def _is_same_run(before: SessionStatus | SessionInfo, after: SessionStatus | SessionInfo) -> bool:
    if isinstance(before, SessionStatus) and isinstance(after, SessionStatus):
        return before.owner == after.owner
    return _is_running(after)
