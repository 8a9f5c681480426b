"""The outbox in Postgres: notices that were written with records, until somebody has sent them."""

from __future__ import annotations

from typing import Any

from adjourn.stores.kit.effects import Effects

TABLES = (
    """CREATE TABLE {schema}.outbox (
        id text COLLATE "C" PRIMARY KEY, "to" text COLLATE "C" NOT NULL, app text COLLATE "C" NOT NULL,
        session text COLLATE "C" NOT NULL, due double precision NOT NULL, at double precision NOT NULL,
        attempt bigint NOT NULL DEFAULT 0, body bytea NOT NULL)""",
    'CREATE INDEX outbox_due ON {schema}.outbox (app, "to", due)',
)

# Whoever takes some at the same moment does not wait, and gets others.
TAKE = """WITH chosen AS (
        SELECT o.id, o.due FROM {schema}.outbox AS o
        WHERE o.app = %(app)s AND o."to" = ANY (%(to)s) AND o.due <= {schema}.moment()
        ORDER BY o.due LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    UPDATE {schema}.outbox AS o SET due = {schema}.clock() + %(ttl)s, attempt = o.attempt + 1
    FROM chosen WHERE o.id = chosen.id
    RETURNING chosen.due, o.id, o."to", o.body, o.app, o.session, o.at, o.attempt"""
SENT = "DELETE FROM {schema}.outbox AS o WHERE o.id = %(id)s AND o.attempt = %(attempt)s RETURNING true"
PUT_OFF = """UPDATE {schema}.outbox AS o SET due = {schema}.clock() + %(again)s
    WHERE o.id = %(id)s AND o.attempt = %(attempt)s RETURNING true"""
DROP = """WITH gone AS (
        DELETE FROM {schema}.outbox AS o WHERE o.app = %(app)s AND o.due < {schema}.moment() - %(age)s RETURNING 1)
    SELECT count(*) FROM gone"""


def with_notices(call: bytes, schema: str) -> bytes:
    """Return the statement that does what a call does and, if that writes, also adds notices."""
    return b"""WITH applied AS MATERIALIZED (%b), noted AS (
        INSERT INTO %b.outbox (id, "to", app, session, due, at, body)
        SELECT n.id, n."to", %%(in_app)b::text, %%(in_id)b::text,
            coalesce(n.due, applied.written), applied.written, n.body
        FROM applied, unnest(%%(n_id)b::text[], %%(n_to)b::text[], %%(n_due)b::double precision[], %%(n_body)b::bytea[])
            AS n (id, "to", due, body))
    SELECT was_cancel, written, left_inputs FROM applied""" % (call, schema.encode())


def values(effects: Effects) -> dict[str, Any]:
    """Return the parameters of `with_notices`."""
    notices = effects.notices
    return {
        "n_id": [each.id for each in notices],
        "n_to": [each.to for each in notices],
        "n_due": [None if each.due is None else float(each.due) for each in notices],
        "n_body": [each.body for each in notices],
    }
