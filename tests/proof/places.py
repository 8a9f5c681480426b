"""Places: the folders in which sessions live that processes are killed in, frozen in and race for.

A place has a ledger, which is always a file, and a store: a file beside it, or a database on a server that the test
process has started. Whoever knows the folder can open the store.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from adjourn.stores import SQLiteStore, Store, open_store
from tests.effort import some

T = TypeVar("T")
Kind = Literal["sqlite", "postgres", "redis"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres", "redis")


def store_of(folder: Path, clock: Callable[[], float] = time.time) -> Store:
    """Open the store of a place; on a server, the clock is the server's."""
    url = folder / "url"
    return open_store(url.read_text()) if url.exists() else SQLiteStore(folder / "sessions.db", clock=clock)


def can_write(folder: Path) -> bool:
    """Return whether no process is in the middle of a write: a frozen one would keep the file locked for everybody.

    A server finishes what it was asked for, whatever happens to the client.
    """
    if (folder / "url").exists():
        return True
    with contextlib.closing(sqlite3.connect(folder / "sessions.db", timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def on_each_store(cases: Sequence[T], default: int) -> list[tuple[Kind, T]]:
    """Return all cases on SQLite, and on the servers all in a proof, else the first ones."""
    return [(kind, case) for kind in KINDS for case in (cases if kind == "sqlite" else some(cases, default))]
