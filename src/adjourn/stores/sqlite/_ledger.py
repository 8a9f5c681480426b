"""Facts and effects as SQL, and the transactions that hold them."""

# An override is documented where it is declared.

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import astuple

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit.effects import Effects, End, advanced
from adjourn.stores.kit.facts import Point
from adjourn.stores.kit.hints import Fanout, worth_a_hint
from adjourn.stores.kit.reading import (
    Columns,
    Count,
    branch_rows,
    converted,
    input_row,
    points,
    question_row,
    readable,
    record_row,
    session_row,
)
from adjourn.stores.kit.requests import Delete, Request
from adjourn.stores.kit.rows import (
    MAX_RECORDS,
    Branch,
    InputRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    asked_row,
    id_at,
    input_digest,
    locate,
    stored_statuses,
)
from adjourn.stores.types import Question, SessionRef, Status

from . import _inbox as inbox
from . import _outbox as outbox
from ._files import Connection

_KNOWN = 1000  # how many rows of sessions are cached at most

# A record's key is its session's number in the high bits and its position in the low ones.
_POSITIONS = MAX_RECORDS.bit_length() - 1
_SESSIONS = 2**35
"""The numbers that a session can have: with a position after it, it must fit into the key of a record."""

# The columns of a session stand in the order of SessionRow's fields, those of a question in that of QuestionRow's.
_FIND = "SELECT * FROM sessions WHERE app = ? AND id = ?"
_IDLE = """SELECT id, app, user, no FROM sessions WHERE touched < ? AND (owner IS NULL OR expires <= ?)
    AND (app = ? OR ? IS NULL AND app NOT LIKE '~%') AND (? IS NULL OR user = ?) AND no > ?"""
_NUMBER = "SELECT no FROM sessions WHERE app = ? AND id = ? AND (? IS NULL OR user = ?)"
# A damaged number beyond all others must not block every new session; values of other types compare as larger.
_NEWEST = """SELECT CAST(max(
    (SELECT coalesce(max(no), 0) FROM sessions WHERE no < :last),
    (SELECT coalesce(max(key), 0) >> :bits FROM records WHERE key < :last << :bits),
    (SELECT coalesce(max(session), 0) FROM branches WHERE session < :last),
    (SELECT coalesce(max(session), 0) FROM inputs WHERE session < :last),
    (SELECT coalesce(max(session), 0) FROM questions WHERE session < :last)) AS INTEGER)"""
_CREATE = "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# What a step changes, without indexed columns, so it touches one page of the file.
_MOVE = """UPDATE sessions SET number = ?, pos = ?, full_pos = ?, size = ?, status = ?, expires = ?, claims = ?,
    seq = ?, updated = ?, touched = ? WHERE no = ?"""
_SAVE = """UPDATE sessions SET number = ?, pos = ?, full_pos = ?, size = ?, status = ?, expires = ?, claims = ?,
    seq = ?, updated = ?, touched = ?, branch = ?, branch_no = ?, owner = ?, fence = ?, cancel = ?, waiting = ?,
    program = ?, inputs = ? WHERE no = ?"""
_QUESTION = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no FROM questions
    WHERE session = ? AND branch = ? AND id = ?"""
_ASK = """INSERT INTO questions (session, branch, id, expires, body, value, how, by, at, taken,
    address, agent, reason, tags, asked) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_QUESTIONS = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no FROM questions
    WHERE session = ? AND branch = ? ORDER BY no"""

_WAITING = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no FROM questions
    WHERE session = ? AND branch = ? AND (how IS NULL OR NOT taken) ORDER BY no"""
_OPEN = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no,
    address, agent, reason, tags, asked FROM questions WHERE session = ? AND branch = ? AND how IS NULL"""
_RECORD = """SELECT full, source, seq, count, CAST(header AS BLOB), CAST(events AS BLOB), CAST(body AS BLOB), at
    FROM records WHERE key = ?"""
_INPUT = """SELECT id, digest, CAST(body AS BLOB), program, user, abandons, at, taken, no FROM inputs
    WHERE session = ? AND id = ?"""
_QUEUE = """SELECT id, digest, CAST(body AS BLOB), program, user, abandons, at, taken, no FROM inputs
    WHERE session = ? AND NOT taken ORDER BY no LIMIT ?"""
_QUEUE_SIZE = """SELECT total(length(body)) FROM
    (SELECT body FROM inputs WHERE session = ? AND NOT taken ORDER BY no LIMIT ?)"""
_SUBMIT = """INSERT INTO inputs (session, id, digest, program, user, abandons, at, taken, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)"""
_BEGIN = "INSERT OR IGNORE INTO begun VALUES (?, ?, ?)"

T = TypeVar("T")


# Rows are fetched before any is converted: a query cut short by damage would keep its snapshot open, and then
# the connection could not write any more.


def key(row: SessionRow, pos: int) -> int:
    """Return the key of the record at a position."""
    return row.no << _POSITIONS | pos


def read_session(values: Sequence[Any]) -> SessionRow:
    """Return the row of a session from its columns.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    row = session_row(values)
    if not 0 < row.no < _SESSIONS:
        raise CheckpointCorrupt(f"its row has the number {row.no}, which no session can have", row.session)
    return row


def find(connection: sqlite3.Connection, app: str, session: str) -> SessionRow | None:
    """Return the session's row, None if there is none.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    row = find_row(connection, app, session)
    return None if row is None else read_session(row)


def find_row(connection: sqlite3.Connection, app: str, session: str) -> tuple[Any, ...] | None:
    """Return the columns of a session's row, which may be damaged; None if there is none."""
    found: tuple[Any, ...] | None = connection.execute(_FIND, (app, session)).fetchone()
    return found


def branches(connection: sqlite3.Connection, row: SessionRow) -> list[Branch]:
    """Return all branches of a session, in the order of writing."""
    if row.pos < 0:
        return []
    rows = connection.execute(
        "SELECT name, start, first, parent FROM branches WHERE session = ? ORDER BY no", (row.no,)
    ).fetchall()
    found = branch_rows(rows, row.session)
    if (row.branch_no, row.branch) != (len(found) - 1, found[-1].name):
        raise CheckpointCorrupt("its row does not name its newest branch", row.session)
    return found


def has_position(connection: sqlite3.Connection, row: SessionRow, pos: int) -> bool:
    """Return whether the record at a position is there."""
    return connection.execute("SELECT 1 FROM records WHERE key = ?", (key(row, pos),)).fetchone() is not None


def asked_on(connection: sqlite3.Connection, row: SessionRow, branch_no: int) -> list[QuestionRow]:
    """Return the questions of a branch that can be read, in the order of asking."""
    rows = connection.execute(_QUESTIONS, (row.no, branch_no)).fetchall()
    return list(readable(rows, lambda values: question_row(values, row.session)))


def asked_by_id(
    connection: sqlite3.Connection, row: SessionRow, branch_no: int, ids: Iterable[str]
) -> list[QuestionRow]:
    """Return the questions of a branch that have these ids, in the order of asking."""
    found = [connection.execute(_QUESTION, (row.no, branch_no, each)).fetchone() for each in ids]
    rows = [question_row(each, row.session) for each in found if each is not None]
    return sorted(rows, key=lambda each: each.no)


def open_on_head(connection: sqlite3.Connection, row: SessionRow) -> list[QuestionRow]:
    """Return the open questions of the head's branch, with what listings show of them."""
    rows = connection.execute(_OPEN, (row.no, row.branch_no)).fetchall()
    return [
        question_row((*rest, inbox.read_tags(tags, row.session), asked), row.session) for *rest, tags, asked in rows
    ]


def waiting(connection: sqlite3.Connection, row: SessionRow) -> list[QuestionRow]:
    """Return the questions of the head's branch that are open, or whose answer no record has taken."""
    rows = connection.execute(_WAITING, (row.no, row.branch_no)).fetchall()
    return [question_row(each, row.session) for each in rows]


def queue(connection: sqlite3.Connection, row: SessionRow, limit: int | None = None) -> list[InputRow]:
    """Return the inputs that wait in a session's queue, in order."""
    rows = connection.execute(_QUEUE, (row.no, -1 if limit is None else limit)).fetchall()
    return [input_row(each, row.session) for each in rows]


def queue_size(connection: sqlite3.Connection, row: SessionRow, limit: int | None = None) -> float:
    """Return how many bytes the inputs have that wait in a session's queue, without reading them."""
    values = (row.no, -1 if limit is None else limit)
    return float(connection.execute(_QUEUE_SIZE, values).fetchone()[0])


class SQLiteFacts:
    """The facts of a session, looked up as needed, inside one transaction."""

    __slots__ = ("_ledger", "_row", "now")
    assumed = False

    def __init__(self, ledger: SQLiteLedger, row: SessionRow | None, now: float) -> None:
        self._ledger = ledger
        self._row = row
        self.now = now

    @property
    def row(self) -> SessionRow | None:
        return self._row

    @property
    def _there(self) -> SessionRow:
        assert self._row is not None
        return self._row

    def question(self, id: str) -> QuestionRow | None:
        row = self._there
        found = self._ledger.execute(_QUESTION, (row.no, row.branch_no, id)).fetchone()
        return None if found is None else question_row(found, row.session)

    def waiting(self) -> Sequence[QuestionRow]:
        return waiting(self._ledger.connection, self._there)

    def input(self, id: str) -> InputRow | None:
        row = self._there
        found = self._ledger.execute(_INPUT, (row.no, id)).fetchone()
        return None if found is None else input_row(found, row.session)

    def first_input(self) -> InputRow | None:
        return next(iter(queue(self._ledger.connection, self._there, 1)), None)

    def branches(self) -> Sequence[Branch]:
        return branches(self._ledger.connection, self._there)

    def record(self, id: str) -> RecordRow | None:
        self._ledger.add_records()
        row, known = self._there, self.branches()
        pos = locate(known, row.pos, id)
        found = None if pos is None else self._ledger.execute(_RECORD, (key(row, pos),)).fetchone()
        return None if pos is None or found is None else record_row(*id_at(known, pos), pos, found, row.session)

    def points(self) -> Sequence[Point]:
        self._ledger.add_records()
        row = self._there
        rows = self._ledger.execute(
            """SELECT key - :first, full, source IS NOT NULL, at FROM records
               WHERE key BETWEEN :first AND :last ORDER BY key""",
            {"first": key(row, 0), "last": key(row, row.pos)},
        ).fetchall()
        return points(rows, row.session)

    def asking(self) -> Sequence[int]:
        query, row = "SELECT DISTINCT branch FROM questions WHERE session = ? AND how IS NULL", self._there
        rows = self._ledger.execute(query, (row.no,)).fetchall()
        return [converted(values, _Asking, row.session, "the row of a question").branch for values in rows]


class SQLiteLedger:
    """Carries out requests on the one connection that writes, in one transaction at a time.

    The rows of sessions that were read or written last are cached, and stay valid until another connection writes to
    the file.
    """

    def __init__(self, connection: Connection, hints: Fanout) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.has_begun: bool = False
        """Whether a transaction is under way."""
        self.is_shared: bool = False
        """Whether others have written to the file between the last two transactions."""
        self._hints = hints
        self._forget()

    def _forget(self) -> None:
        self._version: tuple[int] | None = None  # changes with every commit of another connection
        self._rows: dict[tuple[str, str], SessionRow] = {}  # as they are in the file
        self._newest: int | None = None  # the highest number of a session
        self._records: list[tuple[Any, ...]] = []  # to be written together
        self._news: list[SessionRef] = []  # sessions to hint at when they are written

    def begin(self) -> None:
        """Begin a transaction, which `commit` or `roll_back` must end."""
        self.execute("BEGIN IMMEDIATE")
        self.has_begun = True
        version = self.execute("PRAGMA data_version").fetchone()
        self.is_shared = self._version is not None and version != self._version
        if version != self._version or len(self._rows) > _KNOWN:
            self._forget()
            self._version = version

    def commit(self) -> None:
        """Make everything durable."""
        self.add_records()
        self.execute("COMMIT")
        self.has_begun = False
        if self._news:
            news, self._news = self._news, []
            for ref in news:
                self._hints.publish(ref)

    def roll_back(self) -> None:
        """Undo the transaction."""
        self.has_begun = False
        self._forget()
        # When the disk is full, SQLite has already rolled back; after some errors it no longer can.
        if self.connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self.execute("ROLLBACK")

    @property
    def changes(self) -> int:
        """How much has been changed so far; it only grows."""
        return self.connection.total_changes + len(self._records)

    def carry_out(self, request: Request[T], now: float) -> T:
        """Decide a request and apply its effects. Their guards hold, since facts and effects share a transaction."""
        row = self._find(request.ref)
        effects, result = request.decide(SQLiteFacts(self, row, now))
        if effects is not None:
            try:
                self._apply(request.ref, row, effects, now)
            except sqlite3.IntegrityError as error:
                # The decision made sure that nothing is in the way, so the file is not as it was written.
                raise CheckpointCorrupt(
                    f"rows that do not belong to it are in its way ({error})", request.ref.id
                ) from error
            if self._hints.is_heard and worth_a_hint(effects):
                self._news.append(request.ref)
        return result

    def delete(self, ref: SessionRef, now: float) -> bool:
        """Remove a session, even a damaged one; return whether there was one."""
        try:
            return self.carry_out(Delete(ref=ref), now)
        except CheckpointCorrupt:
            # A damaged row does not say who runs the session. Whoever deletes it wants it gone.
            numbers = self.execute(_NUMBER, (ref.app, ref.id, ref.user, ref.user)).fetchall()
            for (no,) in numbers:
                inbox.hide_damaged(self.connection, no)
                self._remove(no)
            self._rows.pop((ref.app, ref.id), None)
            return bool(numbers)

    def delete_idle(
        self,
        now: float,
        ttl: float,
        app: str | None,
        user: str | None,
        statuses: Sequence[Status] | None,
        limit: int | None,
    ) -> list[SessionRef]:
        """Remove sessions that nobody runs now, and nobody has touched for `ttl` seconds; damaged ones stay."""
        gone: list[SessionRef] = []
        stored = stored_statuses(statuses)
        query = _IDLE if stored is None else f"{_IDLE} AND status IN ({', '.join('?' * len(stored))})"
        last = -1
        while limit is None or len(gone) < limit:
            most = -1 if limit is None else limit - len(gone)
            values = (now - ttl, now, app, app, user, user, last, *(stored or ()), most)
            rows = self.execute(f"{query} ORDER BY no LIMIT ?", values).fetchall()
            if not rows:
                break
            last = rows[-1][-1]
            idle = readable(rows, _idle_ref)
            gone += [ref for ref in idle if self._delete_if_idle(Delete(ref=ref, idle=ttl, statuses=statuses), now)]
        return gone

    def _delete_if_idle(self, request: Delete, now: float) -> bool:
        try:
            return self.carry_out(request, now)
        except CheckpointCorrupt as damage:
            note_damage(damage)
            return False

    def add_records(self) -> None:
        """Write the gathered records."""
        if not self._records:
            return
        try:
            self.connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._records)
        except sqlite3.IntegrityError as error:
            raise CheckpointCorrupt(
                f"records that do not belong to it are in its way ({error})", self._whose()
            ) from error
        self._records = []

    def _whose(self) -> str | None:
        """Return the session of the gathered records, if there is only one."""
        numbers = {key >> _POSITIONS for key, *_ in self._records}
        names = [row.session for row in self._rows.values() if row.no in numbers]
        return names[0] if len(names) == 1 else None

    def _find(self, ref: SessionRef) -> SessionRow | None:
        known = self._rows.get((ref.app, ref.id))
        if known is None and (known := find(self.connection, ref.app, ref.id)) is not None:
            self._rows[ref.app, ref.id] = known
        return known

    def _apply(self, ref: SessionRef, row: SessionRow | None, effects: Effects, now: float) -> None:
        if row is None:
            row = SessionRow(self._next_number(), ref.id, ref.app, ref.user, now)
            new = advanced(row, effects, now)
            self.execute(_CREATE, astuple(new))
        elif effects.removes:
            self._rows.pop((row.app, row.session), None)
            inbox.hide_all(self.connection, row)
            self._remove(row.no)
            return
        else:
            new = advanced(row, effects, now)
            self._save(row, new)
        self._rows[new.app, new.session] = new
        for record in effects.records:
            self._add(new, record, now)
        for branch in effects.branches:
            if row.branch:
                inbox.hide_all(self.connection, row)  # they are not on the head's branch any more
            place = (new.no, new.branch_no, branch.name, branch.start, branch.first, branch.parent)
            self.execute("INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?)", place)
        if effects.asks or effects.ends or effects.takes:
            self._change_questions(row, new, effects, now)
        if effects.inputs:
            self._change_queue(new, effects, now)
        if effects.begins or effects.notices:
            self._add_beside(new.ref, effects, now)
        if effects.drops:
            gone = [(key(new, pos),) for pos in effects.drops]
            self.connection.executemany("DELETE FROM records WHERE key = ?", gone)

    def _add_beside(self, ref: SessionRef, effects: Effects, now: float) -> None:
        """Add what outlives the session."""
        self.connection.executemany(_BEGIN, [astuple(each) for each in effects.begins])
        outbox.add(self.connection, ref, effects.notices, now)

    def _next_number(self) -> int:
        if self._newest is None:
            # Rows left behind by a damaged session must not become those of a new one.
            self._newest = max(0, int(self.execute(_NEWEST, {"last": _SESSIONS - 1, "bits": _POSITIONS}).fetchone()[0]))
        self._newest += 1
        if self._newest >= _SESSIONS:
            raise CheckpointCorrupt("a row has the highest possible number")
        return self._newest

    def _save(self, old: SessionRow, s: SessionRow) -> None:
        place = (s.number, s.pos, s.full_pos, s.size, s.status, s.expires, s.claims, s.seq, s.updated, s.touched)
        if _rights(s) == _rights(old):
            self.execute(_MOVE, (*place, s.no))
        else:
            self.execute(_SAVE, (*place, *_rights(s), s.no))

    def _add(self, row: SessionRow, record: RecordRow, now: float) -> None:
        r = record
        self._records.append((key(row, r.pos), r.full, now, r.seq, r.count, r.source, r.header, r.events, r.body))

    def _change_questions(self, old: SessionRow, new: SessionRow, effects: Effects, now: float) -> None:
        for question in effects.asks:
            self._ask(new, question)
        for end in effects.ends:
            self._end(new if end.branch == new.branch else old, end, now)
        for taken in effects.takes:
            self.execute(
                "UPDATE questions SET taken = 1 WHERE session = ? AND branch = ? AND id = ?",
                (old.no, old.branch_no, taken),
            )

    def _ask(self, row: SessionRow, question: Question) -> None:
        q = asked_row(question, 0)
        labels = (q.address, q.agent, q.reason, inbox.write_tags(q.tags), q.asked)
        asked = (row.no, row.branch_no, q.id, q.expires, q.body, q.value, q.how, q.by, q.at, q.taken, *labels)
        no = self.execute(_ASK, asked).lastrowid
        if q.is_open and no is not None:
            inbox.show(self.connection, row, q, no)

    def _change_queue(self, row: SessionRow, effects: Effects, now: float) -> None:
        given = effects.submits
        if given is not None:
            content = (given.program, given.user, given.abandons, now, given.body)
            self.execute(_SUBMIT, (row.no, given.id, input_digest(given), *content))
        elif effects.begins_input is not None:
            query = "UPDATE inputs SET taken = 1, body = x'' WHERE session = ? AND id = ?"
            self.execute(query, (row.no, effects.begins_input))
        else:
            self.execute("DELETE FROM inputs WHERE session = ? AND id = ?", (row.no, effects.withdraws))

    def _end(self, row: SessionRow, end: End, now: float) -> None:
        given = end.answer
        inbox.hide(self.connection, row, given.id)
        self.execute(
            """UPDATE questions SET how = ?, taken = ?, at = ?, by = ?, value = ?
               WHERE session = ? AND branch = ? AND id = ?""",
            (given.how, end.taken, now, given.by, given.value, row.no, row.branch_no, given.id),
        )

    def _remove(self, no: int) -> None:
        self.add_records()
        if 0 < no < _SESSIONS:
            first = no << _POSITIONS
            self.execute("DELETE FROM records WHERE key BETWEEN ? AND ?", (first, first + MAX_RECORDS - 1))
        self.execute("DELETE FROM questions WHERE session = ?", (no,))
        self.execute("DELETE FROM inputs WHERE session = ?", (no,))
        self.execute("DELETE FROM branches WHERE session = ?", (no,))
        self.execute("DELETE FROM sessions WHERE no = ?", (no,))


def _rights(s: SessionRow) -> tuple[Any, ...]:  # Any: values of columns
    """Return what a step leaves as it is."""
    return (s.branch, s.branch_no, s.owner, s.fence, s.cancel, s.waiting, s.program, s.inputs)


class _Idle(Columns, frozen=True, gc=False):
    id: str
    app: str
    user: str | None
    no: int


class _Asking(Columns, frozen=True, gc=False):
    branch: Count


def _idle_ref(values: Sequence[Any]) -> SessionRef:
    idle = converted(values, _Idle, values[0], "its row")
    return SessionRef(idle.id, idle.app, idle.user)
