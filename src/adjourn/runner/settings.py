"""The options of a runner."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Literal, TypedDict

from adjourn.checkpoint import MemoryStore, Store, open_store
from adjourn.core.errors import UsageError
from adjourn.core.frozen import check_text

Durability = Literal["step", "pause", "async"]


class Options(TypedDict, total=False):
    """The options of a runner, as keyword arguments."""

    store: Store | str | None
    durability: Durability
    app_name: str
    interrupts: bool
    max_concurrency: int | None
    lease_ttl: float
    store_timeout: float
    buffer_size: int
    clock: Callable[[], float] | None
    new_id: Callable[[], str] | None


class Settings:
    """The options of a runner, checked; the store is opened when it is first needed."""

    def __init__(self, options: Options) -> None:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise UsageError(
                f"Unknown option {', '.join(sorted(unknown))}. There are: {', '.join(Options.__annotations__)}."
            )
        self._store = options.get("store")
        if not isinstance(self._store, str | None) and not hasattr(self._store, "claim"):
            raise UsageError(
                f"store={self._store!r}: give a store, such as SQLiteStore(path), or a URL, such as 'sqlite:///file.db'."
            )
        self.is_private = self._store is None
        self.durability: Durability = options.get("durability", "pause" if self.is_private else "step")
        if self.durability not in ("step", "pause", "async"):
            raise UsageError(f"durability={self.durability!r}: use 'step', 'pause' or 'async'.")
        self.app_name = options.get("app_name", "adjourn")
        check_name("app_name", self.app_name)
        self.interrupts = options.get("interrupts", True)
        self.max_concurrency = options.get("max_concurrency")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise UsageError(f"max_concurrency={self.max_concurrency}: give 1 or more, or None for no limit.")
        self.lease_ttl = _positive("lease_ttl", options.get("lease_ttl", 30.0))
        self.store_timeout = _positive("store_timeout", options.get("store_timeout", 30.0))
        self.buffer_size = int(_positive("buffer_size", options.get("buffer_size", 256)))
        self.clock = options.get("clock") or time.time
        self.new_id = options.get("new_id") or new_id

    def new_branch(self) -> str:
        """The name of a new branch: short, and of letters and digits whatever the ids are like."""
        return hashlib.blake2b(self.new_id().encode(errors="replace"), digest_size=4).hexdigest()

    @property
    def store(self) -> Store:
        """The store; without one given, a memory store of this runner's own."""
        if self._store is None:
            self._store = MemoryStore(clock=self.clock)
        elif isinstance(self._store, str):
            self._store = open_store(self._store)
        return self._store


def check_name(what: str, text: object) -> None:
    """Refuse what is no text: stored all the same, it could not be read again.

    Raises:
        UsageError: naming `what`, or it is the id of a session and empty.
    """
    try:
        check_text(text, what)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    if what == "session_id" and not text:
        raise UsageError("session_id is empty. Give a name, or None for a new one.")


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise UsageError(f"{name}={value}: give a number above zero.")
    return value


def new_id() -> str:
    """A random id."""
    return os.urandom(16).hex()
