"""The outbox of a SQLite file: notices that were written with records, until somebody has sent them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from adjourn.stores.kit.reading import readable, taken_notice
from adjourn.stores.types import TakenNotice

_DUE = 'SELECT due, id FROM outbox WHERE app = ? AND "to" = ? AND due <= ? ORDER BY due LIMIT ?'
_TAKE = "UPDATE outbox SET due = ?, attempt = attempt + 1 WHERE id = ?"
_READ = 'SELECT id, "to", CAST(body AS BLOB), app, session, at, attempt FROM outbox WHERE id = ?'


def has_due(connection: sqlite3.Connection, now: float, app: str, to: Sequence[str]) -> bool:
    """Return whether there is anything to take."""
    return any(connection.execute(_DUE, (app, each, now, 1)).fetchone() is not None for each in to)


def take(
    connection: sqlite3.Connection, now: float, app: str, to: Sequence[str], ttl: float, limit: int
) -> list[TakenNotice]:
    """Take what is due, oldest first."""
    found: list[tuple[Any, ...]] = []
    for each in to:
        found += connection.execute(_DUE, (app, each, now, limit)).fetchall()
    taken: list[tuple[Any, ...]] = []
    for _, name in sorted(found)[:limit]:
        connection.execute(_TAKE, (now + ttl, name))
        taken += connection.execute(_READ, (name,)).fetchall()
    return list(readable(taken, taken_notice))


def settle(connection: sqlite3.Connection, now: float, taken: TakenNotice, again: float | None) -> bool:
    """Remove a notice, or put it off, unless it has been taken again."""
    if again is None:
        done = connection.execute("DELETE FROM outbox WHERE id = ? AND attempt = ?", (taken.id, taken.attempt))
    else:
        values = (now + again, taken.id, taken.attempt)
        done = connection.execute("UPDATE outbox SET due = ? WHERE id = ? AND attempt = ?", values)
    return done.rowcount > 0


def drop(connection: sqlite3.Connection, now: float, app: str, age: float) -> int:
    """Remove what was due more than `age` seconds ago."""
    return connection.execute("DELETE FROM outbox WHERE app = ? AND due < ?", (app, now - age)).rowcount
