"""Decisions in a SQLite file, most recent first, by an index of what a filter names, or of the time alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.decided import decided, decision_values, selects_decided, way_to
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import Decided, DecisionFilter

from ._tables import BITS, ROWS

_LIST = f"""SELECT s.*, b.name, {ROWS[QUESTIONS].columns("q")}
    FROM questions q INDEXED BY <index> CROSS JOIN sessions s ON s.no = q.session
    CROSS JOIN branches b ON b.key = (q.session << {BITS} | q.branch)
    WHERE q.decided_by IS NOT NULL AND <found> AND (q.at, q.no) < (:at, :no) AND q.at < :until AND q.at >= :since
    AND (:how IS NULL OR q.how = :how) AND (:agent IS NULL OR q.agent = :agent)
    AND (s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%') AND (:user IS NULL OR s.user = :user)
    ORDER BY q.at DESC, q.no DESC LIMIT :limit"""
# The decisions of a user are in no index, which each answer would have to enter: those of their sessions are sorted.
_OF_USER = """SELECT no FROM sessions WHERE user = :user AND owner IS NULL
    UNION ALL SELECT no FROM sessions WHERE user = :user AND owner IS NOT NULL"""
_WAYS = {
    "by": ("questions_decided_by", "q.decided_by = :by"),
    "user": ("questions_key", f"q.session IN ({_OF_USER})"),
    "agent": ("questions_decided_for", "q.agent = :agent"),
    "how": ("questions_decided_how", "q.how = :how"),
    None: ("questions_decided", "true"),
}


class DecisionSearch:
    """The query that lists the decisions that a filter selects, and the values in it."""

    def __init__(self, wanted: DecisionFilter, after: str | None) -> None:
        self._wanted = wanted
        index, found = _WAYS[way_to(wanted)]
        self.query: str = _LIST.replace("<index>", index).replace("<found>", found)
        self.values: dict[str, Any] = decision_values(wanted, after)

    def read(self, values: Sequence[Any]) -> Decided:
        """Return a decision from the columns of the query.

        Raises:
            CheckpointCorrupt: they are not what was written.
        """
        row = session_row(values[:_COLUMNS])
        branch, *columns = values[_COLUMNS:]
        asked = question_row(ROWS[QUESTIONS].plain(columns, row.session), row.session)
        if not isinstance(branch, str) or not selects_decided(self._wanted, row, asked):
            raise CheckpointCorrupt(f"its question '{asked.id}' is in the index where it does not belong", row.session)
        return decided(row, branch, asked)


_COLUMNS = len(SESSIONS.fields)
