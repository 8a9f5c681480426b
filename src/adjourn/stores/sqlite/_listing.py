"""Listings of the sessions in a SQLite file, most recently written first, and finding one in all apps.

A page is put together from a few short lists, each of which an index has in order: the sessions that nobody runs are
indexed by when they were last written, which does not change until somebody runs them. Those that are run are few.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any, get_args

from adjourn.stores.kit.paging import Written, written, written_at
from adjourn.stores.kit.reading import readable
from adjourn.stores.kit.rows import fits, head_of
from adjourn.stores.types import OWN_APPS, Head, SessionRef, Status

from ._ledger import find_row, read_session
from ._reads import read_rows

_ALL = """SELECT * FROM sessions
    WHERE (app = :app OR :app IS NULL AND app NOT LIKE '~%') AND (:user IS NULL OR user = :user)
    AND (:status IS NULL OR iif(status = 'done' AND inputs > 0, 'queued', status) = :status)
    AND (updated, app, id) < (:updated, :last_app, :last_id) ORDER BY updated DESC, app DESC, id DESC LIMIT :limit"""
_HELD = """SELECT * FROM sessions WHERE owner IS NOT NULL
    AND (app = :app OR :app IS NULL AND app NOT LIKE '~%') AND (:user IS NULL OR user = :user)
    AND (:status IS NULL OR iif(status = 'done' AND inputs > 0, 'queued', status) = :status)
    AND (updated, app, id) < (:updated, :last_app, :last_id) ORDER BY updated DESC, app DESC, id DESC LIMIT :limit"""
_OF_USER = """SELECT * FROM sessions WHERE owner IS NULL AND user = :user
    AND (app = :app OR :app IS NULL AND app NOT LIKE '~%')
    AND (:status IS NULL OR iif(status = 'done' AND inputs > 0, 'queued', status) = :status)
    AND (updated, app, id) < (:updated, :last_app, :last_id) ORDER BY updated DESC, app DESC, id DESC LIMIT :limit"""
_IN_STATUS = """SELECT * FROM sessions WHERE owner IS NULL AND app = :app AND status = :stored
    AND (:status IS NULL OR iif(status = 'done' AND inputs > 0, 'queued', status) = :status)
    AND (updated, app, id) < (:updated, :last_app, :last_id) ORDER BY updated DESC, id DESC LIMIT :limit"""
_QUEUED = """SELECT * FROM sessions WHERE inputs > 0 AND owner IS NULL AND app = :app AND status = 'done'
    AND (updated, app, id) < (:updated, :last_app, :last_id) ORDER BY updated DESC, id DESC LIMIT :limit"""


def sessions(
    connection: sqlite3.Connection,
    now: float,
    app: str | None,
    user: str | None,
    status: Status | None,
    after: str | None,
    limit: int | None,
) -> list[Head]:
    """List sessions, most recently written first."""
    place = Written(math.inf, "", "") if after is None else written_at(after)
    values = {"app": app, "user": user, "status": status, "updated": place.updated}
    values |= {"last_app": place.app, "last_id": place.session}
    if limit is None and user is None and status is None:
        found = read_rows(connection, _ALL, values, None, read_session)
    else:
        lists = [read_rows(connection, query, each, limit, read_session) for query, each in _lists(connection, values)]
        found = islice(heapq.merge(*lists, key=written, reverse=True), limit)
    return [head_of(row, now) for row in found]


def _lists(connection: sqlite3.Connection, values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the queries, with their values, for lists that together have all sessions that are wanted, each once."""
    yield _HELD, values
    if values["user"] is not None:
        yield _OF_USER, values
        return
    status = values["status"]
    for app in [values["app"]] if values["app"] is not None else shown_apps(connection):
        for stored in get_args(Status) if status is None else [status]:
            yield _IN_STATUS, {**values, "app": app, "stored": stored}
        if status == "queued":
            yield _QUEUED, {**values, "app": app}


def find_in_apps(connection: sqlite3.Connection, session: str, user: str | None) -> list[SessionRef]:
    """Return the sessions of an id in all apps but the library's own."""
    rows = [find_row(connection, app, session) for app in shown_apps(connection)]
    found = readable([row for row in rows if row is not None], read_session)
    return [row.ref for row in found if fits(row, None, user)]


def shown_apps(connection: sqlite3.Connection) -> list[str]:
    """Return all apps but the library's own; this reads an entry of an index for each, not for each session."""
    found: list[str] = []
    (app,) = connection.execute("SELECT min(app) FROM sessions").fetchone()
    while app is not None:
        if isinstance(app, str) and not app.startswith(OWN_APPS):
            found.append(app)
        (app,) = connection.execute("SELECT min(app) FROM sessions WHERE app > ?", (app,)).fetchone()
    return found
