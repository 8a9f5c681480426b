"""The decisions that every store makes alike: who may write, which answer counts, what a write changes.

A function here runs inside one transaction (or under one lock) of its store, which lends it a `Ledger`.
All checks come before the first change, so a refusal has written nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from adjourn._owner import owner_name
from adjourn.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    SessionBusy,
    UnknownInterrupt,
    UsageError,
)

from ._ledger import Ledger, QuestionRow, S
from ._rows import Branch, SessionRow, encode_header, fits, head_of, id_at, is_live, is_named, locate, removable
from .protocol import Answer, Answered, Claimed, Committed, Head, Lease, Question, Renewed, SessionRef, Write


def claim(
    ledger: Ledger[S],
    now: float,
    ref: SessionRef,
    owner: str,
    ttl: float,
    *,
    after: str | None,
    write: Write | None,
    answers: Sequence[Answer],
    replaces: str | None,
) -> Claimed:
    """Decide `Store.claim`."""
    header = encode_header(write) if write is not None else b""
    row = ledger.find(ref.app, ref.id)
    if row is None:
        if after is not None or write is None or answers:
            raise CheckpointNotFound(ref.id)
        _check_first(ref.id, write)
        row = ledger.create(ref, now)
        _append(ledger, row, write, header, now)
        return _lend(ledger, row, owner, ttl, now)
    _check_user(row, ref)
    if write is not None and _claimed_so(ledger, row, owner, write, header, answers):
        return _lend_again(ledger, row, owner, ttl, now)
    _check_answers(ledger, row, answers, now)
    live = is_live(row, now) and row.owner != replaces
    if live and not answers:
        raise SessionBusy(ref.id, row.owner or "", row.expires)
    if live:
        # The owner moves the head all the time; what counts is that the questions are open.
        _record(ledger, row, answers, now)
        return _claimed(row, None)
    _check_after(row, after)
    if write is None:
        _record(ledger, row, answers, now)
    else:
        _check_write(ledger, row, write, row.checkpoint, now, answers)
        for given in answers:
            ledger.end(row, given, now, taken=True)
        _append(ledger, row, write, header, now)
    return _lend(ledger, row, owner, ttl, now)


def commit_all(
    ledger: Ledger[S], now: float, lease: Lease, writes: Sequence[Write], *, after: str, release: bool
) -> Committed:
    """Decide `Store.commit`."""
    row = ledger.find(lease.ref.app, lease.ref.id)
    if row is None:
        raise Conflict(lease.ref.id, "it was deleted")
    _check_user(row, lease.ref)
    if row.fence != lease.fence or row.owner != lease.owner or row.checkpoint != after:
        return _committed_before(ledger, row, lease, writes, after, release, now)
    header = encode_header(writes[0])
    _check_write(ledger, row, writes[0], after, now)
    if len(writes) > 1:
        _check_row(ledger, row, writes, now)
    answers = _untaken(ledger, row, writes) if release and writes[-1].status == "waiting" else ()
    if answers:
        writes = (*writes[:-1], _unpaused(writes[-1]))
    _append(ledger, row, writes[0], header, now)
    for write in writes[1:]:
        _append(ledger, row, write, encode_header(write), now)
    row.claims = 0
    return _keep_or_release(ledger, row, lease, release, answers, now)


def answer(ledger: Ledger[S], now: float, ref: SessionRef, answers: Sequence[Answer], *, after: str | None) -> Head:
    """Decide `Store.answer`."""
    row = _found(ledger, ref)
    _check_answers(ledger, row, answers, now)
    if after is not None:
        _check_after(row, after)
    _record(ledger, row, answers, now)
    return head_of(row, now)


def renew(ledger: Ledger[S], now: float, leases: Sequence[Lease]) -> list[Renewed]:
    """Decide `Store.renew`."""
    return [_renew(ledger, now, lease) for lease in leases]


def cancel(ledger: Ledger[S], now: float, ref: SessionRef, mode: str) -> bool:
    """Decide `Store.cancel`."""
    row = _found(ledger, ref)
    if not is_live(row, now):
        return False
    row.cancel = mode
    ledger.save(row)
    return True


def delete(ledger: Ledger[S], now: float, ref: SessionRef) -> None:
    """Decide `Store.delete`."""
    row = ledger.find(ref.app, ref.id)
    if row is None or not is_named(row, ref):
        return
    if is_live(row, now):
        raise SessionBusy(ref.id, row.owner or "", row.expires)
    ledger.remove(row)


def prune(ledger: Ledger[S], ref: SessionRef, *, keep: int | None, before: float | None) -> int:
    """Decide `Store.prune`."""
    if keep is not None and keep < 0:
        raise UsageError(f"prune(keep={keep}) was called. Give the number of checkpoints to keep, 0 or more.")
    row = _found(ledger, ref)
    gone = removable(
        ledger.points(row),
        ledger.branches(row),
        keep=keep,
        before=before,
        asking=ledger.asking(row),
    )
    ledger.drop_records(row, gone)
    return sum(point.listed for point in gone)


def delete_idle(ledger: Ledger[S], now: float, ttl: float, app: str | None, user: str | None) -> list[SessionRef]:
    """Decide `Store.delete_idle`."""
    idle = [row for row in ledger.idle(now, now - ttl) if fits(row, app, user)]
    for row in idle:
        ledger.remove(row)
    return [SessionRef(row.session, row.app, row.user) for row in idle]


def _found(ledger: Ledger[S], ref: SessionRef) -> S:
    row = ledger.find(ref.app, ref.id)
    if row is None:
        raise CheckpointNotFound(ref.id)
    _check_user(row, ref)
    return row


def _check_user(row: SessionRow, ref: SessionRef) -> None:
    if not is_named(row, ref):
        raise CheckpointNotFound(ref.id)


def _holds(row: SessionRow, lease: Lease) -> bool:
    return row.fence == lease.fence and row.owner == lease.owner


def _check_lease(row: SessionRow, lease: Lease) -> None:
    if _holds(row, lease):
        return
    now = f"{owner_name(row.owner)} has it, with fence {row.fence}" if row.owner else "it was released"
    raise Conflict(row.session, f"the lease of {owner_name(lease.owner)} with fence {lease.fence} is over: {now}")


def _check_after(row: SessionRow, after: str | None) -> None:
    if after != row.checkpoint:
        seen = f"'{after}'" if after is not None else "none"
        raise Conflict(row.session, f"its head is '{row.checkpoint}', the writer saw {seen}")


def _check_answers(ledger: Ledger[S], row: S, answers: Sequence[Answer], now: float) -> None:
    seen: set[str] = set()
    for given in answers:
        asked = ledger.question(row, given.id)
        if asked is None:
            raise UnknownInterrupt(row.session, given.id, ledger.open_questions(row))
        if asked.how == "expired" and given.how == "answered":
            raise InterruptExpired(row.session, given.id)
        if asked.how is not None or given.id in seen:
            live = is_live(row, now)
            raise AlreadyResumed(row.session, given.id, live=live, by=asked.by, at=asked.at)
        if asked.expires is not None and asked.expires <= now and given.how == "answered":
            raise InterruptExpired(row.session, given.id)
        seen.add(given.id)


def _check_write(
    ledger: Ledger[S], row: S, write: Write, head: str, now: float, answers: Sequence[Answer] = ()
) -> None:
    if write.branch != row.branch:
        _check_branch(ledger, row, write)
        return
    if write.number != row.number + 1 or write.parent != head:
        raise Conflict(row.session, f"record '{write.id}' does not follow its head '{head}'")
    if write.asks:
        _check_asks(row.session, write)
    for question in write.asks:
        if ledger.question(row, question.id) is not None:
            raise Conflict(row.session, f"question '{question.id}' was asked before on this branch")
    if write.closes:
        _check_answers(ledger, row, (*answers, *write.closes), now)


def _check_row(ledger: Ledger[S], row: S, writes: Sequence[Write], now: float) -> None:
    """Check records that follow the first one of a commit, for which alone the ledger has all that is to be known."""
    session, is_new = row.session, writes[0].branch != row.branch
    asked, ended = {question.id for question in writes[0].asks}, {given.id for given in writes[0].closes}
    for before, write in pairwise(writes):
        if write.branch != before.branch or write.number != before.number + 1 or write.parent != before.id:
            raise Conflict(session, f"record '{write.id}' does not follow '{before.id}'")
        encode_header(write)
        for given in write.closes:
            if given.id in ended:
                raise AlreadyResumed(session, given.id, live=True)
            if given.id not in asked and is_new:
                raise UnknownInterrupt(session, given.id, [])
            if given.id not in asked:
                _check_answers(ledger, row, [given], now)
            ended.add(given.id)
        for question in write.asks:
            if question.id in asked or (not is_new and ledger.question(row, question.id) is not None):
                raise Conflict(session, f"question '{question.id}' was asked before on this branch")
            asked.add(question.id)


def _check_branch(ledger: Ledger[S], row: S, write: Write) -> None:
    branches = ledger.branches(row)
    if any(branch.name == write.branch for branch in branches):
        raise Conflict(row.session, f"its head has left the branch '{write.branch}'")
    parent = locate(branches, row.pos, write.parent) if write.parent is not None else None
    if parent is None or not ledger.has_position(row, parent):
        raise CheckpointNotFound(row.session, write.parent)
    _check_first(row.session, write)


def _check_first(session: str, write: Write) -> None:
    if not write.full:
        raise Conflict(session, f"record '{write.id}' begins a branch and is not full")
    if write.closes:
        raise UnknownInterrupt(session, write.closes[0].id, [])  # questions belong to a branch, and this one is new
    _check_asks(session, write)


def _check_asks(session: str, write: Write) -> None:
    if len(write.asks) > 1 and len({question.id for question in write.asks}) < len(write.asks):
        raise Conflict(session, f"record '{write.id}' asks one question twice")


def _claimed_so(ledger: Ledger[S], row: S, owner: str, write: Write, header: bytes, answers: Sequence[Answer]) -> bool:
    """Whether this very claim was made before and its caller did not hear of it."""
    if row.owner != owner or row.checkpoint != write.id:
        return False
    return _repeats(ledger, row, write, header) and all(
        _ended_so(ledger.question(row, given.id), given) for given in answers
    )


def _ended_so(asked: QuestionRow | None, given: Answer) -> bool:
    return asked is not None and (asked.value, asked.how, asked.by) == (given.value, given.how, given.by)


def _repeats(ledger: Ledger[S], row: S, write: Write, header: bytes) -> bool:
    """Whether the write is there already, with the same content."""
    branches = ledger.branches(row)
    pos = locate(branches, row.pos, write.id)
    if pos is None or not ledger.has_record(row, pos, write, header):
        return False
    if id_at(branches, pos)[1] != write.parent:
        return False
    # The questions of a branch that the head has left are out of reach; its record's content has to do.
    return write.branch != row.branch or all(
        _asked_so(ledger.question(row, question.id), question) for question in write.asks
    )


def _asked_so(asked: QuestionRow | None, question: Question) -> bool:
    return asked is not None and (asked.body, asked.expires) == (question.body, question.expires)


def _append(ledger: Ledger[S], row: S, write: Write, header: bytes, now: float) -> None:
    row.pos = pos = row.pos + 1
    if pos == 0 or write.branch != row.branch:
        row.branch = write.branch
        row.branch_no += 1
        row.waiting = 0
        ledger.add_branch(row, Branch(write.branch, pos, write.number, write.parent))
    row.number = write.number
    row.status = write.status
    row.updated = now
    if write.full:
        row.full_pos, row.size = pos, len(write.body)
    else:
        row.size += len(write.body)
    row.seq += write.event_count
    ledger.add_record(row, write, header, now)
    for given in write.closes:
        ledger.end(row, given, now, taken=True)
    if row.waiting:
        for taken in write.takes:
            row.waiting -= ledger.take(row, taken)
    for question in write.asks:
        ledger.ask(row, question)


def _record(ledger: Ledger[S], row: S, answers: Sequence[Answer], now: float) -> None:
    for given in answers:
        ledger.end(row, given, now, taken=False)
    row.waiting += len(answers)
    ledger.save(row)


def _lend(ledger: Ledger[S], row: S, owner: str, ttl: float, now: float) -> Claimed:
    row.owner = owner
    row.fence += 1
    row.claims += 1
    row.cancel = None
    return _lend_again(ledger, row, owner, ttl, now)


def _lend_again(ledger: Ledger[S], row: S, owner: str, ttl: float, now: float) -> Claimed:
    row.expires = now + ttl
    ledger.save(row)
    lease = Lease(ref=SessionRef(row.session, row.app, row.user), owner=owner, fence=row.fence, ttl=ttl)
    return _claimed(row, lease)


def _claimed(row: SessionRow, lease: Lease | None) -> Claimed:
    return Claimed(lease=lease, checkpoint=row.checkpoint, seq=row.seq, claims=row.claims)


_GOES_ON = Committed()


def _committed_before(
    ledger: Ledger[S],
    row: S,
    lease: Lease,
    writes: Sequence[Write],
    after: str,
    release: bool,
    now: float,
) -> Committed:
    """What a commit found that was made before and whose caller did not hear of it; else say why it cannot be made."""
    held, last = _holds(row, lease), writes[-1]
    if all(_repeats(ledger, row, write, encode_header(write)) for write in writes):
        if not held and release:
            return Committed(released=True)  # it ended the run, so others may have gone on since
        _check_lease(row, lease)
        return _keep_or_release(ledger, row, lease, release, (), now)
    if held and release and _repeats(ledger, row, _unpaused(last), encode_header(last)):
        return Committed(answers=ledger.untaken(row), cancel=row.cancel)
    _check_lease(row, lease)
    _check_after(row, after)
    raise AssertionError("a commit that can be made is made")


def _untaken(ledger: Ledger[S], row: S, writes: Sequence[Write]) -> tuple[Answered, ...]:
    """The answers that neither an earlier record nor one of these takes."""
    if not row.waiting or writes[0].branch != row.branch:
        return ()
    return tuple([found for found in ledger.untaken(row) if all(found.id not in each.takes for each in writes)])


def _unpaused(write: Write) -> Write:
    """The write of a pause that met answers: the run goes on, so nobody is told that it paused."""
    return replace(write, status="running", events=b"", event_count=0)


def _keep_or_release(
    ledger: Ledger[S], row: S, lease: Lease, release: bool, answers: tuple[Answered, ...], now: float
) -> Committed:
    cancel = row.cancel
    if release and not answers:
        row.owner = None
        row.expires = 0.0
        row.cancel = None
    else:
        row.expires = now + lease.ttl
    ledger.save(row)
    if not release and cancel is None:
        return _GOES_ON
    return Committed(released=release and not answers, answers=answers, cancel=cancel)


def _renew(ledger: Ledger[S], now: float, lease: Lease) -> Renewed:
    row = ledger.find(lease.ref.app, lease.ref.id)
    if row is None or not is_named(row, lease.ref) or not _holds(row, lease):
        return Renewed(ref=lease.ref, lost=True)
    row.expires = now + lease.ttl
    ledger.save(row)
    return Renewed(ref=lease.ref, lost=False, cancel=row.cancel)
