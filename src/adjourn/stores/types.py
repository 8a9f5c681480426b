"""What is passed to a store and comes back from it: names, records, questions, answers, inputs and rows of listings."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Literal

import msgspec

Status = Literal["queued", "running", "waiting", "failed", "cancelled", "done"]
Source = Literal["input", "step", "interrupt", "resume", "edit", "fork", "cancel", "end"]
Outcome = Literal["answered", "expired", "abandoned"]
DueReason = Literal["lease", "question", "answer", "input"]

OWN_APPS = "~"
"""Prefix of the apps in which the library keeps its own sessions, such as permanent approvals."""


class SessionRef(msgspec.Struct, frozen=True):
    """Names one session, which is `id` within `app`.

    With a `user`, it names the session only if it is that user's: for anybody else it does not exist.
    """

    id: str
    app: str = "adjourn"
    user: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write one session, until it expires by the store's clock or somebody takes over."""

    ref: SessionRef
    owner: str
    fence: int
    ttl: float


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a listing shows of a checkpoint; `source` is None for a record that is restorable but not listed.

    `input` is the id of the queued input whose turn begins with it.
    """

    source: str | None = None
    step: int = 0
    address: str = ""
    next: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    input: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ends: the encoded value, and who gave it; with a `branch`, only if the head is on it.

    `call` is what its sender calls the call that it is part of: nothing else in the session may be called so, whether
    it is an answer or an input. It `approves` unless it refuses, or only proposes, what the question asks for.
    """

    id: str
    value: bytes
    how: Outcome = "answered"
    by: str | None = None
    branch: str | None = None
    call: str | None = None
    approves: bool = True


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was taken: `at` is the store's time."""

    id: str
    value: bytes
    how: Outcome
    by: str | None
    at: float


EXPIRY = "expiry"
"""What is due for a question that expires."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a record asks: its id on the branch, everything about it as JSON, and when it expires.

    On a new branch, a question that had ended on the branch before it comes with its answer, which counts as taken.
    No answer by one of its `requesters` may approve it; if the empty name is among them, every answer needs a name.
    At `due`, something of the kind `due_kind` is to be done about it: if it is not said otherwise, it expires.
    The rest is what listings select by: where it was asked, by which agent, why, under which tags, when (by the clock
    of the process that asked), for which user, and which groups it is for.
    """

    id: str
    body: bytes
    expires: float | None = None
    ended: Answered | None = None
    requesters: tuple[str, ...] = ()
    due: float | None = None
    due_kind: str = EXPIRY
    address: str = ""
    agent: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    asked: float = 0.0
    requested_by: str | None = None
    groups: tuple[str, ...] = ()


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note on an open question, such as who has taken it and until when, or where it was delivered.

    A question has one note of a `kind` and `name`. `at` is the store's time of writing.
    """

    kind: str
    name: str = ""
    by: str | None = None
    until: float | None = None
    text: str = ""
    at: float = 0.0


class Begun(msgspec.Struct, frozen=True):
    """Something that began and must not happen twice: its digest, and the record that it began with.

    `place` names a branch of a session, and `number` a record of it. Neither reveals what it was.
    """

    digest: str
    place: str
    number: int


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a turn that is to begin later: `program` is who runs it, `user` whose turn it is.

    One that `abandons` may also begin after a turn that failed or was cancelled.
    """

    id: str
    body: bytes
    program: str = ""
    user: str | None = None
    abandons: bool = False


class QueuedInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that no turn has begun with; `at` is the store's time when it came in."""

    id: str
    body: bytes
    program: str
    user: str | None
    abandons: bool
    at: float


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be sent outside: `to` names who gets it, and `id` tells it from all others in the store.

    It may be taken from the time `due` on, at once if that is None.
    """

    id: str
    to: str
    body: bytes
    due: float | None = None


class TakenNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that somebody is sending: `attempt` counts how often it was taken.

    It was written to `session` of `app`; `at` is the store's time when it was.
    """

    id: str
    to: str
    body: bytes
    app: str
    session: str
    at: float
    attempt: int


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One record for the log and what goes with it, atomically.

    Its id is `<branch>.<number>`; numbers of a branch have no gaps. `parent` is the record before it, which for the
    first record of a branch stands on another one. The first record of a branch is full. The store numbers the
    `event_count` events consecutively, over all branches. `begins` outlives the record and its session. So do
    `notices`, which stay in the store's outbox until somebody has sent them.
    `summary` is what people may see of the session at this record, as JSON, for a store that `KeepsSummaries`.
    `program` is the address of what runs the session; the first that is given stays. `input` is the id of the queued
    input whose turn begins with the record: it must be the first that waits, and waits no longer. Without `overtakes`,
    a claim with it is refused while any input waits. `origin`, of a session's first record, stays in the row of its
    first branch, which pruning keeps.
    """

    branch: str
    number: int
    parent: str | None
    full: bool
    body: bytes
    header: Header
    status: Status
    asks: tuple[Question, ...] = ()
    takes: tuple[str, ...] = ()
    closes: tuple[Answer, ...] = ()
    events: bytes = b""
    event_count: int = 0
    begins: tuple[Begun, ...] = ()
    notices: tuple[Notice, ...] = ()
    program: str = ""
    input: str | None = None
    overtakes: bool = True
    summary: bytes = b""
    origin: str | None = None

    @property
    def id(self) -> str:
        """The record's id, which its writer chose."""
        return f"{self.branch}.{self.number}"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a session. `owner` is None unless a lease is live now; `seq` is the last event's number.

    `inputs` is how many wait in its queue. A session that has nothing else has the status "queued" and no `checkpoint`,
    which is empty.
    """

    session: str
    app: str
    user: str | None
    checkpoint: str
    branch: str
    status: Status
    owner: str | None
    expires: float
    fence: int
    claims: int
    seq: int
    created: float
    updated: float
    program: str = ""
    inputs: int = 0
    touched: float = 0.0
    """When the session was last written to, answered or run."""
    removed_after: float | None = None
    """When a store with a time to live removes the session, unless it is written to, answered or run before."""

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.session, self.app, self.user)

    @property
    def cursor(self) -> str:
        """Its place in a listing of sessions, where the next page goes on."""
        return urlsafe_b64encode(msgspec.json.encode((self.updated, self.app, self.session))).decode()


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The records that fold to one point, oldest first and the first of them full, and what waits beside the log.

    `answers` are those on the point's branch that no record has taken yet; empty unless the point is the head. `at` is
    the store's time of the point's record, 0.0 if it cannot be read.
    """

    head: Head
    point: str
    rows: tuple[bytes, ...]
    answers: tuple[Answered, ...] = ()
    at: float = 0.0


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as it is listed; `created` is the store's time.

    If its row is `damaged`, only its place is known, and its header is empty.
    """

    id: str
    parent: str | None
    created: float
    header: Header
    damaged: bool = False


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An open question as it is listed; `checkpoint` is the session's head, `cursor` its place in the listing.

    `removed_after` is the session's: see `Head`. `notes` are a JSON list of each `Note`.
    """

    session: str
    app: str
    user: str | None
    checkpoint: str
    id: str
    body: bytes
    expires: float | None
    address: str = ""
    agent: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    asked: float = 0.0
    requested_by: str | None = None
    removed_after: float | None = None
    notes: bytes = b""
    cursor: str = ""


class QuestionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which open questions are wanted: those for which everything holds that is not None.

    `under` is an address: what was asked there or below it, at segment boundaries. `asked_after` includes that moment,
    `asked_before` and `expires_before` do not; a question that never expires is not before anything.
    """

    app: str | None = None
    user: str | None = None
    agent: str | None = None
    under: str | None = None
    reason: str | None = None
    tag: str | None = None
    requested_by: str | None = None
    group: str | None = None
    taker: str | None = None
    asked_after: float | None = None
    asked_before: float | None = None
    expires_before: float | None = None


Order = Literal["age", "expiry"]
"""In which order questions are listed: oldest first, or those first that expire first, and at last those that never do,
oldest first."""

ALL_QUESTIONS = QuestionFilter()
"""Every open question, except those in the library's own apps."""


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is stored, for whoever checks a log; `at` is the store's time, `seq` its last event's number.

    `pos` counts the records of the session in the order of writing: where some were pruned, numbers are missing. If its
    row is `damaged`, only its place is known.
    """

    id: str
    parent: str | None
    pos: int
    at: float = 0.0
    full: bool = False
    seq: int = 0
    count: int = 0
    header: Header = Header()
    events: bytes = b""
    body: bytes = b""
    damaged: bool = False


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question with how it ended, as people and programs read it; `how` is None while it is open."""

    branch: str
    id: str
    body: bytes
    expires: float | None
    value: bytes | None
    how: Outcome | None
    by: str | None
    at: float | None


class Decided(AuditEntry, frozen=True, kw_only=True):
    """A question that somebody has decided, or that has expired, as it is listed; `cursor` is its place there."""

    session: str
    app: str
    user: str | None
    agent: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    cursor: str = ""


class DecisionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which decided questions are wanted: those for which everything holds that is not None.

    `by` is who has decided, empty for those without a name. They ended `since` a moment on, and before `until`.
    """

    app: str | None = None
    user: str | None = None
    by: str | None = None
    agent: str | None = None
    how: Outcome | None = None
    since: float | None = None
    until: float | None = None


ALL_DECISIONS = DecisionFilter()
"""Every decided question, except those in the library's own apps."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one record, as it was written, numbered from `first`."""

    id: str
    header: Header
    first: int
    count: int
    body: bytes


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit found: `released` is False when `answers` came in that the run must take up before it may pause.

    `at` is the time of its records, just as they are read later, and `inputs` how many wait in the session's queue.
    """

    released: bool = False
    answers: tuple[Answered, ...] = ()
    cancel: str | None = None
    at: float = 0.0
    inputs: int = 0


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim; without a `lease`, a live owner has the session and will take the answers up.

    `checkpoint` is the head, `seq` the last event's number, and `claims` how many were made without progress. `at` is
    the time of its record, and of the answers that were given with it, just as they are read later; 0.0 without one.
    """

    lease: Lease | None
    checkpoint: str
    seq: int
    claims: int
    at: float = 0.0


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lease after a renewal.

    One that was `skipped` is still held, and ends when it would have ended: somebody was just writing to its session.
    """

    ref: SessionRef
    lost: bool
    cancel: str | None = None
    skipped: bool = False


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A session that somebody should take up, why, and since about when."""

    session: str
    app: str
    why: DueReason
    program: str = ""
    user: str | None = None
    since: float = 0.0

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.session, self.app, self.user)
