"""The store that a command works on, or the server in its place."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.printing import end_line
from adjourn.sessions import Answers, AuditEntry, Page, Sessions, SessionStatus, SessionSummary, Tree
from adjourn.stores import EncryptedStore, SessionRef, Store, open_store
from adjourn.stores.kit import Cancel
from adjourn.stores.urls import shown_url, without_passwords

from ._options import APP, PROGRAM_NAME, STORE_VARIABLE, TOKEN_VARIABLE
from ._printing import hint

if TYPE_CHECKING:
    from adjourn.client import Client, Reconnecting, SessionInfo
    from adjourn.runner._following import CancelMode


T = TypeVar("T")
AnyStatus: TypeAlias = "SessionStatus | SessionInfo"


class AnySessions(Protocol):
    """The sessions of a store or of a server: what commands do with them, whichever it is."""

    async def status(self, session_id: str, /) -> AnyStatus: ...
    async def pending(
        self,
        session_id: str | None = None,
        /,
        *,
        after: str | None = None,
        limit: int | None = None,
        **filters: Any,
    ) -> Page[Interrupt]: ...
    async def count_pending(self, session_id: str | None = None, /, **filters: Any) -> int: ...
    async def answer(
        self,
        session_id: str,
        answers: Answers = None,
        /,
        *,
        by: str | None = None,
        message: str | None = None,
        checkpoint_id: str | None = None,
    ) -> SessionSummary | SessionInfo: ...
    async def cancel(self, session_id: str, mode: CancelMode = "now", /) -> bool: ...
    async def audit(self, session_id: str, /) -> list[AuditEntry]: ...
    async def tree(self, session_id: str, /) -> Tree: ...
    async def fork(
        self, session_id: str, /, *, checkpoint_id: str | None = None, to: str | None = None, again: bool = False
    ) -> str: ...
    async def delete(self, session_id: str, /) -> None: ...
    async def close(self) -> None: ...


class StoredSessions(Sessions):
    """The sessions of a store, with what else a server does."""

    async def cancel(self, session_id: str, mode: CancelMode = "now") -> bool:
        """Ask the process that runs a session to stop; return whether there is one."""
        found = await self.status(session_id)
        if found.owner is None:
            return False
        await self.store.write(Cancel(SessionRef(session_id, found.app_name, found.user_id), mode))
        return True


KEY_VARIABLE = "ADJOURN_AUDIT_KEY"
"""The secret that signs the log; several are separated by blanks, and the first one signs."""


def server_url(options: argparse.Namespace) -> str | None:
    """Return the address of the server that is asked in place of a store, if one is."""
    return getattr(options, "server", None)


def store_url(options: argparse.Namespace) -> str | None:
    """Return the store's URL, from the command line or the environment; None if a server is asked."""
    return None if server_url(options) else options.store or os.environ.get(STORE_VARIABLE) or None


def with_store(options: argparse.Namespace, work: Callable[[Store], Awaitable[T]]) -> T:
    """Run `work` with the store, then close it."""
    with _few_warnings():
        return asyncio.run(closing(existing_store(options), work))


@contextmanager
def _few_warnings() -> Generator[None]:
    """Show of each kind of warning the first, and how many more there were: a listing may have one for every row."""
    handler, log = _Warnings(logging.WARNING), logging.getLogger("adjourn.stores")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        for first, *others in handler.found.values():
            more = f" (and {len(others)} more)" if others else ""
            print(f"{without_passwords(visible_line(first))}{more}", file=sys.stderr)


class _Warnings(logging.Handler):
    """Keeps warnings, by what they are about."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.found: dict[object, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        about = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        self.found.setdefault(about, []).append(record.getMessage())


def with_stored(options: argparse.Namespace, work: Callable[[StoredSessions], Awaitable[T]]) -> T:
    """Run `work` with the sessions of the app and user that are named, then close the store."""

    async def do_work(store: Store) -> T:
        keys = os.environ.get(KEY_VARIABLE, "").split() or None
        sessions = StoredSessions(store, app_name=options.app, audit_key=keys)
        return await work(sessions if options.user is None else sessions.for_user(options.user))

    return with_store(options, do_work)


def with_sessions(options: argparse.Namespace, work: Callable[[AnySessions], Awaitable[T]]) -> T:
    """Run `work` with the sessions of the server or the store that is named, then close it."""
    if server_url(options) is None:
        check_token(options)
        return with_stored(options, work)
    return asyncio.run(closing(client_of(options), work))


class _Closed(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closed)


async def closing(opened: C, work: Callable[[C], Awaitable[T]]) -> T:
    """Work with a store, or with sessions, and close them."""
    try:
        return await work(opened)
    finally:
        await opened.close()


def check_token(options: argparse.Namespace) -> None:
    """Refuse a token where no server is named."""
    if getattr(options, "token", None) is not None:
        raise UsageError("--token goes with --server.")


def check_no_server(options: argparse.Namespace, *names: str) -> None:
    """Refuse options for which the API of a server has no route."""
    for name in names:
        if server_url(options) is not None and getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')}: the API of a server has no route for it. Use --store URL.")


def existing_store(options: argparse.Namespace) -> Store:
    """Open the store of a command that reads from it.

    Raises:
        UsageError: no store was named, or its file does not exist.
    """
    url = store_url(options)
    if url is None:
        raise UsageError(
            f"Which store? Give --store URL, such as --store sqlite:///tickets.db, or set ${STORE_VARIABLE}."
        )
    store = open_store(url)
    path = getattr(store.inner if isinstance(store, EncryptedStore) else store, "path", None)
    # Opening a file creates it, and an empty store in place of a mistyped one would look like lost sessions.
    if isinstance(path, Path) and not path.exists():
        raise UsageError(
            f"There is no file {path}, so there are no sessions. Check --store {shown_url(url)!r} and the folder."
        )
    return store


def _pasted(*words: str) -> str:
    """Return words as they are typed into a shell; those of Windows all know double quotes, and no others."""
    if sys.platform == "win32":
        return visible_line(" ".join(word if re.fullmatch(r"[\w.:=/-]+", word) else f'"{word}"' for word in words))
    return visible_line(shlex.join(words))


def command(options: argparse.Namespace, *words: str) -> str:
    """Return a command to paste into a shell, with the same server, or the same store, app and user.

    '…' stands for a password.
    """
    if (server := server_url(options)) is not None:
        return _pasted("adjourn", *words, "--server", server)
    named = ["--store", shown_url(options.store)] if getattr(options, "store", None) else []
    if words[0] not in _OF_PROGRAMS:
        named += _app_words(getattr(options, "app", APP))
    else:
        named += [word for package in getattr(options, "allow", ()) for word in ("--allow", package)]
    named += ["--user", options.user] if getattr(options, "user", None) is not None else []
    return _pasted("adjourn", *words, *named)


def program_words(options: argparse.Namespace) -> list[str]:
    """Return what stands for the program in a command that is printed: nothing where a server has it."""
    return [] if server_url(options) else [PROGRAM_NAME]


_OF_PROGRAMS = ("chat", "resume", "recover")
"""The commands that take the app from their program."""


def _app_words(app: str | None) -> list[str]:
    if app is None:
        return ["--all-apps"]
    return [] if app == APP else ["--app", app]


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
    token = options.token or os.environ.get(TOKEN_VARIABLE) or None
    return Client(options.server, token=token, on_reconnect=_say)


def _say(lost: Reconnecting) -> None:
    if lost.attempt == 1:
        end_line()
        hint(f"The connection was lost ({visible_line(lost.error)}); trying again.")
