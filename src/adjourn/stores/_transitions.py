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

from ._ledger import Asked, Ledger, S
from ._rows import Branch, Standing, encode_header, head_of, id_at, is_live, locate, removable
from .protocol import Answer, Answered, Claimed, Committed, Head, Lease, Question, Renewed, Write


def claim(
    ledger: Ledger[S],
    now: float,
    session: str,
    owner: str,
    ttl: float,
    *,
    after: str | None,
    write: Write | None,
    answers: Sequence[Answer],
    over: str | None,
    app: str,
    user: str | None,
) -> Claimed:
    """Decide `Store.claim`."""
    header = encode_header(write) if write is not None else b""
    standing = ledger.find(session)
    if standing is None:
        if after is not None or write is None or answers:
            raise CheckpointNotFound(session)
        _check_first(session, write)
        standing = ledger.create(session, app, user, now)
        _append(ledger, standing, write, header, now)
        return _lend(ledger, standing, owner, ttl, now)
    if write is not None and _claimed_so(ledger, standing, owner, write, header, answers):
        return _lend_again(ledger, standing, owner, ttl, now)
    _check_answers(ledger, standing, answers, now)
    live = is_live(standing, now) and standing.owner != over
    if live and not answers:
        raise SessionBusy(session, standing.owner or "", standing.expires)
    if live:
        # The owner moves the head all the time; what counts is that the questions are open.
        _record(ledger, standing, answers, now)
        return _claimed(standing, None)
    _check_after(standing, after)
    if write is None:
        _record(ledger, standing, answers, now)
    else:
        _check_write(ledger, standing, write, standing.checkpoint, now, answers)
        for given in answers:
            ledger.end(standing, given, now, taken=True)
        _append(ledger, standing, write, header, now)
    return _lend(ledger, standing, owner, ttl, now)


def commit_all(
    ledger: Ledger[S], now: float, lease: Lease, writes: Sequence[Write], *, after: str, release: bool
) -> Committed:
    """Decide `Store.commit`."""
    standing = ledger.find(lease.session)
    if standing is None:
        raise Conflict(lease.session, "it was deleted")
    if standing.fence != lease.fence or standing.owner != lease.owner or standing.checkpoint != after:
        return _committed_before(ledger, standing, lease, writes, after, release, now)
    header = encode_header(writes[0])
    _check_write(ledger, standing, writes[0], after, now)
    if len(writes) > 1:
        _check_row(ledger, standing, writes, now)
    answers = _untaken(ledger, standing, writes) if release and writes[-1].status == "waiting" else ()
    if answers:
        writes = (*writes[:-1], _unpaused(writes[-1]))
    _append(ledger, standing, writes[0], header, now)
    for write in writes[1:]:
        _append(ledger, standing, write, encode_header(write), now)
    standing.claims = 0
    return _keep_or_release(ledger, standing, lease, release, answers, now)


def answer(ledger: Ledger[S], now: float, session: str, answers: Sequence[Answer], *, after: str | None) -> Head:
    """Decide `Store.answer`."""
    standing = _found(ledger, session)
    _check_answers(ledger, standing, answers, now)
    if after is not None:
        _check_after(standing, after)
    _record(ledger, standing, answers, now)
    return head_of(standing, now)


def renew(ledger: Ledger[S], now: float, leases: Sequence[Lease]) -> list[Renewed]:
    """Decide `Store.renew`."""
    return [_renew(ledger, now, lease) for lease in leases]


def cancel(ledger: Ledger[S], now: float, session: str, mode: str) -> bool:
    """Decide `Store.cancel`."""
    standing = _found(ledger, session)
    if not is_live(standing, now):
        return False
    standing.cancel = mode
    ledger.save(standing)
    return True


def delete(ledger: Ledger[S], now: float, session: str) -> None:
    """Decide `Store.delete`."""
    standing = ledger.find(session)
    if standing is None:
        return
    if is_live(standing, now):
        raise SessionBusy(session, standing.owner or "", standing.expires)
    ledger.remove(standing)


def prune(ledger: Ledger[S], session: str, *, keep: int | None, before: float | None) -> int:
    """Decide `Store.prune`."""
    if keep is not None and keep < 0:
        raise UsageError(f"prune(keep={keep}) was called. Give the number of checkpoints to keep, 0 or more.")
    standing = _found(ledger, session)
    gone = removable(
        ledger.points(standing),
        ledger.branches(standing),
        keep=keep,
        before=before,
        asking=ledger.asking(standing),
    )
    ledger.drop_records(standing, gone)
    return sum(point.listed for point in gone)


def expire(ledger: Ledger[S], now: float, ttl: float) -> list[str]:
    """Decide `Store.expire`."""
    idle = ledger.idle(now, now - ttl)
    for standing in idle:
        ledger.remove(standing)
    return [standing.session for standing in idle]


def _found(ledger: Ledger[S], session: str) -> S:
    standing = ledger.find(session)
    if standing is None:
        raise CheckpointNotFound(session)
    return standing


def _holds(standing: Standing, lease: Lease) -> bool:
    return standing.fence == lease.fence and standing.owner == lease.owner


def _check_lease(standing: Standing, lease: Lease) -> None:
    if _holds(standing, lease):
        return
    now = f"{owner_name(standing.owner)} has it, with fence {standing.fence}" if standing.owner else "it was released"
    raise Conflict(standing.session, f"the lease of {owner_name(lease.owner)} with fence {lease.fence} is over: {now}")


def _check_after(standing: Standing, after: str | None) -> None:
    if after != standing.checkpoint:
        seen = f"'{after}'" if after is not None else "none"
        raise Conflict(standing.session, f"its head is '{standing.checkpoint}', the writer saw {seen}")


def _check_answers(ledger: Ledger[S], standing: S, answers: Sequence[Answer], now: float) -> None:
    seen: set[str] = set()
    for given in answers:
        asked = ledger.question(standing, given.id)
        if asked is None:
            raise UnknownInterrupt(standing.session, given.id, ledger.open_questions(standing))
        if asked.how == "expired" and given.how == "answered":
            raise InterruptExpired(standing.session, given.id)
        if asked.how is not None or given.id in seen:
            live = is_live(standing, now)
            raise AlreadyResumed(standing.session, given.id, live=live, by=asked.by, at=asked.at)
        if asked.expires is not None and asked.expires <= now and given.how == "answered":
            raise InterruptExpired(standing.session, given.id)
        seen.add(given.id)


def _check_write(
    ledger: Ledger[S], standing: S, write: Write, head: str, now: float, answers: Sequence[Answer] = ()
) -> None:
    if write.branch != standing.branch:
        _check_branch(ledger, standing, write)
        return
    if write.number != standing.number + 1 or write.parent != head:
        raise Conflict(standing.session, f"record '{write.id}' does not follow its head '{head}'")
    if write.asks:
        _check_asks(standing.session, write)
    for question in write.asks:
        if ledger.question(standing, question.id) is not None:
            raise Conflict(standing.session, f"question '{question.id}' was asked before on this branch")
    if write.closes:
        _check_answers(ledger, standing, (*answers, *write.closes), now)


def _check_row(ledger: Ledger[S], standing: S, writes: Sequence[Write], now: float) -> None:
    """Check records that follow the first one of a commit, for which alone the ledger has all that is to be known."""
    session, is_new = standing.session, writes[0].branch != standing.branch
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
                _check_answers(ledger, standing, [given], now)
            ended.add(given.id)
        for question in write.asks:
            if question.id in asked or (not is_new and ledger.question(standing, question.id) is not None):
                raise Conflict(session, f"question '{question.id}' was asked before on this branch")
            asked.add(question.id)


def _check_branch(ledger: Ledger[S], standing: S, write: Write) -> None:
    branches = ledger.branches(standing)
    if any(branch.name == write.branch for branch in branches):
        raise Conflict(standing.session, f"its head has left the branch '{write.branch}'")
    parent = locate(branches, standing.pos, write.parent) if write.parent is not None else None
    if parent is None or not ledger.has_position(standing, parent):
        raise CheckpointNotFound(standing.session, write.parent)
    _check_first(standing.session, write)


def _check_first(session: str, write: Write) -> None:
    if not write.full:
        raise Conflict(session, f"record '{write.id}' begins a branch and is not full")
    if write.closes:
        raise UnknownInterrupt(session, write.closes[0].id, [])  # questions belong to a branch, and this one is new
    _check_asks(session, write)


def _check_asks(session: str, write: Write) -> None:
    if len(write.asks) > 1 and len({question.id for question in write.asks}) < len(write.asks):
        raise Conflict(session, f"record '{write.id}' asks one question twice")


def _claimed_so(
    ledger: Ledger[S], standing: S, owner: str, write: Write, header: bytes, answers: Sequence[Answer]
) -> bool:
    """Whether this very claim was made before and its caller did not hear of it."""
    if standing.owner != owner or standing.checkpoint != write.id:
        return False
    return _repeats(ledger, standing, write, header) and all(
        _ended_so(ledger.question(standing, given.id), given) for given in answers
    )


def _ended_so(asked: Asked | None, given: Answer) -> bool:
    return asked is not None and (asked.value, asked.how, asked.by) == (given.value, given.how, given.by)


def _repeats(ledger: Ledger[S], standing: S, write: Write, header: bytes) -> bool:
    """Whether the write is there already, with the same content."""
    branches = ledger.branches(standing)
    pos = locate(branches, standing.pos, write.id)
    if pos is None or not ledger.has_record(standing, pos, write, header):
        return False
    if id_at(branches, pos)[1] != write.parent:
        return False
    # The questions of a branch that the head has left are out of reach; its record's content has to do.
    return write.branch != standing.branch or all(
        _asked_so(ledger.question(standing, question.id), question) for question in write.asks
    )


def _asked_so(asked: Asked | None, question: Question) -> bool:
    return asked is not None and (asked.body, asked.expires) == (question.body, question.expires)


def _append(ledger: Ledger[S], standing: S, write: Write, header: bytes, now: float) -> None:
    standing.pos = pos = standing.pos + 1
    if pos == 0 or write.branch != standing.branch:
        standing.branch = write.branch
        standing.branch_no += 1
        standing.waiting = 0
        ledger.add_branch(standing, Branch(write.branch, pos, write.number, write.parent))
    standing.number = write.number
    standing.status = write.status
    standing.updated = now
    if write.full:
        standing.full_pos, standing.size = pos, len(write.body)
    else:
        standing.size += len(write.body)
    standing.seq += write.event_count
    ledger.add_record(standing, write, header, now)
    for given in write.closes:
        ledger.end(standing, given, now, taken=True)
    if standing.waiting:
        for taken in write.takes:
            standing.waiting -= ledger.take(standing, taken)
    for question in write.asks:
        ledger.ask(standing, question)


def _record(ledger: Ledger[S], standing: S, answers: Sequence[Answer], now: float) -> None:
    for given in answers:
        ledger.end(standing, given, now, taken=False)
    standing.waiting += len(answers)
    ledger.save(standing)


def _lend(ledger: Ledger[S], standing: S, owner: str, ttl: float, now: float) -> Claimed:
    standing.owner = owner
    standing.fence += 1
    standing.claims += 1
    standing.cancel = None
    return _lend_again(ledger, standing, owner, ttl, now)


def _lend_again(ledger: Ledger[S], standing: S, owner: str, ttl: float, now: float) -> Claimed:
    standing.expires = now + ttl
    ledger.save(standing)
    lease = Lease(session=standing.session, owner=owner, fence=standing.fence, ttl=ttl)
    return _claimed(standing, lease)


def _claimed(standing: Standing, lease: Lease | None) -> Claimed:
    return Claimed(lease=lease, checkpoint=standing.checkpoint, seq=standing.seq, claims=standing.claims)


_GOES_ON = Committed()


def _committed_before(
    ledger: Ledger[S],
    standing: S,
    lease: Lease,
    writes: Sequence[Write],
    after: str,
    release: bool,
    now: float,
) -> Committed:
    """What a commit found that was made before and whose caller did not hear of it; else say why it cannot be made."""
    held, last = _holds(standing, lease), writes[-1]
    if all(_repeats(ledger, standing, write, encode_header(write)) for write in writes):
        if not held and release:
            return Committed(released=True)  # it ended the run, so others may have gone on since
        _check_lease(standing, lease)
        return _keep_or_release(ledger, standing, lease, release, (), now)
    if held and release and _repeats(ledger, standing, _unpaused(last), encode_header(last)):
        return Committed(answers=ledger.untaken(standing), cancel=standing.cancel)
    _check_lease(standing, lease)
    _check_after(standing, after)
    raise AssertionError("a commit that can be made is made")


def _untaken(ledger: Ledger[S], standing: S, writes: Sequence[Write]) -> tuple[Answered, ...]:
    """The answers that neither an earlier record nor one of these takes."""
    if not standing.waiting or writes[0].branch != standing.branch:
        return ()
    return tuple([found for found in ledger.untaken(standing) if all(found.id not in each.takes for each in writes)])


def _unpaused(write: Write) -> Write:
    """The write of a pause that met answers: the run goes on, so nobody is told that it paused."""
    return replace(write, status="running", events=b"", event_count=0)


def _keep_or_release(
    ledger: Ledger[S], standing: S, lease: Lease, release: bool, answers: tuple[Answered, ...], now: float
) -> Committed:
    cancel = standing.cancel
    if release and not answers:
        standing.owner = None
        standing.expires = 0.0
        standing.cancel = None
    else:
        standing.expires = now + lease.ttl
    ledger.save(standing)
    if not release and cancel is None:
        return _GOES_ON
    return Committed(released=release and not answers, answers=answers, cancel=cancel)


def _renew(ledger: Ledger[S], now: float, lease: Lease) -> Renewed:
    standing = ledger.find(lease.session)
    if standing is None or not _holds(standing, lease):
        return Renewed(session=lease.session, lost=True)
    standing.expires = now + lease.ttl
    ledger.save(standing)
    return Renewed(session=lease.session, lost=False, cancel=standing.cancel)
