"""What callers read of a store. What is read of one session is answered from facts, as requests are decided.

A query of one session says which facts it wants; given those, it answers or refuses, without any I/O. Queries over
many sessions are answered by each store, from indexes of its own.
"""

# `wanted` and `answer` are documented where they are declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.types import (
    ALL_DECISIONS,
    ALL_QUESTIONS,
    AuditEntry,
    Begun,
    CheckpointRow,
    Decided,
    DecisionFilter,
    Due,
    EventBatch,
    Head,
    Loaded,
    OpenQuestion,
    Order,
    QuestionFilter,
    QueuedInput,
    SessionRef,
    Status,
    StoredRecord,
)

from .facts import Facts, FactsWanted, Logged, Span
from .inbox import in_app_of, listed
from .rows import (
    ANSWERED,
    Branch,
    RecordRow,
    SessionRow,
    answered,
    audit_entry,
    damaged_record,
    event_batch,
    head_of,
    is_named,
    lies_under,
    listed_row,
    queued_input,
    stored_record,
)

T = TypeVar("T")


class StoreQuery(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Something that a caller reads of a store; `T` is what comes back."""


# One session


class SessionQuery(StoreQuery[T], frozen=True, gc=False):
    """Something that a caller reads of one session."""

    ref: SessionRef

    def wanted(self) -> FactsWanted:
        """Return which facts are wanted."""
        return FactsWanted(ref=self.ref)

    def answer(self, facts: Facts) -> T:
        """Answer from facts, or refuse."""
        raise NotImplementedError

    @property
    def is_long(self) -> bool:
        """Whether what is wanted grows with the session's past: records, or questions of all times."""
        wanted = self.wanted()
        return wanted.span is not None or wanted.every


class GetHead(SessionQuery[Head | None], frozen=True, gc=False):
    """The current state of a session, None if there is no such session."""

    def answer(self, facts: Facts) -> Head | None:
        row = _named(facts, self.ref)
        return None if row is None else head_of(row, facts.now)


class Load(SessionQuery[Loaded | None], frozen=True, gc=False):
    """The records that fold to the head, or to `checkpoint`; None for a session without any.

    Raises:
        CheckpointNotFound: the session has no such checkpoint.
    """

    checkpoint: str | None = None

    def wanted(self) -> FactsWanted:
        is_head = self.checkpoint is None
        return FactsWanted(ref=self.ref, head=is_head, fold=self.checkpoint, waiting=True, branches=not is_head)

    def answer(self, facts: Facts) -> Loaded | None:
        row, point = _named(facts, self.ref), self.checkpoint
        if row is None or (point is None and row.pos < 0):
            return None
        is_head = point in (None, row.checkpoint)
        folded = facts.fold(None if is_head else point)
        if folded is None:
            raise CheckpointNotFound(row.session, point)
        waiting = facts.waiting() if is_head and row.waiting else ()
        return Loaded(
            head=head_of(row, facts.now),
            point=row.checkpoint if point is None else point,
            rows=folded.rows,
            answers=tuple([answered(each) for each in waiting if not each.is_open]),
            at=folded.at,
        )


class HasInput(SessionQuery[bool], frozen=True, gc=False):
    """Whether an input of this id was submitted: it waits, or a turn has begun with it.

    Raises:
        CheckpointNotFound: no such session.
    """

    id: str

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, inputs=frozenset((self.id,)))

    def answer(self, facts: Facts) -> bool:
        _existing(facts, self.ref)
        found = facts.input(self.id)
        return found is not None and found.program != ANSWERED


class ListInputs(SessionQuery[list[QueuedInput]], frozen=True, gc=False):
    """The inputs that wait in a session's queue, in order.

    Raises:
        CheckpointNotFound: no such session.
    """

    limit: int | None = None

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, queue=-1 if self.limit is None else self.limit)

    def answer(self, facts: Facts) -> list[QueuedInput]:
        row = _existing(facts, self.ref)
        return [queued_input(each) for each in facts.queue(self.limit)] if row.inputs else []


class ListCheckpoints(SessionQuery[list[CheckpointRow]], frozen=True, gc=False):
    """The checkpoints of all branches, most recent first; `under` selects by address, at segment boundaries.

    Raises:
        CheckpointNotFound: no such session, or `before` is unknown.
    """

    limit: int | None = None
    before: str | None = None
    source: str | None = None
    under: str | None = None

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True, span=self._span)

    @property
    def _span(self) -> Span:
        return Span(
            before=self.before,
            listed=True,
            source=self.source,
            newest_first=True,
            limit=None if self.under else self.limit,
            header=True,
        )

    def answer(self, facts: Facts) -> list[CheckpointRow]:
        _existing(facts, self.ref)
        rows = (_checkpoint(each) for each in facts.log(self._span))
        return list(islice((each for each in rows if lies_under(each.header.address, self.under or "")), self.limit))


class ListRecords(SessionQuery[list[StoredRecord]], frozen=True, gc=False):
    """The records of all branches in the order of writing, from the one after `after` on.

    Raises:
        CheckpointNotFound: no such session, or it never had the record `after`.
    """

    after: str | None = None
    limit: int | None = None

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True, span=self._span)

    @property
    def _span(self) -> Span:
        return Span(after=self.after, limit=self.limit, header=True, events=True, body=True)

    def answer(self, facts: Facts) -> list[StoredRecord]:
        _existing(facts, self.ref)
        return [_stored(each) for each in facts.log(self._span)]


class ListBranches(SessionQuery[list[Branch]], frozen=True, gc=False):
    """The branches of a session in the order of writing; none if there is no such session."""

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True)

    def answer(self, facts: Facts) -> list[Branch]:
        row = _named(facts, self.ref)
        return [] if row is None else list(facts.branches())


class ListEvents(SessionQuery[list[EventBatch]], frozen=True, gc=False):
    """The stored events with a number above `after`, in order; the first batch may begin below.

    Raises:
        CheckpointNotFound: no such session.
    """

    after: int = 0
    limit: int | None = None

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True, span=self._span)

    @property
    def _span(self) -> Span:
        return Span(events_after=self.after, limit=self.limit, header=True, events=True)

    def answer(self, facts: Facts) -> list[EventBatch]:
        session = _existing(facts, self.ref)
        return [_batch(each.sound(), session) for each in facts.log(self._span)]


class Audit(SessionQuery[list[AuditEntry]], frozen=True, gc=False):
    """Every question of a branch, by default the head's, or of all of them, oldest first, with how it ended.

    Raises:
        CheckpointNotFound: no such session, or it has no such branch.
    """

    branch: str | None = None
    all_branches: bool = False

    def wanted(self) -> FactsWanted:
        return FactsWanted(
            ref=self.ref, branches=True, asked=self.branch or None, every=True, all_branches=self.all_branches
        )

    def answer(self, facts: Facts) -> list[AuditEntry]:
        row = _existing(facts, self.ref)
        names = [each.name for each in facts.branches()] if self.all_branches else [self.branch or row.branch]
        return [audit_entry(each, name) for name in names for each in facts.asked(name)]


class ListAsked(SessionQuery[list[AuditEntry]], frozen=True, gc=False):
    """These questions of a branch, oldest first, with how they ended; unknown ones are left out.

    A record refers to questions by their ids alone. They stay for as long as the session.

    Raises:
        CheckpointNotFound: no such session, or it has no such branch.
    """

    branch: str
    ids: Sequence[str]

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, branches=True, asked=self.branch, questions=frozenset(self.ids))

    def answer(self, facts: Facts) -> list[AuditEntry]:
        _existing(facts, self.ref)
        return [audit_entry(each, self.branch) for each in facts.asked(self.branch, frozenset(self.ids))]


class ListOpen(SessionQuery[list[OpenQuestion]], frozen=True, gc=False):
    """The open questions of one session, in whichever app it is, as `ListQuestions` lists those of all."""

    filter: QuestionFilter = ALL_QUESTIONS
    after: str | None = None
    limit: int | None = None
    order: Order = "age"

    def wanted(self) -> FactsWanted:
        return FactsWanted(ref=self.ref, waiting=True, labels=True)

    def answer(self, facts: Facts) -> list[OpenQuestion]:
        row = _named(facts, self.ref)
        asked = [] if row is None else [(row, each) for each in facts.waiting()]
        wanted = in_app_of(self.ref, self.filter)
        return listed(asked, wanted, facts.now, order=self.order, after=self.after, limit=self.limit)


def _named(facts: Facts, ref: SessionRef) -> SessionRow | None:
    row = facts.row
    return row if row is not None and is_named(row, ref) else None


def _existing(facts: Facts, ref: SessionRef) -> SessionRow:
    row = _named(facts, ref)
    if row is None:
        raise CheckpointNotFound(ref.id)
    return row


def _checkpoint(found: Logged) -> CheckpointRow:
    row = found.row
    if isinstance(row, CheckpointCorrupt):
        return listed_row(found.id, found.parent, None, None)
    return listed_row(found.id, found.parent, row.at, row.header)


def _stored(found: Logged) -> StoredRecord:
    row = found.row
    return (
        damaged_record(found.id, found.parent, found.pos) if isinstance(row, CheckpointCorrupt) else stored_record(row)
    )


def _batch(row: RecordRow, session: SessionRow) -> EventBatch:
    first = row.seq - row.count + 1
    if first < 1 or row.seq > session.seq:
        raise CheckpointCorrupt(f"its record at {row.pos} has events {first} to {row.seq}", session.session)
    with Reading(session.session):
        return event_batch(row)


# Many sessions, and what outlives them


class ListSessions(StoreQuery[list[Head]], frozen=True, kw_only=True, gc=False):
    """Sessions, most recently written first; of those written at once, the greatest app and id first.

    A session whose last turn is done and that has inputs in its queue counts as "queued", and not as "done".
    `after` is the `cursor` of a session that was listed: the list goes on behind where it was then. A session that
    is written meanwhile moves to the front, where whoever pages has already been.

    Raises:
        UsageError: `after` is not a cursor.
    """

    app: str | None = None
    user: str | None = None
    status: Status | None = None
    after: str | None = None
    limit: int | None = None


class FindSessions(StoreQuery[list[SessionRef]], frozen=True, gc=False):
    """The sessions of this id, one for each app that has one, in the order of the apps' names.

    The library's own apps are left out. It does not make the store read all of its sessions.
    """

    id: str
    user: str | None = None


class ListQuestions(StoreQuery[list[OpenQuestion]], frozen=True, kw_only=True, gc=False):
    """Open questions on the branch of each session's head that have not expired, by age or by expiry.

    The oldest `asked` comes first or, with `order="expiry"`, the one that expires first, and those that never expire
    last; between equals the order is that of writing. `after` is the `cursor` of a question that was listed in this
    order, whether or not it is still open: the list continues behind it. A reader of page after page sees each question
    once that is open all the while. No filter makes the store read all of its sessions or questions.

    Raises:
        UsageError: `after` is not a cursor of this order.
    """

    filter: QuestionFilter = ALL_QUESTIONS
    after: str | None = None
    limit: int | None = None
    order: Order = "age"


class CountQuestions(StoreQuery[int], frozen=True, gc=False):
    """How many questions `ListQuestions` lists in all."""

    filter: QuestionFilter = ALL_QUESTIONS


class ListDecisions(StoreQuery[list[Decided]], frozen=True, kw_only=True, gc=False):
    """Questions of many sessions that were answered or have expired, on whichever branch, most recent first.

    Left out is what their own code gave up, and what a fork or a branch took over from where it begins. `after` is the
    `cursor` of one that was listed: the list goes on behind it.

    A store reads no more questions than the first of `by`, `user`, `agent` and `how` selects that is given. With none
    of them it reads those that ended between `since` and `until`, also in other apps, until there are enough.

    Raises:
        UsageError: `after` is not a cursor.
    """

    filter: DecisionFilter = ALL_DECISIONS
    after: str | None = None
    limit: int | None = None


class ListDue(StoreQuery[list[Due]], frozen=True, kw_only=True, gc=False):
    """Sessions that somebody should take up, oldest first.

    Their owner died, their question expired, nobody has taken up their answers, or the next turn of their queue can
    begin: there was none before, the last one is done, or the input `abandons` one that failed or was cancelled.
    `programs` selects by the program that runs them, and `skip_users` leaves out those of some users.
    """

    app: str | None = None
    user: str | None = None
    programs: Sequence[str] | None = None
    skip_users: Sequence[str] = ()
    limit: int = 100


class ListIdle(StoreQuery[list[SessionRef]], frozen=True, gc=False):
    """Sessions that nobody runs, and that nobody has written, answered or renewed for `ttl` seconds.

    With `statuses`, only those of `may_be_removed`. Damaged sessions are left out, and do not count.
    """

    ttl: float
    app: str | None = None
    user: str | None = None
    statuses: Sequence[Status] | None = None
    limit: int | None = None


class ListBegun(StoreQuery[list[Begun]], frozen=True, gc=False):
    """Everything under this digest that records have begun with, in any session, deleted ones included.

    Nothing ever removes it: neither `delete` nor `prune` nor `delete_idle`.
    """

    digest: str
