"""What callers ask of a store, and how that is decided: pure functions of facts, without any I/O.

A request says which facts it wants (`wanted`); given those, it either refuses (an exception) or decides: a result, and
the effects that make it true. All checks come before anything is written, so a refusal has written nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from adjourn.errors import (
    CheckpointCorrupt,
    CheckpointNotFound,
    Conflict,
    QueueFull,
    SessionBusy,
    StoreError,
    UsageError,
)
from adjourn.stores.types import (
    Answer,
    Answered,
    Begun,
    Claimed,
    Committed,
    Head,
    Input,
    Lease,
    Note,
    Notice,
    Question,
    Renewed,
    SessionRef,
    Status,
    TakenNotice,
    Write,
)

from . import _checks as check
from .effects import Effects, Expect, Guard, Insert, Removal, Room, Update
from .facts import Facts, FactsWanted, Span, removable
from .inbox import terms_of
from .rows import (
    ANSWERED,
    MAX_RECORDS,
    Branch,
    NoticeRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    asked_row,
    called,
    encode_header,
    head_of,
    input_digest,
    is_live,
    is_named,
    may_be_removed,
    notes_in,
    submitted_row,
)
from .tables import BEGUN, BRANCHES, INPUTS, OUTBOX, QUESTIONS, RECORDS

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


Decision: TypeAlias = tuple[Effects | None, T_co]
"""A decision: the effects, None if there is nothing to write, and the result once they are applied."""


class SessionRequest(Protocol[T_co]):
    """Something that a caller asks of one session."""

    @property
    def plain(self) -> object:
        """The request itself, or the one in it."""
        ...

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        ...

    def wanted(self) -> FactsWanted:
        """Return which facts are wanted; a decision that wants more raises `NotRead`."""
        ...

    def decide(self, facts: Facts) -> Decision[T_co]:
        """Decide from facts, or refuse."""
        ...


class StoreRequest(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Something that a caller asks a store to write; `T` is what comes back."""

    @property
    def plain(self) -> StoreRequest[T]:
        """The request itself, or the one in it: what wraps a request changes facts and effects, not what is asked."""
        return self


class Claim(StoreRequest[Claimed], frozen=True, kw_only=True, gc=False):
    """Take a session's lease, with the first record and the answers if given.

    `after` is the head the caller has seen, None for a session that must not have any record yet; if it does not exist
    at all, it then belongs to the user of `ref`. `replaces` names an owner known to be dead, whose lease may be taken
    before it expires. Answers are checked before the lease: if a live owner holds it, they are recorded for that owner
    to take up, wherever the head is by then, and no lease is given. With the lease, the answers count as taken by
    `write`. With `alone`, nothing is left to a live owner.

    Raises:
        SessionBusy: a live owner holds the lease, and there are no answers or the claim is to be `alone`.
        Conflict: the head is not `after`, or the input of `write` is not the first that waits; nothing was written.
        AlreadyResumed, InterruptExpired, UnknownInterrupt, CheckpointNotFound: as for `GiveAnswers`.
    """

    ref: SessionRef
    owner: str
    ttl: float
    after: str | None
    write: Write | None = None
    answers: Sequence[Answer] = ()
    replaces: str | None = None
    alone: bool = False

    def wanted(self) -> FactsWanted:
        """Request the questions it names, and its record, which may already be there."""
        return _wanted(self.ref, () if self.write is None else (self.write,), self.answers)

    def decide(self, facts: Facts) -> Decision[Claimed]:
        """Give the lease, or leave the answers to a live owner."""
        row, write, answers = facts.row, self.write, self.answers
        if row is None:
            return self._create(facts)
        if row.user != self.ref.user:
            check.user(row, self.ref)
        head = row.checkpoint
        if write is not None and row.owner == self.owner and self._was_made(facts, row, write):
            effects = _leased(self.ref, row, facts.now, self.owner, row.fence, self.ttl)
            return (effects, self._claimed(row.ref, row.fence, head, row.seq, row.claims, _time(facts, write)))
        check.answers(facts, row, answers)
        live = is_live(row, facts.now) and row.owner != self.replaces
        if live and (self.alone or not answers):
            raise SessionBusy(self.ref.id, row.owner or "", row.expires)
        if live:
            # The owner keeps moving the head. What counts is that the questions are open, and that it is still there:
            # if it has paused meanwhile, nobody would take the answers up.
            guard = Guard(branch=row.branch, fence=row.fence, live=True)
            return (_answered(self.ref, row, answers, guard, facts.now, facts.ttl), _left_to_owner(row))
        if (self.after or "") != head:
            raise check.not_head(row, self.after)
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
        lease = _Lease(self.owner, 1, 1, self.ttl)
        effects = _written(self.ref, facts, row, (write,), guard=Guard(exists=False), lease=lease)
        return (effects, self._claimed(self.ref, 1, write.id, write.event_count, 1, facts.now))

    def _take(self, facts: Facts, row: SessionRow, head: str) -> Decision[Claimed]:
        lease = _Lease(self.owner, row.fence + 1, row.claims + 1, self.ttl)
        waits = self.write is not None and self.write.input is None and not self.write.overtakes
        guard = Guard(checkpoint=head, fence=row.fence, live=False, replaces=self.replaces, inputs=0 if waits else None)
        if self.write is None:
            effects = _answered(self.ref, row, self.answers, guard, facts.now, facts.ttl, lease)
            return (effects, self._claimed(row.ref, lease.fence, head, row.seq, lease.claims))
        effects = _written(
            self.ref, facts, row, (self.write,), guard=guard, lease=lease, cancel=None, answers=self.answers
        )
        seq = row.seq + self.write.event_count
        return (effects, self._claimed(row.ref, lease.fence, self.write.id, seq, lease.claims, facts.now))

    def _claimed(self, ref: SessionRef, fence: int, head: str, seq: int, claims: int, at: float = 0.0) -> Claimed:
        given = Lease(ref=ref, owner=self.owner, fence=fence, ttl=self.ttl)
        return Claimed(lease=given, checkpoint=head, seq=seq, claims=claims, at=at)

    def _was_made(self, facts: Facts, row: SessionRow, write: Write) -> bool:
        """Return whether this very claim was made before by the owner, whom the reply did not reach."""
        return (
            row.checkpoint == write.id
            and check.repeats(facts, row, write)
            and all(check.ended_so(facts.question(given.id), given) for given in self.answers)
        )


class Commit(StoreRequest[Committed], frozen=True, kw_only=True, gc=False):
    """Add records, each after the one before it on its branch and the first after the head `after`; all or none.

    The lease is renewed, and given up with `release`.

    With `release` and status "waiting", answers that no record has taken keep the lease and are returned instead; the
    record is still stored, but as running, without its events and without notices that are due at once, since the run
    goes on.
    With `release` and status "queued", the run is handed over: its session is due at once.
    The count of claims without progress is reset.

    Raises:
        Conflict: the head is not `after`, the lease was released or taken over, or the input of a record is not the
            first that waits; nothing was written.
        AlreadyResumed, UnknownInterrupt: a question in `closes` is not open; nothing was written.
    """

    lease: Lease
    writes: Sequence[Write]
    after: str
    release: bool = False

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        return self.lease.ref

    def wanted(self) -> FactsWanted:
        """Request the questions it names, its records, which may already be there, and what waits for a pause."""
        waiting = self.release or any(write.takes for write in self.writes)
        return replace(_wanted(self.ref, self.writes), waiting=waiting)

    def decide(self, facts: Facts) -> Decision[Committed]:
        """Add the records, and keep or release the lease."""
        row, lease, writes = facts.row, self.lease, self.writes
        if row is None:
            raise Conflict(lease.ref.id, "it was deleted")
        if row.user != lease.ref.user:
            check.user(row, lease.ref)
        if row.fence != lease.fence or row.owner != lease.owner or row.checkpoint != self.after:
            return self._made_before(facts, row)
        check.write(facts, row, self.after, writes[0])
        if len(writes) > 1:
            check.rest(facts, row, writes)
        pauses = self.release and writes[-1].status == "waiting" and writes[0].branch == row.branch
        answers = _untaken(facts, row, writes) if pauses and row.waiting else ()
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
            lease = _Lease(row.owner, row.fence + 1, 0, 0.0) if is_handed_over else _Lease(None, row.fence, 0, 0.0)
            effects = _written(self.lease.ref, facts, row, writes, guard=guard, lease=lease, cancel=None)
        else:
            lease = _Lease(row.owner, row.fence, 0, self.lease.ttl)
            effects = _written(self.lease.ref, facts, row, writes, guard=guard, lease=lease)
        released, inputs = self.release and not answers, row.inputs - (writes[0].input is not None)
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
        raise check.not_head(row, self.after)

    def _end_again(self, facts: Facts, row: SessionRow) -> Decision[Committed]:
        """Keep or release the lease again; a pause that met answers, and whose record looks the same, keeps it."""
        pauses = self.release and self.writes[-1].status == "waiting" and self.writes[-1].branch == row.branch
        answers = _untaken(facts, row, ()) if pauses else ()
        if answers or not self.release:
            return self._go_on_again(facts, row, answers)
        guard = Guard(fence=row.fence, owner=row.owner, waiting=row.waiting if pauses else None)
        after = replace(row, owner=None, expires=0.0, touched=facts.now, cancel=None)
        effects = Effects(ref=self.ref, guard=guard, before=row, after=after, forced=_CANCEL)
        at = _time(facts, self.writes[-1])
        return (effects, Committed(released=True, cancel=row.cancel, at=at, inputs=row.inputs))

    def _go_on_again(self, facts: Facts, row: SessionRow, answers: tuple[Answered, ...]) -> Decision[Committed]:
        """Renew the lease: its owner counts from this attempt, not from the one whose reply it did not get."""
        effects = _leased(self.ref, row, facts.now, row.owner, row.fence, self.lease.ttl)
        at = _time(facts, self.writes[-1])
        return (effects, Committed(answers=answers, cancel=row.cancel, at=at, inputs=row.inputs))


class Renew(StoreRequest[Renewed], frozen=True, kw_only=True, gc=False):
    """`Store.renew`, for one lease."""

    lease: Lease

    @property
    def ref(self) -> SessionRef:
        """Which session it concerns."""
        return self.lease.ref

    def wanted(self) -> FactsWanted:
        """Request only the row."""
        return FactsWanted(ref=self.ref)

    def decide(self, facts: Facts) -> Decision[Renewed]:
        """Renew the lease, or report it as lost."""
        row, lease = facts.row, self.lease
        if row is None or not is_named(row, lease.ref) or (row.fence, row.owner) != (lease.fence, lease.owner):
            return (None, Renewed(ref=lease.ref, lost=True))
        # An owner that gives its lease back has not crashed, so its claim does not count.
        claims = row.claims if lease.ttl else 0
        after = replace(row, expires=facts.now + lease.ttl, touched=facts.now, claims=claims)
        guard = Guard(fence=lease.fence, owner=lease.owner)
        effects = Effects(ref=self.ref, guard=guard, before=row, after=after)
        return (effects, Renewed(ref=lease.ref, lost=False, cancel=row.cancel))


class GiveAnswers(StoreRequest[Head], frozen=True, gc=False):
    """End open questions of the head's branch, each by compare-and-swap, all or none.

    Raises:
        CheckpointNotFound: no such session.
        UnknownInterrupt: no such question on the branch.
        AlreadyResumed: one of them has already ended.
        InterruptExpired: one of them has expired (an answer with `how="expired"` is still accepted).
        Conflict: the head is not `after` (when given).
    """

    ref: SessionRef
    answers: Sequence[Answer]
    after: str | None = None

    def wanted(self) -> FactsWanted:
        """Request the questions that are answered."""
        return _wanted(self.ref, (), self.answers)

    def decide(self, facts: Facts) -> Decision[Head]:
        """End the questions, all or none, whoever runs the session."""
        row = _found(facts, self.ref)
        check.answers(facts, row, self.answers)
        if self.after is not None and self.after != row.checkpoint:
            raise check.not_head(row, self.after)
        guard = Guard(branch=row.branch, checkpoint=self.after)
        effects = _answered(self.ref, row, self.answers, guard, facts.now, facts.ttl) if self.answers else None
        return (effects, head_of(row, facts.now))


class Mark(StoreRequest[None], frozen=True, kw_only=True, gc=False):
    """Change what an open question is filed under, or what is due for it, and keep a note on it.

    What is not given stays. `due` is a time and a kind. The note takes the place of the one of its kind and name.

    Raises:
        CheckpointNotFound: no such session.
        UnknownInterrupt: no such question on the head's branch.
        AlreadyResumed: it has ended.
    """

    ref: SessionRef
    id: str
    note: Note | None = None
    taker: str | None | UnsetType = UNSET
    groups: tuple[str, ...] | UnsetType = UNSET
    due: tuple[float, str] | None | UnsetType = UNSET

    def wanted(self) -> FactsWanted:
        """Request the questions that wait, with their labels, and this one, which may have ended."""
        return FactsWanted(ref=self.ref, questions=frozenset((self.id,)), waiting=True, labels=True)

    def decide(self, facts: Facts) -> Decision[None]:
        """Change the question while it is open, without disturbing an owner of the session."""
        row = _found(facts, self.ref)
        was = next((each for each in facts.waiting() if each.id == self.id and each.is_open), None)
        if was is None:
            raise check.not_open(facts, row, self.id)
        given = {"taker": self.taker, "groups": self.groups}
        values: dict[str, object] = {name: value for name, value in given.items() if value is not UNSET}
        if self.due is not UNSET:
            values["due"], values["due_kind"] = (None, "") if self.due is None else self.due
        if self.note is not None:
            note = replace(self.note, at=float(facts.now))
            kept = [each for each in notes_in(was.notes) if (each.kind, each.name) != (note.kind, note.name)]
            values["notes"] = msgspec.json.encode([*kept, note])
        changed = replace(was, **values)
        if facts.has_inbox:
            values["terms"] = tuple(terms_of(row, changed))
        update = Update(QUESTIONS, (row.branch_no, self.id), values, Expect.OPEN, was, changed)
        guard = Guard(branch=row.branch, marks=row.marks)
        after = replace(row, marks=row.marks + 1)
        return (Effects(ref=self.ref, guard=guard, before=row, after=after, updates=(update,)), None)


class Submit(StoreRequest[Head], frozen=True, gc=False):
    """Append an input to a session's queue; a session that does not exist yet then belongs to the user of `ref`.

    Repeating it is a success that adds nothing, even after a turn has begun with it. At most `max_inputs` wait in the
    queue, with `max_bytes` in all.

    Raises:
        CheckpointNotFound: the session is another user's.
        Conflict: another input has this id.
        QueueFull: there is no room for it.
    """

    ref: SessionRef
    input: Input
    max_inputs: int = 1000
    max_bytes: int = 64 * 1024 * 1024

    def wanted(self) -> FactsWanted:
        """Request the input of this id, which may already be there."""
        return FactsWanted(ref=self.ref, inputs=frozenset((self.input.id,)))

    def decide(self, facts: Facts) -> Decision[Head]:
        """Append the input to the queue, of a new session if there is none."""
        row, given = facts.row, self.input
        if row is not None:
            check.user(row, self.ref)
            kept = facts.input(given.id)
            if kept is not None and kept.digest != input_digest(given):
                what = "an answer was given" if kept.program == ANSWERED else "another input was submitted"
                another = f"{what} as '{given.id}'"
                raise Conflict(row.session, another, remedy="Choose another id for this one")
            if kept is not None:
                return (None, head_of(row, facts.now))
        now, size = facts.now, len(given.body)
        old = row or SessionRow(0, self.ref.id, self.ref.app, self.ref.user, now)
        room = Room(self.max_inputs, self.max_bytes - size)
        if not room.is_in(old):
            raise QueueFull(self.ref.id, old.inputs, old.input_bytes, size)
        after = replace(
            old,
            updated=old.updated if old.pos >= 0 else now,
            touched=now,
            program=old.program or given.program,
            inputs=old.inputs + 1,
            input_bytes=old.input_bytes + size,
            ttl=facts.ttl or old.ttl,
        )
        submitted = Insert(INPUTS, (submitted_row(given, now, 0),))
        guard = Guard(exists=False) if row is None else Guard(room=room)
        effects = Effects(ref=self.ref, guard=guard, before=row, after=after, inserts=(submitted,))
        return (effects, head_of(after, now))


class Withdraw(StoreRequest[bool], frozen=True, gc=False):
    """Remove an input that waits; return False if none of this id does.

    A session that had nothing else is removed with it.

    Raises:
        CheckpointNotFound: no such session.
    """

    ref: SessionRef
    id: str

    def wanted(self) -> FactsWanted:
        """Request the input of this id."""
        return FactsWanted(ref=self.ref, inputs=frozenset((self.id,)))

    def decide(self, facts: Facts) -> Decision[bool]:
        """Remove the input if it waits, and with it a session that has nothing else."""
        row = _found(facts, self.ref)
        kept = facts.input(self.id)
        if kept is None or kept.taken:
            return (None, False)
        guard = Guard() if row.pos >= 0 else Guard(checkpoint="", inputs=row.inputs)
        if row.pos < 0 and row.inputs == 1:
            return (_removed(row, self.ref, guard), True)
        after = replace(
            row,
            inputs=row.inputs - 1,
            input_bytes=row.input_bytes - kept.size,
            updated=row.updated if row.pos >= 0 else facts.now,
        )
        gone = Removal(INPUTS, (self.id,), Expect.WAITS)
        return (Effects(ref=self.ref, guard=guard, before=row, after=after, deletes=(gone,)), True)


class Cancel(StoreRequest[bool], frozen=True, gc=False):
    """Ask the live owner to stop; return False if nobody runs the session.

    Raises:
        CheckpointNotFound: no such session.
    """

    ref: SessionRef
    mode: str

    def wanted(self) -> FactsWanted:
        """Request only the row."""
        return FactsWanted(ref=self.ref)

    def decide(self, facts: Facts) -> Decision[bool]:
        """Leave a note for the live owner."""
        row = _found(facts, self.ref)
        if not is_live(row, facts.now):
            return (None, False)
        guard, after = Guard(fence=row.fence, live=True), replace(row, cancel=self.mode)
        return (Effects(ref=self.ref, guard=guard, before=row, after=after, forced=_CANCEL), True)


class Delete(StoreRequest[bool], frozen=True, gc=False):
    """Remove a whole session, and return whether there was one to remove.

    With `idle`, only if nobody has written, answered or renewed for that many seconds. With `statuses`, only if it has
    one of them, and inputs do not wait, or "queued" is among them.

    Raises:
        SessionBusy: somebody runs it.
    """

    ref: SessionRef
    idle: float | None = None
    statuses: Sequence[Status] | None = None

    def wanted(self) -> FactsWanted:
        """Request only the row."""
        return FactsWanted(ref=self.ref)

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
        return (_removed(row, self.ref, guard), True)


class Prune(StoreRequest[int], frozen=True, gc=False):
    """Remove old checkpoints, except the last `keep` and those written since `before`; return how many.

    The head, everything pending and the base of every fork stay restorable.

    Raises:
        CheckpointNotFound: no such session.
    """

    ref: SessionRef
    keep: int | None = None
    before: float | None = None

    def wanted(self) -> FactsWanted:
        """Request the whole log, without its bodies."""
        return FactsWanted(ref=self.ref, branches=True, asking=True, span=Span())

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
        drops = tuple([Removal(RECORDS, (point.pos,)) for point in gone])
        guard = Guard(branch=row.branch)
        effects = Effects(ref=self.ref, guard=guard, before=row, after=row, deletes=drops) if gone else None
        return (effects, sum(point.source is not None for point in gone))


# What is written to more than one session, or to what outlives them


class DeleteIdle(StoreRequest[list[SessionRef]], frozen=True, kw_only=True, gc=False):
    """Remove sessions that nobody runs and nobody has written or answered for `ttl` seconds; return which.

    With `statuses`, only those of one of them; a run whose owner died has failed. One with inputs that wait stays,
    whatever its status, unless "queued" is among them. At most `limit` at a time: if there are none left, it returns
    none.
    """

    ttl: float
    app: str | None = None
    user: str | None = None
    statuses: Sequence[Status] | None = None
    limit: int | None = None


class TakeNotices(StoreRequest[list[TakenNotice]], frozen=True, gc=False):
    """Take notices of an app that are due and for one of `to`, oldest first.

    Nobody is given them again for `ttl` seconds, in which whoever has taken them settles each.
    """

    app: str
    to: Sequence[str]
    ttl: float
    limit: int = 100


class SettleNotice(StoreRequest[bool], frozen=True, gc=False):
    """Remove a notice that was sent; with `again`, keep it instead, to be taken after so many seconds.

    Return False, and change nothing, if it has been taken again since, or is gone.
    """

    taken: TakenNotice
    again: float | None = None


class DropNotices(StoreRequest[int], frozen=True, gc=False):
    """Remove notices of an app that were due more than `age` seconds ago; return how many."""

    app: str
    age: float


OF_MANY: frozenset[type] = frozenset((DeleteIdle, TakeNotices, SettleNotice, DropNotices))


def is_of_session(request: StoreRequest[T]) -> TypeGuard[SessionRequest[T]]:
    """Return whether a request is about one session, so that facts of that decide it."""
    return type(request) not in OF_MANY


def _time(facts: Facts, write: Write) -> float:
    """Return when a record was written that is there already."""
    kept = facts.record(write.id)
    return 0.0 if kept is None else kept.at


def _found(facts: Facts, ref: SessionRef) -> SessionRow:
    if facts.row is None:
        raise CheckpointNotFound(ref.id)
    check.user(facts.row, ref)
    return facts.row


def _wanted(ref: SessionRef, writes: Sequence[Write], answers: Sequence[Answer] = ()) -> FactsWanted:
    named = [given.id for given in answers]
    for write in writes:
        named += [question.id for question in write.asks]
        named += [given.id for given in write.closes]
    records = [write.id for write in writes]
    if writes and writes[0].number == 0 and writes[0].parent is not None:
        records.append(writes[0].parent)
    return FactsWanted(
        ref=ref,
        questions=frozenset(named),
        records=frozenset(records),
        inputs=frozenset([given.call for given in answers if given.call is not None]),
        first_input=any(write.input is not None for write in writes),
        branches=bool(writes),
    )


def _left_to_owner(row: SessionRow) -> Claimed:
    return Claimed(lease=None, checkpoint=row.checkpoint, seq=row.seq, claims=row.claims)


def _removed(row: SessionRow, ref: SessionRef, guard: Guard) -> Effects:
    return Effects(ref=ref, guard=guard, before=row, after=None, leaves=True)


def _leased(ref: SessionRef, row: SessionRow, now: float, owner: str | None, fence: int, ttl: float) -> Effects:
    """Return the effects of a lease that is renewed, and of nothing else."""
    after = replace(row, expires=now + ttl, touched=now)
    return Effects(ref=ref, guard=Guard(fence=fence, owner=owner), before=row, after=after)


def _answered(
    ref: SessionRef,
    row: SessionRow,
    answers: Sequence[Answer],
    guard: Guard,
    now: float,
    ttl: float | None,
    lease: _Lease | None = None,
) -> Effects:
    """Return the effects of answers that no record takes, and of a lease that comes with them."""
    after = replace(row, touched=now, waiting=row.waiting + len(answers), ttl=ttl or row.ttl)
    if lease is not None:
        expires = now + lease.ttl
        after = replace(after, owner=lease.owner, expires=expires, fence=lease.fence, claims=lease.claims, cancel=None)
    return Effects(
        ref=ref,
        guard=guard,
        before=row,
        after=after,
        forced=() if lease is None else _CANCEL,
        inserts=_calls(answers, now),
        updates=tuple([_ended(row.branch_no, given, now, taken=False) for given in answers]),
    )


def _calls(answers: Sequence[Answer], now: float) -> tuple[Insert, ...]:
    """Return what keeps the ids of the calls that give these answers, if they have any."""
    kept: dict[str, Insert] = {}
    for given in answers:
        if given.call is not None:
            kept[given.call] = Insert(INPUTS, (called(given.call, now),))
    return tuple(kept.values())


def _ended(branch_no: int, given: Answer, now: float, *, taken: bool) -> Update:
    expect = Expect.IN_TIME if given.how == "answered" else Expect.OPEN
    return Update(QUESTIONS, (branch_no, given.id), _ending(given, now, taken=taken), expect)


def _ending(given: Answer, now: float, *, taken: bool) -> dict[str, object]:
    values: dict[str, object] = {"how": given.how, "taken": taken, "at": now, "by": given.by, "value": given.value}
    return values if given.how == "abandoned" else values | {"decided_by": given.by or ""}


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


class _Lease(msgspec.Struct, frozen=True, gc=False):
    """The lease after a write: it ends `ttl` seconds later, or at once if nobody is its `owner`."""

    owner: str | None
    fence: int
    claims: int
    ttl: float


_CANCEL = ("cancel",)


def _written(
    ref: SessionRef,
    facts: Facts,
    row: SessionRow,
    writes: Sequence[Write],
    *,
    guard: Guard,
    lease: _Lease,
    answers: Sequence[Answer] = (),
    cancel: str | None | UnsetType = UNSET,
) -> Effects:
    """Return the effects of records that were checked, with the resulting lease; `answers` count as taken by them.

    Raises:
        NotStorable: the metadata of one is not JSON.
    """
    first, last, now = writes[0], writes[-1], facts.now
    is_new = row.pos < 0 or first.branch != row.branch
    branch_no = row.branch_no + is_new
    pos, full_pos, size, seq = row.pos, row.full_pos, row.size, row.seq
    begun = None if first.input is None else facts.first_input()
    has_more = bool(answers) or begun is not None
    records: list[RecordRow] = []
    guarded = row.guarded
    for write in writes:
        header, body = write.header, write.body
        for each in write.asks:
            if each.requesters:
                guarded = 1
        if write.asks or write.takes or write.closes or write.begins or write.notices:
            has_more = True
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
                now,
            )
        )
    if pos >= MAX_RECORDS:
        raise StoreError(f"Session '{row.session}' has {MAX_RECORDS} records, which is the limit. Begin a new one.")
    takes: tuple[str, ...] = ()
    if has_more and not is_new and (row.waiting or facts.assumed):
        takes = _takes(facts, writes, answers)
    after = replace(  # what is not named stays as it was
        row,
        branch=last.branch,
        branch_no=branch_no,
        number=last.number,
        pos=pos,
        full_pos=full_pos,
        size=size,
        status=last.status,
        owner=lease.owner,
        expires=now + lease.ttl if lease.owner is not None else 0.0,
        fence=lease.fence,
        claims=lease.claims,
        seq=seq,
        updated=now,
        touched=now,
        cancel=row.cancel if cancel is UNSET else cancel,
        waiting=0 if is_new else row.waiting - len(takes),
        program=row.program or first.program,
        inputs=row.inputs - (begun is not None),
        input_bytes=row.input_bytes - (0 if begun is None else begun.size),
        ttl=facts.ttl or row.ttl,
        guarded=guarded,
    )
    inserts = [Insert(RECORDS, tuple(records))]
    if is_new:
        branch = Branch(first.branch, row.pos + 1, first.number, first.parent, branch_no, first.origin)
        inserts.append(Insert(BRANCHES, (branch,)))
    updates: list[Update] = []
    if has_more:
        _add_more(inserts, updates, facts, row, after, writes, answers)
        if takes:
            updates += [Update(QUESTIONS, (row.branch_no, each), _TAKEN) for each in takes]
    return Effects(
        ref=ref,
        guard=guard,
        before=row if guard.exists else None,
        after=after,
        forced=() if cancel is UNSET else _CANCEL,
        inserts=tuple(inserts),
        updates=tuple(updates),
        leaves=is_new and row.pos >= 0,
        summary=last.summary,
    )


_TAKEN: dict[str, object] = {"taken": True}
_BEGUN: dict[str, object] = {"taken": True, "body": b""}


def _add_more(
    inserts: list[Insert],
    updates: list[Update],
    facts: Facts,
    before: SessionRow,
    after: SessionRow,
    writes: Sequence[Write],
    answers: Sequence[Answer],
) -> None:
    """Add what records and answers write beside the log; most steps have none of it."""
    now = facts.now
    if answers:  # to questions of the branch that the claim has seen; records close those of their own
        updates += [_ended(before.branch_no, given, now, taken=True) for given in answers]
        inserts += _calls(answers, now)
    begun: list[Begun] = []
    notices: list[NoticeRow] = []
    has_questions = False
    for write in writes:
        if write.asks or write.closes:
            has_questions = True
        if write.begins:
            begun += write.begins
        if write.notices:
            notices += [_notice(after, each, now) for each in write.notices]
    if has_questions:
        _add_questions(inserts, updates, facts, after, writes)
    if begun:
        inserts.append(Insert(BEGUN, tuple(begun)))
    if notices:
        inserts.append(Insert(OUTBOX, tuple(notices)))
    if writes[0].input is not None:
        updates.append(Update(INPUTS, (writes[0].input,), _BEGUN, Expect.FIRST))


def _add_questions(
    inserts: list[Insert], updates: list[Update], facts: Facts, after: SessionRow, writes: Sequence[Write]
) -> None:
    asked: dict[str, QuestionRow] = {}
    for write in writes:
        for each in write.asks:
            asked[each.id] = _asked(facts, after, each)
        for given in write.closes:
            if given.id in asked:  # by an earlier record of the same write
                asked[given.id] = replace(asked[given.id], terms=(), **_ending(given, facts.now, taken=True))
            else:
                updates.append(_ended(after.branch_no, given, facts.now, taken=True))
    if asked:
        inserts.append(Insert(QUESTIONS, tuple(asked.values())))


def _notice(session: SessionRow, given: Notice, now: float) -> NoticeRow:
    due = now if given.due is None else given.due
    return NoticeRow(given.id, given.to, session.app, session.session, due, now, 0, given.body)


def _asked(facts: Facts, session: SessionRow, question: Question) -> QuestionRow:
    row = asked_row(question, 0, session.branch_no)
    if facts.has_inbox and row.is_open:
        return replace(row, terms=tuple(terms_of(session, row)))
    return row


def _takes(facts: Facts, writes: Sequence[Write], answers: Sequence[Answer]) -> tuple[str, ...]:
    """Return which of the answers that the writes take can be taken."""
    # What ends here is taken as it ends.
    own = {given.id for given in answers} | {given.id for write in writes for given in write.closes}
    wanted = [each for write in writes for each in write.takes if each not in own]
    if not wanted:
        return ()
    there = {each.id for each in facts.waiting() if not each.is_open}
    return tuple([each for each in dict.fromkeys(wanted) if each in there])
