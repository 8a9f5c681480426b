"""Where one session stands, beside its records and questions, and which of its old records may go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjourn._text import undotted
from adjourn._values.codec import check_nesting
from adjourn.errors import CheckpointCorrupt, NotStorable

from .protocol import Head, Header, SessionRef, Status, Write


class SessionRow(msgspec.Struct, gc=False):
    """The one row of a session. Records have positions, counted over all branches in the order of writing.

    A branch is never written again once the head has left it, so each is one stretch of positions, and the newest
    is the head's. `full_pos` is the head's last full record and `size` the bytes from there on; `waiting` counts the
    answers on the head's branch that no record has taken.
    """

    no: int
    session: str
    app: str
    user: str | None
    created: float
    branch: str = ""
    branch_no: int = -1
    number: int = -1
    pos: int = -1
    full_pos: int = -1
    size: int = 0
    status: Status = "running"
    owner: str | None = None
    expires: float = 0.0
    fence: int = 0
    claims: int = 0
    seq: int = 0
    updated: float = 0.0
    cancel: str | None = None
    waiting: int = 0

    @property
    def checkpoint(self) -> str:
        """The id of the head."""
        return f"{self.branch}.{self.number}"


class Branch(msgspec.Struct, frozen=True, gc=False):
    """A stretch of the log: its first record, written after `parent`, has the number `first` and stands at `start`."""

    name: str
    start: int
    first: int
    parent: str | None


def is_named(row: SessionRow, ref: SessionRef) -> bool:
    """Whether `ref` names this session: one that names a user names only that user's."""
    return row.session == ref.id and row.app == ref.app and ref.user in (None, row.user)


def fits(row: SessionRow, app: str | None, user: str | None) -> bool:
    """Whether a listing by app and user, each None for all, has this session."""
    return app in (None, row.app) and user in (None, row.user)


def is_live(row: SessionRow, now: float) -> bool:
    """Whether somebody runs the session: a lease is held and has not expired."""
    return row.owner is not None and row.expires > now


def head_of(row: SessionRow, now: float) -> Head:
    """Return what callers see of a session's row."""
    live = is_live(row, now)
    return Head(
        session=row.session,
        app=row.app,
        user=row.user,
        checkpoint=row.checkpoint,
        branch=row.branch,
        status=row.status,
        owner=row.owner if live else None,
        expires=row.expires if live else 0.0,
        fence=row.fence,
        claims=row.claims,
        seq=row.seq,
        created=row.created,
        updated=row.updated,
    )


def locate(branches: Sequence[Branch], end: int, id: str) -> int | None:
    """The position that the record `id` has or had, on a log whose last position is `end`."""
    name, _, digits = id.rpartition(".")
    for branch in reversed(branches):
        if branch.name == name:
            # int() would also take "+1", " 1" and "1_0", which are not the ids that were written.
            if not (digits.isascii() and digits.isdigit()) or str(int(digits)) != digits:
                return None
            pos = branch.start + int(digits) - branch.first
            return pos if branch.start <= pos <= end else None
        end = branch.start - 1
    return None


def id_at(branches: Sequence[Branch], pos: int) -> tuple[str, str | None]:
    """The id of the record at a position, and its parent's."""
    branch = next(branch for branch in reversed(branches) if branch.start <= pos)
    number = branch.first + pos - branch.start
    parent = branch.parent if pos == branch.start else f"{branch.name}.{number - 1}"
    return f"{branch.name}.{number}", parent


_headers = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)


def encode_header(write: Write) -> bytes:
    """The header of a write as JSON.

    Raises:
        NotStorable: its metadata is not JSON.
    """
    try:
        return _headers.encode(write.header)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable("header", write.header, f"Metadata must be JSON: {undotted(error)}.") from error


def decode_header(data: bytes) -> Header:
    """A header from its JSON.

    Raises:
        CheckpointCorrupt: it is none.
    """
    check_nesting(data)
    try:
        return _header.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(
            f"the header of a checkpoint is damaged ({error}); restore the store from a backup"
        ) from error


def lies_under(address: str, under: str) -> bool:
    """Whether an address is `under` or below it; it counts whole segments, and everything lies under ''."""
    return not under or address == under or address.startswith(under + ";")


class Point(msgspec.Struct, frozen=True, gc=False):
    """What pruning needs to know of a record."""

    pos: int
    full: bool
    listed: bool
    at: float


def removable(
    points: Sequence[Point],
    branches: Sequence[Branch],
    *,
    keep: int | None,
    before: float | None,
    asking: Sequence[int],
) -> list[Point]:
    """The records that no checkpoint to be kept is folded from.

    Kept are the head, the last `keep`, those written since `before`, the last of each branch in `asking` (which has
    open questions), and for every branch of which something stays the checkpoint that it came from.
    `points` and `branches` are in the order of writing; `asking` are indexes of `branches`.
    """
    head = points[-1].pos
    anchors = {head} | {_end(branches, number, head) for number in asking}
    listed = [point for point in points if point.listed]
    if keep:
        anchors.update(point.pos for point in listed[-keep:])
    if before is not None:
        anchors.update(point.pos for point in listed if point.at >= before)
    _add_bases(anchors, branches, head)
    return _unneeded(points, anchors)


def _end(branches: Sequence[Branch], number: int, head: int) -> int:
    return branches[number + 1].start - 1 if number + 1 < len(branches) else head


def _add_bases(anchors: set[int], branches: Sequence[Branch], head: int) -> None:
    # From the newest branch down: a base lies on an older branch, which then stays and has a base of its own.
    for number in range(len(branches) - 1, -1, -1):
        branch = branches[number]
        stays = any(branch.start <= pos <= _end(branches, number, head) for pos in anchors)
        base = locate(branches[:number], branch.start - 1, branch.parent) if stays and branch.parent else None
        if base is not None:
            anchors.add(base)


def _unneeded(points: Sequence[Point], anchors: set[int]) -> list[Point]:
    gone: list[Point] = []
    needed = False
    for point in reversed(points):
        needed = needed or point.pos in anchors
        if not needed:
            gone.append(point)
        elif point.full:
            needed = False  # what comes before a full record is not read to restore what comes after it
    return gone
