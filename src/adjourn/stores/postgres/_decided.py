"""Decisions, most recent first, by an index of what a filter names, or of the time alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjourn.stores.kit.decided import decided, decision_values, way_to
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import Decided, DecisionFilter

from ._tables import ROWS

_COLUMNS = ", ".join([*ROWS[SESSIONS].names(of="s"), "b.name", *ROWS[QUESTIONS].names(of="q")])
# OFFSET 0 makes the server walk the index in order and stop at the limit, whatever it thinks of the conditions; what is
# joined laterally is looked up for each question, in that order.
_LIST = f"""SELECT {_COLUMNS} FROM (
        SELECT q.* FROM <from> AS q
        WHERE q.decided_by IS NOT NULL AND <found> AND (q.at, q.no) < (%(at)s::double precision, %(no)s::bigint)
        AND q.at < %(until)s::double precision AND q.at >= %(since)s::double precision
        ORDER BY q.at DESC, q.no DESC OFFSET 0) AS q
    JOIN LATERAL (SELECT * FROM {{schema}}.sessions AS s WHERE s.no = q.session<filters> OFFSET 0) AS s ON true
    JOIN LATERAL (SELECT * FROM {{schema}}.branches AS b WHERE b.session = q.session AND b.no = q.branch OFFSET 0) AS b
    ON true
    WHERE (%(how)s::text IS NULL OR q.how = %(how)s::text)
    AND (%(agent)s::text IS NULL OR q.agent = %(agent)s::text) LIMIT %(limit)s"""
_QUESTIONS = "{schema}.questions"
# The decisions of a user are in no index, which each answer would have to enter: those of their sessions are sorted.
_OF_USER = """(SELECT q.* FROM (
            SELECT s.no FROM {schema}.sessions AS s WHERE s."user" = %(user)s::text AND s.owner IS NULL
            UNION ALL
            SELECT s.no FROM {schema}.sessions AS s WHERE s."user" = %(user)s::text AND s.owner IS NOT NULL) AS s
        JOIN LATERAL (SELECT * FROM {schema}.questions AS q WHERE q.session = s.no OFFSET 0) AS q ON true)"""
_WAYS = {
    "by": (_QUESTIONS, "q.decided_by = %(by)s::text"),
    "user": (_OF_USER, "true"),
    "agent": (_QUESTIONS, "q.agent = %(agent)s::text"),
    "how": (_QUESTIONS, "q.how = %(how)s::text"),
    None: (_QUESTIONS, "true"),
}
_SESSION = len(SESSIONS.fields)


def statement_of(wanted: DecisionFilter, after: str | None) -> tuple[str, dict[str, Any]]:
    """Return the query that lists the decisions that a filter selects, and the values in it.

    Raises:
        UsageError: `after` is not a cursor.
    """
    table, found = _WAYS[way_to(wanted)]
    return _LIST.replace("<from>", table).replace("<found>", found), decision_values(wanted, after)


def read(values: Sequence[Any]) -> Decided:
    """Return a decision from the columns of a listing.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    row = session_row(values[:_SESSION])
    branch, *columns = values[_SESSION:]
    return decided(row, branch, question_row(columns, row.session))
