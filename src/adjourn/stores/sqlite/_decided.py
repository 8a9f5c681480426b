"""Decisions in a SQLite file, most recent first, by an index of who has decided, of the agent, or of the time alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.decided import decided, selects_decided
from adjourn.stores.kit.inbox import place_of
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import Decided, DecisionFilter

from ._tables import BITS, ROWS

_LIST = f"""SELECT s.*, b.name, {ROWS[QUESTIONS].columns("q")}
    FROM questions q INDEXED BY <index> CROSS JOIN sessions s ON s.no = q.session
    CROSS JOIN branches b ON b.key = (q.session << {BITS} | q.branch)
    WHERE <found> AND (q.at, q.no) < (:at, :no) AND q.at < :until AND q.at >= :since
    AND (:how IS NULL OR q.how = :how) AND (:agent IS NULL OR q.agent = :agent)
    AND (s.app = :app OR :app IS NULL AND s.app NOT LIKE '~%') AND (:user IS NULL OR s.user = :user)
    ORDER BY q.at DESC, q.no DESC LIMIT :limit"""
_LAST = 2**63 - 1


class DecisionSearch:
    """The query that lists the decisions that a filter selects, and the values in it."""

    def __init__(self, wanted: DecisionFilter, after: str | None) -> None:
        self._wanted = wanted
        index, found = "questions_decided", "q.decided_by IS NOT NULL"
        if wanted.by is not None:
            index, found = "questions_decided_by", "q.decided_by = :by"
        elif wanted.agent is not None:
            index = "questions_decided_for"
        self.query: str = _LIST.replace("<index>", index).replace("<found>", found)
        at, no = (math.inf, _LAST) if after is None else place_of(after)
        self.values: dict[str, Any] = {
            "at": at,
            "no": no,
            "by": wanted.by,
            "agent": wanted.agent,
            "how": wanted.how,
            "app": wanted.app,
            "user": wanted.user,
            "since": -math.inf if wanted.since is None else wanted.since,
            "until": math.inf if wanted.until is None else wanted.until,
        }

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
