"""The store protocol: what every backend promises, in bytes and ids.

A session is named by its app and its id: the same id in another app is another session. A store keeps, per session, a
log of records on branches, one head, one lease, and the questions with their answers *beside* the log. It knows
nothing of frames or programs. `adjourn.testing` has the suite that proves an implementation, `adjourn.stores.kit` what
all implementations share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Status = Literal["running", "waiting", "failed", "cancelled", "done"]
Source = Literal["input", "step", "interrupt", "resume", "edit", "fork", "cancel", "end"]
Outcome = Literal["answered", "expired", "abandoned"]

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
    """What a listing shows of a checkpoint; `source` is None for a record that is restorable but not listed."""

    source: str | None = None
    step: int = 0
    address: str = ""
    next: tuple[str, ...] = ()
    metadata: dict[str, object] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ends: the encoded value, and who gave it; with a `branch`, only if the head is on it."""

    id: str
    value: bytes
    how: Outcome = "answered"
    by: str | None = None
    branch: str | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was taken: `at` is the store's time."""

    id: str
    value: bytes
    how: Outcome
    by: str | None
    at: float


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a record asks: its id on the branch, everything about it as JSON, and when it expires.

    On a new branch, a question that had ended on the branch before it comes with its answer, which counts as taken.
    """

    id: str
    body: bytes
    expires: float | None = None
    ended: Answered | None = None


class Begun(msgspec.Struct, frozen=True):
    """Something that began and must not happen twice: its digest, and the record that it began with.

    `place` names a branch of a session, and `number` a record of it. Neither reveals what it was.
    """

    digest: str
    place: str
    number: int


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One record for the log and what goes with it, atomically.

    Its id is `<branch>.<number>`; numbers of a branch have no gaps. `parent` is the record before it, which for the
    first record of a branch stands on another one. The first record of a branch is full. The store numbers the
    `event_count` events consecutively, over all branches. `begins` outlives the record and its session.
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

    @property
    def id(self) -> str:
        """The record's id, which its writer chose."""
        return f"{self.branch}.{self.number}"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a session. `owner` is None unless a lease is live now; `seq` is the last event's number."""

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

    @property
    def ref(self) -> SessionRef:
        """The session's name."""
        return SessionRef(self.session, self.app, self.user)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The records that fold to one point, oldest first and the first of them full, and what waits beside the log.

    `answers` are those on the point's branch that no record has taken yet; empty unless the point is the head.
    """

    head: Head
    point: str
    rows: tuple[bytes, ...]
    answers: tuple[Answered, ...] = ()


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
    """An open question as it is listed; `checkpoint` is the session's head."""

    session: str
    app: str
    checkpoint: str
    id: str
    body: bytes
    expires: float | None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question with how it ended, as people and programs read it; `how` is None while it is open."""

    id: str
    body: bytes
    value: bytes | None
    how: Outcome | None
    by: str | None
    at: float | None


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one record, as it was written, numbered from `first`."""

    id: str
    header: Header
    first: int
    count: int
    body: bytes


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit found: `released` is False when `answers` came in that the run must take up before it may pause."""

    released: bool = False
    answers: tuple[Answered, ...] = ()
    cancel: str | None = None


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim; without a `lease`, a live owner has the session and will take the answers up.

    `checkpoint` is the head, `seq` the last event's number, and `claims` how many were made without progress.
    """

    lease: Lease | None
    checkpoint: str
    seq: int
    claims: int


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lease after a renewal."""

    ref: SessionRef
    lost: bool
    cancel: str | None = None


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A session that somebody should take up, and why."""

    session: str
    app: str
    why: Literal["lease", "question", "answer"]


class Store(Protocol):
    """Keeps sessions. Safe to use from any number of tasks, threads, event loops and (if it is shared) processes.

    Every method is atomic: it happens as a whole or not at all. A failure of the medium raises `StoreUnavailable`,
    damage `CheckpointCorrupt`. Listings over many sessions, and `audit`, leave damaged rows out and report them on
    the log `adjourn.stores` (`kit.readable` does that). Times are the store's own. Repeating a claim or commit with
    the same record id and content is a success, so that a caller who did not get the reply can try again. Calls that
    one task or loop makes one after the other take effect in that order, even if it does not wait for each.

    A method that raises `CheckpointNotFound` for an unknown session also does so for another user's. A listing
    without an app covers all apps, except those whose names begin with `OWN_APPS`, which must be named.
    """

    async def claim(
        self,
        ref: SessionRef,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        replaces: str | None = None,
    ) -> Claimed:
        """Take the session's lease, with the first record and the answers if given.

        `after` is the head the caller has seen, None for a session that must not exist yet and then belongs to the
        user of `ref`. `replaces` names an owner known to be dead, whose lease may be taken before it expires.
        Answers are checked before the lease: if a live owner holds it, they are recorded for that owner to take up,
        wherever the head is by then, and no lease is given. With the lease, the answers count as taken by `write`.

        Raises:
            SessionBusy: a live owner holds the lease and there are no answers.
            Conflict: the head is not `after`; nothing was written.
            AlreadyResumed, InterruptExpired, UnknownInterrupt, CheckpointNotFound: as for `answer`.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that are still held; return for each, in order, whether it is lost or to be cancelled."""
        ...

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        """Add records, each after the one before it on its branch and the first after the head `after`; all or none.

        The lease is renewed, and given up with `release`.

        With `release` and status "waiting", answers that no record has taken keep the lease and are returned instead;
        the record is still stored, but as running and without its events, since the run goes on.
        The count of claims without progress is reset.

        Raises:
            Conflict: the head is not `after`, or the lease was released or taken over; nothing was written.
            AlreadyResumed, UnknownInterrupt: a question in `closes` is not open; nothing was written.
        """
        ...

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        """End open questions of the head's branch, each by compare-and-swap, all or none.

        Raises:
            CheckpointNotFound: no such session.
            UnknownInterrupt: no such question on the branch.
            AlreadyResumed: one of them has already ended.
            InterruptExpired: one of them has expired (an answer with `how="expired"` is still accepted).
            Conflict: the head is not `after` (when given).
        """
        ...

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        """Return the records that fold to the head, or to `checkpoint`; None for an unknown session.

        Raises:
            CheckpointNotFound: the session has no such checkpoint.
        """
        ...

    async def head(self, ref: SessionRef) -> Head | None:
        """Return the current state of a session, None if there is no such session."""
        ...

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        """List the checkpoints of all branches, most recent first; `under` filters by address at segment boundaries.

        Raises:
            CheckpointNotFound: no such session, or `before` is unknown.
        """
        ...

    async def sessions(
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        """List sessions, most recently written first."""
        ...

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        app: str | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        """List open questions on the branch of each session's head that have not expired, oldest first.

        `ref` selects those of one session, `app` and `user` those of many.
        """
        ...

    async def audit(self, ref: SessionRef) -> list[AuditEntry]:
        """List every question of the head's branch, oldest first, with how it ended.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        """Return these questions of a branch, oldest first, with how they ended; unknown ones are left out.

        A record refers to questions by their ids alone. They stay for as long as the session.

        Raises:
            CheckpointNotFound: no such session, or it has no such branch.
        """
        ...

    async def begun(self, digest: str) -> list[Begun]:
        """Return everything under this digest that records have begun with, in any session, deleted ones included.

        Nothing ever removes it: neither `delete` nor `prune` nor `delete_idle`.
        """
        ...

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        """Return the stored events with a number above `after`, in order; the first batch may begin below.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def due(self, *, app: str | None = None, user: str | None = None, limit: int = 100) -> list[Due]:
        """List sessions whose owner died, whose question expired, or whose answers nobody has taken up."""
        ...

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        """Ask the live owner to stop; return False if nobody runs the session.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def delete(self, ref: SessionRef) -> None:
        """Remove a whole session; an unknown one is not an error.

        Raises:
            SessionBusy: somebody runs it.
        """
        ...

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        """Remove old checkpoints, except the last `keep` and those written since `before`; return how many.

        The head, everything pending and the base of every fork stay restorable.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def delete_idle(self, ttl: float, *, app: str | None = None, user: str | None = None) -> list[SessionRef]:
        """Remove sessions that nobody runs and nobody has written or answered for `ttl` seconds; return which."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and release all resources."""
        ...
