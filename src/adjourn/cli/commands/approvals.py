"""`adjourn approvals`: lists what somebody has approved for always, and revokes it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from adjourn._documents import plain
from adjourn._screen import Card, Screen
from adjourn._text import visible_line
from adjourn.agents import Approvals, RememberedApproval
from adjourn.cli._failures import REFUSED
from adjourn.cli._stores import APP, add_store_option, command, with_store
from adjourn.cli.ask.asking import hint
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError
from adjourn.printing import described
from adjourn.stores import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the user and what to revoke."""
    parser.add_argument("user_id", metavar="USER", help="who approved: the user_id of the sessions")
    parser.add_argument("--app", metavar="NAME", default=APP, help=f"the app_name of the runner ({APP})")
    parser.add_argument("--tool", metavar="NAME", help="only approvals of this tool")
    parser.add_argument("--agent", metavar="NAME", help="only approvals of calls by this agent")
    parser.add_argument("--revoke", action="store_true", help="revoke them: the next call is asked about again")
    parser.add_argument("--all", action="store_true", help="with --revoke: all, of every tool and agent")
    add_store_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List or revoke them."""
    if not options.revoke:
        return _list(options)
    if not options.all and options.tool is None and options.agent is None:
        raise UsageError("--revoke: say which ones with --tool NAME or --agent NAME, or all of them with --all.")
    return _revoke(options)


def _list(options: argparse.Namespace) -> int:
    found = with_store(options, lambda store: _read(store, options))
    if options.json:
        print_json([plain(each) for each in found])
        return 0
    if not found:
        print(f"Nothing is approved for always by '{visible_line(options.user_id)}' in '{visible_line(options.app)}'.")
        return 0
    screen = Screen(sys.stdout)
    for each in found:
        screen.show(Card("✔", "green", f"{each.agent} may call {each.tool}", tuple(_rows(each))))
    hint(f"\nRevoke with: {command(options, 'approvals', options.user_id, '--revoke', '--tool', found[0].tool)}")
    return 0


async def _read(store: Store, options: argparse.Namespace) -> list[RememberedApproval]:
    found = await Approvals(store, app_name=options.app).list(options.user_id)
    return [each for each in found if options.tool in (None, each.tool) and options.agent in (None, each.agent)]


def _rows(approval: RememberedApproval) -> Iterator[tuple[str, Any]]:
    if approval.pattern is not None:
        yield "with", described(approval.pattern)
    yield "by", visible_line(approval.by or "(nobody was named)")


def _revoke(options: argparse.Namespace) -> int:
    count = with_store(
        options,
        lambda store: Approvals(store, app_name=options.app).revoke(options.user_id, options.tool, agent=options.agent),
    )
    if options.json:
        print_json({"user_id": options.user_id, "revoked": count})
    elif count:
        print(f"Revoked {count}. The next such call is asked about again.")
    else:
        print("Nothing like that is approved, so nothing was revoked.")
    return 0 if count else REFUSED
