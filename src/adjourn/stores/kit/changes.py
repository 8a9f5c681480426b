"""Effects as rows: what a back end writes, and under which conditions, computed once for all of them.

A back end renders three things: the change of the session's row under its guard, rows to insert, update and delete, and
which questions leave the inbox. It looks at no column by name.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from adjourn.stores.types import Lease, Question, SessionRef

from .effects import Effects, Guard, advanced
from .inbox import terms_of
from .rows import NoticeRow, QuestionRow, RecordRow, SessionRow, asked_row, submitted_row
from .tables import BEGUN, BRANCHES, INPUTS, OUTBOX, QUESTIONS, RECORDS, SESSIONS, Table


class Later(float):
    """A moment by the store's own clock at the time of writing, plus so many seconds, for a store that writes later.

    As a number it is that moment as far as it is known when the write is decided.
    """

    __slots__ = ("plus",)

    def __new__(cls, now: float, plus: float = 0.0) -> Later:
        """Return the moment `plus` seconds after the write, which is known to come after `now`."""
        found = super().__new__(cls, now + plus)
        found.plus = plus
        return found

    plus: float

    def __add__(self, seconds: float) -> Later:
        return Later(float(self) - self.plus, self.plus + seconds)


class Add(int):
    """A number that is added to a column, since others add to it meanwhile."""


class Expect(Enum):
    """What must hold of a row that is updated or deleted, or nothing is written: named guards, beside the session's."""

    THERE = "there"
    """The row is there."""
    OPEN = "open"
    """The question is open."""
    IN_TIME = "in time"
    """The question is open, and has not expired by the time of writing."""
    FIRST = "first"
    """The input is the first that waits in its session's queue."""
    WAITS = "waits"
    """The input waits."""


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Rows to add. They must be new, or nothing is written; only what has begun may be there already."""

    table: Table[Any]
    rows: tuple[Any, ...]


class Update(msgspec.Struct, frozen=True, gc=False):
    """New values of some columns of one row, found by its `key`; below its session, for a table `of_session`."""

    table: Table[Any]
    key: tuple[Any, ...]
    values: dict[str, Any]
    expect: Expect = Expect.THERE


class Removal(msgspec.Struct, frozen=True, gc=False):
    """One row to remove, found by its `key`."""

    table: Table[Any]
    key: tuple[Any, ...]
    expect: Expect = Expect.THERE


class Changes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write to one session: all of it, or nothing if a guard or an expectation does not hold.

    `before` is the row as it was read, or as it is remembered; None for a session that is new. `after` is the row after
    the write; None if the session is removed, with all that is below it. Updates and deletes come after the inserts.
    A question that is inserted, is open and has `terms` enters the inbox; those in `unlists`, by branch and id, leave
    it. With `leaves`, so do all that are open on the branch of `before`. Times that are `Later` are those of writing.
    `forced` are columns of the session that others may have changed since `before`, and that are written all the same.
    """

    ref: SessionRef
    guard: Guard
    before: SessionRow | None
    after: SessionRow | None
    inserts: tuple[Insert, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: tuple[Removal, ...] = ()
    unlists: tuple[tuple[int, str], ...] = ()
    leaves: bool = False
    forced: tuple[str, ...] = ()


def changed_columns(changes: Changes) -> dict[str, Any]:
    """Return the new values of the session's columns that change: as they are, `Later`, or to `Add`.

    Of a new session, those that are not as in any new row.
    """
    after, before = changes.after, changes.before
    assert after is not None
    found: dict[str, Any] = {}
    old = _BLANK if before is None else before
    moves = after.branch_no != old.branch_no  # on a new branch, the counters begin anew
    for name in SESSIONS.fields:
        value, was = getattr(after, name), getattr(old, name)
        if type(value) is Later:
            found[name] = value
        elif value != was:
            found[name] = Add(value - was) if name in SESSIONS.counters and not moves else value
    for name in changes.forced:
        found[name] = getattr(after, name)
    return found


_BLANK = SessionRow(0, "", "", None, 0.0)


def renewal_of(lease: Lease) -> tuple[Guard, dict[str, Any]]:
    """Return what renews a lease, or ends it, and under which guard: this needs no facts.

    An owner that gives its lease back has not crashed, so its claim does not count.
    """
    columns: dict[str, Any] = {"expires": Later(0.0, lease.ttl), "touched": Later(0.0)}
    if not lease.ttl:
        columns["claims"] = 0
    return Guard(fence=lease.fence, owner=lease.owner), columns


def changes_of(
    ref: SessionRef, row: SessionRow | None, effects: Effects, now: float, *, has_inbox: bool = True
) -> Changes:
    """Return the rows that effects write to a session, which is None if it is new; `now` may be `Later`.

    A store without an index of open questions has no use for their terms.
    """
    if effects.removes:
        return Changes(ref=ref, guard=effects.guard, before=row, after=None, leaves=True)
    before = row or SessionRow(0, ref.id, ref.app, ref.user, now)
    after = advanced(before, effects, now)
    inserts: list[Insert] = []
    if effects.records:
        inserts.append(Insert(RECORDS, tuple([_stamped(record, now) for record in effects.records])))
    if effects.branches:
        inserts.append(Insert(BRANCHES, effects.branches))
    if not (
        effects.asks
        or effects.ends
        or effects.takes
        or effects.inputs
        or effects.begins
        or effects.notices
        or effects.drops
    ):
        return Changes(
            ref=ref,
            guard=effects.guard,
            before=row,
            after=after,
            inserts=tuple(inserts),
            leaves=bool(effects.branches) and before.pos >= 0,
            forced=_forced(effects),
        )
    return _more(ref, row, before, after, effects, now, inserts, has_inbox)


def _more(
    ref: SessionRef,
    row: SessionRow | None,
    before: SessionRow,
    after: SessionRow,
    effects: Effects,
    now: float,
    inserts: list[Insert],
    has_inbox: bool,
) -> Changes:
    updates: list[Update] = []
    deletes: list[Removal] = [Removal(RECORDS, (pos,)) for pos in effects.drops]
    if effects.asks:
        inserts.append(Insert(QUESTIONS, tuple([_asked(after, each, has_inbox) for each in effects.asks])))
    unlists: list[tuple[int, str]] = []
    for end in effects.ends:
        place = (after if end.branch == after.branch else before).branch_no, end.answer.id
        given = end.answer
        expect = Expect.IN_TIME if given.how == "answered" else Expect.OPEN
        values = {"how": given.how, "taken": end.taken, "at": now, "by": given.by, "value": given.value}
        updates.append(Update(QUESTIONS, place, values, expect))
        unlists.append(place)
    updates += [Update(QUESTIONS, (before.branch_no, each), {"taken": True}) for each in effects.takes]
    if effects.begins:
        inserts.append(Insert(BEGUN, effects.begins))
    if effects.notices:
        notices = [
            NoticeRow(each.id, each.to, ref.app, ref.id, now if each.due is None else each.due, now, 0, each.body)
            for each in effects.notices
        ]
        inserts.append(Insert(OUTBOX, tuple(notices)))
    if effects.submits is not None:
        inserts.append(Insert(INPUTS, (submitted_row(effects.submits, now, 0),)))
    elif effects.begins_input is not None:
        updates.append(Update(INPUTS, (effects.begins_input,), {"taken": True, "body": b""}, Expect.FIRST))
    elif effects.withdraws is not None:
        deletes.append(Removal(INPUTS, (effects.withdraws,), Expect.WAITS))
    return Changes(
        ref=ref,
        guard=effects.guard,
        before=row,
        after=after,
        inserts=tuple(inserts),
        updates=tuple(updates),
        deletes=tuple(deletes),
        unlists=tuple(unlists),
        leaves=bool(effects.branches) and before.pos >= 0,
        forced=_forced(effects),
    )


def _forced(effects: Effects) -> tuple[str, ...]:
    return () if effects.cancel is UNSET else ("cancel",)


def _stamped(record: RecordRow, now: float) -> RecordRow:
    r = record
    return RecordRow(r.id, r.parent, r.pos, r.full, r.source, r.seq, r.count, r.header, r.events, r.body, now)


def _asked(session: SessionRow, question: Question, has_inbox: bool) -> QuestionRow:
    row = asked_row(question, 0, session.branch_no)
    return replace(row, terms=tuple(terms_of(session, row))) if has_inbox and row.is_open else row
