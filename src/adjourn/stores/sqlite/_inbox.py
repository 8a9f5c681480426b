"""The inbox of a SQLite file: an index of the open questions by their terms, and listings that walk it.

The table `inbox` has the open questions of the branch of each session's head, once for each of their terms, in the
order in which they are listed. A listing walks the rarest term of its filter, looks up the others, and stops at its
limit.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.inbox import open_question, place_of, selects, terms_in
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import OpenQuestion, QuestionFilter

from ._tables import ROWS

_SELECTED = f"s.*, i.asked, {ROWS[QUESTIONS].columns('q')}"
_BEHIND = "i.term = :term AND (i.asked, i.no) > (:asked, :no) AND i.asked < :asked_before"
_UNEXPIRED = """(i.expires IS NULL OR i.expires > :now)
    AND (:expires_before IS NULL OR i.expires < :expires_before)"""
_WITH_OTHERS = """(:others = 0 OR :others = (SELECT count(*) FROM inbox t
    WHERE t.term IN (:term1, :term2, :term3, :term4, :term5) AND t.asked = i.asked AND t.no = i.no))"""

# CROSS JOIN keeps the order of the tables: first the inbox, or the questions that expire soon, then the rest by key.
_LIST = f"""SELECT {_SELECTED} FROM inbox i CROSS JOIN questions q ON q.no = i.no
    CROSS JOIN sessions s ON s.no = q.session
    WHERE {_BEHIND} AND {_UNEXPIRED} AND {_WITH_OTHERS} AND q.how IS NULL AND q.branch = s.branch_no
    ORDER BY i.asked, i.no LIMIT :limit"""
_LIST_EXPIRING = f"""SELECT {_SELECTED} FROM questions q CROSS JOIN inbox i ON i.asked = q.asked AND i.no = q.no
    CROSS JOIN sessions s ON s.no = q.session
    WHERE q.how IS NULL AND q.expires IS NOT NULL AND q.expires > :now AND q.expires < :expires_before
    AND {_BEHIND} AND {_WITH_OTHERS} AND q.branch = s.branch_no
    ORDER BY q.asked, q.no LIMIT :limit"""
_COUNT = f"SELECT count(*) FROM inbox i WHERE {_BEHIND} AND {_UNEXPIRED} AND {_WITH_OTHERS}"

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
        place, *columns = values[_COLUMNS:]
        question = question_row(ROWS[QUESTIONS].plain(columns, row.session), row.session)
        # A cursor from another time than the index has could lead back, again and again.
        if question.asked != place or not selects(self._wanted, row, question):
            raise CheckpointCorrupt(
                f"its question '{question.id}' is in the index where it does not belong", row.session
            )
        return open_question(row, question)


_COLUMNS = len(SESSIONS.fields)


def _number(connection: sqlite3.Connection, query: str, *values: Any) -> int:
    return int(connection.execute(query, values).fetchone()[0])


def count_questions(connection: sqlite3.Connection, now: float, wanted: QuestionFilter) -> int:
    """Return how many open questions a filter selects."""
    search = Search(connection, now, wanted, None)
    return int(connection.execute(_COUNT, search.values).fetchone()[0])
