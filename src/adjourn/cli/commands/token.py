"""`adjourn token`: who may use a server."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any

from adjourn._text import visible_line
from adjourn.cli.commands.serve import TOKENS, add_tokens_option, tokens_path
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.cli.output.tables import duration, print_table
from adjourn.errors import UsageError

ROLES = ("use", "review", "metrics", "admin")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to do, for whom, and what they may do."""
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument(
        "whose", metavar="NAME or ID", nargs="?", help="who gets a token; or the id of the one to revoke"
    )
    add_tokens_option(parser)
    parser.add_argument(
        "--role",
        action="append",
        choices=ROLES,
        help="use: begin sessions and answer one's own (the default); review: see and answer everybody's; "
        "metrics: read GET /metrics; admin: everything. May be repeated",
    )
    parser.add_argument(
        "--agent", metavar="PATTERN", action="append", help="agents they may use, such as 'refund-*'. May be repeated"
    )
    parser.add_argument("--expires", metavar="TIME", type=duration, help="for how long it is good, such as 90d")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Create, list or revoke, and return 0; 1 if there is no such token."""
    path = tokens_path(options)
    if path is None:
        raise UsageError(f"Name the file of tokens with --tokens FILE, or ${TOKENS}.")
    if (options.whose is None) is not (options.action == "list"):
        wanted = {"create": "NAME", "list": "", "revoke": "ID"}[options.action]
        raise UsageError(f"Write: adjourn token {options.action} {wanted}".rstrip())
    if options.action != "create" and (options.role or options.agent or options.expires):
        raise UsageError("--role, --agent and --expires are for `adjourn token create`.")
    try:
        # Only those who serve need the extra.
        from adjourn.server import Tokens  # noqa: PLC0415
    except ImportError as missing:
        raise UsageError('`adjourn token` needs the extra of the server: pip install "adjourn[server]".') from missing
    return _ACTIONS[options.action](Tokens(path), options)


def _create(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    if not options.whose.strip():
        raise UsageError("A token is for somebody: give a name.")
    lifetime = None if options.expires is None else options.expires.total_seconds()
    token, text = tokens.create(
        options.whose, roles=options.role or ["use"], agents=options.agent or ["*"], lifetime=lifetime
    )
    if options.json:
        print_json({**_document(token), "token": text})
        return 0
    print(text)
    print(f"Keep it now: it is not shown again. `adjourn token revoke {token.id}` takes it back.", file=sys.stderr)
    return 0


def _list(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    found = [_document(each) for each in tokens.all()]
    if options.json:
        print_json(found)
        return 0
    rows = [
        [
            each["id"],
            visible_line(each["name"]),
            " ".join(each["roles"]),
            visible_line(" ".join(each["agents"])),
            each["expires"] or "never",
        ]
        for each in found
    ]
    print_table(["token", "name", "roles", "agents", "expires"], rows)
    return 0


def _revoke(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    was_there = tokens.revoke(options.whose)
    if options.json:
        print_json({"id": options.whose, "revoked": was_there})
    else:
        print("Revoked." if was_there else "There is no such token. `adjourn token list` lists them.")
    return 0 if was_there else 1


_ACTIONS = {"create": _create, "list": _list, "revoke": _revoke}


def _document(token: Any) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "roles": sorted(token.roles, key=ROLES.index),
        "agents": list(token.agents),
        "created": _moment(token.created),
        "expires": None if token.expires is None else _moment(token.expires),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
