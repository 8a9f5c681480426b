"""What every access to sessions is set up with: the store, the app, the clock, and where ids come from."""

from __future__ import annotations

import copy
import hashlib
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from adjourn._values.frozen import check_text
from adjourn.errors import UsageError
from adjourn.stores import MemoryStore, SessionRef, Store, open_store

from ._permission import MayAnswer, Permission

Clock = Callable[[], float]
NewId = Callable[[], str]
AuditKey = str | bytes | Sequence[str | bytes]


class Settings:
    """The store, the app, the clock, the ids, and who may answer; a store's file is opened when first needed.

    `app_name` is None for all apps. `user_id` is the one user that all calls are for, if they are bound to one.
    """

    user_id: str | None = None

    def __init__(
        self,
        store: Store | str | None,
        app_name: str | None,
        clock: Clock | None,
        new_id: NewId | None,
        *,
        require_token: bool = False,
        require_by: bool = False,
        may_answer: MayAnswer | None = None,
        self_approval: bool = True,
        audit_key: AuditKey | None = None,
    ) -> None:
        if app_name is not None:
            check_name("app_name", app_name)
        self.app_name = app_name
        self.clock: Clock = _function("clock", clock) or time.time
        self.new_id: NewId = _function("new_id", new_id) or random_id
        self.store: Store = _store(store, self.clock)
        self.require_token: bool = choice("require_token", require_token)
        self.audit_keys: tuple[bytes, ...] = _keys(audit_key)
        self.permission: Permission = Permission(
            choice("require_by", require_by),
            _function("may_answer", may_answer),
            self_approval=choice("self_approval", self_approval),
        )

    def for_user(self, user_id: str) -> Self:
        """Return the same settings, bound to one user."""
        check_name("user_id", user_id)
        bound = copy.copy(self)
        bound.user_id = self.user(user_id)
        return bound

    def user(self, given: str | None) -> str | None:
        """Return the user that a call is for: the one that was given, else the one that all calls are bound to.

        Raises:
            UsageError: these differ, or what was given is not a name.
        """
        if given is None:
            return self.user_id
        check_name("user_id", given)
        if self.user_id not in (None, given):
            raise UsageError(
                f"user_id={given!r}: this is bound to the user {self.user_id!r} by `for_user`. "
                "Leave user_id out, or call what it was made from."
            )
        return given

    def ref(self, session_id: str, user_id: str | None = None) -> SessionRef:
        """Return the key of a session of the one app; with a user, it finds only that user's session."""
        assert self.app_name is not None
        return SessionRef(session_id, self.app_name, self.user_id if user_id is None else self.user(user_id))

    def new_branch(self) -> str:
        """Return the name of a new branch: short, and made of letters and digits whatever the ids look like."""
        if self.new_id is random_id:
            return f"{_branches.getrandbits(32):08x}"
        return hashlib.blake2b(self.new_id().encode(errors="replace"), digest_size=4).hexdigest()


# Names of branches need not be hard to guess; they must differ between processes, even after `random.seed`.
_branches = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_branches.seed)


def _store(given: Store | str | None, clock: Clock) -> Store:
    """Return the store that was given. A wrong URL is refused here, where it was passed; no file is opened yet."""
    if given is None:
        return MemoryStore(clock=clock)
    if isinstance(given, str):
        return open_store(given)
    if not hasattr(given, "renew"):
        raise UsageError(
            f"store={given!r}: give a store, such as SQLiteStore(path), or a URL, such as 'sqlite:///file.db'."
        )
    return given


def check_name(what: str, text: object) -> None:
    """Refuse a name that is not valid text: it could be stored, but not read back.

    Raises:
        UsageError: naming `what`; also for the id of a session, an input or an answer that is empty, "." or "..".
    """
    if type(text) is not str or not text.isascii():
        try:
            check_text(text, what)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from error
    if what in ("session_id", "id") and not text:
        raise UsageError(f"{what} is empty. Give a name, or None for a new one.")
    if what in ("session_id", "id") and text in (".", ".."):
        # Clients and proxies take them for folders in a path, and leave them out: other routes would be meant.
        raise UsageError(f"{what}={text!r} would vanish from URLs. Choose another name.")


def random_id() -> str:
    """Return a random id."""
    return os.urandom(16).hex()


def choice(name: str, value: object) -> bool:
    """Return an option that must be True or False.

    Raises:
        UsageError: it is neither.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r}: give True or False.")
    return value


_SHORTEST_KEY = 16


def _keys(given: AuditKey | None) -> tuple[bytes, ...]:
    """Return the keys of the audit: the first one signs, and all of them verify.

    Raises:
        UsageError: one is not a key, or can be guessed.
    """
    if given is None:
        return ()
    listed: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    keys = [each for each in map(_as_bytes, listed) if len(each) >= _SHORTEST_KEY]
    if not keys or len(keys) < len(listed):
        raise UsageError(
            f"audit_key: give a secret of at least {_SHORTEST_KEY} bytes, such as os.urandom(32), or several: the "
            "first one signs, and all of them verify."
        )
    return tuple(keys)


def _as_bytes(key: object) -> bytes:
    return key.encode() if isinstance(key, str) else key if isinstance(key, bytes) else b""


F = TypeVar("F", bound=Callable[..., Any])


def _function(name: str, value: F | None) -> F | None:
    if value is not None and not callable(value):
        raise UsageError(f"{name}={value!r}: give a function, or None.")
    return value
