"""Reading from a SQLite file, beside the one connection that writes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, StoreError
from adjourn.stores.kit.inbox import in_app_of, listed
from adjourn.stores.kit.reading import Columns, Count, converted, readable, record_row
from adjourn.stores.kit.rows import (
    Branch,
    SessionRow,
    answered,
    audit_entry,
    cancel_of,
    damaged_record,
    decode_header,
    due_for,
    head_of,
    id_at,
    is_named,
    lies_under,
    listed_row,
    locate,
    queued_input,
    stored_record,
)
from adjourn.stores.kit.tables import RECORDS
from adjourn.stores.types import (
    Answered,
    AuditEntry,
    Begun,
    CheckpointRow,
    Due,
    DueReason,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    SessionRef,
    StoredRecord,
)

from . import _inbox as inbox
from ._files import Connection
from ._ledger import (
    asked_by_id,
    asked_on,
    branches,
    find,
    has_position,
    key,
    open_on_head,
    queue,
    queue_size,
    read_session,
    waiting,
)
from ._schema import is_busy
from ._tables import ROWS

T = TypeVar("T")

Read = Callable[[sqlite3.Connection], T]

_KEPT = 4  # idle connections; more reads at once open and close their own


class Readers:
    """A few idle connections, each used by one read at a time. Reads never wait for writes."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        explain: Callable[[sqlite3.Error], StoreError],
        timeout: float,
    ) -> None:
        self._connect = connect
        self._explain = explain
        self._timeout = timeout
        self._idle: deque[Connection] = deque()
        self._closed = 0

    def forget(self) -> Sequence[sqlite3.Connection]:
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
        return await asyncio.to_thread(self._patiently, read)

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
            connection.check_files()
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

    def _take(self) -> Connection | None:
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
    if row is None or (checkpoint is None and row.pos < 0):
        return None
    if small and (row.size > _SMALL_BYTES or row.pos - row.full_pos > SMALL_ROWS):
        raise TooBig
    at_head = checkpoint is None or checkpoint == row.checkpoint
    at, rows = _head_rows(connection, row) if at_head else _rows(connection, row, checkpoint or "")
    return Loaded(
        head=head_of(row, now),
        point=row.checkpoint if checkpoint is None else checkpoint,
        rows=rows,
        answers=_untaken(connection, row) if at_head and row.waiting else (),
        at=at,
    )


def _untaken(connection: sqlite3.Connection, row: SessionRow) -> tuple[Answered, ...]:
    return tuple([answered(each) for each in waiting(connection, row) if not each.is_open])


def _head_rows(connection: sqlite3.Connection, row: SessionRow) -> tuple[float, tuple[bytes, ...]]:
    return _range(connection, row, row.full_pos, row.pos)


def _rows(connection: sqlite3.Connection, row: SessionRow, checkpoint: str) -> tuple[float, tuple[bytes, ...]]:
    pos = _position(connection, row, branches(connection, row), checkpoint)
    full = connection.execute(
        "SELECT key - :first FROM records WHERE key BETWEEN :first AND :last AND full = 1 ORDER BY key DESC LIMIT 1",
        {"first": key(row, 0), "last": key(row, pos)},
    ).fetchone()
    return _range(connection, row, full[0] if full else 0, pos)


def _range(connection: sqlite3.Connection, row: SessionRow, start: int, end: int) -> tuple[float, tuple[bytes, ...]]:
    """Return the time of the last of some records, and the bodies of all."""
    rows = connection.execute(
        "SELECT CAST(body AS BLOB), at FROM records WHERE key BETWEEN ? AND ? ORDER BY key",
        (key(row, start), key(row, end)),
    ).fetchall()
    if len(rows) != end - start + 1:
        raise CheckpointCorrupt(f"it lacks {end - start + 1 - len(rows)} of its records", row.session)
    at = rows[-1][1]
    return at if isinstance(at, float) else 0.0, tuple([body for body, _ in rows])


def _position(connection: sqlite3.Connection, row: SessionRow, known: list[Branch], id: str) -> int:
    pos = _ever(row, known, id)
    if not has_position(connection, row, pos):
        raise CheckpointNotFound(row.session, id)
    return pos


def _ever(row: SessionRow, known: list[Branch], id: str) -> int:
    """Return the position that a record has or, if it was pruned, had."""
    pos = locate(known, row.pos, id)
    if pos is None:
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


def inputs(connection: sqlite3.Connection, ref: SessionRef, limit: int | None, *, small: bool) -> list[QueuedInput]:
    """List the inputs that wait, in order; with `small`, only if that takes no time.

    Raises:
        TooBig: it would take time.
    """
    row = _found(connection, ref)
    if small and (row.inputs > SMALL_ROWS or queue_size(connection, row, limit) > _SMALL_BYTES):
        raise TooBig
    return [queued_input(each) for each in queue(connection, row, limit)]


def cancels(connection: sqlite3.Connection, leases: Sequence[Lease]) -> list[str | None]:
    """Return for each lease the mode in which its run is to be cancelled."""
    return [cancel_of(_find(connection, lease.ref), lease) for lease in leases]


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


def read_rows(
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


def questions(
    connection: sqlite3.Connection,
    now: float,
    ref: SessionRef | None,
    filter: QuestionFilter,
    after: str | None,
    limit: int | None,
) -> list[OpenQuestion]:
    """List open questions that have not expired, oldest first."""
    if ref is not None:
        row = _find(connection, ref)
        asked = [] if row is None else [(row, each) for each in open_on_head(connection, row)]
        return listed(asked, in_app_of(ref, filter), now, after=after, limit=limit)
    search = inbox.Search(connection, now, filter, after)
    return read_rows(connection, search.query, search.values, limit, search.read)


def audit(
    connection: sqlite3.Connection, ref: SessionRef, branch: str | None, *, all_branches: bool
) -> list[AuditEntry]:
    """List the questions of a branch, by default the head's, or of all, and how they ended."""
    row = _found(connection, ref)
    if all_branches:
        names = [each.name for each in branches(connection, row)]
        return [audit_entry(each, name) for no, name in enumerate(names) for each in asked_on(connection, row, no)]
    no = row.branch_no if branch is None else _branch_no(connection, row, branch)
    return [audit_entry(each, branch or row.branch) for each in asked_on(connection, row, no)]


_RECORDS = f"""SELECT {ROWS[RECORDS].columns("t")} FROM records t WHERE t.key BETWEEN :start AND :last
    ORDER BY t.key LIMIT :limit"""


def records(
    connection: sqlite3.Connection, ref: SessionRef, after: str | None, limit: int | None
) -> list[StoredRecord]:
    """List the records of all branches, in the order of writing."""
    row = _found(connection, ref)
    known, start = branches(connection, row), 0
    if after is not None:
        start = _ever(row, known, after) + 1
    place = {"start": key(row, start), "last": key(row, row.pos)}
    rows = connection.execute(_RECORDS, {**place, "limit": -1 if limit is None else min(limit, _MOST)}).fetchall()
    return [_stored(id_at(known, pos), pos, values, row) for pos, *values in rows]


def _stored(place: tuple[str, str | None], pos: int, values: Sequence[Any], row: SessionRow) -> StoredRecord:
    try:
        return stored_record(record_row(*place, pos, values, row.session))
    except CheckpointCorrupt:
        return damaged_record(*place, pos)


def asked(connection: sqlite3.Connection, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
    """Return questions of a branch by their ids."""
    row = _found(connection, ref)
    no = _branch_no(connection, row, branch)
    return [audit_entry(found, branch) for found in asked_by_id(connection, row, no, set(ids))]


def _branch_no(connection: sqlite3.Connection, row: SessionRow, name: str) -> int:
    if name == row.branch:
        return row.branch_no
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


# What each of these queries selects by: every one has WANTED in its place.
_WANTED = """(s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%') AND (:user IS NULL OR s.user = :user)
    AND (:programs IS NULL OR s.program IN (SELECT value FROM json_each(:programs)))
    AND (s.user IS NULL OR s.user NOT IN (SELECT value FROM json_each(:skipped)))"""
_DEAD = """SELECT s.expires, s.* FROM sessions s WHERE s.owner IS NOT NULL AND s.expires <= :now AND WANTED
    ORDER BY s.expires LIMIT :limit"""
_ANSWERED = """SELECT s.touched, s.* FROM sessions s WHERE s.waiting > 0 AND s.owner IS NULL AND WANTED
    ORDER BY s.touched LIMIT :limit"""
_EXPIRED = """SELECT min(q.expires), s.* FROM questions q CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.expires IS NOT NULL AND q.expires <= :now AND q.branch = s.branch_no
    AND s.owner IS NULL AND s.waiting = 0 AND WANTED GROUP BY s.no ORDER BY min(q.expires) LIMIT :limit"""
# CROSS JOIN makes the inputs the outer loop, in the order in which they came in: it ends when there are enough.
_QUEUED = """SELECT i.at, s.* FROM inputs i CROSS JOIN sessions s ON s.no = i.session
    WHERE NOT i.taken AND i.no = (SELECT min(no) FROM inputs WHERE session = i.session AND NOT taken)
    AND s.owner IS NULL AND s.waiting = 0
    AND (s.status IN ('queued', 'done') OR s.status IN ('failed', 'cancelled') AND i.abandons)
    AND NOT EXISTS (SELECT 1 FROM questions q WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL
        AND q.expires <= :now) AND WANTED ORDER BY i.no LIMIT :limit"""
_REASONS: tuple[tuple[DueReason, str], ...] = (
    ("lease", _DEAD),
    ("answer", _ANSWERED),
    ("question", _EXPIRED),
    ("input", _QUEUED),
)


def due(
    connection: sqlite3.Connection,
    now: float,
    app: str | None,
    user: str | None,
    programs: Sequence[str] | None,
    skip_users: Sequence[str],
    limit: int,
) -> list[Due]:
    """List sessions that somebody should take up, oldest first."""
    wanted = None if programs is None else msgspec.json.encode(list(programs)).decode()
    skipped = msgspec.json.encode(list(skip_users)).decode()
    filters = {"now": now, "app": app, "user": user, "programs": wanted, "skipped": skipped}
    found: list[Due] = []
    for why, query in _REASONS:
        found += read_rows(connection, query.replace("WANTED", _WANTED), filters, limit, partial(_due, why))
    return sorted(found, key=lambda each: each.since)[:limit]


def _due(why: DueReason, values: tuple[Any, ...]) -> Due:
    since, *columns = values
    row = read_session(columns)
    return due_for(row, why, converted((since,), _Since, row.session, "a time in its row").since)


class _Since(Columns, frozen=True, gc=False):
    since: float
