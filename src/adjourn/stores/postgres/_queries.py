"""The statements that read or change many sessions at once, or what outlives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adjourn.stores.kit.tables import BEGUN as _BEGUN
from adjourn.stores.kit.tables import OUTBOX as _OUTBOX
from adjourn.stores.kit.tables import SESSIONS as _SESSIONS

from ._tables import NOW, ROWS

SESSION = ", ".join(ROWS[_SESSIONS].names(of="s"))

CANCELS = """SELECT lease.place, s.cancel FROM {schema}.sessions AS s
    JOIN unnest(%(apps)s::text[], %(ids)s::text[], %(users)s::text[], %(fences)s::bigint[])
        WITH ORDINALITY AS lease (app, id, "user", fence, place)
    ON s.app = lease.app AND s.id = lease.id AND s.fence = lease.fence
        AND (lease."user" IS NULL OR s."user" = lease."user")
    WHERE s.cancel IS NOT NULL"""

# A row that somebody is writing right now is left out, so that one long transaction cannot hold up all leases. It is
# not lost; the next round renews it, or its owner's next commit.
RENEW = f"""WITH lease AS (
        SELECT * FROM unnest(%(apps)s::text[], %(ids)s::text[], %(users)s::text[], %(owners)s::text[],
            %(fences)s::bigint[], %(ttls)s::double precision[])
            WITH ORDINALITY AS lease (app, id, "user", owner, fence, ttl, place)),
    held AS (SELECT s.no, s.cancel, lease.place, lease.ttl FROM lease JOIN {{schema}}.sessions AS s
        ON s.app = lease.app AND s.id = lease.id AND s.owner = lease.owner AND s.fence = lease.fence
        AND (lease."user" IS NULL OR s."user" = lease."user")),
    free AS MATERIALIZED (SELECT s.no FROM {{schema}}.sessions AS s
        WHERE s.no IN (SELECT held.no FROM held) FOR UPDATE SKIP LOCKED),
    renewed AS (UPDATE {{schema}}.sessions AS s SET expires = {NOW} + held.ttl, touched = {NOW}
        FROM held JOIN free ON free.no = held.no JOIN lease ON lease.place = held.place
        WHERE s.no = held.no AND s.owner = lease.owner AND s.fence = lease.fence RETURNING s.no)
    SELECT held.place, held.cancel, held.no IN (SELECT renewed.no FROM renewed) FROM held"""

BEGUN = f"SELECT {', '.join(ROWS[_BEGUN].names())} FROM {{schema}}.begun WHERE digest = %(digest)s"

FIND = f"SELECT {SESSION} FROM {{schema}}.sessions AS s WHERE s.id = %(id)s <filters> ORDER BY s.app"

# Of sessions that rest, `rested` is `updated`, and there is an index on it. Those that are held are few.
_BEHIND = """<updated> <= %(updated)s::double precision
        AND (<updated>, s.app, s.id) < (%(updated)s::double precision, %(last_app)s, %(last_id)s) <filters>
        ORDER BY <updated> DESC, s.app DESC, s.id DESC LIMIT %(limit)s"""
_HELD, _RESTING = _BEHIND.replace("<updated>", "s.updated"), _BEHIND.replace("<updated>", "s.rested")
SESSIONS = f"""SELECT {NOW}, {SESSION} FROM (
        (SELECT * FROM {{schema}}.sessions AS s WHERE s.owner IS NOT NULL AND {_HELD})
        UNION ALL
        (SELECT * FROM {{schema}}.sessions AS s WHERE s.owner IS NULL AND {_RESTING})) AS s
    ORDER BY s.updated DESC, s.app DESC, s.id DESC LIMIT %(limit)s"""

DUE = f"""SELECT * FROM (
        (SELECT 'lease' AS why, s.expires AS since, {SESSION} FROM {{schema}}.sessions AS s
            WHERE s.owner IS NOT NULL AND s.expires <= {NOW} <filters> ORDER BY s.expires, s.no LIMIT %(limit)s)
        UNION ALL
        (SELECT 'answer', s.touched, {SESSION} FROM {{schema}}.sessions AS s
            WHERE s.waiting > 0 AND s.owner IS NULL <filters> ORDER BY s.touched, s.no LIMIT %(limit)s)
        UNION ALL
        (SELECT 'question', q.since, {SESSION} FROM {{schema}}.sessions AS s
            JOIN (SELECT q.session, q.branch, min(q.due) AS since FROM {{schema}}.questions AS q
                WHERE q.how IS NULL AND q.due <= {NOW} GROUP BY q.session, q.branch) AS q
                ON q.session = s.no AND q.branch = s.branch_no
            WHERE s.owner IS NULL AND s.waiting = 0 <filters> ORDER BY q.since, s.no LIMIT %(limit)s)
        UNION ALL
        (SELECT 'input', s.queued, {SESSION} FROM {{schema}}.sessions AS s
            WHERE s.queued IS NOT NULL AND s.owner IS NULL AND s.waiting = 0
            AND (s.status IN ('queued', 'done') OR s.status IN ('failed', 'cancelled') AND s.abandons)
            AND NOT EXISTS (SELECT FROM {{schema}}.questions AS q WHERE q.session = s.no AND q.branch = s.branch_no
                AND q.how IS NULL AND q.due <= {NOW}) <filters> ORDER BY s.queued, s.no LIMIT %(limit)s)) AS due
    ORDER BY since, no LIMIT %(limit)s"""

# Of what rests, an index has the oldest of each status: those that wait for people may be many, and are not read.
_OLD = f"s.touched < {NOW} - %(ttl)s <filters> LIMIT %(limit)s"
IDLE = f"""(SELECT {SESSION} FROM {{schema}}.sessions AS s
        WHERE s.owner IS NULL AND s.rested < {NOW} - %(ttl)s AND {_OLD})
    UNION ALL
    (SELECT {SESSION} FROM {{schema}}.sessions AS s WHERE s.owner IS NOT NULL AND s.expires <= {NOW} AND {_OLD})
    LIMIT %(limit)s"""

REMOVE = """WITH gone AS (DELETE FROM {schema}.sessions AS s WHERE s.app = %(app)s AND s.id = %(id)s
        AND (%(user)s::text IS NULL OR s."user" = %(user)s) RETURNING s.no),
    records AS (DELETE FROM {schema}.records WHERE session IN (SELECT no FROM gone)),
    branches AS (DELETE FROM {schema}.branches WHERE session IN (SELECT no FROM gone)),
    inputs AS (DELETE FROM {schema}.inputs WHERE session IN (SELECT no FROM gone)),
    inbox AS (DELETE FROM {schema}.inbox WHERE no IN (
        SELECT q.no FROM {schema}.questions AS q WHERE q.session IN (SELECT no FROM gone))),
    questions AS (DELETE FROM {schema}.questions WHERE session IN (SELECT no FROM gone))
    SELECT true FROM gone"""


# Whoever takes some at the same moment does not wait, and gets others.
TAKE_NOTICES = """WITH chosen AS (
        SELECT o.id, o.due FROM {schema}.outbox AS o
        WHERE o.app = %(app)s AND o."to" = ANY (%(to)s) AND o.due <= {schema}.moment()
        ORDER BY o.due LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    UPDATE {schema}.outbox AS o SET due = {schema}.clock() + %(ttl)s, attempt = o.attempt + 1
    FROM chosen WHERE o.id = chosen.id
    RETURNING chosen.due, <columns>""".replace("<columns>", ", ".join(ROWS[_OUTBOX].names(of="o")))
NOTICE_SENT = "DELETE FROM {schema}.outbox AS o WHERE o.id = %(id)s AND o.attempt = %(attempt)s RETURNING true"
PUT_NOTICE_OFF = """UPDATE {schema}.outbox AS o SET due = {schema}.clock() + %(again)s
    WHERE o.id = %(id)s AND o.attempt = %(attempt)s RETURNING true"""
DROP_NOTICES = """WITH gone AS (
        DELETE FROM {schema}.outbox AS o WHERE o.app = %(app)s AND o.due < {schema}.moment() - %(age)s RETURNING 1)
    SELECT count(*) FROM gone"""


# As `kit.has_status` has it: a session that is done and has inputs is queued.
_STATUS = {
    "queued": "(s.status = 'queued' OR s.status = 'done' AND s.inputs > 0)",
    "done": "s.status = 'done' AND s.inputs = 0",
}
_FILTERS = {
    "statuses": """s.status = ANY (%(stored)s::text[]) AND CASE WHEN s.status = 'running' THEN 'failed'
        WHEN s.status = 'done' AND s.inputs > 0 THEN 'queued' ELSE s.status END = ANY (%(statuses)s::text[])
        AND (s.inputs = 0 OR 'queued' = ANY (%(statuses)s::text[]))""",
    "user": 's."user" = %(user)s',
    "programs": "s.program = ANY (%(programs)s::text[])",
    "skip_users": '(s."user" IS NULL OR s."user" <> ALL (%(skip_users)s::text[]))',
}


def filters(given: Mapping[str, Any]) -> str:
    """Return the conditions of a listing, by what is given; the library's own apps must be named."""
    chosen = ["left(s.app, 1) <> '~'" if given.get("app") is None else "s.app = %(app)s"]
    chosen += [text for name, text in _FILTERS.items() if given.get(name) is not None]
    status = given.get("status")
    if status is not None:
        chosen.append(_STATUS.get(status, "s.status = %(status)s"))
    return "".join(f" AND {each}" for each in chosen)
