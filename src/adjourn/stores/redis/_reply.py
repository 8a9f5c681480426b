"""What scripts reply, as checked rows: damage raises `CheckpointCorrupt`, which names its session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.kit import (
    Branch,
    InputRow,
    Point,
    QuestionRow,
    RecordRow,
    SessionRow,
    audit_entry,
    branch_rows,
    id_at,
    input_row,
    is_named,
    locate,
    points,
    question_row,
    readable,
    record_row,
    session_row,
    taken_notice,
)
from adjourn.stores.kit.rows import EARLIEST, LATEST
from adjourn.stores.types import AuditEntry, Begun, SessionRef, TakenNotice

T = TypeVar("T")

_unpack = msgspec.msgpack.Decoder().decode

_TEXTS = frozenset({"session", "app", "user", "branch", "status", "owner", "cancel", "program"})
_TIMES = frozenset({"created", "expires", "updated", "touched"})
_COLUMNS = SessionRow.__struct_fields__[1:]


def whole(reply: T) -> T:
    """Return a reply.

    Raises:
        CheckpointCorrupt: its session is damaged, and this stands in place of the reply.
    """
    if isinstance(reply, CheckpointCorrupt):
        raise reply
    return reply


def read_session(values: Sequence[bytes], id: str) -> SessionRow:
    """Return a session's row from the fields and values of its hash.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    fields = dict(zip(values[::2], values[1::2], strict=True))
    name = _column("session", fields.get(b"session"))
    if name != id:
        raise CheckpointCorrupt(f"its row is that of session {name!r}", id)
    return session_row([0, *(_column(name, fields.get(name.encode())) for name in _COLUMNS)])


def _column(name: str, value: bytes | None) -> object:
    if value is None:
        return None
    if name in _TEXTS:
        return text(value)
    return number(value) if name not in _TIMES else time(value)


def text(value: bytes) -> object:
    """Return text, or the bytes as they are if they are not text: whoever checks the column reports them."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def number(value: bytes) -> object:
    """Return a whole number, or the bytes as they are if they are not one."""
    return int(value) if value == b"-1" or (value.isdigit() and len(value) < 20) else value


def time(value: bytes) -> object:
    """Return a time, or the bytes as they are if they are not one."""
    try:
        return float(value)
    except ValueError:
        return value


def read_question(reply: Sequence[Any], session: str) -> QuestionRow:
    """Return a question from its place, what was asked, how it ended, and whether its answer waits, or it is open.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    _, asked, ended, waits, is_open = reply
    if ended is None and is_open is None:
        raise CheckpointCorrupt("a question is neither open nor ended", session)
    no, (name, body, expires, *labels) = _split(asked, 8, session, "a question")
    at, (value, how, by) = _split(ended, 3, session, "an answer") if ended is not None else (None, (None, None, None))
    taken = int(ended is not None and waits is None)
    values = (name, body, expires, value, how, by, None if at is None else time(at), taken, number(no), *labels)
    return question_row(values, session)


def read_input(reply: Sequence[Any], session: str) -> InputRow:
    """Return an input from its id, its facts, its body (unless a turn has begun with it), and whether it waits.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    name, facts, body, waits = reply
    no, _, rest = facts.partition(b" ")
    at, (digest, program, user, abandons) = _split(rest, 4, session, "an input")
    values = (text(name), digest, body or b"", program, user, _flag(abandons), time(at), int(waits is None))
    return input_row((*values, number(no[1:])), session)


def read_record(id: str, parent: str | None, pos: int, reply: Sequence[bytes | None], session: str) -> RecordRow:
    """Return a record from its facts, its body and its events.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    facts, body, events = reply
    stamp, (full, source, seq, count, header) = _split(facts, 5, session, f"record '{id}'")
    values = (pos, _flag(full), source, seq, count, header, events or b"", body, time(stamp[1:]))
    return record_row(id, parent, values, session)


def read_head(facts: bytes | None, session: str) -> tuple[object, object, bytes]:
    """Return when a record was written, its source and its header, unchecked: damaged ones are listed as such."""
    stamp, (_, source, _, _, header) = _split(facts, 5, session, "a record")
    return time(stamp[1:]), source, header


def read_points(found: Sequence[tuple[int, bytes]], session: str) -> list[Point]:
    """Return what pruning needs to know, from positions and the facts of the records there.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """

    def columns(pos: int, facts: bytes) -> tuple[object, ...]:
        stamp, (full, source, *_) = _split(facts, 5, session, "a record")
        return (pos, _flag(full), int(source is not None), time(stamp[1:]))

    return points([columns(pos, facts) for pos, facts in found], session)


def read_branches(reply: Sequence[bytes], session: str) -> list[Branch]:
    """Return the branches of a session.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    return branch_rows([_values(each, 4, session, "a branch") for each in reply], session)


def read_branch_number(field: bytes, session: str) -> int:
    """Return the number of the branch at the beginning of a question's place.

    Raises:
        CheckpointCorrupt: there is none.
    """
    return _whole_number(field.partition(b".")[0], session, "the place of a question")


def read_positions(members: Sequence[bytes], session: str) -> list[int]:
    """Return the positions of records.

    Raises:
        CheckpointCorrupt: they are not numbers.
    """
    return [_whole_number(each, session, "the position of a record") for each in members]


def read_hint(message: bytes) -> SessionRef | None:
    """Return the session that a hint names; anything may have changed if it cannot be read."""
    try:
        return SessionRef(*reversed(_values(message, 2, "", "a hint")))
    except CheckpointCorrupt:
        return None


def read_begun(digest: str, reply: Sequence[bytes]) -> list[Begun]:
    """Return what has begun under a digest.

    Raises:
        CheckpointCorrupt: it is not what was written.
    """
    found = [_values(each, 2, digest, "what has begun") for each in reply]
    return [Begun(digest, place, number) for place, number in found]


def read_notice(reply: Sequence[Any]) -> TakenNotice:
    """Return a notice that `outbox.lua` has given out.

    Raises:
        CheckpointCorrupt: it is not what was written.
    """
    name, attempt, rest = reply
    at, _, facts = rest.partition(b" ")
    to, body, app, session = _values(facts, 4, "", "a notice")
    return taken_notice((name.decode(errors="replace"), to, body, app, session, _number(at), attempt))


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Found:
    """What `read.lua` has found of one session, all of it at one moment; checked when it is looked at."""

    def __init__(self, reply: Sequence[Any], ref: SessionRef) -> None:
        now, row, branch, questions, branches, records, point, bodies, inputs = reply
        self.ref = ref
        self.now: float = float(now)
        self.row: SessionRow | None = read_session(row, ref.id) if row else None
        has_records = self.row is not None and self.row.pos >= 0
        self.branches: list[Branch] = [] if branches is None or not has_records else read_branches(branches, ref.id)
        self._branch: bytes | None = branch
        self._questions: list[Sequence[Any]] = questions
        self._records: list[Sequence[Any] | None] = records
        self._point: bytes | None = point
        self._bodies: list[bytes | None] | None = bodies
        self._inputs: list[Sequence[Any]] = inputs

    @property
    def named(self) -> SessionRow | None:
        """The row, if the session is the one that was meant."""
        return self.row if self.row is not None and is_named(self.row, self.ref) else None

    def existing(self, branch: str | None = None) -> SessionRow:
        """Return the row of a session that must exist, and have this branch if one is named.

        Raises:
            CheckpointNotFound: there is no such session or branch.
        """
        row = self.named
        if row is None:
            raise CheckpointNotFound(self.ref.id)
        if self._branch is None:
            raise CheckpointNotFound(self.ref.id, branch)
        return row

    def place(self, id: str, *, pruned: bool = False) -> int:
        """Return the position of a record, of one that was pruned only if these count, too.

        Raises:
            CheckpointNotFound: there is no such record.
        """
        row = self.existing()
        pos = locate(self.branches, row.pos, id)
        is_there = any(each is not None and each[0] == pos and each[1] is not None for each in self._records)
        if pos is None or not (pruned or is_there):
            raise CheckpointNotFound(self.ref.id, id)
        return pos

    def questions(self) -> list[QuestionRow]:
        """Return the questions, in the order of asking."""
        return _in_order(read_question(each, self.ref.id) for each in self._questions)

    def audit(self, branch: str) -> list[AuditEntry]:
        """Return the questions that can be read, in the order of asking.

        `branch` is theirs, unless they are of all branches.
        """

        def read(reply: Sequence[Any]) -> tuple[QuestionRow, str]:
            row, number = read_question(reply, self.ref.id), read_branch_number(reply[0], self.ref.id)
            if self.branches and number >= len(self.branches):
                raise CheckpointCorrupt(f"question '{row.id}' is of a branch that is gone", self.ref.id)
            return row, self.branches[number].name if self.branches else branch

        found = sorted(readable(self._questions, read), key=lambda pair: pair[0].no)
        return [audit_entry(row, name) for row, name in found]

    def inputs(self) -> list[InputRow]:
        """Return the inputs, in the order of submission."""
        return sorted([read_input(each, self.ref.id) for each in self._inputs], key=lambda row: row.no)

    def records(self, ids: Sequence[str]) -> list[RecordRow]:
        """Return the records that were asked for by these ids, as far as they exist."""
        found = zip(ids, self._records, strict=True)
        return [self._record(name, each) for name, each in found if each is not None and each[1] is not None]

    def _record(self, id: str, reply: Sequence[Any]) -> RecordRow:
        pos, *values = reply
        return read_record(id, id_at(self.branches, pos)[1], pos, values, self.ref.id)

    def folded(self) -> tuple[float, tuple[bytes, ...]]:
        """Return when the record of the point was written, and what it is folded from.

        Raises:
            CheckpointCorrupt: some of it is gone.
        """
        bodies = [each for each in self._bodies or () if each is not None]
        if self._bodies is None or len(bodies) < len(self._bodies):
            raise CheckpointCorrupt("some of its records are gone", self.ref.id)
        at = read_head(self._point, self.ref.id)[0]
        return (at if isinstance(at, float) and EARLIEST <= at < LATEST else 0.0, tuple(bodies))

    @property
    def has_point(self) -> bool:
        """Whether the point that was to be loaded exists."""
        return self._point is not None


def _in_order(rows: Iterable[QuestionRow]) -> list[QuestionRow]:
    return sorted(rows, key=lambda row: row.no)


def _whole_number(value: bytes, session: str, what: str) -> int:
    found = number(value)
    if not isinstance(found, int) or found < 0:
        raise CheckpointCorrupt(f"{what} is damaged", session)
    return found


def _flag(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _split(stored: bytes | None, count: int, session: str, what: str) -> tuple[bytes, Sequence[Any]]:
    """Return what the server put in front, and the values after it."""
    if stored is None:
        raise CheckpointCorrupt(f"{what} is gone", session)
    front, _, rest = stored.partition(b" ")
    return front, _values(rest, count, session, what)


def _values(stored: bytes, count: int, session: str, what: str) -> Sequence[Any]:
    try:
        values = _unpack(stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(f"{what} is damaged ({error})", session) from error
    if not isinstance(values, list) or len(values) != count:  # pyright: ignore[reportUnknownArgumentType]
        raise CheckpointCorrupt(f"{what} is damaged", session)
    return values  # pyright: ignore[reportUnknownVariableType]
