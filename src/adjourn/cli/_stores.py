"""The store and the sessions that a command works on."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from adjourn._text import visible_line
from adjourn.errors import CheckpointNotFound, UsageError
from adjourn.sessions import Sessions
from adjourn.stores import SessionRef, Store, open_store

T = TypeVar("T")

VARIABLE = "ADJOURN_STORE"


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--store`."""
    parser.add_argument("--store", metavar="URL", help=f"such as sqlite:///tickets.db; by default ${VARIABLE}")


def store_url(options: argparse.Namespace) -> str | None:
    """Return the store's URL, from the command line or the environment."""
    return options.store or os.environ.get(VARIABLE) or None


def add_app_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--app`."""
    parser.add_argument("--app", metavar="NAME", help="the app_name of the runner, if several apps share the store")


def with_store(options: argparse.Namespace, work: Callable[[Store], Awaitable[T]]) -> T:
    """Run `work` with the store, then close it."""
    return asyncio.run(_work(existing_store(options), work))


def with_sessions(options: argparse.Namespace, work: Callable[[Sessions], Awaitable[T]]) -> T:
    """Run `work` with the sessions of the named session's app, then close the store.

    Raises:
        CheckpointNotFound: there is no such session.
    """

    async def find_and_work(store: Store) -> T:
        return await work(Sessions(store, app_name=await _app_of(store, options)))

    return with_store(options, find_and_work)


async def _app_of(store: Store, options: argparse.Namespace) -> str:
    """Return the app of the session that is named: as given, or the only one that has such a session."""
    if options.app is not None:
        return options.app
    if await store.head(SessionRef(options.session)) is not None:
        return SessionRef(options.session).app
    apps = sorted({head.app for head in await store.sessions() if head.session == options.session})
    if not apps:
        raise CheckpointNotFound(options.session)
    if len(apps) > 1:
        raise UsageError(
            f"Several apps have a session '{options.session}'. Name one with --app NAME: {', '.join(apps)}."
        )
    return apps[0]


async def _work(store: Store, work: Callable[[Store], Awaitable[T]]) -> T:
    try:
        return await work(store)
    finally:
        await store.close()


def existing_store(options: argparse.Namespace) -> Store:
    """Open the store of a command that reads from it.

    Raises:
        UsageError: no store was named, or its file does not exist.
    """
    url = store_url(options)
    if url is None:
        raise UsageError(f"Which store? Give --store URL, such as --store sqlite:///tickets.db, or set ${VARIABLE}.")
    store = open_store(url)
    path = getattr(store, "path", None)
    # Opening a file creates it, and an empty store in place of a mistyped one would look like lost sessions.
    if isinstance(path, Path) and not path.exists():
        raise UsageError(f"There is no file {path}, so there are no sessions. Check --store {url!r} and the folder.")
    return store


def command(options: argparse.Namespace, *words: str) -> str:
    """Return a command to paste into a shell, with the same store and app options."""
    named = ["--store", options.store] if getattr(options, "store", None) else []
    named += ["--app", options.app] if getattr(options, "app", None) else []
    return visible_line(shlex.join(["adjourn", *words, *named]))
