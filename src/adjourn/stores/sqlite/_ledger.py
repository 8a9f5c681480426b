"""The ledger's operations as SQL, and the transactions that hold them."""

# An override is documented where it is declared.

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple, replace

from adjourn.stores._ledger import Asked
from adjourn.stores._rows import Branch, Point, Standing
from adjourn.stores.protocol import Answer, Answered, Question, Write

_KNOWN = 1000  # rows of sessions that are kept in mind at most

# A record's key is its session's number in the high bits and its position in the low ones.
_POSITIONS = 28

# The columns of a session stand in the order of Standing's fields, those of a question in that of Asked's.
_FIND = "SELECT * FROM sessions WHERE id = ?"
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


def key(standing: Standing, pos: int) -> int:
    """The key of the record at a position."""
    return standing.no << _POSITIONS | pos


def find(connection: sqlite3.Connection, session: str) -> Standing | None:
    """The session's row, None if there is none."""
    row = connection.execute(_FIND, (session,)).fetchone()
    return None if row is None else Standing(*row)


def branches(connection: sqlite3.Connection, standing: Standing) -> list[Branch]:
    """All branches of a session, in the order of writing."""
    rows = connection.execute(
        "SELECT name, start, first, parent FROM branches WHERE session = ? ORDER BY no", (standing.no,)
    )
    return [Branch(*row) for row in rows]


def has_position(connection: sqlite3.Connection, standing: Standing, pos: int) -> bool:
    """Whether the record at a position is there."""
    return connection.execute("SELECT 1 FROM records WHERE key = ?", (key(standing, pos),)).fetchone() is not None


def questions(connection: sqlite3.Connection, standing: Standing) -> list[Asked]:
    """The questions of the head's branch, in the order of asking."""
    rows = connection.execute(_QUESTIONS, (standing.no, standing.branch_no))
    return [Asked(*row) for row in rows]


def untaken(connection: sqlite3.Connection, standing: Standing) -> tuple[Answered, ...]:
    """The answers on the head's branch that no record has taken."""
    rows = connection.execute(
        """SELECT id, CAST(value AS BLOB), how, by, at FROM questions
           WHERE session = ? AND branch = ? AND how IS NOT NULL AND NOT taken ORDER BY no""",
        (standing.no, standing.branch_no),
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
        self._rows: dict[str, Standing] = {}  # as they are in the file
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

    def find(self, session: str) -> Standing | None:
        found = self._rows.get(session) or find(self.connection, session)
        if found is None:
            return None
        self._rows[session] = found
        return replace(found)  # a copy, since the caller changes it

    def create(self, session: str, app: str, user: str | None, now: float) -> Standing:
        if self._newest is None:
            self._newest = int(self._execute("SELECT coalesce(max(no), 0) FROM sessions").fetchone()[0])
        self._newest += 1
        return Standing(self._newest, session, app, user, now)

    def save(self, standing: Standing) -> None:
        s, old = standing, self._rows.get(standing.session)
        self._rows[s.session] = replace(s)
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

    def remove(self, standing: Standing) -> None:
        self._add_records()
        self._rows.pop(standing.session, None)
        self._execute("DELETE FROM records WHERE key BETWEEN ? AND ?", (key(standing, 0), key(standing, standing.pos)))
        self._execute("DELETE FROM questions WHERE session = ?", (standing.no,))
        self._execute("DELETE FROM branches WHERE session = ?", (standing.no,))
        self._execute("DELETE FROM sessions WHERE no = ?", (standing.no,))

    def idle(self, now: float, since: float) -> list[Standing]:
        return [Standing(*row) for row in self._execute(_IDLE, (since, now))]

    def branches(self, standing: Standing) -> Sequence[Branch]:
        return branches(self.connection, standing)

    def add_branch(self, standing: Standing, branch: Branch) -> None:
        self._execute(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?)",
            (standing.no, standing.branch_no, branch.name, branch.start, branch.first, branch.parent),
        )

    def add_record(self, standing: Standing, write: Write, header: bytes, now: float) -> None:
        self._records.append(
            (
                key(standing, standing.pos),
                write.full,
                now,
                standing.seq,
                write.event_count,
                write.header.source,
                header,
                write.events,
                write.body,
            )
        )

    def has_record(self, standing: Standing, pos: int, write: Write, header: bytes) -> bool:
        self._add_records()
        row = self._execute(
            "SELECT full, count, header, events, body FROM records WHERE key = ?", (key(standing, pos),)
        ).fetchone()
        return row == (write.full, write.event_count, header, write.events, write.body)

    def has_position(self, standing: Standing, pos: int) -> bool:
        self._add_records()
        return has_position(self.connection, standing, pos)

    def points(self, standing: Standing) -> Sequence[Point]:
        self._add_records()
        rows = self._execute(
            """SELECT key - :first, full, source IS NOT NULL, at FROM records
               WHERE key BETWEEN :first AND :last ORDER BY key""",
            {"first": key(standing, 0), "last": key(standing, standing.pos)},
        )
        return [Point(*row) for row in rows]

    def drop_records(self, standing: Standing, points: Sequence[Point]) -> None:
        self.connection.executemany(
            "DELETE FROM records WHERE key = ?", [(key(standing, point.pos),) for point in points]
        )

    def question(self, standing: Standing, id: str) -> Asked | None:
        row = self._execute(_QUESTION, (standing.no, standing.branch_no, id)).fetchone()
        return None if row is None else Asked(*row)

    def open_questions(self, standing: Standing) -> list[str]:
        return [asked.id for asked in questions(self.connection, standing) if asked.how is None]

    def asking(self, standing: Standing) -> list[int]:
        rows = self._execute("SELECT DISTINCT branch FROM questions WHERE session = ? AND how IS NULL", (standing.no,))
        return [branch for (branch,) in rows]

    def untaken(self, standing: Standing) -> tuple[Answered, ...]:
        return untaken(self.connection, standing)

    def ask(self, standing: Standing, question: Question) -> None:
        self._execute(
            "INSERT INTO questions (session, branch, id, taken, expires, body) VALUES (?, ?, ?, 0, ?, ?)",
            (standing.no, standing.branch_no, question.id, question.expires, question.body),
        )

    def end(self, standing: Standing, answer: Answer, now: float, *, taken: bool) -> None:
        self._execute(
            """UPDATE questions SET how = ?, taken = ?, at = ?, by = ?, value = ?
               WHERE session = ? AND branch = ? AND id = ?""",
            (answer.how, taken, now, answer.by, answer.value, standing.no, standing.branch_no, answer.id),
        )

    def take(self, standing: Standing, id: str) -> bool:
        changed = self._execute(
            """UPDATE questions SET taken = 1
               WHERE session = ? AND branch = ? AND id = ? AND how IS NOT NULL AND NOT taken""",
            (standing.no, standing.branch_no, id),
        )
        return changed.rowcount > 0
