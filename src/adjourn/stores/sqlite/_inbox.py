"""The inbox of a SQLite file: an index of the open questions by their terms, and listings that walk it.

The table `inbox` has the open questions of the branch of each session's head, once for each of their terms, in the
order in which they were asked, and an index has those that expire in the order of that. A listing walks the rarest term
of its filter in one of the two, looks up the others, and stops at its limit.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.inbox import Place, Stretch, open_question, selects, terms_in
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import OpenQuestion, QuestionFilter

from ._tables import ROWS

_BEHIND = "i.term = :term AND (i.<by>, i.no) > (:time, :no) AND i.asked < :asked_before"
_UNEXPIRED = """(i.expires IS NULL OR i.expires > :now)
    AND (:expires_before IS NULL OR i.expires < :expires_before)"""
_WITH_OTHERS = """:others = (SELECT count(*) FROM inbox t
    WHERE t.term IN (<terms>) AND t.asked = i.asked AND t.no = i.no)"""

# CROSS JOIN keeps the order of the tables: first the inbox, or the questions that expire soon, then the rest by key.
_SELECT = f"SELECT s.*, i.<by>, {ROWS[QUESTIONS].columns('q')} FROM"
_WALK = f"""CROSS JOIN questions q ON q.no = i.no CROSS JOIN sessions s ON s.no = q.session
    WHERE {_BEHIND} AND {_UNEXPIRED} AND <others> AND q.how IS NULL AND q.branch = s.branch_no"""
_ORDER = "ORDER BY i.<by>, i.no LIMIT :limit"
_LISTS = {
    Stretch.ASKED: f"{_SELECT} inbox i {_WALK} {_ORDER}",
    Stretch.LASTING: f"{_SELECT} inbox i {_WALK} AND i.expires IS NULL {_ORDER}",
    Stretch.EXPIRING: f"""{_SELECT} inbox i INDEXED BY inbox_expiring {_WALK}
        AND i.expires > :now AND i.asked >= :asked_after {_ORDER}""",
}
_LIST_EXPIRING = f"""{_SELECT} inbox i INDEXED BY inbox_expiring {_WALK}
    AND i.expires > :now AND i.expires < :expires_before {_ORDER}"""
_COUNT = f"SELECT count(*) FROM inbox i WHERE {_BEHIND} AND {_UNEXPIRED} AND <others>"

_MANY = 1000
"""As far as this, questions are counted to find out which way to them is the shortest."""
_FEW_WITH_TERM = "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE term = ? LIMIT ?)"
_FEW_EXPIRING = "SELECT count(*) FROM (SELECT 1 FROM inbox WHERE term = ? AND expires > ? AND expires < ? LIMIT ?)"


class Search:
    """A search of the inbox: the query that lists one stretch of what a filter selects, and the values in it."""

    def __init__(self, connection: sqlite3.Connection, now: float, wanted: QuestionFilter, behind: Place) -> None:
        ways = {term: _number(connection, _FEW_WITH_TERM, term, _MANY) for term in terms_in(wanted)}
        term, *others = sorted(ways, key=ways.__getitem__)
        self._wanted = wanted
        self._stretch = behind.stretch
        self._list = _LISTS[behind.stretch]
        if wanted.expires_before is not None and behind.stretch is Stretch.ASKED:
            expiring = _number(connection, _FEW_EXPIRING, term, now, wanted.expires_before, _MANY)
            self._list = _LIST_EXPIRING if expiring < ways[term] else self._list
        asked_after = -math.inf if wanted.asked_after is None else wanted.asked_after
        time, no = behind.time, behind.no
        if behind.stretch.by == "asked":
            time, no = max((time, no), (asked_after, -1))
        self.values: dict[str, Any] = {
            "term": term,
            **{f"term{number}": other for number, other in enumerate(others, 1)},
            "others": len(others),
            "time": time,
            "no": no,
            "asked_after": asked_after,
            "asked_before": math.inf if wanted.asked_before is None else wanted.asked_before,
            "expires_before": wanted.expires_before,
            "now": now,
        }

    def text(self, query: str | None = None) -> str:
        """Return the query that lists the questions, or another one over them."""
        terms = ", ".join([f":term{number}" for number in range(1, self.values["others"] + 1)])
        others = _WITH_OTHERS.replace("<terms>", terms) if terms else "true"
        return (query or self._list).replace("<by>", self._stretch.by).replace("<others>", others)

    def read(self, values: Sequence[Any]) -> OpenQuestion:
        """Return a question from the columns of the query.

        Raises:
            CheckpointCorrupt: they are not what was written, or the index has led to a question that is not wanted.
        """
        row = session_row(values[:_COLUMNS])
        time, *columns = values[_COLUMNS:]
        question = question_row(ROWS[QUESTIONS].plain(columns, row.session), row.session)
        place = self._stretch.place(question)
        # A cursor from another time than the index has could lead back, again and again.
        if place is None or place.time != time or not selects(self._wanted, row, question):
            raise CheckpointCorrupt(
                f"its question '{question.id}' is in the index where it does not belong", row.session
            )
        return open_question(row, question, place)


_COLUMNS = len(SESSIONS.fields)


def _number(connection: sqlite3.Connection, query: str, *values: Any) -> int:
    return int(connection.execute(query, values).fetchone()[0])


def count_questions(connection: sqlite3.Connection, now: float, wanted: QuestionFilter) -> int:
    """Return how many open questions a filter selects."""
    search = Search(connection, now, wanted, Stretch.ASKED.begin)
    return int(connection.execute(search.text(_COUNT), search.values).fetchone()[0])
