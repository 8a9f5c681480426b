"""What scripts reply, as checked rows: damage raises `CheckpointCorrupt`, which names its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.facts import FactSheet, FactsWanted, Folded, Logged
from adjourn.stores.kit.reading import (
    branches_of,
    converted,
    input_row,
    notice_row,
    question_row,
    readable,
    record_row,
)
from adjourn.stores.kit.rows import (
    EARLIEST,
    LATEST,
    Branch,
    InputRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    id_at,
    is_named,
    notice_of,
)
from adjourn.stores.kit.tables import BEGUN, OUTBOX
from adjourn.stores.types import Begun, SessionRef, TakenNotice

from ._rows import (
    ROWS_OF_BEGUN,
    ROWS_OF_BRANCHES,
    ROWS_OF_INPUTS,
    ROWS_OF_NOTICES,
    ROWS_OF_QUESTIONS,
    ROWS_OF_RECORDS,
    number,
    read_session,
)
from ._writes import named_records

T = TypeVar("T")

_unpack = msgspec.msgpack.Decoder().decode


def whole(reply: T) -> T:
    """Return a reply.

    Raises:
        CheckpointCorrupt: its session is damaged, and this stands in place of the reply.
    """
    if isinstance(reply, CheckpointCorrupt):
        raise reply
    return reply


def read_question(reply: Sequence[Any], session: str) -> QuestionRow:
    """Return a question from its place, its row, and its score among those that are open or not taken.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    member, stored, score = reply
    row = question_row(ROWS_OF_QUESTIONS.values(stored, (), session, "a question"), session)
    if f"{row.branch}.{row.id}".encode() != member:
        raise CheckpointCorrupt(f"the row of a question is that of '{row.id}'", session)
    if row.is_open != (score not in (None, b"-inf")):
        raise CheckpointCorrupt(f"its question '{row.id}' is neither open nor ended", session)
    return row


def read_input(reply: Sequence[Any], session: str) -> InputRow:
    """Return an input from its id, its row, and its body (unless a turn has begun with it).

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    _, stored, body = reply
    return input_row(ROWS_OF_INPUTS.values(stored, (body,), session, "an input"), session)


def read_record(pos: int, reply: Sequence[bytes | None], session: str, id: str, parent: str | None) -> RecordRow:
    """Return a record from its row, and what has fields of its own.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    stored, *apart = reply
    what = f"record '{id}'"
    values = ROWS_OF_RECORDS.values(stored, apart, session, what)
    if ROWS_OF_RECORDS.field(values, "pos") != pos:
        raise CheckpointCorrupt(f"{what} is damaged", session)
    return record_row(id, parent, values, session)


def read_number(value: bytes, session: str, what: str) -> int:
    """Return a whole number that is not negative.

    Raises:
        CheckpointCorrupt: it is none.
    """
    found = number(value)
    if not isinstance(found, int) or found < 0:
        raise CheckpointCorrupt(f"{what} is damaged", session)
    return found


def read_hint(message: bytes) -> SessionRef | None:
    """Return the session that a hint names; anything may have changed if it cannot be read."""
    try:
        app, session = _unpack(message)
        return SessionRef(session, app)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError):
        return None


def read_begun(digest: str, reply: Sequence[bytes]) -> list[Begun]:
    """Return what has begun under a digest.

    Raises:
        CheckpointCorrupt: it is not what was written.
    """
    found = [ROWS_OF_BEGUN.values(each, (), digest, "what has begun") for each in reply]
    return [Begun(*astuple(converted(each, BEGUN.checked, digest, "what has begun"))) for each in found]


def read_notice(reply: Sequence[Any]) -> TakenNotice:
    """Return a notice that `outbox.lua` has given out.

    Raises:
        CheckpointCorrupt: it is not what was written.
    """
    _, attempt, stored = reply
    values = ROWS_OF_NOTICES.values(stored, (), "", "a notice")
    named = {name: ROWS_OF_NOTICES.field(values, name) for name in OUTBOX.fields} | {"attempt": attempt}
    return notice_of(notice_row(list(named.values())))


class Found:
    """What `read.lua` has found of one session, all of it at one moment."""

    def __init__(self, reply: Sequence[Any], wanted: FactsWanted) -> None:
        now, values, branches, *self._rest = reply
        row = read_session(values, wanted.ref.id) if values else None
        self.wanted = wanted
        self.now: float = float(now)
        self.row: SessionRow | None = row
        self.branches: list[Branch] = []
        if branches is not None and row is not None:
            stored = [ROWS_OF_BRANCHES.values(each, (), row.session, "a branch") for each in branches]
            self.branches = branches_of(stored, row)

    def sheet(self, log: Sequence[Logged] | None = None) -> FactSheet:
        """Return all of it as facts, with the records of the span.

        Raises:
            CheckpointCorrupt: it is not what was written.
        """
        row, wanted = self.row, self.wanted
        if row is None or not is_named(row, wanted.ref):
            return FactSheet(wanted, self.now, row)
        questions, asking, inputs, *_ = self._rest
        names = {no: each.name for no, each in enumerate(self.branches)} or {row.branch_no: row.branch}
        asked, given = self._questions(names, questions), [read_input(each, row.session) for each in inputs]
        chosen = {row.branch if wanted.asked is None else wanted.asked}
        by_branch = {name: list[QuestionRow]() for name in names.values() if wanted.all_branches or name in chosen}
        for each in asked:
            by_branch[names[each.branch]].append(each)
        return FactSheet(
            wanted,
            self.now,
            row,
            questions=[each for each in asked if each.branch == row.branch_no],
            branches=self.branches,
            records=[self._record(name) for name in self._records if name in wanted.records],
            inputs=given,
            asking=sorted({_branch_number(each, row.session) for each in asking}),
            queue=sorted([each for each in given if not each.taken], key=lambda each: each.no),
            asked=by_branch,
            log=log,
            folded=self._folded(row),
        )

    def place(self, id: str) -> int | None:
        """Return the position of a record that is wanted by its id; None if there is none (any more)."""
        return self._records[id][0] if id in self._records else None

    @cached_property
    def _records(self) -> dict[str, Sequence[Any]]:
        """The position and the parts of each record that is wanted by its id, as far as they exist."""
        found = zip(named_records(self.wanted), self._rest[3], strict=True)
        return {name: each for name, each in found if each is not None and each[1] is not None}

    def _record(self, id: str) -> RecordRow:
        pos, *values = self._records[id]
        return read_record(pos, values, self.wanted.ref.id, *id_at(self.branches, pos))

    def _questions(self, names: Mapping[int, str], replies: Sequence[Sequence[Any]]) -> list[QuestionRow]:
        def read(reply: Sequence[Any]) -> QuestionRow:
            row = read_question(reply, self.wanted.ref.id)
            if row.branch not in names:
                raise CheckpointCorrupt(f"question '{row.id}' is of a branch that is gone", self.wanted.ref.id)
            return row

        found = readable(replies, read) if self.wanted.every else map(read, replies)
        return sorted(found, key=lambda each: each.no)

    def _folded(self, row: SessionRow) -> Folded | None:
        point, stored = self._rest[4:]
        if point is None and (not self.wanted.head or row.pos < 0):
            return None
        bodies = [each for each in stored if each is not None]
        if point is None or len(bodies) < len(stored):
            raise CheckpointCorrupt("some of its records are gone", row.session)
        at = ROWS_OF_RECORDS.field(ROWS_OF_RECORDS.values(point, (), row.session, "a record"), "at")
        return Folded(at if isinstance(at, float) and EARLIEST <= at < LATEST else 0.0, tuple(bodies))


def _branch_number(member: bytes, session: str) -> int:
    return read_number(member.partition(b".")[0], session, "the place of a question")
