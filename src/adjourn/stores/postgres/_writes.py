"""Effects as one statement, whose text is made once for each shape that changes have.

What must hold for that to be sound, in READ COMMITTED, where a statement sees what was committed when it began:

- Every write locks the row of its session first, and whatever changes a question or an input changes that row, too. So
  from then on nothing of the session changes until the transaction ends. But a statement that had to wait for the row
  still sees everything else as it was before. Of the rows that it locks or updates itself, Postgres finds the newest
  version and looks at the conditions once more.
- So the guard is a condition on the session's row. A question or an input that something is expected of is locked after
  it (`held…`), under that expectation, and only if all of them are found, the session's row is changed (`moved`).
  Everything else is written for the row that `moved` returns. If there is none, nothing is written, and there was no
  error: a transaction of the caller goes on.
- That the input is new is found out by adding it, before the session's row is changed: an index knows what a snapshot
  does not. New questions come with a record, and their guard names the head, so whoever else asked has moved it.
- The first input that is left is looked up by a volatile function, which has a snapshot of its own.
- What removes a session must see all that is below it, so it wants the row as it was when the statement began.
- Rows that are only expected to be there are not looked for: they go with their session only, or are to go anyway.

The time of writing is that at which the statement arrived; what must not be over yet is measured by the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from adjourn.errors import NotStorable
from adjourn.stores.kit.effects import Add, Effects, Expect, Guard, Insert, Later, Removal, Update, changed_columns
from adjourn.stores.kit.inbox import relisted
from adjourn.stores.kit.rows import SessionRow
from adjourn.stores.kit.tables import (
    BEGUN,
    BRANCHES,
    INBOX,
    INPUTS,
    QUESTIONS,
    RECORDS,
    SESSIONS,
    Column,
    Table,
    quoted,
)
from adjourn.stores.types import SessionRef

from ._driver import ExceedsIndex
from ._tables import ROWS, TYPES
from ._text import array_of

Statement = tuple[bytes, dict[str, Any]]

_NAMES = tuple([f"p{number}" for number in range(1000)])


class _Insert(NamedTuple):
    """The shape of rows to add: whether they are many, and how each of their columns is given."""

    table: Table[Any]
    is_many: bool
    modes: tuple[str, ...]


class _Change(NamedTuple):
    """The shape of updates of some fields, or of deletes if there are none."""

    table: Table[Any]
    expect: Expect
    is_many: bool
    fields: tuple[str, ...]
    modes: tuple[str, ...]


class _Shape(NamedTuple):
    """What the text of a statement depends on."""

    has_user: bool
    guard: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] | None
    """Those of the session that change, and how each is given; None if the session is removed."""
    inserts: tuple[_Insert, ...] = ()
    changes: tuple[_Change, ...] = ()
    leaves: bool = False


def statement_of(schema: str, effects: Effects) -> Statement:
    """Return the statement that writes effects, and its parameters; it returns a row if all that must hold does."""
    ref, after = effects.ref, effects.after
    inserts, updates, deletes = effects.inserts, effects.updates, effects.deletes
    for each in updates:
        if each.row is not None and after is not None:
            entering, leaving = relisted(after, each)
            inserts += (Insert(INBOX, tuple(entering)),) * bool(entering)
            deletes += tuple([Removal(INBOX, key) for key in leaving])
    values: list[Any] = [ref.app, ref.id]
    if ref.user is not None or not effects.guard.exists:
        values.append(ref.user)
    guard = _guard(effects.guard, values)
    columns = None if after is None else _columns(_new_columns(effects, after), values)
    added = tuple([_inserted(each.table, each.rows, values) for each in inserts])
    changed = tuple(_changed(updates, deletes, values)) if updates or deletes else ()
    leaves = effects.leaves and effects.before is not None and after is not None
    if leaves and effects.before is not None:
        values.append(effects.before.branch_no)
    shape = _Shape(ref.user is not None, guard, columns, added, changed, leaves)
    return _text(schema, shape), dict(zip(_NAMES, values, strict=False))


def renewal_statement(schema: str, ref: SessionRef, guard: Guard, columns: dict[str, Any]) -> Statement:
    """Return the statement that changes columns of a session's row, without knowing it; see `statement_of`."""
    values: list[Any] = [ref.app, ref.id, *((ref.user,) if ref.user is not None else ())]
    names = _guard(guard, values)
    shape = _Shape(ref.user is not None, names, _columns(columns, values))
    return _text(schema, shape), dict(zip(_NAMES, values, strict=False))


def too_long(effects: Effects, error: ExceedsIndex) -> NotStorable:
    """Return the error about a name that an index does not take."""
    ref = effects.ref
    ids = {each.table.name: [row.id for row in each.rows] for each in effects.inserts if "id" in each.table.key}
    by_table = {
        "sessions": {"session_id": ref.id, "user_id": ref.user or "", "app_name": ref.app},
        "questions": {"the id of a question": max(ids.get("questions", ()), key=len, default="")},
        "inputs": {"the id of an input": max(ids.get("inputs", ()), key=len, default="")},
    }
    tables = [by_table[error.path]] if error.path in by_table else by_table.values()
    size, name = max((len(text.encode(errors="replace")), name) for table in tables for name, text in table.items())
    return NotStorable(
        name,
        "",
        f"It has {size:,} bytes and does not fit into an index of Postgres ({error.remedy}), which also has the names "
        "of a session, its user and its app in one entry. Use a shorter name, such as a hash of it.",
    )


# The shapes of parts, whose values are added in the order in which `_Texts` gives them names.


def _guard(guard: Guard, values: list[Any]) -> tuple[str, ...]:
    if not guard.exists:
        return ("new",)
    names: list[str] = []
    if guard.checkpoint is not None:
        branch, _, number = guard.checkpoint.rpartition(".")
        names.append("head" if guard.checkpoint else "bare")
        values += (branch, int(number)) if guard.checkpoint else ()
    for name in ("branch", "fence", "owner", "waiting", "inputs", "marks", "idle"):
        value = getattr(guard, name)
        if value is not None:
            names.append(name)
            values.append(value)
    if guard.room is not None:
        names.append("room")
        values += (guard.room.inputs, guard.room.input_bytes)
    if guard.live is not None:
        names.append("live" if guard.live else "free")
        if guard.replaces is not None:
            names.append("replaces")
            values.append(guard.replaces)
    return tuple(names)


def _new_columns(effects: Effects, after: SessionRow) -> dict[str, Any]:
    new = changed_columns(effects)
    return {field: new[field] if field in new else getattr(after, field) for field in _all_of(tuple(new))}


@lru_cache(maxsize=1000)
def _all_of(changed: tuple[str, ...]) -> list[str]:
    """Return the columns to write, in their order. With a record, some do that may be as they were.

    There would be too many shapes otherwise; the guard names the head and the fence, so nobody else changed them.
    """
    every = {*changed, *_WITH_A_RECORD} if "pos" in changed else set(changed)
    return [field for field in SESSIONS.fields if field in every]


_WITH_A_RECORD = ("number", "full_pos", "size", "status", "claims", "seq")


def _columns(new: dict[str, Any], values: list[Any]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(new, _given(new.values(), values), strict=True))


def _inserted(table: Table[Any], rows: Sequence[Any], values: list[Any]) -> _Insert:
    get = ROWS[table].values
    if len(rows) == 1:
        return _Insert(table, False, _given(get(rows[0]), values))
    if table is BEGUN:
        rows = sorted(rows, key=get)  # two that begin the same things must not wait for each other
    columns = zip(*map(get, rows), strict=True)
    return _Insert(table, True, tuple([_given_in_list(each, values) for each in columns]))


def _changed(updates: Sequence[Update], deletes: Sequence[Removal], values: list[Any]) -> Iterator[_Change]:
    groups: dict[tuple[Table[Any], Expect, tuple[str, ...]], list[tuple[Any, ...]]] = {}
    for each in updates:
        rows = groups.setdefault((each.table, each.expect, tuple(each.values)), [])
        rows.append((*each.key, *each.values.values()))
    for each in deletes:
        groups.setdefault((each.table, each.expect, ()), []).append(each.key)
    for (table, expect, fields), rows in groups.items():
        if len(rows) == 1:
            modes = _given(rows[0], values)
        else:
            modes = tuple([_given_in_list(each, values) for each in zip(*rows, strict=True)])
        yield _Change(table, expect, len(rows) > 1, fields, modes)


def _given(row: Iterable[Any], values: list[Any]) -> tuple[str, ...]:
    """Add what parameters need for the values of some columns; return how each is given."""
    given = tuple(row)
    modes = [_MODES.get(type(value), "is") for value in given]
    if modes.count("is") == len(modes):
        values += given
        return tuple(modes)
    for place, (value, mode) in enumerate(zip(given, modes, strict=True)):
        if mode == "now" and value.plus:
            modes[place] = "later"
            values.append(value.plus)
        elif mode == "list":
            modes[place] = "is"
            values.append([*value])
        elif mode != "now":
            values.append(value)
    return tuple(modes)


_MODES: dict[Any, str] = {Later: "now", Add: "add", tuple: "list"}


def _given_in_list(column: Sequence[Any], values: list[Any]) -> str:
    """Add what a parameter needs for the values of a column in many rows; return how they are given."""
    times = [isinstance(value, Later) for value in column]
    if all(times):
        return "now"
    if isinstance(column[0], tuple):
        column = [array_of(each) for each in column]  # lists of different lengths cannot stand in one
    values.append([math.inf if is_now else value for value, is_now in zip(column, times, strict=True)])
    return "mixed" if any(times) else "is"


# The text

_EXPECTED = {
    Expect.OPEN: "t.how IS NULL",
    Expect.IN_TIME: "t.how IS NULL AND (t.expires IS NULL OR t.expires > {clock})",
    Expect.WAITS: "NOT t.taken",
    Expect.FIRST: """NOT t.taken AND NOT EXISTS (SELECT FROM {schema}.inputs AS other
        WHERE other.session = t.session AND NOT other.taken AND other.no < t.no)""",
}
_ADDED: dict[Table[Any], str] = {
    INPUTS: " ON CONFLICT DO NOTHING RETURNING no",
    BEGUN: " ON CONFLICT DO NOTHING",
    QUESTIONS: " RETURNING no, asked, expires, terms",
}


@lru_cache(maxsize=1000)
def _text(schema: str, shape: _Shape) -> bytes:
    return _Texts(schema, shape).statement().encode()


class _Added(NamedTuple):
    """Rows to add: what stands for each column, and what those of many rows come from."""

    table: Table[Any]
    values: list[str]
    source: str

    def value(self, field: str) -> str:
        """Return what stands for a column."""
        return self.values[[each.field for each in ROWS[self.table].written].index(field)]


class _Changed(NamedTuple):
    """Rows to change: what finds them, as `t`, what those of many come from, what is set, and how many they are."""

    shape: _Change
    key: list[str]
    where: str
    source: str
    sets: str
    number: str


class _Texts:
    """Makes the text of one statement. Each part first gives names to its values, in the order in which they come."""

    def __init__(self, schema: str, shape: _Shape) -> None:
        self.schema = schema
        self.shape = shape
        self.is_new: bool = shape.guard == ("new",)
        self.now = f"{schema}.moment()"
        self._sessions = f"{schema}.sessions AS s"
        self._count = 0
        self._parts: list[str] = []
        app, name = self._next("text"), self._next("text")
        user = self._next("text") if shape.has_user or self.is_new else "NULL"
        self._who = {"app": app, "session": name, "user": user}
        named = [f"s.app = {app}", f"s.id = {name}", *([f's."user" = {user}'] if shape.has_user else [])]
        self._named = " AND ".join(named)
        self._where = " AND ".join([*named, *self._guards()])
        self._columns = {field: self._column(field, mode) for field, mode in shape.columns or ()}
        self._added = [self._adding(each) for each in shape.inserts]
        self._changed = [self._changing(each) for each in shape.changes]
        self._left = self._next("bigint") if shape.leaves else ""

    def _next(self, kind: str) -> str:
        self._count += 1
        return f"%({_NAMES[self._count - 1]})b::{kind}"

    def _guards(self) -> Iterator[str]:
        names = self.shape.guard
        for name in names:
            if name == "head":
                yield f"s.branch = {self._next('text')} AND s.number = {self._next('bigint')}"
            elif name in ("live", "free"):
                others = f" AND s.owner <> {self._next('text')}" if "replaces" in names else ""
                held = f"s.owner IS NOT NULL AND s.expires > {self.schema}.clock(){others}"
                yield held if name == "live" else f"(s.owner IS NULL OR NOT ({held}))"
            elif name == "room":
                yield f"s.inputs < {self._next('bigint')} AND s.input_bytes <= {self._next('bigint')}"
            elif name == "bare":
                yield "s.pos < 0"
            elif name == "idle":
                yield f"s.touched < {self.now} - {self._next('double precision')}"
            elif name not in ("new", "replaces"):
                yield f"s.{name} = {self._next(TYPES[ROWS[SESSIONS].by_field[name].kind])}"

    def _column(self, field: str, mode: str) -> str:
        column = ROWS[SESSIONS].by_field[field]
        value = self._values([column], [mode], is_many=False)[0][0]
        if self.is_new:
            return value
        if field in SESSIONS.lasting:  # others may have given one since the write was decided
            return f"coalesce(nullif(s.{quoted(column.name)}, ''), {value})"
        return f"s.{quoted(column.name)} + {value}" if mode == "add" else value

    def _adding(self, shape: _Insert) -> _Added:
        values, lists = self._values(ROWS[shape.table].written, shape.modes, is_many=shape.is_many)
        return _Added(shape.table, values, _unnested(lists))

    def _changing(self, shape: _Change) -> _Changed:
        rows, size = ROWS[shape.table], len(shape.table.key)
        columns = [rows.by_field[each] for each in (*shape.table.key, *shape.fields)]
        values, lists = self._values(columns, shape.modes, is_many=shape.is_many)
        pairs = [f"{quoted(each.name)} = {value}" for each, value in zip(columns, values, strict=True)]
        where = " AND ".join([f"t.{each}" for each in pairs[:size]])
        number = f"cardinality({lists[0]})" if lists else "1"
        return _Changed(shape, values[:size], where, _unnested(lists), ", ".join(pairs[size:]), number)

    def _values(self, columns: Sequence[Column], modes: Sequence[str], *, is_many: bool) -> tuple[list[str], list[str]]:
        """Return what stands for each of some columns and, for many rows, the lists that are unnested as `n`."""
        found: list[str] = []
        lists: list[str] = []
        for column, mode in zip(columns, modes, strict=True):
            kind = TYPES[column.kind]
            if mode == "now":
                value = self.now
            elif not is_many:
                value = self._next(kind)
            else:
                value = f"n.c{len(lists)}"
                lists.append(self._next("bytea[]" if column.kind == "texts" else f"{kind}[]"))
                if column.kind == "texts":
                    value = f"convert_from({value}, 'UTF8')::text[]"
            if mode == "later":
                value = f"{self.now} + {value}"
            elif mode == "mixed":
                value = f"CASE WHEN {value} = 'infinity' THEN {self.now} ELSE {value} END"
            found.append(value)
        return found, lists

    def statement(self) -> str:
        if self.is_new:
            self._begin()
        elif self.shape.columns is None:
            self._remove()
        else:
            self._move()
        parts = ",\n".join(self._parts)
        return f"WITH {parts}\nSELECT moved.cancel, {self.now}, moved.inputs FROM moved"

    def _part(self, name: str, text: str) -> str:
        self._parts.append(f"{name} AS ({text})")
        return name

    def _begin(self) -> None:
        rows = ROWS[SESSIONS]
        new = {rows.names(field)[0]: value for field, value in (self._columns | self._who).items()}
        new["rested"] = "NULL" if "owner" in self._columns else self.now
        for each in self._added:
            if each.table is INPUTS:
                new |= {"queued": self.now, "abandons": each.value("abandons")}
        self._part(
            "moved",
            f"INSERT INTO {self._sessions} ({', '.join(new)}) VALUES ({', '.join(new.values())})\n"
            "    ON CONFLICT (id, app) DO NOTHING RETURNING s.no, NULL::text AS cancel, s.inputs",
        )
        for each in self._added:
            self._insert(each, "moved")

    def _remove(self) -> None:
        self._part("found", f"SELECT s.no, s.ctid AS version FROM {self._sessions} WHERE {self._where} FOR UPDATE")
        as_seen = f"(SELECT s.ctid FROM {self._sessions} WHERE {self._named})"
        self._part(
            "moved",
            f"DELETE FROM {self._sessions} WHERE s.no = (SELECT no FROM found WHERE version = {as_seen})\n"
            "    RETURNING s.no, s.cancel, 0::bigint AS inputs",
        )
        self._unlist(self._open())
        for table in (RECORDS, QUESTIONS, BRANCHES, INPUTS):
            below = f"DELETE FROM {self.schema}.{table.name} AS t WHERE t.session = (SELECT no FROM moved)"
            self._part(f"removed_{table.name}", below)

    def _move(self) -> None:
        """Change the session's row if all that must hold does, and then everything else."""
        expecting = [each for each in self._changed if each.shape.expect is not Expect.THERE]
        submitted = [each for each in self._added if each.table is INPUTS]
        asked = [each for each in self._added if each.table is QUESTIONS]
        where, is_changed = " AND ".join([self._where, *[self._is_new(each, "s") for each in asked]]), False
        if expecting or submitted:
            self._part("found", f"SELECT s.no FROM {self._sessions} WHERE {self._where} FOR UPDATE")
            is_changed = len(expecting) == 1 and not (expecting[0].shape.is_many or submitted or asked)
            if is_changed:  # What is expected of the only row is a condition of its change.
                gate = self._change(expecting[0], "found", f" AND {self._expected(expecting[0])}")
            else:
                gate = self._gate(expecting, submitted, asked)
            where = f"s.no = (SELECT no FROM {gate})"
        returned = f"s.no, s.{'cancelled AS cancel' if 'cancel' in self._columns else 'cancel'}, s.inputs"
        new = ", ".join([f"{name} = {value}" for name, value in self._set()])
        if new:
            self._part("moved", f"UPDATE {self._sessions} SET {new}\n    WHERE {where} RETURNING {returned}")
        else:
            self._part("moved", f"SELECT {returned} FROM {self._sessions} WHERE {where} FOR UPDATE")
        for each in self._added:
            if each not in submitted:
                self._insert(each, "moved")
        for each in self._changed:
            if not (is_changed and each in expecting):
                self._change(each, "moved")
        if self._left:
            self._unlist(self._open(f" AND q.branch = {self._left}"))

    def _gate(self, expecting: list[_Changed], submitted: list[_Added], asked: list[_Added]) -> str:
        """Add what finds out whether everything that is expected holds; return where the session is if it does."""
        conditions = [self._is_new(each, "found") for each in asked]
        for each in expecting:
            held = self._part(
                f"held{len(self._parts)}",
                f"SELECT t.no FROM {self.schema}.{each.shape.table.name} AS t{', ' * bool(each.source)}{each.source}\n"
                f"    WHERE {self._which(each, 'found')} AND {self._expected(each)} FOR UPDATE OF t",
            )
            conditions.append(f"(SELECT count(*) FROM {held}) = {each.number}")
        for each in submitted:
            added = self._insert(each, "found", conditions)
            conditions.append(f"(SELECT count(*) FROM {added}) = 1")
        return f"found WHERE {' AND '.join(conditions)}"

    def _set(self) -> Iterator[tuple[str, str]]:
        """Yield the columns of the session that change, and those that follow from them."""
        for field, value in self._columns.items():
            yield quoted(ROWS[SESSIONS].by_field[field].name), value
        if "cancel" in self._columns:
            yield "cancelled", "s.cancel"
        updated = self._columns.get("updated", "s.updated")
        if "owner" in self._columns:
            yield "rested", f"CASE WHEN {self._columns['owner']} IS NULL THEN {updated} END"
        elif "updated" in self._columns and "owner" not in self.shape.guard:
            yield "rested", f"CASE WHEN s.owner IS NULL THEN {updated} END"
        for each in self._added:
            if each.table is INPUTS:
                waits = f"s.queued IS NULL AND NOT {each.value('taken')}"
                yield "queued", f"CASE WHEN {waits} THEN {self.now} ELSE s.queued END"
                yield "abandons", f"CASE WHEN {waits} THEN {each.value('abandons')} ELSE s.abandons END"
        for each in self._changed:
            if each.shape.table is INPUTS:
                others = f"{self.schema}.first_input_but(found.no, {each.key[0]})"
                next_one = self._part("next_one", f"SELECT i.at, i.abandons FROM found, {others} AS i")
                yield "queued", f"(SELECT at FROM {next_one})"
                yield "abandons", f"(SELECT abandons FROM {next_one})"

    def _is_new(self, asked: _Added, session: str) -> str:
        # Counted, as for `_which`: not merged with the rest.
        source = f"{self.schema}.questions AS t{', ' * bool(asked.source)}{asked.source}"
        same = f"t.session = {session}.no AND t.branch = {asked.value('branch')} AND t.id = {asked.value('id')}"
        return f"(SELECT count(*) FROM {source}\n    WHERE {same}) = 0"

    def _which(self, each: _Changed, session: str) -> str:
        """Return what finds rows below the session of a part."""
        # Not a join: that could look for the session last, among the rows of all of them.
        if not each.shape.table.of_session:
            return f"EXISTS (SELECT FROM {session}) AND {each.where}"
        return f"t.session = (SELECT no FROM {session}) AND {each.where}"

    def _expected(self, each: _Changed) -> str:
        return _EXPECTED[each.shape.expect].format(schema=self.schema, clock=f"{self.schema}.clock()")

    def _insert(self, each: _Added, session: str, conditions: Sequence[str] = ()) -> str:
        """Add rows below a session, and list them in the inbox if they are questions; return the name of the part."""
        rows, below = ROWS[each.table], each.table.of_session
        names = ["session"] * below + [quoted(column.name) for column in rows.written]
        values = [f"{session}.no"] * below + each.values
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = " ORDER BY n.place" if each.source and each.table.serial else ""
        source = f"{session}{', ' * bool(each.source)}{each.source}"
        name = self._part(
            f"added_{rows.name}",
            f"INSERT INTO {self.schema}.{rows.name} ({', '.join(names)})\n"
            f"    SELECT {', '.join(values)} FROM {source}{where}{order}{_ADDED.get(each.table, '')}",
        )
        if each.table is QUESTIONS:
            listed = f"SELECT unnest(q.terms), q.asked, q.no, q.expires FROM {name} AS q"
            self._part("listed", f"INSERT INTO {self.schema}.inbox (term, asked, no, expires) {listed}")
        return name

    def _change(self, each: _Changed, session: str, condition: str = "") -> str:
        """Update or delete rows below a session, and take those that end out of the inbox; return the part's name."""
        ends = "how" in each.shape.fields
        table = f"{self.schema}.{each.shape.table.name} AS t"
        verb, source = (f"UPDATE {table} SET {each.sets}", "FROM") if each.sets else (f"DELETE FROM {table}", "USING")
        source = f" {source} {each.source}" if each.source else ""
        returned = "t.session AS no" if each.shape.table.of_session else "t.no"
        returned += ", t.no AS question, t.asked, t.terms" * ends
        where = f"{self._which(each, session)}{condition}"
        name = self._part(f"changed{len(self._parts)}", f"{verb}{source}\n    WHERE {where} RETURNING {returned}")
        if ends:
            self._unlist(f"{name} AS q WHERE i.no = q.question")
        return name

    def _open(self, which: str = "") -> str:
        open_ones = f"q.session = (SELECT no FROM moved) AND q.how IS NULL{which}"
        return f"{self.schema}.questions AS q WHERE {open_ones} AND i.no = q.no"

    def _unlist(self, questions: str) -> None:
        """Take questions `q` out of the inbox."""
        self._part(
            f"unlisted{len(self._parts)}",
            f"DELETE FROM {self.schema}.inbox AS i USING {questions}\n"
            "    AND i.term = ANY (q.terms) AND i.asked = q.asked",
        )


def _unnested(lists: Sequence[str]) -> str:
    names = ", ".join([f"c{place}" for place in range(len(lists))])
    return f"unnest({', '.join(lists)}) WITH ORDINALITY AS n ({names}, place)" if lists else ""
