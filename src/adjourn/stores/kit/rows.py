"""The rows that a store keeps: of sessions, branches, records and questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from adjourn._text import undotted
from adjourn._values.codec import check_nesting
from adjourn.errors import CheckpointCorrupt, NotStorable
from adjourn.stores.protocol import (
    OWN_APPS,
    Answered,
    AuditEntry,
    CheckpointRow,
    Due,
    EventBatch,
    Head,
    Header,
    OpenQuestion,
    Outcome,
    Question,
    SessionRef,
    Status,
    Write,
)

EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_800.0
"""The times that a `datetime` can show, from the year 1 to 9999."""

MAX_RECORDS = 2**28
"""How many records a session can have across all of its branches."""


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """The one row of a session. Records have positions, counted over all branches in the order of writing.

    A branch is never written again once the head has left it, so each is one stretch of positions, and the newest
    is the head's. `full_pos` is the head's last full record and `size` the bytes from there on; `waiting` counts the
    answers on the head's branch that no record has taken. `updated` is the time of the last commit, `touched` that of
    the last commit, answer or renewal. `no` is the store's internal number for it.
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
    touched: float = 0.0
    cancel: str | None = None
    waiting: int = 0

    @property
    def checkpoint(self) -> str:
        """The id of the head."""
        return f"{self.branch}.{self.number}"

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.session, self.app, self.user)


class Branch(msgspec.Struct, frozen=True, gc=False):
    """A stretch of the log: its first record, written after `parent`, has the number `first` and stands at `start`."""

    name: str
    start: int
    first: int
    parent: str | None


class RecordRow(msgspec.Struct, frozen=True, gc=False):
    """A record as it is stored, at a position of the log; `seq` is the session's last event number after it.

    It is listed as a checkpoint if it has a `source`. The store adds the time of writing.
    """

    id: str
    parent: str | None
    pos: int
    full: bool
    source: str | None
    seq: int
    count: int
    header: bytes
    events: bytes
    body: bytes


class QuestionRow(msgspec.Struct, frozen=True, gc=False):
    """A question as it is stored; `how` is None while it is open, and `no` grows with the order of asking."""

    id: str
    body: bytes
    expires: float | None
    value: bytes | None = None
    how: Outcome | None = None
    by: str | None = None
    at: float | None = None
    taken: bool = False
    no: int = 0

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it."""
        return self.how is None


def asked_row(question: Question, no: int) -> QuestionRow:
    """Return the row of a question that is asked now, as the `no`th."""
    given = question.ended
    if given is None:
        return QuestionRow(question.id, question.body, question.expires, no=no)
    return QuestionRow(
        question.id, question.body, question.expires, given.value, given.how, given.by, given.at, taken=True, no=no
    )


def answered(row: QuestionRow) -> Answered:
    """Return the answer to a question that has ended."""
    assert row.how is not None
    return Answered(id=row.id, value=row.value or b"", how=row.how, by=row.by, at=row.at or 0.0)


def audit_entry(row: QuestionRow) -> AuditEntry:
    """Return a question with how it ended, as callers read it."""
    return AuditEntry(id=row.id, body=row.body, value=row.value, how=row.how, by=row.by, at=row.at)


def open_question(row: SessionRow, asked: QuestionRow) -> OpenQuestion:
    """Return a question as it is listed while it is open."""
    return OpenQuestion(
        session=row.session, app=row.app, checkpoint=row.checkpoint, id=asked.id, body=asked.body, expires=asked.expires
    )


def checkpoint_row(record: RecordRow, at: float) -> CheckpointRow:
    """Return a record as it is listed, even if its header is damaged."""
    return listed_row(record.id, record.parent, at, record.header)


def listed_row(id: str, parent: str | None, at: object, header: object) -> CheckpointRow:
    """Return a checkpoint as it is listed, from its place and what is stored of it, which may be damaged."""
    try:
        if isinstance(header, bytes) and isinstance(at, float) and EARLIEST <= at < LATEST:
            return CheckpointRow(id=id, parent=parent, created=at, header=decode_header(header))
    except CheckpointCorrupt:
        pass  # It is shown as damaged.
    return CheckpointRow(id=id, parent=parent, created=0.0, header=Header(), damaged=True)


def event_batch(record: RecordRow) -> EventBatch:
    """Return the events of a record.

    Raises:
        CheckpointCorrupt: its header is damaged.
    """
    header, first = decode_header(record.header), record.seq - record.count + 1
    return EventBatch(id=record.id, header=header, first=first, count=record.count, body=record.events)


def is_named(row: SessionRow, ref: SessionRef) -> bool:
    """Return whether `ref` names this session: with a user, it names only that user's."""
    return row.session == ref.id and row.app == ref.app and ref.user in (None, row.user)


def fits(row: SessionRow, app: str | None, user: str | None) -> bool:
    """Return whether a listing by app and user (None for all) has this session; the library's own must be named."""
    in_app = not row.app.startswith(OWN_APPS) if app is None else row.app == app
    return in_app and user in (None, row.user)


def is_live(row: SessionRow, now: float) -> bool:
    """Return whether somebody runs the session: a lease is held and has not expired."""
    return row.owner is not None and row.expires > now


def is_expired(asked: QuestionRow, now: float) -> bool:
    """Return whether a question has expired."""
    return asked.expires is not None and asked.expires <= now


def due(row: SessionRow, asked: Iterable[QuestionRow], now: float) -> Due | None:
    """Return why somebody should take a session up, given the questions of its head's branch; None if nobody should."""
    if is_live(row, now):
        return None
    if row.owner is not None:
        return Due(session=row.session, app=row.app, why="lease")
    if row.waiting:
        return Due(session=row.session, app=row.app, why="answer")
    if any(each.is_open and is_expired(each, now) for each in asked):
        return Due(session=row.session, app=row.app, why="question")
    return None


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


_DIGITS = 16  # of a record's number: longer ones are not read, since Python is slow to parse very long numbers


def locate(branches: Sequence[Branch], end: int, id: str) -> int | None:
    """Return the position that the record `id` has or had, on a log whose last position is `end`."""
    name, _, digits = id.rpartition(".")
    for branch in reversed(branches):
        if branch.name == name:
            # int() would also accept "+1", " 1" and "1_0", which are not the ids that were written.
            if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS or str(int(digits)) != digits:
                return None
            pos = branch.start + int(digits) - branch.first
            return pos if branch.start <= pos <= end else None
        end = branch.start - 1
    return None


def id_at(branches: Sequence[Branch], pos: int) -> tuple[str, str | None]:
    """Return the id of the record at a position, and its parent's; the first of `branches` starts at position 0."""
    branch = next(branch for branch in reversed(branches) if branch.start <= pos)
    number = branch.first + pos - branch.start
    parent = branch.parent if pos == branch.start else f"{branch.name}.{number - 1}"
    return f"{branch.name}.{number}", parent


_headers = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)


def encode_header(write: Write) -> bytes:
    """Return the header of a write as JSON.

    Raises:
        NotStorable: its metadata is not JSON.
    """
    try:
        return _headers.encode(write.header)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable("header", write.header, f"Metadata must be JSON: {undotted(error)}.") from error


def decode_header(data: bytes) -> Header:
    """Return a header from its JSON.

    Raises:
        CheckpointCorrupt: it is not one.
    """
    check_nesting(data)
    try:
        return _header.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(
            f"the header of a checkpoint is damaged ({error}); restore the store from a backup"
        ) from error


def lies_under(address: str, under: str) -> bool:
    """Return whether an address is `under` or below it, by whole segments; everything lies under ''."""
    return not under or address == under or address.startswith(under + ";")
