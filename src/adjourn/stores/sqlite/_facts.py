"""The facts of a session in a SQLite file, looked up as needed inside one transaction that reads or writes."""

# An override is documented where it is declared.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.kit.facts import Folded, Logged, Span
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
from adjourn.stores.kit.rows import (
    MAX_RECORDS,
    Branch,
    Count,
    InputRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    id_at,
    locate,
)
from adjourn.stores.kit.tables import BRANCHES, INPUTS, LABELS_FROM, QUESTIONS, RECORDS

from ._tables import BITS, ROWS

SESSIONS_LIMIT = 2**35
"""The numbers that a session can have: with a place after it, it must fit into a key."""

# What a small read takes at most: it is done on the event loop, since handing it to a thread would take longer.
SMALL_BYTES = 128 * 1024
SMALL_ROWS = 100

_MOST = 2**62  # SQLite cannot count further

_INPUTS, _QUESTIONS, _RECORDS = ROWS[INPUTS], ROWS[QUESTIONS], ROWS[RECORDS]

# The columns of a session are in the order of its fields, since none of them is moved to the end.
_FIND = "SELECT * FROM sessions WHERE app = ? AND id = ?"
_BRANCHES = f"SELECT {ROWS[BRANCHES].columns('t')} FROM branches t WHERE t.key BETWEEN ? AND ? ORDER BY t.key"
_OF_BRANCH = "FROM questions t WHERE t.session = ? AND t.branch = ?"
_ASKED = f"SELECT {_QUESTIONS.columns('t', until=LABELS_FROM)} {_OF_BRANCH}"
_QUESTION = f"{_ASKED} AND t.id = ?"
_ALL_ASKED = f"{_ASKED} ORDER BY t.no"
_WAITING = f"""SELECT {_QUESTIONS.columns("t")} {_OF_BRANCH}
    AND (t.how IS NULL OR NOT t.taken) ORDER BY t.no LIMIT ?"""
_ASKING = "SELECT DISTINCT branch FROM questions WHERE session = ? AND how IS NULL"
_INPUT = f"SELECT {_INPUTS.columns('t')} FROM inputs t WHERE t.session = ? AND t.id = ?"
_QUEUE = f"SELECT {_INPUTS.columns('t')} FROM inputs t WHERE t.session = ? AND NOT t.taken ORDER BY t.no LIMIT ?"
_QUEUE_SIZE = """SELECT total(length(body)) FROM
    (SELECT body FROM inputs WHERE session = ? AND NOT taken ORDER BY no LIMIT ?)"""
_RECORD = f"SELECT {_RECORDS.columns('t')} FROM records t WHERE t.key = ?"
_BODIES = "SELECT CAST(body AS BLOB), at FROM records WHERE key BETWEEN ? AND ? ORDER BY key"
_LAST_FULL = "SELECT key FROM records WHERE key BETWEEN ? AND ? AND full = 1 ORDER BY key DESC LIMIT 1"
_NEXT = "SELECT key, seq FROM records WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1"


class TooBig(Exception):
    """There is more to read than is read on the event loop."""


class SQLiteFacts:
    """The facts of a session, looked up as needed.

    Rows are fetched before any is converted: a query that is cut short by damage would keep its snapshot open, and then
    the connection could not write any more.

    `flush` writes the records that a transaction has gathered; it comes before any of them are read. With `small`,
    whatever would take time raises `TooBig`.
    """

    __slots__ = ("_branches", "_connection", "_flush", "_row", "_small", "now")
    assumed = False
    has_inbox = True
    ttl = None

    def __init__(
        self,
        connection: sqlite3.Connection,
        row: SessionRow | None,
        now: float,
        *,
        flush: Callable[[], None] | None = None,
        small: bool = False,
    ) -> None:
        self._connection = connection
        self._row = row
        self.now = now
        self._flush = flush
        self._small = small
        self._branches: Sequence[Branch] | None = None

    @property
    def row(self) -> SessionRow | None:
        return self._row

    @property
    def _session(self) -> SessionRow:
        assert self._row is not None
        return self._row

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    # Questions

    def question(self, id: str) -> QuestionRow | None:
        row = self._session
        found = self._rows(_QUESTION, row.no, row.branch_no, id)
        return _read_question(found[0], row) if found else None

    def waiting(self) -> Sequence[QuestionRow]:
        row = self._session
        rows = self._rows(_WAITING, row.no, row.branch_no, SMALL_ROWS + 1 if self._small else -1)
        self._check_small(len(rows))
        return [_read_question(each, row) for each in rows]

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        row = self._session
        no = row.branch_no if branch == row.branch else self._branch_no(branch)
        if ids is None:
            rows = self._rows(_ALL_ASKED, row.no, no)
            return list(readable(rows, lambda values: _read_question(values, row)))
        self._check_small(len(ids))
        found = [_read_question(values, row) for each in ids for values in self._rows(_QUESTION, row.no, no, each)]
        return sorted(found, key=lambda each: each.no)

    def _branch_no(self, name: str) -> int:
        for branch in self.branches():
            if branch.name == name:
                return branch.no
        raise CheckpointNotFound(self._session.session, name)

    def asking(self) -> Sequence[int]:
        row = self._session
        rows = self._rows(_ASKING, row.no)
        return [converted(values, _Asking, row.session, "the row of a question").branch for values in rows]

    # Inputs

    def input(self, id: str) -> InputRow | None:
        row = self._session
        found = self._rows(_INPUT, row.no, id)
        return input_row(found[0], row.session) if found else None

    def first_input(self) -> InputRow | None:
        return next(iter(self.queue(1)), None)

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        row, most = self._session, -1 if limit is None else limit
        if self._small:
            self._check_small(row.inputs if limit is None else min(row.inputs, limit))
            ((size,),) = self._rows(_QUEUE_SIZE, row.no, most)
            self._check_small(0, size)
        return [input_row(each, row.session) for each in self._rows(_QUEUE, row.no, most)]

    # The log

    def branches(self) -> Sequence[Branch]:
        if self._branches is None:
            rows = self._rows(_BRANCHES, self._key(0), self._key(MAX_RECORDS - 1))
            self._branches = branches_of(rows, self._session)
        return self._branches

    def record(self, id: str) -> RecordRow | None:
        known = self.branches()
        pos = locate(known, self._session.pos, id)
        found = None if pos is None else self._record_at(pos)
        return None if pos is None or found is None else record_row(*id_at(known, pos), found, self._session.session)

    def fold(self, checkpoint: str | None) -> Folded | None:
        row = self._session
        if self._small and (row.size > SMALL_BYTES or row.pos - row.full_pos > SMALL_ROWS):
            raise TooBig
        if checkpoint is None:
            return self._folded(row.full_pos, row.pos)
        pos = locate(self.branches(), row.pos, checkpoint)
        if pos is None or self._record_at(pos) is None:
            return None
        full = self._rows(_LAST_FULL, self._key(0), self._key(pos))
        return self._folded(full[0][0] - self._key(0) if full else 0, pos)

    def _folded(self, start: int, end: int) -> Folded:
        if self._flush is not None:
            self._flush()
        rows = self._rows(_BODIES, self._key(start), self._key(end))
        if len(rows) != end - start + 1:
            lacks = f"it lacks {end - start + 1 - len(rows)} of its records"
            raise CheckpointCorrupt(lacks, self._session.session)
        at = rows[-1][1]
        return Folded(at if isinstance(at, float) else 0.0, tuple([body for body, _ in rows]))

    def log(self, span: Span) -> Iterator[Logged]:
        if self._small:
            raise TooBig
        if self._flush is not None:
            self._flush()
        row, known = self._session, self.branches()
        start, end = 0, row.pos
        if span.after is not None:
            start = self._place(known, span.after) + 1
        if span.before is not None:
            end = self._place(known, span.before) - 1
            if self._record_at(end + 1) is None:
                raise CheckpointNotFound(row.session, span.before)
        limit = -1 if span.limit is None else min(span.limit, _MOST)
        values: list[Any] = [self._key(start), self._key(end)]
        if span.source is not None:
            values.append(span.source)
        if span.events_after is not None:
            seen = min(span.events_after, _MOST)
            values[0] = self._first_after(self._key(start), self._key(end), seen)
            values.append(seen)
        return (self._logged(known, row) for row in self._rows(_spanning(span), *values, limit))

    def _logged(self, known: Sequence[Branch], values: Sequence[Any]) -> Logged:
        session = self._session.session
        return logged(values[0], known, lambda own, parent: record_row(own, parent, values, session))

    def _place(self, known: Sequence[Branch], id: str) -> int:
        """Return the position that a record has or, if it was pruned, had."""
        pos = locate(known, self._session.pos, id)
        if pos is None:
            raise CheckpointNotFound(self._session.session, id)
        return pos

    def _record_at(self, pos: int) -> tuple[Any, ...] | None:
        if self._flush is not None:
            self._flush()
        return next(iter(self._rows(_RECORD, self._key(pos))), None)

    def _first_after(self, low: int, high: int, after: int) -> int:
        """Return the first key whose record has events above `after`.

        Numbers grow with keys, so bisecting finds it without an index; where records were pruned, the next one counts.
        """
        while low < high:
            middle = (low + high) // 2
            found = self._rows(_NEXT, middle, high)
            if not found or converted(found[0], _Seq, self._session.session, "the row of a record").seq > after:
                high = middle
            else:
                low = found[0][0] + 1
        return low

    def _key(self, place: int) -> int:
        """Return the key of the record at a position, or of the branch with a number."""
        return self._session.no << BITS | place

    def _check_small(self, rows: int, size: float = 0) -> None:
        if self._small and (rows > SMALL_ROWS or size > SMALL_BYTES):
            raise TooBig


def _spanning(span: Span) -> str:
    """Return the query for the records of a span, between two keys."""
    left_out = {"header": span.header, "events": span.events, "body": span.body}
    columns = _RECORDS.columns("t", frozenset(name for name, is_wanted in left_out.items() if not is_wanted))
    # Without numbers: Python 3.12 warns of `?1`.
    where = ["t.key BETWEEN ? AND ?"]
    where += ["t.source = ?"] * (span.source is not None)
    where += ["t.source IS NOT NULL"] * span.listed
    where += ["t.seq > ? AND t.count > 0"] * (span.events_after is not None)
    order = "DESC" if span.newest_first else "ASC"
    return f"SELECT {columns} FROM records t WHERE {' AND '.join(where)} ORDER BY t.key {order} LIMIT ?"


class _Asking(Columns, frozen=True, gc=False):
    branch: Count


class _Seq(Columns, frozen=True, gc=False):
    key: int
    seq: Count


def _read_question(values: Sequence[Any], row: SessionRow) -> QuestionRow:
    """Return a question from its columns.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    return question_row(_QUESTIONS.plain(values, row.session), row.session)


def read_session(values: Sequence[Any]) -> SessionRow:
    """Return the row of a session from its columns.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    row = session_row(values)
    if not 0 < row.no < SESSIONS_LIMIT:
        raise CheckpointCorrupt(f"its row has the number {row.no}, which no session can have", row.session)
    return row


def find(connection: sqlite3.Connection, app: str, session: str) -> SessionRow | None:
    """Return the session's row, None if there is none.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    row = find_row(connection, app, session)
    return None if row is None else read_session(row)


def find_row(connection: sqlite3.Connection, app: str, session: str) -> tuple[Any, ...] | None:
    """Return the columns of a session's row, which may be damaged; None if there is none."""
    found: tuple[Any, ...] | None = connection.execute(_FIND, (app, session)).fetchone()
    return found
