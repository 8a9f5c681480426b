"""What is read of a SQLite file: one session from its facts, and listings of sessions and of what is due.

A page of sessions is put together from a few short lists, each of which an index has in order: the sessions that
nobody runs are indexed by when they were last written, which does not change until somebody runs them. Those that are
run are few.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec

from adjourn.stores.kit.inbox import stretches
from adjourn.stores.kit.paging import Written, written, written_at
from adjourn.stores.kit.queries import (
    CountQuestions,
    FindSessions,
    ListBegun,
    ListDecisions,
    ListDue,
    ListQuestions,
    ListSessions,
    SessionQuery,
    StoreQuery,
)
from adjourn.stores.kit.reading import Columns, converted, readable
from adjourn.stores.kit.rows import due_for, fits, head_of
from adjourn.stores.kit.store import unknown_request
from adjourn.stores.types import OWN_APPS, Begun, Due, DueReason, Head, OpenQuestion, Status

from ._decided import DecisionSearch
from ._facts import SQLiteFacts, find, find_row, read_session
from ._inbox import Search, count_questions

T = TypeVar("T")

_BEGUN = "SELECT digest, place, number FROM begun WHERE digest = ?"

_OF_APP = "(s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%')"
_OF_APP_AND_USER = f"{_OF_APP} AND (:user IS NULL OR s.user = :user)"
_WITH_STATUS = "(:status IS NULL OR iif(s.status = 'done' AND s.inputs > 0, 'queued', s.status) = :status)"


def _page(*where: str, order: str = "s.updated DESC, s.app DESC, s.id DESC") -> str:
    behind = "(s.updated, s.app, s.id) < (:updated, :last_app, :last_id)"
    return f"SELECT * FROM sessions s WHERE {' AND '.join((*where, behind))} ORDER BY {order} LIMIT :limit"


_OF_ONE_APP = "s.updated DESC, s.id DESC"
_ALL = _page(_OF_APP_AND_USER, _WITH_STATUS)
_HELD = _page("s.owner IS NOT NULL", _OF_APP_AND_USER, _WITH_STATUS)
_OF_USER = _page("s.owner IS NULL AND s.user = :user", _OF_APP, _WITH_STATUS)
_IN_STATUS = _page("s.owner IS NULL AND s.app = :app AND s.status = :stored", _WITH_STATUS, order=_OF_ONE_APP)
_QUEUED = _page("s.inputs > 0 AND s.owner IS NULL AND s.app = :app AND s.status = 'done'", order=_OF_ONE_APP)


def answer(connection: sqlite3.Connection, query: StoreQuery[T], now: float, *, small: bool) -> T:
    """Answer a query.

    Raises:
        TooBig: it is to be `small`, and would take time.
    """
    if isinstance(query, SessionQuery):
        row = find(connection, query.ref.app, query.ref.id)
        return query.answer(SQLiteFacts(connection, row, now, small=small))
    return _listed(connection, query, now)


def _listed(connection: sqlite3.Connection, query: StoreQuery[Any], now: float) -> Any:
    match query:
        case ListSessions():
            return _sessions(connection, query, now)
        case FindSessions(id, user):
            rows = [find_row(connection, app, id) for app in _shown_apps(connection)]
            sessions = readable([row for row in rows if row is not None], read_session)
            return [row.ref for row in sessions if fits(row, None, user)]
        case ListQuestions(filter=filter, after=after, limit=limit, order=order):
            found: list[OpenQuestion] = []
            for behind in stretches(order, after):
                left = None if limit is None else limit - len(found)
                if left == 0:
                    break
                search = Search(connection, now, filter, behind)
                found += _read_rows(connection, search.text(), search.values, left, search.read)
            return found
        case CountQuestions(filter):
            return count_questions(connection, now, filter)
        case ListDecisions(filter=filter, after=after, limit=limit):
            decisions = DecisionSearch(filter, after)
            return _read_rows(connection, decisions.query, decisions.values, limit, decisions.read)
        case ListDue():
            return _due(connection, query, now)
        case ListBegun(digest):
            return [Begun(*row) for row in connection.execute(_BEGUN, (digest,))]
        case _:
            raise unknown_request("SQLiteStore", query)


def _sessions(connection: sqlite3.Connection, query: ListSessions, now: float) -> list[Head]:
    place = Written(math.inf, "", "") if query.after is None else written_at(query.after)
    values = {"app": query.app, "user": query.user, "status": query.status, "updated": place.updated}
    values |= {"last_app": place.app, "last_id": place.session}
    limit = query.limit
    if limit is None and query.user is None and query.status is None:
        found = _read_rows(connection, _ALL, values, None, read_session)
    else:
        lists = [_read_rows(connection, text, each, limit, read_session) for text, each in _lists(connection, values)]
        found = islice(heapq.merge(*lists, key=written, reverse=True), limit)
    return [head_of(row, now) for row in found]


def _lists(connection: sqlite3.Connection, values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the queries, with their values, for lists that together have all sessions that are wanted, each once."""
    yield _HELD, values
    if values["user"] is not None:
        yield _OF_USER, values
        return
    status = values["status"]
    for app in [values["app"]] if values["app"] is not None else _shown_apps(connection):
        for stored in get_args(Status) if status is None else [status]:
            yield _IN_STATUS, {**values, "app": app, "stored": stored}
        if status == "queued":
            yield _QUEUED, {**values, "app": app}


def _shown_apps(connection: sqlite3.Connection) -> list[str]:
    """Return all apps but the library's own. This reads an entry of an index for each, not for each session."""
    found: list[str] = []
    (app,) = connection.execute("SELECT min(app) FROM sessions").fetchone()
    while app is not None:
        if isinstance(app, str) and not app.startswith(OWN_APPS):
            found.append(app)
        (app,) = connection.execute("SELECT min(app) FROM sessions WHERE app > ?", (app,)).fetchone()
    return found


def _read_rows(
    connection: sqlite3.Connection,
    query: str,
    filters: dict[str, Any],
    limit: int | None,
    read: Callable[[tuple[Any, ...]], T],
) -> list[T]:
    """Read as many rows as are wanted; damaged ones are left out, and do not count."""
    most = -1 if limit is None else min(limit, _MOST)
    rows = connection.execute(query, {**filters, "limit": most}).fetchall()
    found = list(readable(rows, read))
    if limit is None or len(found) == len(rows):
        return found
    return list(islice(readable(connection.execute(query, {**filters, "limit": -1}), read), limit))


_MOST = 2**62  # SQLite cannot count further


# What each of these queries selects by: every one has WANTED in its place.
_WANTED = f"""{_OF_APP_AND_USER}
    AND (:programs IS NULL OR s.program IN (SELECT value FROM json_each(:programs)))
    AND (s.user IS NULL OR s.user NOT IN (SELECT value FROM json_each(:skipped)))"""
_DEAD = """SELECT s.expires, s.* FROM sessions s WHERE s.owner IS NOT NULL AND s.expires <= :now AND WANTED
    ORDER BY s.expires LIMIT :limit"""
_ANSWERED = """SELECT s.touched, s.* FROM sessions s WHERE s.waiting > 0 AND s.owner IS NULL AND WANTED
    ORDER BY s.touched LIMIT :limit"""
_PASSED = """SELECT min(q.due), s.* FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.due IS NOT NULL AND q.due <= :now AND q.branch = s.branch_no
    AND s.owner IS NULL AND s.waiting = 0 AND WANTED GROUP BY s.no ORDER BY min(q.due) LIMIT :limit"""
# CROSS JOIN makes the inputs the outer loop, in the order in which they came in: it ends when there are enough.
_STARTABLE = """SELECT i.at, s.* FROM inputs i CROSS JOIN sessions s ON s.no = i.session
    WHERE NOT i.taken AND i.no = (SELECT min(no) FROM inputs WHERE session = i.session AND NOT taken)
    AND s.owner IS NULL AND s.waiting = 0
    AND (s.status IN ('queued', 'done') OR s.status IN ('failed', 'cancelled') AND i.abandons)
    AND NOT EXISTS (SELECT 1 FROM questions q WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL
        AND q.due <= :now) AND WANTED ORDER BY i.no LIMIT :limit"""
_REASONS: tuple[tuple[DueReason, str], ...] = (
    ("lease", _DEAD),
    ("answer", _ANSWERED),
    ("question", _PASSED),
    ("input", _STARTABLE),
)


def _due(connection: sqlite3.Connection, query: ListDue, now: float) -> list[Due]:
    programs = None if query.programs is None else msgspec.json.encode(list(query.programs)).decode()
    skipped = msgspec.json.encode(list(query.skip_users)).decode()
    filters = {"now": now, "app": query.app, "user": query.user, "programs": programs, "skipped": skipped}
    found: list[Due] = []
    for why, text in _REASONS:
        read = partial(_read_due, why)
        found += _read_rows(connection, text.replace("WANTED", _WANTED), filters, query.limit, read)
    return sorted(found, key=lambda each: each.since)[: query.limit]


def _read_due(why: DueReason, values: tuple[Any, ...]) -> Due:
    since, *columns = values
    row = read_session(columns)
    return due_for(row, why, converted((since,), _Since, row.session, "a time in its row").since)


class _Since(Columns, frozen=True, gc=False):
    since: float
