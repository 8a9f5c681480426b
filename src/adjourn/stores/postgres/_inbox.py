"""The inbox: open questions over many sessions, found by their terms.

A listing walks the rarest term of its filter in order, looks up the others, and stops at its limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit import inbox as kit_inbox
from adjourn.stores.kit.inbox import Place, Stretch
from adjourn.stores.kit.reading import question_row, session_row
from adjourn.stores.kit.tables import QUESTIONS, SESSIONS
from adjourn.stores.types import OpenQuestion, QuestionFilter

from ._tables import NOW, ROWS

_MANY = 10_000  # as far as this, questions are counted to find out which way to them is the shortest

_COLUMNS = ", ".join([*ROWS[SESSIONS].names(of="s"), "i.<by>", *ROWS[QUESTIONS].names(of="q")])

# How many questions each way leads past, up to a limit: those that have a term, and at last those that expire in time.
WAYS = f"""SELECT (SELECT count(*) FROM (
        SELECT FROM {{schema}}.inbox AS i WHERE i.term = way.term LIMIT {_MANY}) AS found)
    FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS way (term, place)
    UNION ALL SELECT count(*) FROM (SELECT FROM {{schema}}.inbox AS i WHERE i.term = (%(terms)s::text[])[1]
        AND i.expires > {NOW} AND i.expires < %(expires_before)s::double precision LIMIT {_MANY}) AS found"""

_BEHIND = """(i.<by>, i.no) > (%(time)s::double precision, %(no)s::bigint)
    AND i.asked >= %(asked_after)s::double precision AND i.asked < %(asked_before)s::double precision"""
_PLACE = f"i.term = %(term)s AND {_BEHIND}"
_SELECTED = f"""(i.expires IS NULL OR i.expires > {NOW})
    AND (%(expires_before)s::double precision IS NULL OR i.expires < %(expires_before)s::double precision)
    AND (%(others)s::text[] = '{{}}' OR cardinality(%(others)s::text[]) = (
        SELECT count(*) FROM {{schema}}.inbox AS other
        WHERE other.term = ANY (%(others)s::text[]) AND other.asked = i.asked AND other.no = i.no))"""
# OFFSET 0 makes the server walk the index in order and stop at the limit, whatever it thinks of the conditions.
_LIST = f"""SELECT {_COLUMNS}
    FROM (SELECT i.asked, i.expires, i.no FROM (
            SELECT i.asked, i.no, i.expires FROM {{schema}}.inbox AS i WHERE {_PLACE}<which>
            ORDER BY i.<by>, i.no OFFSET 0) AS i
        WHERE {_SELECTED} LIMIT %(limit)s) AS i
    JOIN {{schema}}.questions AS q ON q.no = i.no JOIN {{schema}}.sessions AS s ON s.no = q.session
    ORDER BY i.<by>, i.no"""
_LISTS = {
    each: _LIST.replace("<by>", each.by).replace("<which>", which)
    for each, which in (
        (Stretch.ASKED, ""),
        (Stretch.EXPIRING, " AND i.expires IS NOT NULL"),
        (Stretch.LASTING, " AND i.expires IS NULL"),
    )
}
_LIST_EXPIRING = f"""SELECT {_COLUMNS}
    FROM (SELECT i.asked, i.no, i.expires FROM {{schema}}.inbox AS i WHERE i.term = %(term)s
            AND i.expires > {NOW} AND i.expires < %(expires_before)s::double precision OFFSET 0) AS i
    JOIN {{schema}}.questions AS q ON q.no = i.no JOIN {{schema}}.sessions AS s ON s.no = q.session
    WHERE {_BEHIND} AND {_SELECTED}
    ORDER BY i.asked, i.no LIMIT %(limit)s""".replace("<by>", "asked")
COUNT = f"SELECT count(*) FROM {{schema}}.inbox AS i WHERE {_PLACE} AND {_SELECTED}".replace("<by>", "asked")


def list_of(stretch: Stretch, *, is_expiring_shorter: bool) -> str:
    """Return the query that lists a stretch, by way of the questions that expire in time if they are fewer."""
    return _LIST_EXPIRING if is_expiring_shorter and stretch is Stretch.ASKED else _LISTS[stretch]


def values(wanted: QuestionFilter, behind: Place, terms: Sequence[str]) -> dict[str, Any]:
    """Return the values in the queries for what a filter selects behind a place, by way of the first term."""
    return {
        "term": terms[0],
        "others": list(terms[1:]),
        "time": behind.time,
        "no": behind.no,
        "asked_after": -math.inf if wanted.asked_after is None else float(wanted.asked_after),
        "asked_before": math.inf if wanted.asked_before is None else float(wanted.asked_before),
        "expires_before": _expires_before(wanted),
    }


def ways(wanted: QuestionFilter, terms: Sequence[str]) -> dict[str, Any]:
    """Return the values in the query for the length of each way."""
    return {"terms": list(terms), "expires_before": _expires_before(wanted)}


def _expires_before(wanted: QuestionFilter) -> float | None:
    return None if wanted.expires_before is None else float(wanted.expires_before)


def open_question(stretch: Stretch, values: Sequence[Any]) -> OpenQuestion:
    """Return a question from the columns of a listing.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    row = session_row(values[:_SESSION])
    time, *columns = values[_SESSION:]
    question = question_row(columns, row.session)
    place = stretch.place(question)
    if place is None or place.time != time:
        # A cursor from another time than the index has could lead back, again and again.
        raise CheckpointCorrupt(f"its question '{question.id}' is elsewhere in the index", row.session)
    return kit_inbox.open_question(row, question, place)


_SESSION = len(SESSIONS.fields)
