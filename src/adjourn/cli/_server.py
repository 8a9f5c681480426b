"""A server in place of a store: `--server URL`, and how to reach it."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.printing import end_line
from adjourn.sessions import Sessions

from ._stores import APP, server_url, with_sessions
from .ask.asking import hint

if TYPE_CHECKING:
    from adjourn.client import Client, Reconnecting

T = TypeVar("T")

VARIABLE = "ADJOURN_TOKEN"


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options `--server` and `--token`."""
    parser.add_argument("--server", metavar="URL", help="ask this server, such as http://localhost:8000, and no store")
    parser.add_argument("--token", metavar="TOKEN", help=f"what lets you in there; by default ${VARIABLE}")


def client_of(options: argparse.Namespace) -> Client:
    """Return a client of the server that is named.

    Raises:
        UsageError: the address is not one, or options do not go together.
    """
    for name in ("store", "user", "deps"):
        if getattr(options, name, None) is not None:
            raise UsageError(f"--{name} does not go with --server: a server has its own, and knows who asks.")
    if getattr(options, "allow", None):
        raise UsageError("--allow is for files here, and does not go with --server.")
    if getattr(options, "app", APP) != APP:
        raise UsageError("--app and --all-apps go with a store, and not with --server.")
    try:
        from adjourn.client import Client  # noqa: PLC0415 - for an extra, which not everybody needs
    except ImportError as missing:
        raise UsageError('--server needs httpx2: pip install "adjourn[client]".') from missing
    token = options.token or os.environ.get(VARIABLE) or None
    return Client(options.server, token=token, on_reconnect=_say)


def _say(lost: Reconnecting) -> None:
    if lost.attempt == 1:
        end_line()
        hint(f"The connection was lost ({visible_line(lost.error)}); trying again.")


def with_inbox(options: argparse.Namespace, work: Callable[[Sessions | Client], Awaitable[T]]) -> T:
    """Run `work` with the server or the store that is named, then close it."""
    if server_url(options) is None:
        if getattr(options, "token", None) is not None:
            raise UsageError("--token goes with --server.")
        return with_sessions(options, work)
    return asyncio.run(_with_client(client_of(options), work))


async def _with_client(client: Client, work: Callable[[Sessions | Client], Awaitable[T]]) -> T:
    async with client:
        return await work(client)
