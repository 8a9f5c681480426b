"""The inbox of a SQLite file: an index of the open questions by their terms, and listings that walk it.

The table `inbox` has the open questions of the branch of each session's head, once for each of their terms, in the
order in which they are listed. A listing walks the rarest term
of its filter, looks up the others, and stops at its limit.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.inbox import open_question, place_of, selects, terms_in, terms_of
from adjourn.stores.kit.reading import Columns, Count, converted, question_row, session_row
from adjourn.stores.kit.rows import QuestionRow, SessionRow
from adjourn.stores.types import OpenQuestion, QuestionFilter

_OPEN = """SELECT no, address, agent, reason, tags, asked FROM questions
    WHERE session = ? AND branch = ? AND how IS NULL"""
_OPEN_NAMED = """SELECT no, address, agent, reason, tags, asked FROM questions
    WHERE session = ? AND branch = ? AND id = ? AND how IS NULL"""


# Writing


def show(connection: sqlite3.Connection, row: SessionRow, asked: QuestionRow, no: int) -> None:
    """Put a question into the inbox."""
    rows = [(term, asked.asked, no, asked.expires) for term in terms_of(row, asked)]
    connection.executemany("INSERT OR REPLACE INTO inbox VALUES (?, ?, ?, ?)", rows)


def hide(connection: sqlite3.Connection, row: SessionRow, id: str) -> None:
    """Take a question of the row's branch out of the inbox, if it is open.

    Raises:
        CheckpointCorrupt: its row is damaged.
    """
    _hide(connection, row, connection.execute(_OPEN_NAMED, (row.no, row.branch_no, id)).fetchall())


def hide_all(connection: sqlite3.Connection, row: SessionRow) -> None:
    """Take all questions of the row's branch out of the inbox.

    Raises:
        CheckpointCorrupt: the row of one is damaged.
    """
    _hide(connection, row, connection.execute(_OPEN, (row.no, row.branch_no)).fetchall())


def hide_damaged(connection: sqlite3.Connection, no: int) -> None:
    """Take all questions of a session out of the inbox, whatever their rows say; this reads the whole inbox."""
    connection.execute("DELETE FROM inbox WHERE no IN (SELECT no FROM questions WHERE session = ?)", (no,))


class _Labels(Columns, frozen=True, gc=False):
    no: Count
    address: str
    agent: str
    reason: str
    tags: str
    asked: float


def _hide(connection: sqlite3.Connection, row: SessionRow, rows: Iterable[Sequence[Any]]) -> None:
    for values in rows:
        q = converted(values, _Labels, row.session, "the row of a question")
        labels = (q.address, q.agent, q.reason, read_tags(q.tags, row.session))
        terms = terms_of(row, QuestionRow("", b"", None, None, None, None, None, False, q.no, *labels))
        gone = [(term, q.asked, q.no) for term in terms]
        connection.executemany("DELETE FROM inbox WHERE term = ? AND asked = ? AND no = ?", gone)


def write_tags(tags: tuple[str, ...]) -> str:
    """Return the tags of a question for their column."""
    return msgspec.json.encode(tags).decode() if tags else ""


def read_tags(stored: object, session: str) -> tuple[str, ...]:
    """Return the tags of a question from their column.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    try:
        return () if stored == "" else _tags.decode(cast("str", stored))
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise CheckpointCorrupt(f"the tags of a question are damaged ({error})", session) from error


_tags = msgspec.json.Decoder(tuple[str, ...])


# Reading


# CROSS JOIN keeps the order of the tables: first the inbox, or the questions that expire soon, then the rest by key.
_LIST = """SELECT s.*, q.id, CAST(q.body AS BLOB), q.expires, CAST(q.value AS BLOB), q.how, q.by, q.at,
    q.taken, q.no, q.address, q.agent, q.reason, q.tags, q.asked, i.asked
    FROM inbox i CROSS JOIN questions q ON q.no = i.no CROSS JOIN sessions s ON s.no = q.session
    WHERE i.term = :term AND (i.asked, i.no) > (:asked, :no) AND i.asked < :asked_before
    AND (i.expires IS NULL OR i.expires > :now) AND (:expires_before IS NULL OR i.expires < :expires_before)
    AND (:others = 0 OR :others = (SELECT count(*) FROM inbox t
        WHERE t.term IN (:term1, :term2, :term3, :term4, :term5) AND t.asked = i.asked AND t.no = i.no))
    AND q.how IS NULL AND q.branch = s.branch_no
    ORDER BY i.asked, i.no LIMIT :limit"""
_LIST_EXPIRING = """SELECT s.*, q.id, CAST(q.body AS BLOB), q.expires, CAST(q.value AS BLOB), q.how, q.by, q.at,
    q.taken, q.no, q.address, q.agent, q.reason, q.tags, q.asked, i.asked
    FROM questions q CROSS JOIN inbox i ON i.asked = q.asked AND i.no = q.no CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.expires IS NOT NULL AND q.expires > :now AND q.expires < :expires_before
    AND i.term = :term AND (i.asked, i.no) > (:asked, :no) AND i.asked < :asked_before
    AND (:others = 0 OR :others = (SELECT count(*) FROM inbox t
        WHERE t.term IN (:term1, :term2, :term3, :term4, :term5) AND t.asked = i.asked AND t.no = i.no))
    AND q.branch = s.branch_no
    ORDER BY q.asked, q.no LIMIT :limit"""
_COUNT = """SELECT count(*) FROM inbox i
    WHERE i.term = :term AND (i.asked, i.no) > (:asked, :no) AND i.asked < :asked_before
    AND (i.expires IS NULL OR i.expires > :now) AND (:expires_before IS NULL OR i.expires < :expires_before)
    AND (:others = 0 OR :others = (SELECT count(*) FROM inbox t
        WHERE t.term IN (:term1, :term2, :term3, :term4, :term5) AND t.asked = i.asked AND t.no = i.no))"""

_MANY = 1000
"""As far as this, questions are counted to find out which way to them is the shortest."""
_FEW_WITH_TERM = "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE term = ? LIMIT ?)"
_FEW_EXPIRING = """SELECT count(*) FROM (SELECT 1 FROM questions
    WHERE how IS NULL AND expires IS NOT NULL AND expires > ? AND expires < ? LIMIT ?)"""


class Search:
    """A search of the inbox: the query that lists what a filter selects, and the values in it."""

    def __init__(self, connection: sqlite3.Connection, now: float, wanted: QuestionFilter, after: str | None) -> None:
        ways = {term: _number(connection, _FEW_WITH_TERM, term, _MANY) for term in terms_in(wanted)}
        term, *others = sorted(ways, key=ways.__getitem__)
        # No number is below 0, so this place is just before all questions of that time.
        begins = (-math.inf if wanted.asked_after is None else wanted.asked_after, -1)
        asked, no = begins if after is None else max(begins, place_of(after))
        self._wanted = wanted
        self.query = _LIST
        if wanted.expires_before is not None:
            expiring = _number(connection, _FEW_EXPIRING, now, wanted.expires_before, _MANY)
            self.query = _LIST_EXPIRING if expiring < ways[term] else _LIST
        self.values: dict[str, Any] = {
            "term": term,
            **{f"term{number}": None for number in range(1, 6)},
            **{f"term{number}": other for number, other in enumerate(others, 1)},
            "others": len(others),
            "asked": asked,
            "no": no,
            "asked_before": math.inf if wanted.asked_before is None else wanted.asked_before,
            "expires_before": wanted.expires_before,
            "now": now,
        }

    def read(self, values: Sequence[Any]) -> OpenQuestion:
        """Return a question from the columns of the query.

        Raises:
            CheckpointCorrupt: they are not what was written, or the index has led to a question that is not wanted.
        """
        row = session_row(values[:_COLUMNS])
        *rest, tags, asked, place = values[_COLUMNS:]
        question = question_row((*rest, read_tags(tags, row.session), asked), row.session)
        # A cursor from another time than the index has could lead back, again and again.
        if question.asked != place or not selects(self._wanted, row, question):
            raise CheckpointCorrupt(
                f"its question '{question.id}' is in the index where it does not belong", row.session
            )
        return open_question(row, question)


_COLUMNS = len(SessionRow.__struct_fields__)


def _number(connection: sqlite3.Connection, query: str, *values: Any) -> int:
    return int(connection.execute(query, values).fetchone()[0])


def count_questions(connection: sqlite3.Connection, now: float, wanted: QuestionFilter) -> int:
    """Return how many open questions a filter selects."""
    search = Search(connection, now, wanted, None)
    return int(connection.execute(_COUNT, search.values).fetchone()[0])
