"""Reading from a SQLite file, beside the one connection that writes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, StoreError
from adjourn.stores.kit.reading import Columns, Count, converted, readable
from adjourn.stores.kit.rows import (
    Branch,
    SessionRow,
    answered,
    audit_entry,
    decode_header,
    head_of,
    id_at,
    is_named,
    lies_under,
    listed_row,
    locate,
)
from adjourn.stores.protocol import (
    Answered,
    AuditEntry,
    Begun,
    CheckpointRow,
    Due,
    EventBatch,
    Head,
    Loaded,
    OpenQuestion,
    SessionRef,
    Status,
)

from ._ledger import asked_by_id, asked_on, branches, find, has_position, key, read_session, waiting
from ._schema import is_busy

T = TypeVar("T")

Read = Callable[[sqlite3.Connection], T]

_KEPT = 4  # idle connections; more reads at once open and close their own


class Readers:
    """A few idle connections, each used by one read at a time. Reads never wait for writes."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        explain: Callable[[sqlite3.Error], StoreError],
        timeout: float,
    ) -> None:
        self._connect = connect
        self._explain = explain
        self._timeout = timeout
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = 0

    def forget(self) -> list[sqlite3.Connection]:
        """Start over, as in the child of a fork; return what must be neither used nor closed there."""
        inherited = list(self._idle)
        self._idle = deque()
        self._closed += 1
        return inherited

    def close(self) -> None:
        """Close all connections; a later read opens its own."""
        self._closed += 1
        while connection := self._take():
            connection.close()

    async def read(self, read: Read[T], *, small: bool = False) -> T:
        """Read in a thread; or at once, if it is `small` and takes less time than a thread would."""
        if small and self._idle:
            try:
                return self._once(read)
            except sqlite3.Error:
                pass  # the thread meets the same error, and can wait
        return await asyncio.get_running_loop().run_in_executor(None, self._patiently, read)

    def _patiently(self, read: Read[T]) -> T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._once(read)
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise self._explain(error) from error
            time.sleep(random.uniform(0.0005, 0.005))  # rare: another process recovers or closes the file

    def _once(self, read: Read[T]) -> T:
        closed = self._closed
        connection = self._take() or self._connect()
        sound = False
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("COMMIT")
                sound = True
        finally:
            if sound and closed == self._closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                connection.close()

    def _take(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


# Up to this size a session is read on the event loop: that takes less time than handing it to a thread.
_SMALL_BYTES = 128 * 1024
SMALL_ROWS = 100


# SQLite keeps whatever type a row was given; reading bytes leaves damage to those who know what the bytes mean.


class TooBig(Exception):
    """The session is too big to be read on the event loop."""


def load(
    connection: sqlite3.Connection, now: float, ref: SessionRef, checkpoint: str | None, *, small: bool
) -> Loaded | None:
    """Read what folds to a point; with `small`, only if that takes no time.

    Raises:
        TooBig: it would take time.
        CheckpointNotFound: there is no such point.
    """
    row = _find(connection, ref)
    if row is None:
        return None
    if small and (row.size > _SMALL_BYTES or row.pos - row.full_pos > SMALL_ROWS):
        raise TooBig
    at_head = checkpoint is None or checkpoint == row.checkpoint
    rows = _head_rows(connection, row) if at_head else _rows(connection, row, checkpoint or "")
    return Loaded(
        head=head_of(row, now),
        point=row.checkpoint if checkpoint is None else checkpoint,
        rows=rows,
        answers=_untaken(connection, row) if at_head and row.waiting else (),
    )


def _untaken(connection: sqlite3.Connection, row: SessionRow) -> tuple[Answered, ...]:
    return tuple([answered(each) for each in waiting(connection, row) if not each.is_open])


def _head_rows(connection: sqlite3.Connection, row: SessionRow) -> tuple[bytes, ...]:
    return _range(connection, row, row.full_pos, row.pos)


def _rows(connection: sqlite3.Connection, row: SessionRow, checkpoint: str) -> tuple[bytes, ...]:
    pos = _position(connection, row, branches(connection, row), checkpoint)
    full = connection.execute(
        "SELECT key - :first FROM records WHERE key BETWEEN :first AND :last AND full = 1 ORDER BY key DESC LIMIT 1",
        {"first": key(row, 0), "last": key(row, pos)},
    ).fetchone()
    return _range(connection, row, full[0] if full else 0, pos)


def _range(connection: sqlite3.Connection, row: SessionRow, start: int, end: int) -> tuple[bytes, ...]:
    rows = connection.execute(
        "SELECT CAST(body AS BLOB) FROM records WHERE key BETWEEN ? AND ? ORDER BY key",
        (key(row, start), key(row, end)),
    ).fetchall()
    if len(rows) != end - start + 1:
        raise CheckpointCorrupt(f"it lacks {end - start + 1 - len(rows)} of its records; restore a backup", row.session)
    return tuple([body for (body,) in rows])


def _position(connection: sqlite3.Connection, row: SessionRow, known: list[Branch], id: str) -> int:
    pos = locate(known, row.pos, id)
    if pos is None or not has_position(connection, row, pos):
        raise CheckpointNotFound(row.session, id)
    return pos


def _find(connection: sqlite3.Connection, ref: SessionRef) -> SessionRow | None:
    row = find(connection, ref.app, ref.id)
    return row if row is not None and is_named(row, ref) else None


def _found(connection: sqlite3.Connection, ref: SessionRef) -> SessionRow:
    row = _find(connection, ref)
    if row is None:
        raise CheckpointNotFound(ref.id)
    return row


def head(connection: sqlite3.Connection, now: float, ref: SessionRef) -> Head | None:
    """Return the current state of a session."""
    row = _find(connection, ref)
    return None if row is None else head_of(row, now)


def checkpoints(
    connection: sqlite3.Connection,
    ref: SessionRef,
    limit: int | None,
    before: str | None,
    source: str | None,
    under: str,
) -> list[CheckpointRow]:
    """List the checkpoints of a session, most recent first."""
    row = _found(connection, ref)
    known = branches(connection, row)
    end = row.pos if before is None else _position(connection, row, known, before) - 1
    return list(islice(_listed(connection, row, known, end, source, under), limit))


def _listed(
    connection: sqlite3.Connection,
    row: SessionRow,
    known: list[Branch],
    end: int,
    source: str | None,
    under: str,
) -> Iterator[CheckpointRow]:
    rows = connection.execute(
        """SELECT key - :first, at, CAST(header AS BLOB) FROM records WHERE key BETWEEN :first AND :last
           AND source IS NOT NULL AND (:source IS NULL OR source = :source) ORDER BY key DESC""",
        {"first": key(row, 0), "last": key(row, 0) + end, "source": source},
    )

    for pos, at, header in rows:
        listed = listed_row(*id_at(known, pos), at, header)
        if lies_under(listed.header.address, under):
            yield listed


def sessions(
    connection: sqlite3.Connection,
    now: float,
    app: str | None,
    user: str | None,
    status: Status | None,
    limit: int | None,
) -> list[Head]:
    """List sessions, most recently written first."""
    filters = {"app": app, "user": user, "status": status}
    return [head_of(row, now) for row in _list(connection, _SESSIONS, filters, limit, read_session)]


_SESSIONS = """SELECT * FROM sessions
    WHERE (app = :app OR :app IS NULL AND app NOT LIKE '~%') AND (:user IS NULL OR user = :user)
    AND (:status IS NULL OR status = :status) ORDER BY updated DESC, no DESC LIMIT :limit"""


def _list(
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


_OPEN = """SELECT s.id, s.app, s.branch, s.number, q.id, CAST(q.body AS BLOB), q.expires
    FROM sessions s JOIN questions q ON q.session = s.no
    WHERE s.app = :in_app AND s.id = :session AND (:owner IS NULL OR s.user = :owner)
    AND q.branch = s.branch_no AND q.how IS NULL AND (q.expires IS NULL OR q.expires > :now)
    AND (:app IS NULL OR s.app = :app) AND (:user IS NULL OR s.user = :user) ORDER BY q.no LIMIT :limit"""
# CROSS JOIN makes the open questions the outer loop, in the order in which they were asked.
_INBOX = """SELECT s.id, s.app, s.branch, s.number, q.id, CAST(q.body AS BLOB), q.expires
    FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.branch = s.branch_no AND q.how IS NULL AND (q.expires IS NULL OR q.expires > :now)
    AND (s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%') AND (:user IS NULL OR s.user = :user)
    ORDER BY q.no LIMIT :limit"""


def questions(
    connection: sqlite3.Connection,
    now: float,
    ref: SessionRef | None,
    app: str | None,
    user: str | None,
    limit: int | None,
) -> list[OpenQuestion]:
    """List open questions that have not expired, oldest first."""
    filters: dict[str, Any] = {"now": now, "app": app, "user": user}
    if ref is None:
        return _list(connection, _INBOX, filters, limit, _open_question)
    filters |= {"session": ref.id, "in_app": ref.app, "owner": ref.user, "limit": -1 if limit is None else limit}
    return [_open_question(row) for row in connection.execute(_OPEN, filters).fetchall()]


class _Open(Columns, frozen=True, gc=False):
    session: str
    app: str
    branch: str
    number: Count
    id: str
    body: bytes
    expires: float | None


def _open_question(values: tuple[Any, ...]) -> OpenQuestion:
    row = converted(values, _Open, values[0], "the row of a question")
    checkpoint = f"{row.branch}.{row.number}"
    return OpenQuestion(
        session=row.session, app=row.app, checkpoint=checkpoint, id=row.id, body=row.body, expires=row.expires
    )


def audit(connection: sqlite3.Connection, ref: SessionRef) -> list[AuditEntry]:
    """List the questions of the head's branch and how they ended."""
    asked = asked_on(connection, _found(connection, ref))
    return [audit_entry(each) for each in asked]


def asked(connection: sqlite3.Connection, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
    """Return questions of a branch by their ids."""
    row = _found(connection, ref)
    no = row.branch_no if branch == row.branch else _branch_no(connection, row, branch)
    return [audit_entry(found) for found in asked_by_id(connection, row, no, set(ids))]


def _branch_no(connection: sqlite3.Connection, row: SessionRow, name: str) -> int:
    for no, branch in enumerate(branches(connection, row)):
        if branch.name == name:
            return no
    raise CheckpointNotFound(row.session, name)


def begun(connection: sqlite3.Connection, digest: str) -> list[Begun]:
    """Return everything that has begun under a digest."""
    rows = connection.execute("SELECT digest, place, number FROM begun WHERE digest = ?", (digest,))
    return [Begun(*row) for row in rows]


def events(connection: sqlite3.Connection, ref: SessionRef, after: int, limit: int | None) -> list[EventBatch]:
    """Return the stored events above a number."""
    row = _found(connection, ref)
    known, begin, end = branches(connection, row), key(row, 0), key(row, row.pos)
    after = min(after, _MOST)
    rows = connection.execute(
        """SELECT key - ?, CAST(header AS BLOB), seq, count, CAST(events AS BLOB) FROM records
           WHERE key BETWEEN ? AND ? AND seq > ? AND count > 0 ORDER BY key LIMIT ?""",
        (begin, _first_after(connection, row, end, after), end, after, -1 if limit is None else limit),
    ).fetchall()
    return [_batch(values, known, row) for values in rows]


class _Batch(Columns, frozen=True, gc=False):
    pos: Count
    header: bytes
    seq: Count
    count: Count
    body: bytes


def _batch(values: tuple[Any, ...], known: list[Branch], session: SessionRow) -> EventBatch:
    row = converted(values, _Batch, session.session, "the row of a record")
    first = row.seq - row.count + 1
    if first < 1 or row.seq > session.seq:
        raise CheckpointCorrupt(f"its record at {row.pos} has events {first} to {row.seq}", session.session)
    with Reading(session.session):
        header = decode_header(row.header)
    return EventBatch(id=id_at(known, row.pos)[0], header=header, first=first, count=row.count, body=row.body)


class _Seq(Columns, frozen=True, gc=False):
    key: int
    seq: Count


def _first_after(connection: sqlite3.Connection, session: SessionRow, high: int, after: int) -> int:
    """Return the first key whose record has events above `after`.

    Numbers grow with keys, so bisecting finds it without an index; where records were pruned, the next one counts.
    """
    low = key(session, 0)
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT key, seq FROM records WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1", (middle, high)
        ).fetchone()
        if row is None or converted(row, _Seq, session.session, "the row of a record").seq > after:
            high = middle
        else:
            low = row[0] + 1
    return low


_DEAD = """SELECT * FROM sessions WHERE owner IS NOT NULL AND expires <= :now
    AND (app = :app OR :app IS NULL AND app NOT LIKE '~%') AND (:user IS NULL OR user = :user)
    ORDER BY no LIMIT :limit"""
_ANSWERED = """SELECT * FROM sessions WHERE waiting > 0 AND owner IS NULL
    AND (app = :app OR :app IS NULL AND app NOT LIKE '~%') AND (:user IS NULL OR user = :user)
    ORDER BY no LIMIT :limit"""
_EXPIRED = """SELECT DISTINCT s.* FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.expires IS NOT NULL AND q.expires <= :now AND q.branch = s.branch_no
    AND s.owner IS NULL AND s.waiting = 0
    AND (s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%') AND (:user IS NULL OR s.user = :user) LIMIT :limit"""


def due(connection: sqlite3.Connection, now: float, app: str | None, user: str | None, limit: int) -> list[Due]:
    """List sessions that somebody should take up."""
    found: list[Due] = []
    reasons: tuple[tuple[Literal["lease", "answer", "question"], str], ...] = (
        ("lease", _DEAD),
        ("answer", _ANSWERED),
        ("question", _EXPIRED),
    )
    for why, query in reasons:
        filters = {"now": now, "app": app, "user": user}
        rows = _list(connection, query, filters, limit - len(found), read_session)
        found += [Due(session=row.session, app=row.app, why=why) for row in rows]
    return found
