"""The inbox: open questions over many sessions, found by their terms.

A listing walks the rarest term of its filter in order, looks up the others, and stops at its limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.inbox import cursor, place_of
from adjourn.stores.kit.reading import Columns, converted
from adjourn.stores.kit.rows import Count
from adjourn.stores.types import OpenQuestion, QuestionFilter

from ._tables import NOW

_MANY = 10_000  # as far as this, questions are counted to find out which way to them is the shortest

_COLUMNS = """s.id, s.app, s."user", s.branch, s.number, q.id, q.body, q.expires,
    q.address, q.agent, q.reason, q.tags, q.asked, q.requested_by, s.touched + s.ttl, q.no, i.asked"""

# How many questions each way leads past, up to a limit: those that have a term, and at last those that expire in time.
WAYS = f"""SELECT (SELECT count(*) FROM (
        SELECT FROM {{schema}}.inbox AS i WHERE i.term = way.term LIMIT {_MANY}) AS found)
    FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS way (term, place)
    UNION ALL SELECT count(*) FROM (SELECT FROM {{schema}}.questions AS q WHERE q.how IS NULL AND q.expires > {NOW}
        AND q.expires < %(expires_before)s::double precision LIMIT {_MANY}) AS found"""

_PLACE = """i.term = %(term)s AND (i.asked, i.no) > (%(asked)s::double precision, %(no)s::bigint)
    AND i.asked < %(asked_before)s::double precision"""
_SELECTED = f"""(i.expires IS NULL OR i.expires > {NOW})
    AND (%(expires_before)s::double precision IS NULL OR i.expires < %(expires_before)s::double precision)
    AND (%(others)s::text[] = '{{}}' OR cardinality(%(others)s::text[]) = (
        SELECT count(*) FROM {{schema}}.inbox AS other
        WHERE other.term = ANY (%(others)s::text[]) AND other.asked = i.asked AND other.no = i.no))"""
# OFFSET 0 makes the server walk the index in order and stop at the limit, whatever it thinks of the conditions.
LIST = f"""SELECT {_COLUMNS}
    FROM (SELECT i.asked, i.no FROM (
            SELECT i.asked, i.no, i.expires FROM {{schema}}.inbox AS i WHERE {_PLACE}
            ORDER BY i.asked, i.no OFFSET 0) AS i
        WHERE {_SELECTED} LIMIT %(limit)s) AS i
    JOIN {{schema}}.questions AS q ON q.no = i.no JOIN {{schema}}.sessions AS s ON s.no = q.session
    ORDER BY i.asked, i.no"""
LIST_EXPIRING = f"""SELECT {_COLUMNS}
    FROM {{schema}}.questions AS q JOIN {{schema}}.sessions AS s ON s.no = q.session AND s.branch_no = q.branch
    JOIN {{schema}}.inbox AS i ON i.asked = q.asked AND i.no = q.no
    WHERE q.how IS NULL AND q.expires > {NOW} AND q.expires < %(expires_before)s::double precision
    AND {_PLACE} AND {_SELECTED}
    ORDER BY q.asked, q.no LIMIT %(limit)s"""
COUNT = f"SELECT count(*) FROM {{schema}}.inbox AS i WHERE {_PLACE} AND {_SELECTED}"


def values(wanted: QuestionFilter, after: str | None, terms: Sequence[str]) -> dict[str, Any]:
    """Return the values in the queries for what a filter selects, from behind a cursor on, by way of the first term.

    Raises:
        UsageError: `after` is not a cursor.
    """
    # No number is below 0, so this place is just before all questions of that time.
    begins = (-math.inf if wanted.asked_after is None else float(wanted.asked_after), -1)
    asked, no = begins if after is None else max(begins, place_of(after))
    return {
        "term": terms[0],
        "others": list(terms[1:]),
        "asked": asked,
        "no": no,
        "asked_before": math.inf if wanted.asked_before is None else float(wanted.asked_before),
        "expires_before": _expires_before(wanted),
    }


def ways(wanted: QuestionFilter, terms: Sequence[str]) -> dict[str, Any]:
    """Return the values in the query for the length of each way."""
    return {"terms": list(terms), "expires_before": _expires_before(wanted)}


def _expires_before(wanted: QuestionFilter) -> float | None:
    return None if wanted.expires_before is None else float(wanted.expires_before)


class _Open(Columns, frozen=True, gc=False):
    session: str
    app: str
    user: str | None
    branch: str
    number: Count
    id: str
    body: bytes
    expires: float | None
    address: str
    agent: str
    reason: str
    tags: tuple[str, ...]
    asked: float
    requested_by: str | None
    removed_after: float | None
    no: Count
    place: float


def open_question(row: Sequence[Any]) -> OpenQuestion:
    """Return a question from the columns of a listing.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    found = converted(row, _Open, row[0], "the row of a question")
    if found.asked != found.place:
        # A cursor from another time than the index has could lead back, again and again.
        raise CheckpointCorrupt(f"its question '{found.id}' is elsewhere in the index", found.session)
    fields = msgspec.structs.asdict(found)
    del fields["place"]
    branch, number, no = fields.pop("branch"), fields.pop("number"), fields.pop("no")
    return OpenQuestion(**fields, checkpoint=f"{branch}.{number}", cursor=cursor(found.asked, no))
