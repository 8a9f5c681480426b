"""What a decision writes: rows, under a guard and named expectations, computed once for all stores.

A back end renders three things: the change of the session's row under its guard, rows to insert, update and delete, and
which questions leave the inbox. A new column needs nothing there; a few, such as `owner` and `updated`, also drive
indexes of some back ends.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from adjourn.stores.types import Lease, SessionRef

from .rows import InputRow, QuestionRow, SessionRow, is_expired, is_live
from .tables import RECORDS, SESSIONS, Table


class Room(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a queue must have room for: fewer than so many inputs wait in it, and no more than so many bytes."""

    inputs: int
    input_bytes: int

    def is_in(self, row: SessionRow) -> bool:
        """Return whether the queue of a session has this room."""
        return row.inputs < self.inputs and row.input_bytes <= self.input_bytes


class Guard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What must hold of the session's row at the moment of writing, or nothing is written.

    A field that is None is not checked. Times are the store's, at that moment.
    """

    exists: bool = True
    """Whether the session must exist, or must not."""
    checkpoint: str | None = None
    """The head; empty: the session must not have any record."""
    branch: str | None = None
    fence: int | None = None
    owner: str | None = None
    """Who must hold the lease, whether or not it has ended."""
    live: bool | None = None
    """True: a lease is held and has not ended. False: the opposite, or its owner is `replaces`."""
    replaces: str | None = None
    waiting: int | None = None
    """How many answers no record has taken."""
    inputs: int | None = None
    """How many inputs wait."""
    marks: int | None = None
    """How often what open questions are filed under was changed."""
    room: Room | None = None
    idle: float | None = None
    """For how many seconds there must not have been a commit, an answer or a renewal."""


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


class Insert(msgspec.Struct, frozen=True, gc=False):
    """Rows to add. They must be new, or nothing is written; only what has begun may be there already."""

    table: Table[Any]
    rows: tuple[Any, ...]


class Update(msgspec.Struct, frozen=True, gc=False):
    """New values of some columns of one row, found by its `key`; below its session, for a table `of_session`.

    If it changes what an open question is filed under, `was` is the row before it, and `row` the one after it.
    """

    table: Table[Any]
    key: tuple[Any, ...]
    values: dict[str, Any]
    expect: Expect = Expect.THERE
    was: QuestionRow | None = None
    row: QuestionRow | None = None

    @property
    def ends(self) -> bool:
        """Whether it ends a question."""
        return "how" in self.values


class Removal(msgspec.Struct, frozen=True, gc=False):
    """One row to remove, found by its `key`."""

    table: Table[Any]
    key: tuple[Any, ...]
    expect: Expect = Expect.THERE


class Effects(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write to one session: all of it, or nothing if the guard or an expectation does not hold.

    `before` is the row as it was read, or as it is remembered; None for a session that is new. `after` is the row after
    the write; None if the session is removed, with all that is below it. No row that is inserted is also updated.
    A question that is inserted, is open and has `terms` enters the inbox, one that is updated to have ended leaves it
    (`ended`), and one that is filed under something else is `relisted`. With `leaves`, all that are open on the branch
    of `before` leave it. Times that are `Later` are those of writing.
    """

    ref: SessionRef
    guard: Guard
    before: SessionRow | None
    after: SessionRow | None
    forced: tuple[str, ...] = ()
    """Columns of the session that others may have changed since `before`, and that are written all the same."""
    inserts: tuple[Insert, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: tuple[Removal, ...] = ()
    leaves: bool = False
    summary: bytes = b""
    """What people may see of the session after the write; empty leaves what they see."""

    @property
    def ended(self) -> list[Update]:
        """The updates that end questions."""
        return [each for each in self.updates if each.ends]

    @property
    def is_news(self) -> bool:
        """Whether somebody may have been waiting for this write, and so wants a hint.

        That is an answer, an input or its removal, a cancel, the end of a lease or of a session, and whatever readers
        get as an event.
        """
        before, after = self.before, self.after
        if after is None:
            return True
        if before is None:
            return bool(after.inputs or after.seq)
        return (
            any(each.ends or each.row is not None for each in self.updates)
            or after.seq != before.seq
            or (after.inputs != before.inputs and not self.has_records)
            or (after.cancel is not None and bool(self.forced))
            or (before.owner is not None and (after.owner is None or after.expires <= after.touched))
        )

    @property
    def has_records(self) -> bool:
        """Whether records are added."""
        return bool(self.inserts) and self.inserts[0].table is RECORDS

    @property
    def changes_lease(self) -> bool:
        """Whether the lease is taken, renewed or given up, as a store that writes later sees it."""
        before, after = self.before, self.after
        if before is None or after is None:
            return after is not None and after.owner is not None
        return type(after.expires) is Later or (before.owner, before.fence) != (after.owner, after.fence)


class Applied(msgspec.Struct, frozen=True):
    """The result of a write whose guard held, and the time of writing.

    `cancel` is the row's just before it, and `inputs` its count of inputs just after.
    """

    cancel: str | None = None
    at: float = 0.0
    inputs: int = 0


def changed_columns(effects: Effects) -> dict[str, Any]:
    """Return the new values of the session's columns that change: as they are, `Later`, or to `Add`.

    Of a new session, those that are not as in any new row.
    """
    after, before = effects.after, effects.before
    assert after is not None
    found: dict[str, Any] = {}
    old = _BLANK if before is None else before
    for name, value, was in zip(SESSIONS.fields, astuple(after), astuple(old), strict=True):
        if type(value) is Later:
            found[name] = value
        elif value != was:
            found[name] = Add(value - was) if name in SESSIONS.counters and before is not None else value
    if before is not None and after.branch_no != before.branch_no:
        # The answers on a new branch are counted anew, however many there are by now on the old one.
        found["waiting"] = after.waiting
    for name in effects.forced:
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


def settled(row: Any, at: float) -> Any:
    """Return a row that was written at a time, with its times in the place of those that were to be known later."""
    fields = zip(row.__struct_fields__, astuple(row), strict=True)
    later = {name: at + value.plus for name, value in fields if type(value) is Later}
    return replace(row, **later) if later else row


# For stores that check in Python


def holds(guard: Guard, row: SessionRow | None, now: float) -> bool:
    """Return whether a guard holds for a row as it is `now`."""
    if row is None or not guard.exists:
        return row is None and not guard.exists
    live = is_live(row, now) and (guard.replaces is None or row.owner != guard.replaces)
    return (
        guard.checkpoint in (None, row.checkpoint)
        and guard.branch in (None, row.branch)
        and guard.fence in (None, row.fence)
        and guard.owner in (None, row.owner)
        and guard.live in (None, live)
        and guard.waiting in (None, row.waiting)
        and guard.inputs in (None, row.inputs)
        and guard.marks in (None, row.marks)
        and (guard.room is None or guard.room.is_in(row))
        and (guard.idle is None or row.touched < now - guard.idle)
    )


def meets(row: QuestionRow | InputRow | None, expect: Expect, now: float) -> bool:
    """Return whether a row is as it must be. Whether an input is the `FIRST` that waits, only its queue can tell."""
    match row, expect:
        case None, _:
            return False
        case QuestionRow(), Expect.OPEN:
            return row.is_open
        case QuestionRow(), Expect.IN_TIME:
            return row.is_open and not is_expired(row, now)
        case InputRow(), Expect.FIRST | Expect.WAITS:
            return not row.taken
        case _:
            return True
