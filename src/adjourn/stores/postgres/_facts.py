"""The facts of one session, read by one statement: its row, with a list for each column of the other tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.facts import FactSheet, FactsWanted, Folded, Logged, Span
from adjourn.stores.kit.reading import (
    Columns,
    branches_of,
    converted,
    input_row,
    logged,
    question_row,
    readable,
    record_row,
    session_row,
)
from adjourn.stores.kit.rows import EARLIEST, LATEST, Branch, Count, QuestionRow, SessionRow, id_at, locate
from adjourn.stores.kit.tables import BRANCHES, INPUTS, LABELS_FROM, QUESTIONS, RECORDS, SESSIONS, Table

from ._tables import NOW, ROWS
from ._text import unescaped

Row = tuple[Any, ...]
_ByBranch: TypeAlias = dict[str, list[QuestionRow]]

MOST = 2**62  # Postgres cannot count further

_ASKED_UNTIL = QUESTIONS.fields.index(LABELS_FROM)
_LABELS_UNTIL = QUESTIONS.fields.index("terms")
_TEXTS = [place for place, each in enumerate(QUESTIONS.columns) if each.kind == "texts"]


class _Shape(NamedTuple):
    """What the text of a statement depends on."""

    named: bool
    waiting: bool
    labels: bool
    inputs: bool
    queue: bool
    branches: bool
    records: bool
    asking: bool
    fold: str
    asked: str
    every: bool
    span: Span | None
    """Without its values: `after` and `before` are empty if they are there, and so is `source`."""


class _Part(NamedTuple):
    """What is read of one table: the name of the part, its columns, and the query that yields them as lists."""

    name: str
    size: int
    text: str


def statement_of(wanted: FactsWanted) -> tuple[str, dict[str, Any]]:
    """Return the statement that reads what is wanted, and its parameters."""
    text, _ = _text(_shape(wanted))
    ref, span = wanted.ref, wanted.span
    records = [found for each in wanted.records if (found := number_of(each)) is not None]
    place = wanted.fold if span is None else span.after or span.before
    branch, number = ("", -1) if place is None else number_of(place) or ("", -1)
    after = 0 if span is None or span.events_after is None else min(span.events_after, MOST)
    return text, {
        "app": ref.app,
        "id": ref.id,
        "questions": list(wanted.questions),
        "inputs": list(wanted.inputs),
        "queue": None if wanted.queue == -1 else wanted.queue,
        "branches": [name for name, _ in records],
        "numbers": [each for _, each in records],
        "branch": branch,
        "number": number,
        "asked": wanted.asked,
        "source": None if span is None else span.source,
        "after": after,
        "limit": None if span is None else limit_of(span.limit),
    }


def fact_sheet(wanted: FactsWanted, found: Row) -> FactSheet:
    """Return the facts that the statement found."""
    now, columns = found[0], iter(found[1:])
    values = [next(columns) for _ in SESSIONS.fields]
    if values[0] is None:
        return FactSheet(wanted, now, None)
    row = session_row(values)
    _, parts = _text(_shape(wanted))
    lists = {part.name: _zipped([next(columns) for _ in range(part.size)]) for part in parts}
    session = row.session
    known = branches_of(lists["branches"], row) if "branches" in lists else []
    by_pos = {each[0]: each for each in lists.get("records", ())}
    places = [pos for each in wanted.records if (pos := locate(known, row.pos, each)) is not None and pos in by_pos]
    return FactSheet(
        wanted,
        now,
        row,
        questions=[question_row(_with_texts(each), session) for each in lists.get("questions", ())],
        inputs=[input_row(each, session) for each in lists.get("inputs", ())],
        queue=[input_row(each, session) for each in lists.get("queue", ())],
        branches=known,
        records=[record_row(*id_at(known, pos), by_pos[pos], session) for pos in places],
        asking=[converted(each, _Number, session, "a question").no for each in lists.get("asking", ())],
        asked=_asked(wanted, row, known, lists.get("asked", ())),
        log=_log(row, known, lists["place"], lists["span"]) if wanted.span is not None else (),
        folded=_folded(row, lists["point"], lists["folded"]) if _fold_of(wanted) else None,
    )


def number_of(checkpoint: str) -> tuple[str, int] | None:
    """Return the branch and the number in the id of a record; None if no record can have it."""
    name, _, digits = checkpoint.rpartition(".")
    number = locate([Branch(name, 0, 0, None)], MOST, checkpoint)
    return None if number is None or not digits else (name, number)


def limit_of(limit: int | None) -> int | None:
    """Return a limit that Postgres can count to."""
    return None if limit is None else max(0, min(limit, MOST))


# The text


def _shape(wanted: FactsWanted) -> _Shape:
    span = wanted.span
    if span is not None:
        shown: dict[str, Any] = {name: "" for name in ("after", "before", "source") if getattr(span, name) is not None}
        first = None if span.events_after is None else 0
        span = msgspec.structs.replace(span, events_after=first, limit=None, **shown)
    asked = "all" if wanted.all_branches else "named" if wanted.asked is not None else "head" if wanted.every else ""
    return _Shape(
        named=bool(wanted.questions) and not asked,
        waiting=wanted.waiting,
        labels=wanted.labels,
        inputs=bool(wanted.inputs) or wanted.first_input,
        queue=wanted.queue is not None,
        branches=wanted.branches or bool(wanted.records),
        records=bool(wanted.records),
        asking=wanted.asking,
        fold=_fold_of(wanted),
        asked=asked,
        every=wanted.every,
        span=span,
    )


def _fold_of(wanted: FactsWanted) -> str:
    return "head" if wanted.head else "point" if wanted.fold is not None else ""


@cache
def _text(shape: _Shape) -> tuple[str, tuple[_Part, ...]]:
    parts = tuple(_parts(shape))
    columns = [NOW, *ROWS[SESSIONS].names(of="s"), *[f"{part.name}.*" for part in parts]]
    joins = [f"LEFT JOIN LATERAL ({part.text}) AS {part.name} ON true" for part in parts]
    session = "(SELECT 1) AS one LEFT JOIN {schema}.sessions AS s ON s.app = %(app)s AND s.id = %(id)s"
    return f"SELECT {', '.join(columns)} FROM {session}\n    " + "\n    ".join(joins), parts


def _parts(shape: _Shape) -> Iterator[_Part]:
    if shape.named or shape.waiting:
        yield _questions(shape)
    if shape.inputs:
        first = """(SELECT min(other.no) FROM {schema}.inputs AS other
            WHERE other.session = s.no AND NOT other.taken)"""
        yield _below("inputs", INPUTS, f"(t.id = ANY (%(inputs)s::text[]) OR t.no = {first}) ORDER BY t.no")
    if shape.queue:
        yield _below("queue", INPUTS, "NOT t.taken ORDER BY t.no LIMIT %(queue)s")
    if shape.branches:
        yield _below("branches", BRANCHES, "true ORDER BY t.no")
    if shape.records:
        yield _below(
            "records",
            RECORDS,
            """t.pos IN (SELECT b.start + wanted.number - b.first
            FROM unnest(%(branches)s::text[], %(numbers)s::bigint[]) AS wanted (branch, number)
            JOIN {schema}.branches AS b ON b.session = s.no AND b.name = wanted.branch)""",
        )
    if shape.asking:
        open_ones = "FROM {schema}.questions AS q WHERE q.session = s.no AND q.how IS NULL"
        yield _Part("asking", 1, f"SELECT array_agg(DISTINCT q.branch) {open_ones}")
    if shape.asked:
        yield _questions_of(shape)
    if shape.fold:
        yield from _fold(shape.fold)
    if shape.span is not None:
        yield from _span(shape.span)


def _below(name: str, table: Table[Any], which: str, columns: Sequence[str] | None = None) -> _Part:
    """Return the part that reads rows `t` below the session, all columns by default."""
    columns = ROWS[table].names(of="t") if columns is None else columns
    names = [f"c{number}" for number in range(len(columns))]
    chosen = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    rows = f"SELECT {chosen} FROM {{schema}}.{table.name} AS t WHERE t.session = s.no AND {which}"
    return _Part(name, len(names), f"SELECT {', '.join(f'array_agg({each})' for each in names)} FROM ({rows}) AS t")


def _questions(shape: _Shape) -> _Part:
    columns = _question_columns(_LABELS_UNTIL if shape.labels else _ASKED_UNTIL)
    named = ["t.id = ANY (%(questions)s::text[])"] if shape.named else []
    # What is loaded has answers that no record has taken, if any: what is open may be much.
    untaken = "s.waiting > 0 AND t.how IS NOT NULL AND NOT t.taken" if shape.fold else "t.how IS NULL OR NOT t.taken"
    which = " OR ".join([*named, *([untaken] if shape.waiting else [])])
    return _below("questions", QUESTIONS, f"t.branch = s.branch_no AND ({which}) ORDER BY t.no", columns)


def _question_columns(until: int) -> list[str]:
    columns = ROWS[QUESTIONS].names(*QUESTIONS.fields[:until], of="t")
    for place in _TEXTS:
        if place < until:  # Lists of lists must be even.
            columns[place] = f"convert_to(to_json({columns[place]})::text, 'UTF8')"
    return columns


def _questions_of(shape: _Shape) -> _Part:
    """Return the part that reads questions of branches, each with the number of its branch."""
    columns = ["t.branch", *_question_columns(_ASKED_UNTIL)]
    named = "(SELECT b.no FROM {schema}.branches AS b WHERE b.session = s.no AND b.name = %(asked)s)"
    number = "s.branch_no" if shape.asked == "head" else named
    which = "true" if shape.asked == "all" else f"t.branch = {number}"
    ids = "" if shape.every else " AND t.id = ANY (%(questions)s::text[])"
    return _below("asked", QUESTIONS, f"{which}{ids} ORDER BY t.no", columns)


# The position that the record `number` of the branch `branch` has or had.
_PLACE = """SELECT b.start + %(number)s - b.first AS pos FROM {schema}.branches AS b
    WHERE b.session = s.no AND b.name = %(branch)s AND b.first <= %(number)s AND b.start + %(number)s - b.first
        < coalesce((SELECT min(later.start) FROM {schema}.branches AS later
            WHERE later.session = s.no AND later.no > b.no), s.pos + 1)"""
_RECORD_THERE = f"SELECT t.pos FROM ({_PLACE}) AS place JOIN {{schema}}.records AS t USING (pos) WHERE t.session = s.no"


def _fold(kind: str) -> Iterator[_Part]:
    full = """(SELECT max(f.pos) FROM {schema}.records AS f WHERE f.session = s.no AND f.pos <= t.pos AND f."full")"""
    point = f"SELECT t.pos AS pos, coalesce({full}, 0) AS start FROM ({_RECORD_THERE}) AS t"
    point = "SELECT s.pos AS pos, s.full_pos AS start" if kind == "head" else point
    yield _Part("point", 2, f"SELECT array_agg(t.pos) AS pos, array_agg(t.start) AS start FROM ({point}) AS t")
    between = "t.pos BETWEEN point.start[1] AND point.pos[1] ORDER BY t.pos"
    yield _below("folded", RECORDS, between, ["t.body", "t.at"])


def _span(span: Span) -> Iterator[_Part]:
    # A record that comes first may have been pruned; one that ends a span must be there.
    at = _PLACE if span.after is not None else _RECORD_THERE if span.before is not None else "SELECT -1 AS pos"
    yield _Part("place", 1, f"SELECT array_agg(t.pos) AS pos FROM ({at}) AS t")
    left_out = {"header": span.header, "events": span.events, "body": span.body}
    columns = [
        each if left_out.get(field, True) else "''::bytea"
        for field, each in zip(RECORDS.fields, ROWS[RECORDS].names(of="t"), strict=True)
    ]
    where = [f"t.pos {'<' if span.before is not None else '>'} place.pos[1]"]
    where += ["t.source IS NOT NULL"] * span.listed
    where += ["t.source = %(source)s"] * (span.source is not None)
    if span.events_after is not None:
        # Numbers of events grow with positions: looking back from the end costs as much as what is then returned.
        seen = """(SELECT max(seen.pos) FROM {schema}.records AS seen
            WHERE seen.session = s.no AND seen.seq <= %(after)s)"""
        where += ["t.seq > %(after)s", "t.count > 0", f"t.pos > coalesce({seen}, -1)"]
    order = "DESC" if span.newest_first else "ASC"
    yield _below("span", RECORDS, f"{' AND '.join(where)} ORDER BY t.pos {order} LIMIT %(limit)s", columns)


# The rows


def _zipped(columns: Sequence[Sequence[Any] | None]) -> list[Row]:
    """Return rows from lists, one for each column; None if there are no rows."""
    return list(zip(*(column or () for column in columns), strict=True))


def _with_texts(values: Row) -> Sequence[Any]:
    found = list(values)
    for place in _TEXTS:
        if place < len(found):
            found[place] = unescaped(msgspec.json.decode(found[place]))
    return found


def _asked(
    wanted: FactsWanted, row: SessionRow, known: Sequence[Branch], found: Sequence[Row]
) -> dict[str, list[QuestionRow]]:
    by_number = {each.no: each.name for each in known} or {row.branch_no: row.branch}
    asked: _ByBranch = {name: [] for name in by_number.values()}

    def read(values: Row) -> QuestionRow:
        number = converted(values[:1], _Number, row.session, "the row of a question").no
        if number not in by_number:
            raise CheckpointCorrupt(f"it has questions of a branch {number}, which it has not", row.session)
        asked[by_number[number]].append(each := question_row(_with_texts(values[1:]), row.session))
        return each

    list(readable(found, read) if wanted.every else map(read, found))
    return asked


def _log(row: SessionRow, known: Sequence[Branch], place: Sequence[Row], found: Sequence[Row]) -> list[Logged] | None:
    def read(values: Row) -> Logged:
        return logged(values[0], known, lambda own, parent: record_row(own, parent, values, row.session))

    return list(map(read, found)) if place else None


def _folded(row: SessionRow, point: Sequence[Row], found: Sequence[Row]) -> Folded | None:
    if row.pos < 0 or not point:
        return None
    ((pos, start),) = point
    if len(found) != pos - start + 1:
        raise CheckpointCorrupt(f"it lacks {pos - start + 1 - len(found)} of its records", row.session)
    at = found[-1][1]
    return Folded(at if EARLIEST <= at < LATEST else 0.0, tuple([body for body, _ in found]))


class _Number(Columns, frozen=True, gc=False):
    no: Count
