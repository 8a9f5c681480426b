"""What a decision writes, and under which guard."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from adjourn.stores.types import Answer, Begun, Input, Notice, Question, Status

from .rows import Branch, InputRow, QuestionRow, RecordRow, SessionRow, is_live


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
    idle: float | None = None
    """For how many seconds nobody may have committed, answered or renewed."""


class Move(msgspec.Struct, frozen=True, gc=False):
    """Where the head is after the write. The time of writing becomes the row's `updated`."""

    branch: str
    branch_no: int
    number: int
    pos: int
    full_pos: int
    size: int
    status: Status
    seq: int


class LeaseChange(msgspec.Struct, frozen=True, gc=False):
    """The lease after the write: it ends `ttl` seconds later, or at once if nobody is its `owner`.

    `claims` None leaves the count of claims without progress as it is.
    """

    owner: str | None
    fence: int
    claims: int | None
    ttl: float


class End(msgspec.Struct, frozen=True, gc=False):
    """The end of a question that must be open, on a branch by its name; the time of writing is its `at`."""

    branch: str
    answer: Answer
    taken: bool


class Effects(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write to one session: all of it or, if its guard does not hold, nothing.

    A question of `asks` must not have been asked on its branch, and one of `ends` must be able to end (`can_end`):
    these are also guards.
    So are those of inputs: the id of `submits` must be new in the session, `begins_input` must name the first input
    that waits, and `withdraws` one that waits.
    Questions are asked on the branch of `move`; `ends` follow, and `takes`, which are of the row's own branch.
    `waiting` is added to the row's count, which starts from zero when a branch begins, and `inputs` to its count of
    inputs. `cancel` unset leaves it. `program` becomes the row's if that has none yet.
    The row's `touched` becomes the time of writing with a `move`, a `lease`, an end or a submission.
    `begins` is added to what no write ever removes; what is already there is not an error. `notices` are added to the
    outbox, whose rows no session takes along when it is removed.
    """

    guard: Guard
    move: Move | None = None
    lease: LeaseChange | None = None
    cancel: str | None | UnsetType = UNSET
    waiting: int = 0
    branches: tuple[Branch, ...] = ()
    records: tuple[RecordRow, ...] = ()
    asks: tuple[Question, ...] = ()
    ends: tuple[End, ...] = ()
    takes: tuple[str, ...] = ()
    begins: tuple[Begun, ...] = ()
    notices: tuple[Notice, ...] = ()
    program: str = ""
    inputs: int = 0
    submits: Input | None = None
    begins_input: str | None = None
    withdraws: str | None = None
    drops: tuple[int, ...] = ()
    """Positions of records to remove."""
    removes: bool = False
    """Whether to remove the whole session."""
    summary: bytes = b""
    """What people may see of the session after the write; empty leaves what they see."""


class Applied(msgspec.Struct, frozen=True):
    """The result of a write whose guard held, and the time of writing.

    `cancel` is the row's just before it, and `inputs` its count of inputs just after.
    """

    cancel: str | None = None
    at: float = 0.0
    inputs: int = 0


def can_end(row: QuestionRow | None, end: End, now: float) -> bool:
    """Return whether a question can end so at the time `now`: it is open and, if it is answered, has not expired."""
    if row is None or not row.is_open:
        return False
    return end.answer.how != "answered" or row.expires is None or row.expires > now


def ended(row: QuestionRow, end: End, now: float) -> QuestionRow:
    """Return a question's row after its end at the time `now`."""
    given = end.answer
    return replace(row, value=given.value, how=given.how, by=given.by, at=now, taken=end.taken)


def taken(row: QuestionRow) -> QuestionRow:
    """Return a question's row after a record has taken its answer."""
    return replace(row, taken=True)


def begun(row: InputRow) -> InputRow:
    """Return an input's row after a turn has begun with it: only what tells it from others is left."""
    return replace(row, body=b"", taken=True)


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
        and (guard.idle is None or row.touched < now - guard.idle)
    )


def advanced(row: SessionRow, effects: Effects, now: float) -> SessionRow:
    """Return a session's row after a write at the time `now`."""
    move, lease = effects.move, effects.lease
    touched = move is not None or lease is not None or bool(effects.ends) or effects.submits is not None
    where = move or row
    return SessionRow(
        row.no,
        row.session,
        row.app,
        row.user,
        row.created,
        where.branch,
        where.branch_no,
        where.number,
        where.pos,
        where.full_pos,
        where.size,
        where.status,
        row.owner if lease is None else lease.owner,
        row.expires if lease is None else now + lease.ttl if lease.owner is not None else 0.0,
        row.fence if lease is None else lease.fence,
        row.claims if lease is None or lease.claims is None else lease.claims,
        where.seq,
        now if move is not None or row.pos < 0 else row.updated,
        now if touched else row.touched,
        row.cancel if effects.cancel is UNSET else effects.cancel,
        (0 if effects.branches else row.waiting) + effects.waiting,
        row.program or effects.program,
        row.inputs + effects.inputs,
    )
