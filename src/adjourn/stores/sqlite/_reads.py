"""What can be read from the SQLite store, each inside one read transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores._rows import Branch, Standing, decode_header, head_of, id_at, lies_under, locate
from adjourn.stores.protocol import Decision, Due, Events, Head, Listed, Loaded, Pending, Status

from ._ledger import branches, find, has_position, key, questions, untaken

# Up to here a session is read while the event loop waits: it takes less than handing it to a thread.
_SMALL_BYTES = 128 * 1024
_SMALL_ROWS = 100


# SQLite keeps whatever type a row was given; read as bytes, damage is left to those who know what the bytes mean.


class TooBig(Exception):
    """The session is too big to be read while the event loop waits."""


def load(
    connection: sqlite3.Connection, now: float, session: str, checkpoint: str | None, *, small: bool
) -> Loaded | None:
    """Read what folds to a point; with `small`, only if that takes no time.

    Raises:
        TooBig: it would take time.
        CheckpointNotFound: there is no such point.
    """
    standing = find(connection, session)
    if standing is None:
        return None
    if small and (standing.size > _SMALL_BYTES or standing.pos - standing.full_pos > _SMALL_ROWS):
        raise TooBig
    at_head = checkpoint is None or checkpoint == standing.checkpoint
    rows = _head_rows(connection, standing) if at_head else _rows(connection, standing, checkpoint or "")
    return Loaded(
        head=head_of(standing, now),
        point=standing.checkpoint if checkpoint is None else checkpoint,
        rows=rows,
        answers=untaken(connection, standing) if at_head and standing.waiting else (),
    )


def _head_rows(connection: sqlite3.Connection, standing: Standing) -> tuple[bytes, ...]:
    return _range(connection, standing, standing.full_pos, standing.pos)


def _rows(connection: sqlite3.Connection, standing: Standing, checkpoint: str) -> tuple[bytes, ...]:
    pos = _position(connection, standing, branches(connection, standing), checkpoint)
    full = connection.execute(
        "SELECT key - :first FROM records WHERE key BETWEEN :first AND :last AND full ORDER BY key DESC LIMIT 1",
        {"first": key(standing, 0), "last": key(standing, pos)},
    ).fetchone()
    return _range(connection, standing, full[0] if full else 0, pos)


def _range(connection: sqlite3.Connection, standing: Standing, start: int, end: int) -> tuple[bytes, ...]:
    rows = connection.execute(
        "SELECT CAST(body AS BLOB) FROM records WHERE key BETWEEN ? AND ? ORDER BY key",
        (key(standing, start), key(standing, end)),
    ).fetchall()
    if len(rows) != end - start + 1:
        raise CheckpointCorrupt(
            f"session '{standing.session}' lacks {end - start + 1 - len(rows)} of its records; restore a backup"
        )
    return tuple([body for (body,) in rows])


def _position(connection: sqlite3.Connection, standing: Standing, known: list[Branch], id: str) -> int:
    pos = locate(known, standing.pos, id)
    if pos is None or not has_position(connection, standing, pos):
        raise CheckpointNotFound(standing.session, id)
    return pos


def _found(connection: sqlite3.Connection, session: str) -> Standing:
    standing = find(connection, session)
    if standing is None:
        raise CheckpointNotFound(session)
    return standing


def head(connection: sqlite3.Connection, now: float, session: str) -> Head | None:
    """Where a session stands."""
    standing = find(connection, session)
    return None if standing is None else head_of(standing, now)


def listed(
    connection: sqlite3.Connection, session: str, limit: int | None, before: str | None, source: str | None, under: str
) -> list[Listed]:
    """The listed checkpoints of a session, newest first."""
    standing = _found(connection, session)
    known = branches(connection, standing)
    end = standing.pos if before is None else _position(connection, standing, known, before) - 1
    return list(islice(_listed(connection, standing, known, end, source, under), limit))


def _listed(
    connection: sqlite3.Connection,
    standing: Standing,
    known: list[Branch],
    end: int,
    source: str | None,
    under: str,
) -> Iterator[Listed]:
    rows = connection.execute(
        """SELECT key - :first, at, CAST(header AS BLOB) FROM records WHERE key BETWEEN :first AND :last
           AND source IS NOT NULL AND (:source IS NULL OR source = :source) ORDER BY key DESC""",
        {"first": key(standing, 0), "last": key(standing, 0) + end, "source": source},
    )
    for pos, at, data in rows:
        header = decode_header(data)
        if lies_under(header.address, under):
            own, parent = id_at(known, pos)
            yield Listed(id=own, parent=parent, created=at, header=header)


def sessions(
    connection: sqlite3.Connection,
    now: float,
    app: str | None,
    user: str | None,
    status: Status | None,
    limit: int | None,
) -> list[Head]:
    """Sessions, the most lately written first."""
    rows = connection.execute(
        """SELECT * FROM sessions
           WHERE (:app IS NULL OR app = :app) AND (:user IS NULL OR user = :user)
           AND (:status IS NULL OR status = :status) ORDER BY updated DESC, no DESC LIMIT :limit""",
        {"app": app, "user": user, "status": status, "limit": -1 if limit is None else limit},
    )
    return [head_of(Standing(*row), now) for row in rows]


_OPEN = """SELECT s.id, s.branch, s.number, q.id, CAST(q.body AS BLOB), q.expires
    FROM sessions s JOIN questions q ON q.session = s.no
    WHERE s.id = :session AND q.branch = s.branch_no AND q.how IS NULL AND (q.expires IS NULL OR q.expires > :now)
    AND (:app IS NULL OR s.app = :app) AND (:user IS NULL OR s.user = :user) ORDER BY q.no LIMIT :limit"""
# CROSS JOIN makes the open questions the outer loop, in the order in which they were asked.
_INBOX = """SELECT s.id, s.branch, s.number, q.id, CAST(q.body AS BLOB), q.expires
    FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.branch = s.branch_no AND q.how IS NULL AND (q.expires IS NULL OR q.expires > :now)
    AND (:app IS NULL OR s.app = :app) AND (:user IS NULL OR s.user = :user) ORDER BY q.no LIMIT :limit"""


def interrupts(
    connection: sqlite3.Connection,
    now: float,
    session: str | None,
    app: str | None,
    user: str | None,
    limit: int | None,
) -> list[Pending]:
    """Open questions that have not expired, oldest first."""
    query = _INBOX if session is None else _OPEN
    filters = {"session": session, "now": now, "app": app, "user": user, "limit": -1 if limit is None else limit}
    rows = connection.execute(query, filters)
    return [
        Pending(session=asker, checkpoint=f"{branch}.{number}", id=own, body=body, expires=expires)
        for asker, branch, number, own, body, expires in rows
    ]


def decisions(connection: sqlite3.Connection, session: str) -> list[Decision]:
    """The questions of the head's branch and how they ended."""
    asked = questions(connection, _found(connection, session))
    return [Decision(id=q.id, body=q.body, value=q.value, how=q.how, by=q.by, at=q.at) for q in asked]


def events(connection: sqlite3.Connection, session: str, after: int, limit: int | None) -> list[Events]:
    """The stored events above a number."""
    standing = _found(connection, session)
    known, begin, end = branches(connection, standing), key(standing, 0), key(standing, standing.pos)
    rows = connection.execute(
        """SELECT key - ?, CAST(header AS BLOB), seq - count + 1, count, CAST(events AS BLOB) FROM records
           WHERE key BETWEEN ? AND ? AND seq > ? AND count > 0 ORDER BY key LIMIT ?""",
        (begin, _first_after(connection, begin, end, after), end, after, -1 if limit is None else limit),
    )
    return [
        Events(id=id_at(known, pos)[0], header=decode_header(header), first=first, count=count, body=body)
        for pos, header, first, count, body in rows
    ]


def _first_after(connection: sqlite3.Connection, low: int, high: int, after: int) -> int:
    """The first key whose record has events above `after`.

    Numbers grow with keys, so halving finds it without an index; where records were pruned, the next one tells.
    """
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT key, seq FROM records WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1", (middle, high)
        ).fetchone()
        if row is None or row[1] > after:
            high = middle
        else:
            low = row[0] + 1
    return low


_DEAD = "SELECT id FROM sessions WHERE owner IS NOT NULL AND expires <= :now ORDER BY no LIMIT :limit"
_ANSWERED = "SELECT id FROM sessions WHERE waiting > 0 AND owner IS NULL ORDER BY no LIMIT :limit"
_EXPIRED = """SELECT DISTINCT s.id FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.expires IS NOT NULL AND q.expires <= :now AND q.branch = s.branch_no
    AND s.owner IS NULL AND s.waiting = 0 LIMIT :limit"""


def due(connection: sqlite3.Connection, now: float, limit: int) -> list[Due]:
    """Sessions that somebody should take up."""
    found: list[Due] = []
    reasons: tuple[tuple[Literal["lease", "answer", "question"], str], ...] = (
        ("lease", _DEAD),
        ("answer", _ANSWERED),
        ("question", _EXPIRED),
    )
    for why, query in reasons:
        rows = connection.execute(query, {"now": now, "limit": limit - len(found)})
        found += [Due(session=session, why=why) for (session,) in rows]
    return found
