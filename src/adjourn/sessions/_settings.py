"""What every access to sessions is set up with: the store, the app, the clock, and where ids come from."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from adjourn._values.frozen import check_text
from adjourn.errors import UsageError
from adjourn.stores import MemoryStore, SessionRef, Store, open_store

Clock = Callable[[], float]
NewId = Callable[[], str]


class Settings:
    """The store, the app, the clock, the ids, and how answers must be given; a store's file is opened when needed."""

    def __init__(
        self,
        store: Store | str | None,
        app_name: str,
        clock: Clock | None,
        new_id: NewId | None,
        *,
        require_token: bool = False,
    ) -> None:
        check_name("app_name", app_name)
        self.app_name = app_name
        self.clock = _function("clock", clock) or time.time
        self.new_id = _function("new_id", new_id) or random_id
        self.store = _store(store, self.clock)
        self.require_token = choice("require_token", require_token)

    def ref(self, session_id: str, user_id: str | None = None) -> SessionRef:
        """Return the key of a session of this app; with a user, only that user's session is found under it."""
        return SessionRef(app=self.app_name, id=session_id, user=user_id)

    def new_branch(self) -> str:
        """Return the name of a new branch: short, and of letters and digits whatever the ids are like."""
        if self.new_id is random_id:
            return f"{_branches.getrandbits(32):08x}"
        return hashlib.blake2b(self.new_id().encode(errors="replace"), digest_size=4).hexdigest()


# Names of branches need not be hard to guess; they must differ between processes, whatever they do with `random.seed`.
_branches = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_branches.seed)


def _store(given: Store | str | None, clock: Clock) -> Store:
    """Return the store that is meant. A wrong URL is refused here, where it is written; no file is opened yet."""
    if given is None:
        return MemoryStore(clock=clock)
    if isinstance(given, str):
        return open_store(given)
    if not hasattr(given, "claim"):
        raise UsageError(
            f"store={given!r}: give a store, such as SQLiteStore(path), or a URL, such as 'sqlite:///file.db'."
        )
    return given


def check_name(what: str, text: object) -> None:
    """Refuse a name that is not valid text: it could be stored, but not read again.

    Raises:
        UsageError: naming `what`; also for a session id that is empty.
    """
    if type(text) is not str or not text.isascii():
        try:
            check_text(text, what)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from error
    if what == "session_id" and not text:
        raise UsageError("session_id is empty. Give a name, or None for a new one.")


def random_id() -> str:
    """Return a random id."""
    return os.urandom(16).hex()


def choice(name: str, value: object) -> bool:
    """Return an option that is True or False.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r}: give True or False.")
    return value


F = TypeVar("F", bound=Callable[..., Any])


def _function(name: str, value: F | None) -> F | None:
    if value is not None and not callable(value):
        raise UsageError(f"{name}={value!r}: give a function, or None.")
    return value
