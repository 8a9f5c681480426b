"""What callers ask of a store, and how that is decided: pure functions of facts, without any I/O.

A request says which facts it wants (`query`); given those, it either refuses (an exception) or decides: a result, and
the effects that make it true. All checks come before anything is written, so a refusal has written nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, Conflict, SessionBusy, StoreError, UsageError
from adjourn.stores.types import (
    Answer,
    Answered,
    Claimed,
    Committed,
    Head,
    Input,
    Lease,
    Renewed,
    SessionRef,
    Status,
    Write,
)

from . import _checks as check
from .effects import Effects, End, Guard, LeaseChange, Move, advanced
from .facts import Facts, Query, Span, removable
from .rows import (
    MAX_RECORDS,
    Branch,
    RecordRow,
    SessionRow,
    answered,
    encode_header,
    head_of,
    input_digest,
    is_live,
    is_named,
    may_be_removed,
)

T_co = TypeVar("T_co", covariant=True)


Decision: TypeAlias = tuple[Effects | None, T_co]
"""A decision: the effects, None if there is nothing to write, and the result once they are applied."""


class Request(Protocol[T_co]):
    """Something that a caller asks of one session."""

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        ...

    def query(self) -> Query:
        """Return which facts are wanted; a decision that wants more raises `NotRead`."""
        ...

    def decide(self, facts: Facts) -> Decision[T_co]:
        """Decide from facts, or refuse."""
        ...


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.claim`."""

    ref: SessionRef
    owner: str
    ttl: float
    after: str | None
    write: Write | None
    answers: Sequence[Answer]
    replaces: str | None
    alone: bool = False

    def query(self) -> Query:
        """Request the questions it names, and its record, which may already be there."""
        return _query(self.ref, () if self.write is None else (self.write,), self.answers)

    def decide(self, facts: Facts) -> Decision[Claimed]:
        """Give the lease, or leave the answers to a live owner."""
        row, write, answers = facts.row, self.write, self.answers
        if row is None:
            return self._create(facts)
        check.user(row, self.ref)
        if write is not None and self._was_made(facts, row, write):
            again = LeaseChange(self.owner, row.fence, None, self.ttl)
            effects = Effects(guard=Guard(fence=row.fence, owner=self.owner), lease=again)
            return (effects, self._claimed(row.ref, again, row.checkpoint, row.seq, row.claims, _time(facts, write)))
        check.answers(facts, row, answers)
        live = is_live(row, facts.now) and row.owner != self.replaces
        if live and (self.alone or not answers):
            raise SessionBusy(self.ref.id, row.owner or "", row.expires)
        if live:
            # The owner keeps moving the head. What counts is that the questions are open, and that it is still there:
            # if it has paused meanwhile, nobody would take the answers up.
            guard = Guard(branch=row.branch, fence=row.fence, live=True)
            return (_answered(row, answers, guard), _left_to_owner(row))
        head = row.checkpoint
        check.after(row, self.after)
        if write is not None:
            check.write(facts, row, head, write, answers)
        elif row.pos < 0:
            raise CheckpointNotFound(self.ref.id)  # There is nothing to go on with.
        return self._take(facts, row, head)

    def _create(self, facts: Facts) -> Decision[Claimed]:
        write = self.write
        if self.after is not None or write is None or self.answers:
            raise CheckpointNotFound(self.ref.id)
        check.first(self.ref.id, write)
        if write.input is not None:
            raise Conflict(self.ref.id, f"it has no queue, so no turn can begin with the input '{write.input}'")
        row = SessionRow(0, self.ref.id, self.ref.app, self.ref.user, facts.now)
        lease = LeaseChange(self.owner, 1, 1, self.ttl)
        effects = _written(facts, row, (write,), guard=Guard(exists=False), lease=lease)
        return (effects, self._claimed(self.ref, lease, effects.records[0].id, write.event_count, 1, facts.now))

    def _take(self, facts: Facts, row: SessionRow, head: str) -> Decision[Claimed]:
        lease = LeaseChange(self.owner, row.fence + 1, row.claims + 1, self.ttl)
        waits = self.write is not None and self.write.input is None and not self.write.overtakes
        guard = Guard(checkpoint=head, fence=row.fence, live=False, replaces=self.replaces, inputs=0 if waits else None)
        if self.write is None:
            effects = replace(_answered(row, self.answers, guard), lease=lease, cancel=None)
            return (effects, self._claimed(row.ref, lease, head, row.seq, row.claims + 1))
        effects = _written(facts, row, (self.write,), guard=guard, lease=lease, cancel=None, answers=self.answers)
        made = effects.records[0]
        return (effects, self._claimed(row.ref, lease, made.id, made.seq, row.claims + 1, facts.now))

    def _claimed(
        self, ref: SessionRef, lease: LeaseChange, head: str, seq: int, claims: int, at: float = 0.0
    ) -> Claimed:
        given = Lease(ref=ref, owner=self.owner, fence=lease.fence, ttl=self.ttl)
        return Claimed(lease=given, checkpoint=head, seq=seq, claims=claims, at=at)

    def _was_made(self, facts: Facts, row: SessionRow, write: Write) -> bool:
        """Return whether this very claim was made before and its caller did not get the reply."""
        if row.owner != self.owner or row.checkpoint != write.id:
            return False
        return check.repeats(facts, row, write) and all(
            check.ended_so(facts.question(given.id), given) for given in self.answers
        )


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.commit`."""

    lease: Lease
    writes: Sequence[Write]
    after: str
    release: bool

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        return self.lease.ref

    def query(self) -> Query:
        """Request the questions it names, its records, which may already be there, and what waits for a pause."""
        waiting = self.release or any(write.takes for write in self.writes)
        return replace(_query(self.ref, self.writes), waiting=waiting)

    def decide(self, facts: Facts) -> Decision[Committed]:
        """Add the records, and keep or release the lease."""
        row, lease, writes = facts.row, self.lease, self.writes
        if row is None:
            raise Conflict(lease.ref.id, "it was deleted")
        check.user(row, lease.ref)
        if row.fence != lease.fence or row.owner != lease.owner or row.checkpoint != self.after:
            return self._made_before(facts, row)
        check.write(facts, row, self.after, writes[0])
        if len(writes) > 1:
            check.rest(facts, row, writes)
        pauses = self.release and writes[-1].status == "waiting" and writes[0].branch == row.branch
        answers = _untaken(facts, row, writes) if pauses else ()
        if answers:
            writes = (*writes[:-1], _unpaused(writes[-1]))
        guard = Guard(
            checkpoint=self.after,
            fence=row.fence,
            owner=row.owner,
            # An answer that nobody has read must not be left behind: the owner takes it up before it pauses.
            waiting=row.waiting if pauses and not answers else None,
        )
        return self._end(facts, row, writes, guard, answers)

    def _end(
        self, facts: Facts, row: SessionRow, writes: Sequence[Write], guard: Guard, answers: tuple[Answered, ...]
    ) -> Decision[Committed]:
        if self.release and not answers:
            # Whoever hands a run over stays its owner, with a lease that is over, so that it is due like any run whose
            # owner is gone. The fence is raised because a renewal that is on its way would bring the lease back.
            is_handed_over = writes[-1].status == "queued"
            lease = LeaseChange(row.owner, row.fence + 1, 0, 0.0) if is_handed_over else _released(row)
            effects = _written(facts, row, writes, guard=guard, lease=lease, cancel=None)
        else:
            lease = LeaseChange(row.owner, row.fence, 0, self.lease.ttl)
            effects = _written(facts, row, writes, guard=guard, lease=lease)
        released, inputs = self.release and not answers, row.inputs + effects.inputs
        found = Committed(released=released, answers=answers, cancel=row.cancel, at=facts.now, inputs=inputs)
        return (effects, found)

    def _made_before(self, facts: Facts, row: SessionRow) -> Decision[Committed]:
        """Decide a commit that was made before and whose caller did not get the reply; else raise why it is refused."""
        lease, last = self.lease, self.writes[-1]
        held = row.fence == lease.fence and row.owner == lease.owner
        if all(check.repeats(facts, row, write) for write in self.writes):
            if not held and self.release:
                # It ended the run, so others may have gone on since.
                return (None, Committed(released=True, at=_time(facts, last), inputs=row.inputs))
            check.lease(row, lease)
            return self._end_again(facts, row)
        if held and self.release and check.repeats(facts, row, _unpaused(last)):
            return self._go_on_again(facts, row, _untaken(facts, row, ()))
        check.lease(row, lease)
        check.after(row, self.after)
        raise AssertionError("a commit that can be made is made")

    def _end_again(self, facts: Facts, row: SessionRow) -> Decision[Committed]:
        """Keep or release the lease again; a pause that met answers, and whose record looks the same, keeps it."""
        pauses = self.release and self.writes[-1].status == "waiting" and self.writes[-1].branch == row.branch
        answers = _untaken(facts, row, ()) if pauses else ()
        if answers or not self.release:
            return self._go_on_again(facts, row, answers)
        guard = Guard(fence=row.fence, owner=row.owner, waiting=row.waiting if pauses else None)
        effects = Effects(guard=guard, lease=LeaseChange(None, row.fence, None, 0.0), cancel=None)
        at = _time(facts, self.writes[-1])
        return (effects, Committed(released=True, cancel=row.cancel, at=at, inputs=row.inputs))

    def _go_on_again(self, facts: Facts, row: SessionRow, answers: tuple[Answered, ...]) -> Decision[Committed]:
        """Renew the lease: its owner counts from this attempt, not from the one whose reply it did not get."""
        renewed = LeaseChange(row.owner, row.fence, None, self.lease.ttl)
        effects = Effects(guard=Guard(fence=row.fence, owner=row.owner), lease=renewed)
        at = _time(facts, self.writes[-1])
        return (effects, Committed(answers=answers, cancel=row.cancel, at=at, inputs=row.inputs))


class Renew(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.renew`, for one lease."""

    lease: Lease

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        return self.lease.ref

    def query(self) -> Query:
        """Request only the row."""
        return Query(ref=self.ref)

    def effects(self) -> Effects:
        """Return what renews the lease, or ends it, if it is still held; the guard can check that without any facts."""
        lease = self.lease
        # Whoever gives a lease back has not crashed, so its claim does not count.
        renewed = LeaseChange(lease.owner, lease.fence, None if lease.ttl else 0, lease.ttl)
        return Effects(guard=Guard(fence=lease.fence, owner=lease.owner), lease=renewed)

    def decide(self, facts: Facts) -> Decision[Renewed]:
        """Renew the lease, or report it as lost."""
        row, lease = facts.row, self.lease
        if row is None or not is_named(row, lease.ref) or (row.fence, row.owner) != (lease.fence, lease.owner):
            return (None, Renewed(ref=lease.ref, lost=True))
        return (self.effects(), Renewed(ref=lease.ref, lost=False, cancel=row.cancel))


class GiveAnswers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.answer`."""

    ref: SessionRef
    answers: Sequence[Answer]
    after: str | None

    def query(self) -> Query:
        """Request the questions that are answered."""
        return Query(ref=self.ref, questions=frozenset([given.id for given in self.answers]))

    def decide(self, facts: Facts) -> Decision[Head]:
        """End the questions, all or none, whoever runs the session."""
        row = _found(facts, self.ref)
        check.answers(facts, row, self.answers)
        if self.after is not None:
            check.after(row, self.after)
        guard = Guard(branch=row.branch, checkpoint=self.after)
        effects = _answered(row, self.answers, guard) if self.answers else None
        return (effects, head_of(row, facts.now))


class Submit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.submit`."""

    ref: SessionRef
    input: Input

    def query(self) -> Query:
        """Request the input of this id, which may already be there."""
        return Query(ref=self.ref, inputs=frozenset((self.input.id,)))

    def decide(self, facts: Facts) -> Decision[Head]:
        """Append the input to the queue, of a new session if there is none."""
        row, given = facts.row, self.input
        if row is not None:
            check.user(row, self.ref)
            kept = facts.input(given.id)
            if kept is not None and kept.digest != input_digest(given):
                another = f"another input was submitted as '{given.id}'"
                raise Conflict(row.session, another, remedy="Choose another id for this one")
            if kept is not None:
                return (None, head_of(row, facts.now))
        effects = Effects(guard=Guard(exists=row is not None), submits=given, inputs=1, program=given.program)
        row = row or SessionRow(0, self.ref.id, self.ref.app, self.ref.user, facts.now)
        return (effects, head_of(advanced(row, effects, facts.now), facts.now))


class Withdraw(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.withdraw`."""

    ref: SessionRef
    id: str

    def query(self) -> Query:
        """Request the input of this id."""
        return Query(ref=self.ref, inputs=frozenset((self.id,)))

    def decide(self, facts: Facts) -> Decision[bool]:
        """Remove the input if it waits, and with it a session that has nothing else."""
        row = _found(facts, self.ref)
        kept = facts.input(self.id)
        if kept is None or kept.taken:
            return (None, False)
        if row.pos >= 0:
            return (Effects(guard=Guard(), withdraws=self.id, inputs=-1), True)
        guard = Guard(checkpoint="", inputs=row.inputs)
        if row.inputs == 1:
            return (Effects(guard=guard, removes=True), True)
        return (Effects(guard=guard, withdraws=self.id, inputs=-1), True)


class Cancel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.cancel`."""

    ref: SessionRef
    mode: str

    def query(self) -> Query:
        """Request only the row."""
        return Query(ref=self.ref)

    def decide(self, facts: Facts) -> Decision[bool]:
        """Leave a note for the live owner."""
        row = _found(facts, self.ref)
        if not is_live(row, facts.now):
            return (None, False)
        return (Effects(guard=Guard(fence=row.fence, live=True), cancel=self.mode), True)


class Delete(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.delete`; with `idle`, only if nobody has written, answered or renewed for that many seconds.

    With `statuses`, only if it has one of them, and inputs do not wait, or "queued" is among them.
    """

    ref: SessionRef
    idle: float | None = None
    statuses: Sequence[Status] | None = None

    def query(self) -> Query:
        """Request only the row."""
        return Query(ref=self.ref)

    def decide(self, facts: Facts) -> Decision[bool]:
        """Remove the session unless somebody runs it; return whether there was anything to remove."""
        row = facts.row
        if row is None or not is_named(row, self.ref):
            return (None, False)
        live = is_live(row, facts.now)
        if self.idle is not None and (live or row.touched >= facts.now - self.idle):
            return (None, False)
        if not may_be_removed(row, self.statuses, facts.now):
            return (None, False)
        if live:
            raise SessionBusy(self.ref.id, row.owner or "", row.expires)
        # A status changes with a record only.
        checkpoint = None if self.statuses is None else row.checkpoint
        guard = Guard(checkpoint=checkpoint, fence=row.fence, live=False, idle=self.idle)
        return (Effects(guard=guard, removes=True), True)


class Prune(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`Store.prune`."""

    ref: SessionRef
    keep: int | None
    before: float | None

    def query(self) -> Query:
        """Request the whole log, without its bodies."""
        return Query(ref=self.ref, branches=True, log=True, span=Span())

    def decide(self, facts: Facts) -> Decision[int]:
        """Drop the records that nothing kept is folded from."""
        if self.keep is not None and self.keep < 0:
            raise UsageError(f"prune(keep={self.keep}) was called. Give the number of checkpoints to keep, 0 or more.")
        row = _found(facts, self.ref)
        if row.pos < 0:
            return (None, 0)
        log = [each.sound() for each in facts.log(Span())]
        if not log:
            raise CheckpointCorrupt("its records are gone", row.session)
        gone = removable(log, facts.branches(), keep=self.keep, before=self.before, asking=facts.asking())
        # Records added since on the same branch need nothing that is dropped: they follow the head, which stays.
        effects = Effects(guard=Guard(branch=row.branch), drops=tuple([point.pos for point in gone])) if gone else None
        return (effects, sum(point.source is not None for point in gone))


def _time(facts: Facts, write: Write) -> float:
    """Return when a record was written that is there already."""
    kept = facts.record(write.id)
    return 0.0 if kept is None else kept.at


def _found(facts: Facts, ref: SessionRef) -> SessionRow:
    if facts.row is None:
        raise CheckpointNotFound(ref.id)
    check.user(facts.row, ref)
    return facts.row


def _query(ref: SessionRef, writes: Sequence[Write], answers: Sequence[Answer] = ()) -> Query:
    named = [given.id for given in answers]
    for write in writes:
        named += [question.id for question in write.asks]
        named += [given.id for given in write.closes]
    records = [write.id for write in writes]
    if writes and writes[0].number == 0 and writes[0].parent is not None:
        records.append(writes[0].parent)
    return Query(
        ref=ref,
        questions=frozenset(named),
        records=frozenset(records),
        first_input=any(write.input is not None for write in writes),
        branches=bool(writes),
    )


def _released(row: SessionRow) -> LeaseChange:
    return LeaseChange(None, row.fence, 0, 0.0)


def _left_to_owner(row: SessionRow) -> Claimed:
    return Claimed(lease=None, checkpoint=row.checkpoint, seq=row.seq, claims=row.claims)


def _answered(row: SessionRow, answers: Sequence[Answer], guard: Guard) -> Effects:
    ends = tuple([End(row.branch, given, False) for given in answers])
    return Effects(guard=guard, ends=ends, waiting=len(ends))


def _untaken(facts: Facts, row: SessionRow, writes: Sequence[Write]) -> tuple[Answered, ...]:
    """Return the answers that neither an earlier record nor one of these takes."""
    if not row.waiting:
        return ()
    taken = {each for write in writes for each in write.takes}
    return tuple([answered(each) for each in facts.waiting() if not each.is_open and each.id not in taken])


def _unpaused(write: Write) -> Write:
    """Return the write of a pause that met answers: the run goes on, so its pause is not reported."""
    # Notices for later are about what the record asks, and it still does.
    later = tuple([notice for notice in write.notices if notice.due is not None]) if write.notices else ()
    return replace(write, status="running", events=b"", event_count=0, summary=b"", notices=later)


def _written(
    facts: Facts,
    row: SessionRow,
    writes: Sequence[Write],
    *,
    guard: Guard,
    lease: LeaseChange,
    answers: Sequence[Answer] = (),
    cancel: str | None | UnsetType = UNSET,
) -> Effects:
    """Return the effects of records that were checked, with the resulting lease.

    Raises:
        NotStorable: the metadata of one is not JSON.
    """
    first, last = writes[0], writes[-1]
    begins = row.pos < 0 or first.branch != row.branch
    pos, full_pos, size, seq = row.pos, row.full_pos, row.size, row.seq
    records: list[RecordRow] = []
    for write in writes:
        header, body = write.header, write.body
        pos += 1
        seq += write.event_count
        size += len(body)
        if write.full:
            full_pos, size = pos, len(body)
        records.append(
            RecordRow(
                f"{write.branch}.{write.number}",
                write.parent,
                pos,
                write.full,
                header.source,
                seq,
                write.event_count,
                encode_header(header),
                write.events,
                body,
            )
        )
    if pos >= MAX_RECORDS:
        raise StoreError(f"Session '{row.session}' has {MAX_RECORDS} records, which is the limit. Begin a new one.")
    asks, wanted, begun, notices = first.asks, first.takes, first.begins, first.notices
    if first is not last:
        asks = tuple([each for write in writes for each in write.asks])
        wanted = tuple([each for write in writes for each in write.takes])
        begun = tuple([each for write in writes for each in write.begins])
        notices = tuple([each for write in writes for each in write.notices])
    ends = tuple([End(row.branch, given, True) for given in answers]) if answers else ()
    if first.closes or first is not last:
        ends += tuple([End(write.branch, given, True) for write in writes for given in write.closes])
    if wanted and ends:  # what ends here is taken as it ends
        own = {end.answer.id for end in ends}
        wanted = tuple([each for each in wanted if each not in own])
    takes = _takes(facts, row, wanted) if wanted and not begins else ()
    effects = Effects(
        guard=guard,
        move=Move(last.branch, row.branch_no + begins, last.number, pos, full_pos, size, last.status, seq),
        lease=lease,
        cancel=cancel,
        waiting=-len(takes),
        branches=(Branch(first.branch, row.pos + 1, first.number, first.parent, row.branch_no + 1),) if begins else (),
        records=tuple(records),
        asks=asks,
        ends=ends,
        takes=takes,
        begins=begun,
        notices=notices,
        program=first.program,
        summary=last.summary,
    )
    # Apart, as most turns do not come from a queue: with more than 15 keywords, Python makes a dict for every call.
    return effects if first.input is None else replace(effects, inputs=-1, begins_input=first.input)


def _takes(facts: Facts, row: SessionRow, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return which of the answers that the writes take can be taken."""
    if not (row.waiting or facts.assumed):
        return ()
    there = {each.id for each in facts.waiting() if not each.is_open}
    return tuple([each for each in dict.fromkeys(wanted) if each in there])
