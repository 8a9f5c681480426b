"""Strict conversion of database values to rows: damage raises `CheckpointCorrupt`, which names its session.

Databases keep whatever was written to their files, whether by a failing disk or by an attacker. So types, ranges and
what must hold between columns are checked here, once for everything that reads rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage

from .facts import Logged
from .rows import Branch, InputRow, NoticeRow, QuestionRow, RecordRow, SessionRow, id_at, locate
from .tables import BRANCHES, INPUTS, OUTBOX, QUESTIONS, RECORDS, SESSIONS, Columns

C = TypeVar("C", bound=Columns)
R = TypeVar("R")
T = TypeVar("T")


def session_row(values: Sequence[Any]) -> SessionRow:
    """Return a session's row from the values of its columns, which stand in the order of the fields.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    row = SessionRow(*astuple(converted(values, SESSIONS.checked, values[1], "its row")))
    lowest = min(row.full_pos, row.branch_no, row.number)
    if row.full_pos > row.pos or row.branch_no > row.pos or (lowest < 0) != (row.pos < 0):
        raise CheckpointCorrupt("its row names positions that its log cannot have", row.session)
    return row


def question_row(values: Sequence[Any], session: str) -> QuestionRow:
    """Return a question's row from the values of its columns, which stand in the order of the fields.

    What decisions do without, from `address` on, may be left out.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    row = QuestionRow(*astuple(converted(values, QUESTIONS.checked, session, "the row of a question")))
    if (row.how is None) != (row.at is None) or (row.how is None and (row.by, row.value) != (None, None)):
        raise CheckpointCorrupt(f"its question '{row.id}' is half answered", session)
    return row


def input_row(values: Sequence[Any], session: str) -> InputRow:
    """Return an input's row from the values of its columns, which stand in the order of the fields.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    found = InputRow(*astuple(converted(values, INPUTS.checked, session, "the row of an input")))
    return replace(found, abandons=bool(found.abandons), taken=bool(found.taken))


def notice_row(values: Sequence[Any]) -> NoticeRow:
    """Return a notice's row from the values of its columns, which stand in the order of the fields.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    return NoticeRow(*astuple(converted(values, OUTBOX.checked, values[3], "a notice")))


def record_row(id: str, parent: str | None, values: Sequence[Any], session: str) -> RecordRow:
    """Return a record's row from its names and the values of its columns.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    found = converted(values, RECORDS.checked, session, f"the row of record '{id}'")
    return RecordRow(id, parent, *astuple(found))


def branches_of(rows: Iterable[Sequence[Any]], row: SessionRow) -> list[Branch]:
    """Return all branches of a session, in the order of writing: each begins where the one before it ended.

    The head is on the newest. A session without any record has no branch.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    if row.pos < 0:
        return []
    session = row.session
    branches = [
        Branch(*astuple(converted(values, BRANCHES.checked, session, "the row of a branch"))) for values in rows
    ]
    if not branches or branches[0].start != 0 or any(one.start >= two.start for one, two in pairwise(branches)):
        raise CheckpointCorrupt("its branches do not follow one another", session)
    ends: dict[str, tuple[Branch, int]] = {}
    for before, branch in pairwise(branches):
        ends[before.name] = before, branch.start - 1
        older = None if branch.parent is None else ends.get(branch.parent.rpartition(".")[0])
        if branch.parent is None or older is None or locate(older[:1], older[1], branch.parent) is None:
            raise CheckpointCorrupt(f"its branch '{branch.name}' does not come from an older one", session)
    if (row.branch_no, row.branch) != (len(branches) - 1, branches[-1].name):
        raise CheckpointCorrupt("its row does not name its newest branch", session)
    return branches


def logged(pos: int, branches: Sequence[Branch], read: Callable[[str, str | None], RecordRow]) -> Logged:
    """Return the record at a position as `read` makes it from its id and its parent's; if it is damaged, its place."""
    own, parent = id_at(branches, pos)
    try:
        return Logged(own, parent, pos, read(own, parent))
    except CheckpointCorrupt as damage:
        return Logged(own, parent, pos, damage)


def converted(values: Sequence[Any], to: type[C], session: object, what: str) -> C:
    """Return column values, checked; `session` is the session's id, or whatever is stored in its place.

    Raises:
        CheckpointCorrupt: they do not fit.
    """
    try:
        return msgspec.convert(values, to)
    except (msgspec.ValidationError, UnicodeError) as error:
        name = session if isinstance(session, str) else repr(session)
        raise CheckpointCorrupt(f"{what} is damaged ({error})", name) from error


def readable(rows: Iterable[R], read: Callable[[R], T]) -> Iterator[T]:
    """Read rows for a listing; one that is damaged is left out, and reported on the log `adjourn.stores`."""
    for row in rows:
        try:
            found = read(row)
        except CheckpointCorrupt as damage:
            note_damage(damage)
            continue
        yield found
