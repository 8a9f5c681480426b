"""The statements that read. Each reads everything that its caller needs, as it is at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

NOW = "{schema}.moment()"

# In the order of SessionRow's fields.
SESSION = """s.no, s.id, s.app, s."user", s.created, s.branch, s.branch_no, s.number, s.pos, s.full_pos, s.size,
    s.status, s.owner, s.expires, s.fence, s.claims, s.seq, s.updated, s.touched, s.cancel, s.waiting,
    s.program, s.inputs"""
SESSION_COLUMNS = SESSION.count(",") + 1

# In the order of QuestionRow's fields.
_QUESTION = "id body expires value how by at taken no"

# In the order of InputRow's fields.
_INPUT = 'id digest body program "user" abandons at taken no'
_INPUTS = """SELECT i.id, i.digest, i.body, i.program, i."user", i.abandons::int AS abandons, i.at,
    i.taken::int AS taken, i.no FROM {schema}.inputs AS i WHERE i.session = s.no"""

# The position, then in the order of RecordRow's fields.
_RECORD = 'pos "full" source seq count header events body at'

_NAMED = 's.app = %(app)s AND s.id = %(id)s AND (%(user)s::text IS NULL OR s."user" = %(user)s)'

# The position that the record `number` of the branch `branch` has or had.
_PLACE = """SELECT b.start + %(number)s - b.first AS pos FROM {schema}.branches AS b
    WHERE b.session = s.no AND b.name = %(branch)s AND b.first <= %(number)s AND b.start + %(number)s - b.first
        < coalesce((SELECT min(later.start) FROM {schema}.branches AS later
            WHERE later.session = s.no AND later.no > b.no), s.pos + 1)"""

_BRANCHES = """LEFT JOIN LATERAL (SELECT array_agg(b.name), array_agg(b.start), array_agg(b.first), array_agg(b.parent)
    FROM (SELECT * FROM {schema}.branches AS b WHERE b.session = s.no ORDER BY b.no) AS b) AS branches ON true"""


@cache
def facts(*, questions: bool, waiting: bool, inputs: bool, branches: bool, records: bool, log: bool) -> str:
    """Return the query for the facts that are wanted: one row, with a list for each column of the other tables."""
    columns, joins = [NOW, SESSION], ["LEFT JOIN {schema}.sessions AS s ON s.app = %(app)s AND s.id = %(id)s"]
    if questions or waiting:
        columns.append("questions.*")
        named = ["q.id = ANY (%(questions)s::text[])"] if questions else []
        which = " OR ".join([*named, *(["q.how IS NULL", "NOT q.taken"] if waiting else [])])
        joins.append(f"""LEFT JOIN LATERAL (SELECT {_lists(_QUESTION, "q")}
            FROM (SELECT q.id, q.body, q.expires, q.value, q.how, q.by, q.at, q.taken::int AS taken, q.no
                FROM {{schema}}.questions AS q
                WHERE q.session = s.no AND q.branch = s.branch_no AND ({which}) ORDER BY q.no) AS q
            ) AS questions ON true""")
    if inputs:
        columns.append("inputs.*")
        joins.append(f"""LEFT JOIN LATERAL (SELECT {_lists(_INPUT, "i")}
            FROM ({_INPUTS} AND (i.id = ANY (%(inputs)s::text[]) OR i.no = (SELECT min(first.no)
                FROM {{schema}}.inputs AS first WHERE first.session = s.no AND NOT first.taken))
            ORDER BY i.no) AS i) AS inputs ON true""")
    if branches or records:
        columns.append("branches.*")
        joins.append(_BRANCHES)
    if records:
        columns.append("records.*")
        joins.append(f"""LEFT JOIN LATERAL (SELECT {_lists(_RECORD, "r")}
            FROM (SELECT r.pos, r."full"::int AS "full", r.source, r.seq, r.count, r.header, r.events, r.body, r.at
                FROM unnest(%(branches)s::text[], %(numbers)s::bigint[]) AS wanted (branch, number)
                JOIN {{schema}}.branches AS b ON b.session = s.no AND b.name = wanted.branch
                JOIN {{schema}}.records AS r ON r.session = s.no AND r.pos = b.start + wanted.number - b.first) AS r
            ) AS records ON true""")
    if log:
        columns.append("points.*, asking.*")
        joins.append(f"""LEFT JOIN LATERAL (SELECT {_lists('pos "full" listed at', "r")}
            FROM (SELECT r.pos, r."full"::int AS "full", (r.source IS NOT NULL)::int AS listed, r.at
                FROM {{schema}}.records AS r WHERE r.session = s.no ORDER BY r.pos) AS r) AS points ON true
            LEFT JOIN LATERAL (SELECT array_agg(DISTINCT q.branch)
                FROM {{schema}}.questions AS q WHERE q.session = s.no AND q.how IS NULL) AS asking ON true""")
    return f"SELECT {', '.join(columns)} FROM (SELECT 1) AS one {' '.join(joins)}"


def _lists(columns: str, of: str) -> str:
    return ", ".join(f"array_agg({of}.{column})" for column in columns.split())


_LOADED = f"""SELECT {NOW}, {SESSION}, point.pos, point.start, rows.*, answers.* FROM {{schema}}.sessions AS s
    LEFT JOIN LATERAL (<point>) AS point ON true
    LEFT JOIN LATERAL (SELECT array_agg(r.body), array_agg(r.at) FROM (SELECT r.body, r.at FROM {{schema}}.records AS r
        WHERE r.session = s.no AND r.pos BETWEEN point.start AND point.pos ORDER BY r.pos) AS r) AS rows ON true
    LEFT JOIN LATERAL (SELECT {_lists(_QUESTION, "q")}
        FROM (SELECT q.id, q.body, q.expires, q.value, q.how, q.by, q.at, q.taken::int AS taken, q.no
            FROM {{schema}}.questions AS q WHERE s.waiting > 0 AND point.pos = s.pos AND q.session = s.no
            AND q.branch = s.branch_no AND q.how IS NOT NULL AND NOT q.taken ORDER BY q.no) AS q) AS answers ON true
    WHERE {_NAMED}"""
LOAD_HEAD = _LOADED.replace("<point>", "SELECT s.pos, s.full_pos AS start")
LOAD_POINT = _LOADED.replace(
    "<point>",
    f"""SELECT r.pos, coalesce((SELECT max(f.pos) FROM {{schema}}.records AS f
        WHERE f.session = s.no AND f.pos <= r.pos AND f."full"), 0) AS start
        FROM ({_PLACE}) AS place JOIN {{schema}}.records AS r ON r.session = s.no AND r.pos = place.pos""",
)

_LABELLED = f"{_QUESTION} address agent reason tags asked"
OPEN = f"""SELECT {NOW}, {SESSION}, questions.* FROM {{schema}}.sessions AS s
    LEFT JOIN LATERAL (SELECT {_lists(_LABELLED, "q")}
        FROM (SELECT q.id, q.body, q.expires, q.value, q.how, q.by, q.at, q.taken::int AS taken, q.no,
            q.address, q.agent, q.reason, convert_to(to_json(q.tags)::text, 'UTF8') AS tags, q.asked
            FROM {{schema}}.questions AS q
            WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL ORDER BY q.no) AS q
        ) AS questions ON true
    WHERE {_NAMED}"""

HEAD = f"SELECT {NOW}, {SESSION} FROM {{schema}}.sessions AS s WHERE {_NAMED}"

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

CHECKPOINTS = f"""SELECT {SESSION}, branches.*, before.pos, rows.* FROM {{schema}}.sessions AS s {_BRANCHES}
    LEFT JOIN LATERAL (<before>) AS before ON true
    LEFT JOIN LATERAL (SELECT {_lists("pos at header", "r")} FROM (
        SELECT r.pos, r.at, r.header FROM {{schema}}.records AS r WHERE r.session = s.no AND r.pos < before.pos
        AND r.source IS NOT NULL AND (%(source)s::text IS NULL OR r.source = %(source)s)
        ORDER BY r.pos DESC LIMIT %(limit)s) AS r) AS rows ON true
    WHERE {_NAMED}"""
ALL_CHECKPOINTS = CHECKPOINTS.replace("<before>", "SELECT s.pos + 1 AS pos")
CHECKPOINTS_BEFORE = CHECKPOINTS.replace(
    "<before>",
    f"SELECT r.pos FROM ({_PLACE}) AS place JOIN {{schema}}.records AS r ON r.session = s.no AND r.pos = place.pos",
)

_RECORDS = f"""SELECT {SESSION}, branches.*, after.pos, rows.* FROM {{schema}}.sessions AS s {_BRANCHES}
    LEFT JOIN LATERAL (<after>) AS after ON true
    LEFT JOIN LATERAL (SELECT {_lists(_RECORD, "r")} FROM (
        SELECT r.pos, r."full"::int AS "full", r.source, r.seq, r.count, r.header, r.events, r.body, r.at
        FROM {{schema}}.records AS r WHERE r.session = s.no AND r.pos > after.pos
        ORDER BY r.pos LIMIT %(limit)s) AS r) AS rows ON true
    WHERE {_NAMED}"""
ALL_RECORDS = _RECORDS.replace("<after>", "SELECT -1 AS pos")
RECORDS_AFTER = _RECORDS.replace("<after>", _PLACE)

# Numbers of events grow with positions: looking back from the end costs as much as what is then returned.
EVENTS = f"""SELECT {SESSION}, branches.*, rows.* FROM {{schema}}.sessions AS s {_BRANCHES}
    LEFT JOIN LATERAL (SELECT {_lists("pos header seq count events", "r")} FROM (
        SELECT r.pos, r.header, r.seq, r.count, r.events FROM {{schema}}.records AS r
        WHERE r.session = s.no AND r.seq > %(after)s AND r.count > 0 AND r.pos > coalesce(
            (SELECT max(seen.pos) FROM {{schema}}.records AS seen
                WHERE seen.session = s.no AND seen.seq <= %(after)s), -1)
        ORDER BY r.pos LIMIT %(limit)s) AS r) AS rows ON true
    WHERE {_NAMED}"""

_ASKED = f"""SELECT s.id, on_branch.name, questions.* FROM {{schema}}.sessions AS s
    LEFT JOIN LATERAL (SELECT b.no, b.name FROM {{schema}}.branches AS b
        WHERE b.session = s.no AND <branch>) AS on_branch ON true
    LEFT JOIN LATERAL (SELECT {_lists(_QUESTION, "q")}
        FROM (SELECT q.id, q.body, q.expires, q.value, q.how, q.by, q.at, q.taken::int AS taken, q.no
            FROM {{schema}}.questions AS q
            WHERE q.session = s.no AND q.branch = on_branch.no <which> ORDER BY q.no) AS q) AS questions ON true
    WHERE {_NAMED} ORDER BY on_branch.no"""
_ONE_BRANCH = _ASKED.replace("<branch>", "b.name = coalesce(%(branch)s::text, s.branch)")
AUDIT = _ONE_BRANCH.replace("<which>", "")
ASKED = _ONE_BRANCH.replace("<which>", "AND q.id = ANY (%(ids)s::text[])")
AUDIT_ALL = _ASKED.replace("<branch>", "true").replace("<which>", "")

INPUTS = f"""SELECT s.id, inputs.* FROM {{schema}}.sessions AS s
    LEFT JOIN LATERAL (SELECT {_lists(_INPUT, "i")} FROM ({_INPUTS} AND NOT i.taken ORDER BY i.no LIMIT %(limit)s) AS i)
        AS inputs ON true
    WHERE {_NAMED}"""

BEGUN = "SELECT digest, place, number FROM {schema}.begun WHERE digest = %(digest)s"

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
            JOIN (SELECT q.session, q.branch, min(q.expires) AS since FROM {{schema}}.questions AS q
                WHERE q.how IS NULL AND q.expires <= {NOW} GROUP BY q.session, q.branch) AS q
                ON q.session = s.no AND q.branch = s.branch_no
            WHERE s.owner IS NULL AND s.waiting = 0 <filters> ORDER BY q.since, s.no LIMIT %(limit)s)
        UNION ALL
        (SELECT 'input', s.queued, {SESSION} FROM {{schema}}.sessions AS s
            WHERE s.queued IS NOT NULL AND s.owner IS NULL AND s.waiting = 0
            AND (s.status IN ('queued', 'done') OR s.status IN ('failed', 'cancelled') AND s.abandons)
            AND NOT EXISTS (SELECT FROM {{schema}}.questions AS q WHERE q.session = s.no AND q.branch = s.branch_no
                AND q.how IS NULL AND q.expires <= {NOW}) <filters> ORDER BY s.queued, s.no LIMIT %(limit)s)) AS due
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
        SELECT q.no FROM {schema}.questions AS q WHERE q.session IN (SELECT no FROM gone)))
    DELETE FROM {schema}.questions WHERE session IN (SELECT no FROM gone)"""


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


def stored_statuses(statuses: Sequence[str]) -> list[str]:
    """Return the statuses that the rows of sessions with these may have."""
    shown_as = {"running": "failed", "done": "queued"}
    return [*statuses, *(stored for stored, shown in shown_as.items() if shown in statuses)]


def filters(given: Mapping[str, Any]) -> str:
    """Return the conditions of a listing, by what is given; the library's own apps must be named."""
    chosen = ["left(s.app, 1) <> '~'" if given.get("app") is None else "s.app = %(app)s"]
    chosen += [text for name, text in _FILTERS.items() if given.get(name) is not None]
    status = given.get("status")
    if status is not None:
        chosen.append(_STATUS.get(status, "s.status = %(status)s"))
    return "".join(f" AND {each}" for each in chosen)
