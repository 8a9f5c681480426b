"""The ledger's operations as SQL, and the transactions that hold them."""

# An override is documented where it is declared.

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple, replace

from adjourn.stores._ledger import QuestionRow
from adjourn.stores._rows import Branch, Point, SessionRow
from adjourn.stores.protocol import Answer, Answered, Question, SessionRef, Write

_KNOWN = 1000  # rows of sessions that are kept in mind at most

# A record's key is its session's number in the high bits and its position in the low ones.
_POSITIONS = 28

# The columns of a session stand in the order of SessionRow's fields, those of a question in that of QuestionRow's.
_FIND = "SELECT * FROM sessions WHERE app = ? AND id = ?"
_IDLE = "SELECT * FROM sessions WHERE updated < ? AND (owner IS NULL OR expires <= ?) ORDER BY no"
_CREATE = "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# What a step changes; without the columns that indexes look at, so it touches one page of the file.
_MOVE = """UPDATE sessions SET number = ?, pos = ?, full_pos = ?, size = ?, status = ?, expires = ?, claims = ?,
    seq = ?, updated = ? WHERE no = ?"""
_SAVE = """UPDATE sessions SET number = ?, pos = ?, full_pos = ?, size = ?, status = ?, expires = ?, claims = ?,
    seq = ?, updated = ?, branch = ?, branch_no = ?, owner = ?, fence = ?, cancel = ?, waiting = ? WHERE no = ?"""
_QUESTION = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no FROM questions
    WHERE session = ? AND branch = ? AND id = ?"""
_QUESTIONS = """SELECT id, CAST(body AS BLOB), expires, CAST(value AS BLOB), how, by, at, taken, no FROM questions
    WHERE session = ? AND branch = ? ORDER BY no"""


def key(row: SessionRow, pos: int) -> int:
    """The key of the record at a position."""
    return row.no << _POSITIONS | pos


def find(connection: sqlite3.Connection, app: str, session: str) -> SessionRow | None:
    """Return the session's row, None if there is none."""
    row = connection.execute(_FIND, (app, session)).fetchone()
    return None if row is None else SessionRow(*row)


def branches(connection: sqlite3.Connection, row: SessionRow) -> list[Branch]:
    """All branches of a session, in the order of writing."""
    rows = connection.execute(
        "SELECT name, start, first, parent FROM branches WHERE session = ? ORDER BY no", (row.no,)
    )
    return [Branch(*row) for row in rows]


def has_position(connection: sqlite3.Connection, row: SessionRow, pos: int) -> bool:
    """Whether the record at a position is there."""
    return connection.execute("SELECT 1 FROM records WHERE key = ?", (key(row, pos),)).fetchone() is not None


def asked_on(connection: sqlite3.Connection, row: SessionRow) -> list[QuestionRow]:
    """The questions of the head's branch, in the order of asking."""
    rows = connection.execute(_QUESTIONS, (row.no, row.branch_no))
    return [QuestionRow(*row) for row in rows]


def untaken(connection: sqlite3.Connection, row: SessionRow) -> tuple[Answered, ...]:
    """The answers on the head's branch that no record has taken."""
    rows = connection.execute(
        """SELECT id, CAST(value AS BLOB), how, by, at FROM questions
           WHERE session = ? AND branch = ? AND how IS NOT NULL AND NOT taken ORDER BY no""",
        (row.no, row.branch_no),
    )
    return tuple(Answered(id=own, value=value, how=how, by=by, at=at) for own, value, how, by, at in rows)


class SQLiteLedger:
    """The ledger on the one connection that writes, in one transaction at a time.

    The rows of sessions that were read or written last are kept in mind, and count for as long as no other connection
    has written to the file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._execute = connection.execute
        self._forget()

    def _forget(self) -> None:
        self._version: tuple[int] | None = None  # changes with every commit of another connection
        self._rows: dict[tuple[str, str], SessionRow] = {}  # as they are in the file
        self._newest: int | None = None  # the highest number of a session
        self._records: list[tuple[object, ...]] = []  # which are written together

    def begin(self) -> None:
        """Begin a transaction, which `commit` or `roll_back` must end."""
        self._execute("BEGIN IMMEDIATE")
        version = self._execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._rows) > _KNOWN:
            self._forget()
            self._version = version

    def commit(self) -> None:
        """Make everything durable."""
        self._add_records()
        self._execute("COMMIT")

    def roll_back(self) -> None:
        """Undo the transaction."""
        self._forget()
        # When the disk is full, SQLite has rolled back by itself; after some errors it cannot any more.
        if self.connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._execute("ROLLBACK")

    @property
    def changes(self) -> int:
        """How much has been changed up to now; it only grows."""
        return self.connection.total_changes + len(self._records)

    def find(self, app: str, session: str) -> SessionRow | None:
        found = self._rows.get((app, session)) or find(self.connection, app, session)
        if found is None:
            return None
        self._rows[app, session] = found
        return replace(found)  # a copy, since the caller changes it

    def create(self, ref: SessionRef, now: float) -> SessionRow:
        if self._newest is None:
            self._newest = int(self._execute("SELECT coalesce(max(no), 0) FROM sessions").fetchone()[0])
        self._newest += 1
        return SessionRow(self._newest, ref.id, ref.app, ref.user, now)

    def save(self, row: SessionRow) -> None:
        s, old = row, self._rows.get((row.app, row.session))
        self._rows[s.app, s.session] = replace(s)
        if old is None:
            self._execute(_CREATE, astuple(s))
            return
        place = (s.number, s.pos, s.full_pos, s.size, s.status, s.expires, s.claims, s.seq, s.updated)
        rights = (s.branch, s.branch_no, s.owner, s.fence, s.cancel, s.waiting)
        if rights == (old.branch, old.branch_no, old.owner, old.fence, old.cancel, old.waiting):
            self._execute(_MOVE, (*place, s.no))
        else:
            self._execute(_SAVE, (*place, *rights, s.no))

    def _add_records(self) -> None:
        if self._records:
            self.connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._records)
            self._records = []

    def remove(self, row: SessionRow) -> None:
        self._add_records()
        self._rows.pop((row.app, row.session), None)
        self._execute("DELETE FROM records WHERE key BETWEEN ? AND ?", (key(row, 0), key(row, row.pos)))
        self._execute("DELETE FROM questions WHERE session = ?", (row.no,))
        self._execute("DELETE FROM branches WHERE session = ?", (row.no,))
        self._execute("DELETE FROM sessions WHERE no = ?", (row.no,))

    def idle(self, now: float, since: float) -> list[SessionRow]:
        return [SessionRow(*row) for row in self._execute(_IDLE, (since, now))]

    def branches(self, row: SessionRow) -> Sequence[Branch]:
        return branches(self.connection, row)

    def add_branch(self, row: SessionRow, branch: Branch) -> None:
        self._execute(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?)",
            (row.no, row.branch_no, branch.name, branch.start, branch.first, branch.parent),
        )

    def add_record(self, row: SessionRow, write: Write, header: bytes, now: float) -> None:
        self._records.append(
            (
                key(row, row.pos),
                write.full,
                now,
                row.seq,
                write.event_count,
                write.header.source,
                header,
                write.events,
                write.body,
            )
        )

    def has_record(self, row: SessionRow, pos: int, write: Write, header: bytes) -> bool:
        self._add_records()
        found = self._execute(
            "SELECT full, count, header, events, body FROM records WHERE key = ?", (key(row, pos),)
        ).fetchone()
        return found == (write.full, write.event_count, header, write.events, write.body)

    def has_position(self, row: SessionRow, pos: int) -> bool:
        self._add_records()
        return has_position(self.connection, row, pos)

    def points(self, row: SessionRow) -> Sequence[Point]:
        self._add_records()
        rows = self._execute(
            """SELECT key - :first, full, source IS NOT NULL, at FROM records
               WHERE key BETWEEN :first AND :last ORDER BY key""",
            {"first": key(row, 0), "last": key(row, row.pos)},
        )
        return [Point(*row) for row in rows]

    def drop_records(self, row: SessionRow, points: Sequence[Point]) -> None:
        self.connection.executemany("DELETE FROM records WHERE key = ?", [(key(row, point.pos),) for point in points])

    def question(self, row: SessionRow, id: str) -> QuestionRow | None:
        found = self._execute(_QUESTION, (row.no, row.branch_no, id)).fetchone()
        return None if found is None else QuestionRow(*found)

    def open_questions(self, row: SessionRow) -> list[str]:
        return [asked.id for asked in asked_on(self.connection, row) if asked.how is None]

    def asking(self, row: SessionRow) -> list[int]:
        rows = self._execute("SELECT DISTINCT branch FROM questions WHERE session = ? AND how IS NULL", (row.no,))
        return [branch for (branch,) in rows]

    def untaken(self, row: SessionRow) -> tuple[Answered, ...]:
        return untaken(self.connection, row)

    def ask(self, row: SessionRow, question: Question) -> None:
        self._execute(
            "INSERT INTO questions (session, branch, id, taken, expires, body) VALUES (?, ?, ?, 0, ?, ?)",
            (row.no, row.branch_no, question.id, question.expires, question.body),
        )

    def end(self, row: SessionRow, answer: Answer, now: float, *, taken: bool) -> None:
        self._execute(
            """UPDATE questions SET how = ?, taken = ?, at = ?, by = ?, value = ?
               WHERE session = ? AND branch = ? AND id = ?""",
            (answer.how, taken, now, answer.by, answer.value, row.no, row.branch_no, answer.id),
        )

    def take(self, row: SessionRow, id: str) -> bool:
        changed = self._execute(
            """UPDATE questions SET taken = 1
               WHERE session = ? AND branch = ? AND id = ? AND how IS NOT NULL AND NOT taken""",
            (row.no, row.branch_no, id),
        )
        return changed.rowcount > 0
