"""`adjourn token`, `webhook` and `keys`: the files and secrets of those who run servers and stores."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.stores import EncryptedStore, Store
from adjourn.webhooks import Webhooks, load_webhooks, new_secret

from ._options import JSON, STORE, arg, takes
from ._printing import at, clock, duration, print_json, print_table
from ._stores import with_store

TOKENS = "ADJOURN_TOKENS"
"""The environment variable that names the file of tokens."""


WEBHOOKS = "ADJOURN_WEBHOOKS"
"""The environment variable that names the file of webhooks."""

TOKENS_FILE = arg("--tokens", metavar="FILE", help=f"the file of who may make requests (${TOKENS})")
WEBHOOKS_FILE = (
    arg("--webhooks", metavar="FILE", help=f"a file of whom to tell of pauses and ends (${WEBHOOKS})"),
    arg("--public-url", metavar="URL", help="where clients reach the server, for the links in webhooks"),
)

ROLES = ("use", "review", "metrics", "admin")


@takes(
    arg("action", choices=("create", "list", "revoke"), help="what to do"),
    arg("whose", metavar="NAME or ID", nargs="?", help="who gets a token; or the id of the one to revoke"),
    TOKENS_FILE,
    arg(
        "--role",
        action="append",
        choices=ROLES,
        help="use: begin sessions and answer one's own (the default); review: see and answer everybody's; "
        "metrics: read GET /metrics; admin: everything. May be repeated",
    ),
    arg("--agent", metavar="PATTERN", action="append", help="agents they may use, such as 'refund-*'. May be repeated"),
    arg("--expires", metavar="TIME", type=duration, help="for how long it is good, such as 90d"),
    JSON,
)
def token(options: argparse.Namespace) -> int:
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


def _create_token(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    if not options.whose.strip():
        raise UsageError("A token is for somebody: give a name.")
    lifetime = None if options.expires is None else options.expires.total_seconds()
    token, text = tokens.create(
        options.whose, roles=options.role or ["use"], agents=options.agent or ["*"], lifetime=lifetime
    )
    if options.json:
        print_json({**_token_document(token), "token": text})
        return 0
    print(text)
    print(f"Keep it now: it is not shown again. `adjourn token revoke {token.id}` takes it back.", file=sys.stderr)
    return 0


def _list_tokens(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    found = tokens.all()
    if options.json:
        print_json([_token_document(each) for each in found])
        return 0
    rows = [
        [
            each.id,
            visible_line(each.name),
            " ".join(sorted(each.roles, key=ROLES.index)),
            visible_line(" ".join(each.agents)),
            "never" if each.expires is None else clock(at(each.expires)),
        ]
        for each in found
    ]
    print_table(["token", "name", "roles", "agents", "expires"], rows)
    return 0


def _revoke_token(tokens: Any, options: argparse.Namespace) -> int:  # Any: of the extra
    was_there = tokens.revoke(options.whose)
    if options.json:
        print_json({"id": options.whose, "revoked": was_there})
    else:
        print("Revoked." if was_there else "There is no such token. `adjourn token list` lists them.")
    return 0 if was_there else 1


_ACTIONS = {"create": _create_token, "list": _list_tokens, "revoke": _revoke_token}


def _token_document(token: Any) -> dict[str, Any]:
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


@takes(
    arg(
        "action",
        choices=("secret", "test"),
        help="secret: print a new one; test: send a message of the type 'test' to each webhook of the file",
    ),
    arg("--webhooks", metavar="FILE", help=f"the file of webhooks (${WEBHOOKS})"),
    JSON,
)
def webhook(options: argparse.Namespace) -> int:
    """Print a secret, or try the webhooks out; return 1 if one does not take the message."""
    if options.action == "secret":
        secret = new_secret()
        if options.json:
            print_json({"secret": secret})
        else:
            print(secret)
        return 0
    path = options.webhooks or os.environ.get(WEBHOOKS)
    if not path:
        raise UsageError(f"Name the file of webhooks with --webhooks FILE, or ${WEBHOOKS}.")
    found = asyncio.run(load_webhooks(path).test())
    if options.json:
        print_json([{"webhook": name, "sent": failure is None, "failure": failure} for name, failure in found.items()])
    else:
        for name, failure in found.items():
            print(f"{name}: {'sent' if failure is None else failure}")
    return 1 if any(found.values()) else 0


@takes(
    arg(
        "--new", action="store_true", help="print a new key with an id, as $ADJOURN_KEYS has them, and do nothing else"
    ),
    STORE,
    JSON,
)
def keys(options: argparse.Namespace) -> int:
    """List the keys, or make one; 1 if one is missing."""
    if options.new:
        print(f"{datetime.now(UTC).date().isoformat()}:{EncryptedStore.generate_key()}")
        return 0
    found = with_store(options, _read_keys)
    if options.json:
        print_json([{"id": name, "sessions": count, "state": state} for name, count, state in found])
    else:
        print_table(["key", "sessions", "state"], [[name, str(count), state] for name, count, state in found])
    return 1 if any(state == "missing" for _, _, state in found) else 0


async def _read_keys(store: Store) -> list[tuple[str, int, str]]:
    if not isinstance(store, EncryptedStore):
        raise UsageError("This store is not encrypted. The URL of an encrypted one begins with 'encrypted+'.")
    used, given = await store.keys_in_use(), store.key_ids
    return [(name, used.get(name, 0), _state(name, used, given)) for name in (*given, *sorted({*used} - {*given}))]


def _state(name: str, used: dict[str, int], given: tuple[str, ...]) -> str:
    if name == given[0]:
        return "encrypts"
    if name not in given:
        return "missing"
    return "needed" if name in used else "not needed any more"


def webhooks_of(options: argparse.Namespace) -> Webhooks | None:
    """Return the webhooks of the file that is named, if one is.

    Raises:
        UsageError: it cannot be used.
    """
    path = options.webhooks or os.environ.get(WEBHOOKS)
    if path:
        return load_webhooks(path, public_url=options.public_url)
    if options.public_url is not None:
        raise UsageError("--public-url is for the links in webhooks, and there are none. Give --webhooks FILE.")
    return None


def tokens_path(options: argparse.Namespace) -> str | None:
    """Return the file of tokens, if one is named."""
    return options.tokens or os.environ.get(TOKENS) or None
