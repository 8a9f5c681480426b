"""The rows that a store keeps: of sessions, branches, records, questions and inputs."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from adjourn._hiding import known
from adjourn._text import undotted
from adjourn._values.codec import check_nesting
from adjourn.errors import CheckpointCorrupt, NotStorable
from adjourn.stores.types import (
    OWN_APPS,
    Answered,
    AuditEntry,
    CheckpointRow,
    Due,
    DueReason,
    EventBatch,
    Head,
    Header,
    Input,
    Lease,
    Note,
    Outcome,
    Question,
    QueuedInput,
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
)

EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_800.0
"""The times that a `datetime` can show, from the year 1 to 9999."""

MAX_RECORDS = 2**28
"""How many records a session can have across all of its branches."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
Position = Annotated[int, Meta(ge=0, lt=MAX_RECORDS)]
Place = Annotated[int, Meta(ge=-1, lt=MAX_RECORDS)]
"""A position, or -1 in a session that has no record yet."""
Time = Annotated[float, Meta(ge=EARLIEST, lt=LATEST)]


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """The one row of a session. Records have positions, counted over all branches in the order of writing.

    A branch is never written again once the head has left it, so each is one stretch of positions, and the newest
    is the head's. `full_pos` is the head's last full record and `size` the bytes from there on; `waiting` counts the
    answers on the head's branch that no record has taken, and `inputs` those that wait in the queue, with `input_bytes`
    in all. `updated` is the time of the last commit (before there is one, of the last submission), `touched` that of
    the last commit, answer, submission or renewal. With a `ttl`, the session is removed so many seconds after that.
    `marks` counts the changes of what its open questions are filed under. `no` is the store's internal number for it. A
    session that has inputs and no record yet stands at position -1, on a branch without a name. It is `guarded` (1,
    otherwise 0) if any of its questions has requesters.
    """

    no: Count
    session: str
    app: str
    user: str | None
    created: Time
    branch: str = ""
    branch_no: Place = -1
    number: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    pos: Place = -1
    full_pos: Place = -1
    size: Count = 0
    status: Status = "queued"
    owner: str | None = None
    expires: float = 0.0
    fence: Count = 0
    claims: Count = 0
    seq: Count = 0
    updated: Time = 0.0
    touched: Time = 0.0
    cancel: str | None = None
    waiting: Count = 0
    program: str = ""
    inputs: Count = 0
    input_bytes: Count = 0
    marks: Count = 0
    ttl: Annotated[float, Meta(gt=0)] | None = None
    guarded: Annotated[int, Meta(ge=0, le=1)] = 0

    @property
    def checkpoint(self) -> str:
        """The id of the head; empty if there is no record yet."""
        return f"{self.branch}.{self.number}" if self.pos >= 0 else ""

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.session, self.app, self.user)

    @property
    def removed_after(self) -> float | None:
        """When the store removes the session, if it is neither written to, answered nor run until then."""
        return None if self.ttl is None else self.touched + self.ttl


class Branch(msgspec.Struct, frozen=True, gc=False):
    """A stretch of the log: its first record, written after `parent`, has the number `first` and stands at `start`.

    `no` counts the branches of a session, from 0 on. `origin` is what the writer of a fork notes of where that comes
    from; only the first branch of a session can have it.
    """

    name: str
    start: Position
    first: Count
    parent: str | None
    no: Position = 0
    origin: str | None = None


class RecordRow(msgspec.Struct, frozen=True, gc=False):
    """A record as it is stored, at a position of the log; `seq` is the session's last event number after it.

    It is listed as a checkpoint if it has a `source`. `at` is the store's time of writing; a decision leaves it out.
    """

    id: str
    parent: str | None
    pos: Position
    full: bool
    source: str | None
    seq: Count
    count: Count
    header: bytes
    events: bytes
    body: bytes
    at: Time = 0.0


class QuestionRow(msgspec.Struct, frozen=True, gc=False):
    """A question as it is stored; `how` is None while it is open, and `no` grows with the order of writing.

    From `address` on it is what listings select by and show; decisions do without it, so facts may leave it out.
    `terms` are under what it stands in the inbox for as long as it is open and the head is on its branch, which is
    the number of that in the session. `decided_by` is who ended it here, empty if that has no name; None while it is
    open, if it had ended before it came here, and if its own code gave it up. At `due`, something of the `due_kind` is
    to be done about it while it is open. `taker` has taken it, and its `notes` are a JSON list of each `Note`.
    """

    id: str
    body: bytes
    expires: float | None
    value: bytes | None = None
    how: Outcome | None = None
    by: str | None = None
    at: Time | None = None
    taken: bool = False
    no: Count = 0
    requesters: tuple[str, ...] = ()
    due: float | None = None
    due_kind: str = ""
    notes: bytes = b""
    address: str = ""
    agent: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    asked: float = 0.0
    requested_by: str | None = None
    groups: tuple[str, ...] = ()
    taker: str | None = None
    terms: tuple[str, ...] = ()
    branch: Place = 0
    decided_by: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it."""
        return self.how is None


class InputRow(msgspec.Struct, frozen=True, gc=False):
    """An input as it is stored; `no` grows with the order of submission.

    Once a turn has begun with it, it is `taken`: its body is dropped, and its digest stays for as long as the session.
    The id of a call that gave answers stands here, too, so that nothing else is called so (`ANSWERED`).
    """

    id: str
    digest: str
    body: bytes
    program: str
    user: str | None
    abandons: bool
    at: Time
    taken: bool = False
    no: Count = 0
    size: Count = 0
    """The length of the body as it was given, before it was sealed or dropped."""


ANSWERED = "~answered"
"""The program of a row that is no input, but keeps the id of a call that gave answers."""


def called(call: str, at: float) -> InputRow:
    """Return the row that keeps the id of a call that gave answers."""
    return InputRow(call, "", b"", ANSWERED, None, abandons=False, at=at, taken=True)


class InboxRow(msgspec.Struct, frozen=True, gc=False):
    """An entry of the inbox: the question number `no`, under one of its terms."""

    term: str
    asked: float
    no: Count
    expires: float | None


class NoticeRow(msgspec.Struct, frozen=True, gc=False):
    """A notice as it is stored, with the session it was written to; it may be taken from the time `due` on."""

    id: str
    to: str
    app: str
    session: str
    due: float
    at: Time
    attempt: Count
    body: bytes


def notice_of(row: NoticeRow) -> TakenNotice:
    """Return a notice that somebody takes, as callers read it."""
    return TakenNotice(
        id=row.id, to=row.to, body=row.body, app=row.app, session=row.session, at=row.at, attempt=row.attempt
    )


def submitted_row(given: Input, at: float, no: int) -> InputRow:
    """Return the row of an input that is submitted now, as the `no`th."""
    size = len(given.body)
    return InputRow(
        given.id, input_digest(given), given.body, given.program, given.user, given.abandons, at, no=no, size=size
    )


def input_digest(given: Input) -> str:
    """Return the digest of an input's content, which tells a repeated submission from another one with its id."""
    content = msgspec.json.encode((given.program, given.user, given.abandons, given.body))
    return hashlib.sha256(content).hexdigest()


def queued_input(row: InputRow) -> QueuedInput:
    """Return an input that waits, as callers read it."""
    return QueuedInput(id=row.id, body=row.body, program=row.program, user=row.user, abandons=row.abandons, at=row.at)


def asked_row(question: Question, no: int, branch: int = 0) -> QuestionRow:
    """Return the row of a question that is asked now, as the `no`th, on a branch by its number."""
    given, due = question.ended, question.expires if question.due is None else question.due
    row = QuestionRow(
        question.id,
        question.body,
        question.expires,
        no=no,
        requesters=question.requesters,
        due=due,
        due_kind="" if due is None else question.due_kind,
        address=question.address,
        agent=question.agent,
        reason=question.reason,
        tags=question.tags,
        asked=question.asked,
        requested_by=question.requested_by,
        groups=question.groups,
        branch=branch,
    )
    if given is None:
        return row
    return replace(row, value=given.value, how=given.how, by=given.by, at=given.at, taken=True)


def notes_in(stored: bytes) -> tuple[Note, ...]:
    """Return the notes on a question.

    Raises:
        CheckpointCorrupt: they are not what was written.
    """
    try:
        return _notes.decode(stored) if stored else ()
    except msgspec.MsgspecError as error:
        raise CheckpointCorrupt(f"the notes on a question are damaged ({error})", None) from error


_notes = msgspec.json.Decoder(tuple[Note, ...])


def answered(row: QuestionRow) -> Answered:
    """Return the answer to a question that has ended."""
    assert row.how is not None
    return Answered(id=row.id, value=row.value or b"", how=row.how, by=row.by, at=row.at or 0.0)


def audit_entry(row: QuestionRow, branch: str) -> AuditEntry:
    """Return a question of a branch with how it ended, as callers read it."""
    return AuditEntry(
        branch=branch,
        id=row.id,
        body=row.body,
        expires=row.expires,
        value=row.value,
        how=row.how,
        by=row.by,
        at=row.at,
    )


def listed_row(id: str, parent: str | None, at: object, header: object) -> CheckpointRow:
    """Return a checkpoint as it is listed, from its place and what is stored of it, which may be damaged."""
    try:
        if isinstance(header, bytes) and isinstance(at, float) and EARLIEST <= at < LATEST:
            return CheckpointRow(id=id, parent=parent, created=at, header=decode_header(header))
    except CheckpointCorrupt:
        pass  # It is shown as damaged.
    return CheckpointRow(id=id, parent=parent, created=0.0, header=Header(), damaged=True)


def stored_record(record: RecordRow) -> StoredRecord:
    """Return a record for whoever checks the log, even if its header is damaged."""
    try:
        header = decode_header(record.header)
    except CheckpointCorrupt:
        return damaged_record(record.id, record.parent, record.pos)
    if header.source != record.source:
        return damaged_record(record.id, record.parent, record.pos)
    return StoredRecord(
        id=record.id,
        parent=record.parent,
        pos=record.pos,
        at=record.at,
        full=record.full,
        seq=record.seq,
        count=record.count,
        header=header,
        events=record.events,
        body=record.body,
    )


def damaged_record(id: str, parent: str | None, pos: int) -> StoredRecord:
    """Return a record of which only the place can be read."""
    return StoredRecord(id=id, parent=parent, pos=pos, damaged=True)


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


def has_status(row: SessionRow, status: Status | None) -> bool:
    """Return whether a listing by status (None for all) has this session."""
    return status in (None, _status(row))


def _status(row: SessionRow) -> Status:
    return "queued" if row.inputs and row.status == "done" else row.status


def is_live(row: SessionRow, now: float) -> bool:
    """Return whether somebody runs the session: a lease is held and has not expired."""
    return row.owner is not None and row.expires > now


def _settled_status(row: SessionRow, now: float) -> Status:
    """Return the status of a session; one that is stored as running, but whose owner is gone, has failed."""
    return "failed" if row.status == "running" and not is_live(row, now) else _status(row)


def may_be_removed(row: SessionRow, statuses: Sequence[Status] | None, now: float) -> bool:
    """Return whether a session may be removed by its status; with inputs that wait, only if "queued" is named, too."""
    if statuses is None:
        return True
    return _settled_status(row, now) in statuses and (not row.inputs or "queued" in statuses)


def stored_statuses(statuses: Sequence[Status] | None) -> Sequence[Status] | None:
    """Return the statuses that a row may have for a session to have one of these: enough to search for it."""
    if statuses is None:
        return None
    also: dict[Status, Status] = {"failed": "running", "queued": "done"}
    return (*statuses, *[also[each] for each in statuses if each in also])


def is_expired(asked: QuestionRow, now: float) -> bool:
    """Return whether a question has expired."""
    return asked.expires is not None and asked.expires <= now


def due(row: SessionRow, asked: Iterable[QuestionRow], first: InputRow | None, now: float) -> Due | None:
    """Return why somebody should take a session up, None if nobody should.

    `asked` are the questions of its head's branch, and `first` is the first input of its queue.
    """
    if is_live(row, now):
        return None
    if row.owner is not None:
        return due_for(row, "lease", row.expires)
    if row.waiting:
        return due_for(row, "answer", row.touched)
    passed = [each.due for each in asked if each.is_open and each.due is not None and each.due <= now]
    if passed:
        return due_for(row, "question", min(passed))
    if first is not None and can_begin(row, first):
        return due_for(row, "input", first.at)
    return None


def due_for(row: SessionRow, why: DueReason, since: float) -> Due:
    """Return a session as it is listed when it is due."""
    return Due(session=row.session, app=row.app, why=why, program=row.program, user=row.user, since=since)


def is_wanted(row: SessionRow, programs: Sequence[str] | None, skip_users: Sequence[str]) -> bool:
    """Return whether a listing of what is due wants a session, by its program (None for any) and user."""
    return (programs is None or row.program in programs) and row.user not in skip_users


def can_begin(row: SessionRow, first: InputRow) -> bool:
    """Return whether the turn of the first input that waits can begin, as soon as nobody runs the session."""
    if row.status in ("failed", "cancelled"):
        return first.abandons  # otherwise such a turn holds the queue until somebody has looked at it
    return row.status in ("queued", "done")


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
        program=row.program,
        inputs=row.inputs,
        touched=row.touched,
        removed_after=row.removed_after,
    )


_start = attrgetter("start")
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
    branch = branches[bisect_right(branches, pos, key=_start) - 1]
    number = branch.first + pos - branch.start
    parent = branch.parent if pos == branch.start else f"{branch.name}.{number - 1}"
    return f"{branch.name}.{number}", parent


_headers = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)


def encode_header(header: Header) -> bytes:
    """Return the header of a record as JSON.

    Raises:
        NotStorable: its metadata is not JSON.
    """
    if not (header.metadata or header.input or known.forms):
        return _plain_header(header.source, header.step, header.address, header.next)
    try:
        return known.hide_in_json(_headers.encode(header))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable("header", header, f"Metadata must be JSON: {undotted(error)}.") from error


@lru_cache(maxsize=256)
def _plain_header(source: str | None, step: int, address: str, next: tuple[str, ...]) -> bytes:
    """Return a header that only says where a record stands: many are the same, and each is encoded more than once."""
    return _headers.encode(Header(source=source, step=step, address=address, next=next))


def decode_header(data: bytes) -> Header:
    """Return a header from its JSON.

    Raises:
        CheckpointCorrupt: it is not one.
    """
    check_nesting(data)
    try:
        return _header.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(f"the header of a checkpoint is damaged ({error})") from error


def lies_under(address: str, under: str) -> bool:
    """Return whether an address is `under` or below it, by whole segments; everything lies under ''."""
    return not under or address == under or address.startswith(under + ";")


def cancel_of(row: SessionRow | None, lease: Lease) -> str | None:
    """Return how the run that holds a lease is to be cancelled: `row` is its session's, whoever has that by now."""
    if row is None or row.fence != lease.fence or not is_named(row, lease.ref):
        return None
    return row.cancel
