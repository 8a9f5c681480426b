"""Decisions, most recent first, by an index of who has decided, of the agent, or of the time alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adjourn.stores.kit.decided import decided
from adjourn.stores.kit.inbox import place_of
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import Decided, DecisionFilter

from ._tables import ROWS

_COLUMNS = ", ".join([*ROWS[SESSIONS].names(of="s"), "b.name", *ROWS[QUESTIONS].names(of="q")])
# OFFSET 0 makes the server walk the index in order and stop at the limit, whatever it thinks of the conditions; what is
# joined laterally is looked up for each question, in that order.
_LIST = f"""SELECT {_COLUMNS} FROM (
        SELECT q.* FROM {{schema}}.questions AS q
        WHERE <found> AND (q.at, q.no) < (%(at)s::double precision, %(no)s::bigint)
        AND q.at < %(until)s::double precision AND q.at >= %(since)s::double precision
        ORDER BY q.at DESC, q.no DESC OFFSET 0) AS q
    JOIN LATERAL (SELECT * FROM {{schema}}.sessions AS s WHERE s.no = q.session<filters> OFFSET 0) AS s ON true
    JOIN LATERAL (SELECT * FROM {{schema}}.branches AS b WHERE b.session = q.session AND b.no = q.branch OFFSET 0) AS b
    ON true
    WHERE (%(how)s::text IS NULL OR q.how = %(how)s::text)
    AND (%(agent)s::text IS NULL OR q.agent = %(agent)s::text) LIMIT %(limit)s"""
_LAST = 2**63 - 1
_SESSION = len(SESSIONS.fields)


def statement_of(wanted: DecisionFilter, after: str | None) -> tuple[str, dict[str, Any]]:
    """Return the query that lists the decisions that a filter selects, and the values in it.

    Raises:
        UsageError: `after` is not a cursor.
    """
    found = "q.decided_by IS NOT NULL"
    if wanted.by is not None:
        found = "q.decided_by = %(by)s::text"
    elif wanted.agent is not None:
        found += " AND q.agent = %(agent)s::text"
    at, no = (math.inf, _LAST) if after is None else place_of(after)
    return _LIST.replace("<found>", found), {
        "at": at,
        "no": no,
        "by": wanted.by,
        "agent": wanted.agent,
        "how": wanted.how,
        "app": wanted.app,
        "user": wanted.user,
        "since": -math.inf if wanted.since is None else float(wanted.since),
        "until": math.inf if wanted.until is None else float(wanted.until),
    }


def read(values: Sequence[Any]) -> Decided:
    """Return a decision from the columns of a listing.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    row = session_row(values[:_SESSION])
    branch, *columns = values[_SESSION:]
    return decided(row, branch, question_row(columns, row.session))
