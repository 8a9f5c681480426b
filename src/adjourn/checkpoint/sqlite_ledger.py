"""The ledger's operations as SQL, inside a transaction that the writer has begun."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from copy import copy

from adjourn.checkpoint.ledger import Asked
from adjourn.checkpoint.pruning import Point
from adjourn.checkpoint.sqlite_errors import no_text
from adjourn.checkpoint.standing import Branch, Standing
from adjourn.checkpoint.store import Answer, Answered, Question, Write

# A record's key is its session's number in the high bits and its position in the low ones.
_POSITIONS = 28

# The columns of a session stand in the order of Standing's fields, those of a question in that of Asked's.
_FIND = "SELECT * FROM sessions WHERE id = ?"
_IDLE = "SELECT * FROM sessions WHERE updated < ? AND (owner IS NULL OR expires <= ?) ORDER BY no"
_CREATE = """INSERT INTO sessions (id, app, user, created, branch, branch_no, number, pos, full_pos, size, status,
    expires, fence, claims, seq, updated, waiting) VALUES (?, ?, ?, ?, '', 0, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0)"""
_SAVE = """UPDATE sessions SET branch = ?, branch_no = ?, number = ?, pos = ?, full_pos = ?, size = ?, status = ?,
    owner = ?, expires = ?, fence = ?, claims = ?, seq = ?, updated = ?, cancel = ?, waiting = ? WHERE no = ?"""
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
    """The ledger in one transaction, which `flush` must end: sessions are saved once, and records together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._unsaved: dict[str, Standing] = {}
        self._records: list[tuple[object, ...]] = []

    def find(self, session: str) -> Standing | None:
        unsaved = self._unsaved.get(session)
        # A copy, since an operation that fails may have changed it by then.
        return find(self._connection, session) if unsaved is None else copy(unsaved)

    def create(self, session: str, app: str, user: str | None, now: float) -> Standing:
        no = self._execute(_CREATE, (session, app, user, now)).lastrowid
        assert no is not None
        return Standing(no, session, app, user, now)

    def save(self, standing: Standing) -> None:
        self._unsaved[standing.session] = standing

    def flush(self) -> None:
        """Write what was saved."""
        self._add_records()
        for s in self._unsaved.values():
            place = (s.branch, s.branch_no, s.number, s.pos, s.full_pos, s.size, s.status)
            rights = (s.owner, s.expires, s.fence, s.claims)
            try:
                self._execute(_SAVE, (*place, *rights, s.seq, s.updated, s.cancel, s.waiting, s.no))
            except UnicodeEncodeError as error:
                raise no_text(error) from error
        self._unsaved.clear()

    def _add_records(self) -> None:
        if self._records:
            self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._records)
            self._records = []

    def remove(self, standing: Standing) -> None:
        self._add_records()
        self._unsaved.pop(standing.session, None)
        self._execute("DELETE FROM records WHERE key BETWEEN ? AND ?", (key(standing, 0), key(standing, standing.pos)))
        self._execute("DELETE FROM questions WHERE session = ?", (standing.no,))
        self._execute("DELETE FROM branches WHERE session = ?", (standing.no,))
        self._execute("DELETE FROM sessions WHERE no = ?", (standing.no,))

    def idle(self, now: float, since: float) -> list[Standing]:
        self.flush()
        return [Standing(*row) for row in self._execute(_IDLE, (since, now))]

    def branches(self, standing: Standing) -> Sequence[Branch]:
        return branches(self._connection, standing)

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
        return has_position(self._connection, standing, pos)

    def points(self, standing: Standing) -> Sequence[Point]:
        self._add_records()
        rows = self._execute(
            """SELECT key - :first, full, source IS NOT NULL, at FROM records
               WHERE key BETWEEN :first AND :last ORDER BY key""",
            {"first": key(standing, 0), "last": key(standing, standing.pos)},
        )
        return [Point(*row) for row in rows]

    def drop_records(self, standing: Standing, points: Sequence[Point]) -> None:
        self._connection.executemany(
            "DELETE FROM records WHERE key = ?", [(key(standing, point.pos),) for point in points]
        )

    def question(self, standing: Standing, id: str) -> Asked | None:
        row = self._execute(_QUESTION, (standing.no, standing.branch_no, id)).fetchone()
        return None if row is None else Asked(*row)

    def open_questions(self, standing: Standing) -> list[str]:
        return [asked.id for asked in questions(self._connection, standing) if asked.how is None]

    def asking(self, standing: Standing) -> list[int]:
        rows = self._execute("SELECT DISTINCT branch FROM questions WHERE session = ? AND how IS NULL", (standing.no,))
        return [branch for (branch,) in rows]

    def untaken(self, standing: Standing) -> tuple[Answered, ...]:
        return untaken(self._connection, standing)

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
