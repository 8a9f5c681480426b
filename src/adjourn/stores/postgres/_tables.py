"""The tables of `kit.tables` in Postgres: the schema, and how their rows are written and read.

Three things shape them:

- A step of a run changes no column that an index covers, so that Postgres can update the session's row in place. So
  some columns of that row follow from others: see `DERIVED`.
- Records, questions and events are kept as the bytes that were written. `jsonb` would reorder keys and drop
  duplicates; for people there are views.
- A name that fits into all indexes when a session begins must fit when it ends, with the longest of all statuses:
  `sessions_long_names` has entries at least as long as any other index will have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, cast

import msgspec
from msgspec import NODEFAULT

from adjourn.stores.kit.tables import INBOX, INPUTS, SESSIONS, TABLES, Column, Index, Kind, Table, quoted
from adjourn.stores.types import OWN_APPS

TYPES: dict[Kind, str] = {
    "int": "bigint",
    "float": "double precision",
    "text": "text",
    "bytes": "bytea",
    "flag": "boolean",
    "texts": "text[]",
}

NOW = "{schema}.moment()"
"""The time of a statement."""

DERIVED: dict[str, str] = {
    "rested": "double precision",  # `updated` while nobody has the lease, else null: listings are in this order
    "queued": "double precision",  # since when the first input of the queue waits
    "abandons": "boolean",  # whether that abandons a run that failed
    "cancelled": "text",  # `cancel` as it was before the last write that set it, which a write returns
}
"""Columns of a session that only this store has; `_writes` says what follows from what."""

_INDEXES: dict[Table[Any], tuple[Index, ...]] = {
    SESSIONS: (
        *[
            msgspec.structs.replace(each, columns=tuple(["rested" if c == "updated" else c for c in each.columns]))
            for each in SESSIONS.indexes
        ],
        Index("sessions_cancelled", ("no",), "cancel IS NOT NULL"),
        # In their order: there may be many thousands, of which a worker wants the first.
        Index("sessions_queued", ("queued", "no"), "queued IS NOT NULL AND owner IS NULL"),
        Index("sessions_rested", ("rested", "app", "id"), "owner IS NULL"),
        Index(
            "sessions_long_names",
            ("app", "(text 'cancelled')", "created", "id", "user", "no"),
            'octet_length(id) + octet_length(app) + coalesce(octet_length("user"), 0) > 500',
        ),
    ),
    INPUTS: INPUTS.indexes[:1],  # `queued` has the rest
}
# By its id alone, a session is found in all apps.
_KEYS: dict[Table[Any], tuple[str, ...]] = {SESSIONS: ("id", "app")}
_REST: dict[Table[Any], str] = {SESSIONS: " WITH (fillfactor = 70)"}


class Rows:
    """How the rows of one table are stored."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        self.name: str = table.name
        self.by_field: dict[str, Column] = {each.field: each for each in table.columns}
        self.written: tuple[Column, ...] = tuple([each for each in table.columns if each.field != table.serial])
        """The columns that a write fills, besides the session's number."""
        self.values = cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*[each.field for each in self.written]))
        """Returns what is in those columns of a row."""
        self.schema: tuple[str, ...] = tuple(self._schema())

    def names(self, *fields: str, of: str = "") -> list[str]:
        """Return columns by their fields, all by default, in the order of the row's, as SQL has them."""
        prefix = f"{of}." if of else ""
        return [prefix + quoted(self.by_field[each].name) for each in fields or self.table.fields]

    def _schema(self) -> Iterator[str]:
        table, serial = self.table, self.table.serial
        fields = {each.name: each for each in msgspec.structs.fields(table.row)}
        # The bodies come last: what is before them is read without looking at them.
        stored = sorted(self.written, key=lambda each: each.kind == "bytes")
        columns = [f"{serial} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"] * (serial is not None)
        columns += ["session bigint NOT NULL"] * table.of_session
        columns += [_declared(each, fields[each.field].default) for each in stored]
        if table is SESSIONS:
            columns += [f"{name} {kind}" for name, kind in DERIVED.items()]
        prefix = ("session",) if table.of_session else ()
        key = ", ".join(_KEYS.get(table, (*prefix, *self.names(*table.key))))
        # The inbox is read by its index alone.
        columns.append(
            f"{'PRIMARY KEY' if serial is None else 'UNIQUE'} ({key}){' INCLUDE (expires)' * (table is INBOX)}"
        )
        yield f"CREATE TABLE {{schema}}.{table.name} ({', '.join(columns)}){_REST.get(table, '')}"
        for index in _INDEXES.get(table, table.indexes):
            where = f" WHERE {index.where}" if index.where else ""
            on = f"{{schema}}.{table.name} ({', '.join(map(quoted, index.columns))})"
            yield f"CREATE INDEX {index.name} ON {on}{where}"


def _declared(column: Column, default: object) -> str:
    kind = TYPES[column.kind] + (' COLLATE "C"' if column.kind == "text" else "")
    if column.is_optional:
        return f"{quoted(column.name)} {kind}"
    return f"{quoted(column.name)} {kind} NOT NULL{_DEFAULTS[type(default)](default)}"


_DEFAULTS: dict[type, Callable[[Any], str]] = {
    type(NODEFAULT): lambda _: "",
    bool: lambda value: f" DEFAULT {value}",
    int: lambda value: f" DEFAULT {value}",
    float: lambda value: f" DEFAULT {value}",
    str: lambda value: f" DEFAULT '{value}'",
    tuple: lambda _: " DEFAULT '{}'",
    bytes: lambda _: " DEFAULT ''",
}

ROWS: dict[Table[Any], Rows] = {table: Rows(table) for table in TABLES}

# All times are these: that of a statement, and that of the very moment, for what has waited for a row.
_FUNCTIONS = (
    """CREATE FUNCTION {schema}.moment() RETURNS double precision LANGUAGE sql STABLE AS
        'SELECT date_part(''epoch'', statement_timestamp())'""",
    """CREATE FUNCTION {schema}.clock() RETURNS double precision LANGUAGE sql VOLATILE AS
        'SELECT date_part(''epoch'', clock_timestamp())'""",
)
# Volatile: it sees what was committed while the statement that calls it waited for the session's row.
_FIRST_INPUT = """CREATE FUNCTION {schema}.first_input_but(of_session bigint, gone text)
    RETURNS {schema}.inputs LANGUAGE sql VOLATILE AS
    'SELECT i FROM {schema}.inputs AS i
        WHERE i.session = of_session AND NOT i.taken AND i.id <> gone ORDER BY i.no LIMIT 1'"""

# What people are told to read leaves out the library's own sessions: approvals for always, and idempotency keys.
_IS_OF_USERS = f"NOT starts_with(s.app, '{OWN_APPS}')"
_VIEWS = (
    # An encrypted store keeps bytes that are not text.
    """CREATE FUNCTION {schema}.readable(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
    BEGIN
        RETURN convert_from(content, 'UTF8');
    EXCEPTION WHEN OTHERS THEN
        RETURN encode(content, 'hex');
    END $$""",
    f"""CREATE VIEW {{schema}}.readable_sessions AS SELECT
        id, app, "user", program, CASE WHEN pos >= 0 THEN branch || '.' || number END AS checkpoint, status,
        CASE WHEN expires > {{schema}}.moment() THEN owner END AS run_by,
        (SELECT count(*) FROM {{schema}}.questions AS q
            WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NULL) AS open_questions,
        waiting AS new_answers, inputs AS queued_inputs,
        to_timestamp(created) AS created, to_timestamp(updated) AS updated
        FROM {{schema}}.sessions AS s WHERE {_IS_OF_USERS}""",
    f"""CREATE VIEW {{schema}}.readable_questions AS SELECT
        s.id AS session, s.app, s."user", b.name AS branch, q.id, q.address, q.agent, q.reason, q.tags,
        to_timestamp(q.asked) AS asked, {{schema}}.readable(q.body) AS question,
        to_timestamp(q.expires) AS expires, q.how, {{schema}}.readable(q.value) AS answer, q.by AS answered_by,
        to_timestamp(q.at) AS answered
        FROM {{schema}}.questions AS q JOIN {{schema}}.sessions AS s ON s.no = q.session
        JOIN {{schema}}.branches AS b ON b.session = q.session AND b.no = q.branch WHERE {_IS_OF_USERS}""",
    f"""CREATE VIEW {{schema}}.readable_records AS SELECT
        s.id AS session, s.app, s."user", b.name || '.' || b.first + r.pos - b.start AS checkpoint,
        r."full", to_timestamp(r.at) AS written, r.source, {{schema}}.readable(r.header) AS header,
        {{schema}}.readable(r.events) AS events, {{schema}}.readable(r.body) AS body
        FROM {{schema}}.records AS r JOIN {{schema}}.sessions AS s ON s.no = r.session
        JOIN LATERAL (SELECT * FROM {{schema}}.branches AS b
            WHERE b.session = r.session AND b.start <= r.pos ORDER BY b.no DESC LIMIT 1) AS b ON true
        WHERE {_IS_OF_USERS}""",
)

SCHEMA: tuple[str, ...] = (
    *_FUNCTIONS,
    *[statement for rows in ROWS.values() for statement in rows.schema],
    _FIRST_INPUT,
    *_VIEWS,
)
