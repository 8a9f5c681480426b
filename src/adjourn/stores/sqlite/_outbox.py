"""The outbox of a SQLite file: notices that were written with records, until somebody has sent them."""

from __future__ import annotations

import sqlite3
from typing import Any

from adjourn.stores.kit.reading import notice_row, readable
from adjourn.stores.kit.requests import DropNotices, SettleNotice, TakeNotices
from adjourn.stores.kit.rows import notice_of
from adjourn.stores.kit.tables import OUTBOX
from adjourn.stores.types import TakenNotice

from ._tables import ROWS

_DUE = 'SELECT due, id FROM outbox WHERE app = ? AND "to" = ? AND due <= ? ORDER BY due LIMIT ?'
_TAKE = "UPDATE outbox SET due = ?, attempt = attempt + 1 WHERE id = ?"
_READ = f"SELECT {ROWS[OUTBOX].columns('t')} FROM outbox t WHERE t.id = ?"


def has_due(connection: sqlite3.Connection, now: float, request: TakeNotices) -> bool:
    """Return whether there is anything to take."""
    return any(connection.execute(_DUE, (request.app, each, now, 1)).fetchone() is not None for each in request.to)


def take(connection: sqlite3.Connection, now: float, request: TakeNotices) -> list[TakenNotice]:
    """Take what is due, oldest first."""
    found: list[tuple[Any, ...]] = []
    for each in request.to:
        found += connection.execute(_DUE, (request.app, each, now, request.limit)).fetchall()
    taken: list[tuple[Any, ...]] = []
    for _, name in sorted(found)[: request.limit]:
        connection.execute(_TAKE, (now + request.ttl, name))
        taken += connection.execute(_READ, (name,)).fetchall()
    return [notice_of(row) for row in readable(taken, notice_row)]


def settle(connection: sqlite3.Connection, now: float, request: SettleNotice) -> bool:
    """Remove a notice, or put it off, unless it has been taken again."""
    taken, again = request.taken, request.again
    if again is None:
        done = connection.execute("DELETE FROM outbox WHERE id = ? AND attempt = ?", (taken.id, taken.attempt))
    else:
        values = (now + again, taken.id, taken.attempt)
        done = connection.execute("UPDATE outbox SET due = ? WHERE id = ? AND attempt = ?", values)
    return done.rowcount > 0


def drop(connection: sqlite3.Connection, now: float, request: DropNotices) -> int:
    """Remove what was due too long ago."""
    return connection.execute("DELETE FROM outbox WHERE app = ? AND due < ?", (request.app, now - request.age)).rowcount
