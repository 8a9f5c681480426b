"""Forking from storage: a new session, or a new branch, from the records of a session, without its program."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from adjourn._engine.proof import Stored
from adjourn._engine.record import FORMAT, Record, drop_values, place_of
from adjourn._engine.scope import SESSION_ONLY, Scope
from adjourn._owner import is_dead, process_id
from adjourn._values.damage import Reading
from adjourn.errors import Conflict, UsageError
from adjourn.stores.kit import Claim, Commit, GetHead, ListCheckpoints
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, Header, Lease, Question, SessionRef, Status, Write

from ._chain import Chain, read_left
from ._contents import Contents, folded, load
from ._lineage import read_lineage
from ._log import ended, read_past, stored_question, with_past
from ._settings import Settings, check_name
from ._span import rows_up_to
from ._spent import check_unspent
from .history import Listed, split_id

TTL = 30.0
"""Seconds within which a fork must be written."""


async def fork(settings: Settings, ref: SessionRef, checkpoint_id: str | None, to: str | None, *, again: bool) -> str:
    """Begin a new session as another one was at a checkpoint, by default its head, and return its id.

    With the session's own id as `to` it is a new branch of that session. Answers that were recorded there also count
    in the fork, whether a run has taken them up or not; but an approval is spent where it was given, so it is asked
    again (rule R16), and what was remembered for the session is left behind. With `again`, approvals that have acted
    already may do so once more (rule R19).

    Raises:
        ApprovalSpent: there are such approvals.
        CheckpointNotFound: there is no such session or checkpoint.
        UsageError: the new session exists already.
        SessionBusy: a new branch was asked for, and somebody runs the session.
    """
    store, target = settings.store, settings.new_id() if to is None else to
    check_name("session_id", target)
    is_branch = target == ref.id
    if not is_branch and await store.read(GetHead(replace(ref, id=target))) is not None:
        raise UsageError(f"There is a session '{target}' already. Give the new one another id.")
    contents = await Contents.at(store, ref, checkpoint_id)
    contents.scope.clock = settings.clock
    past = await read_past(store, ref, contents.checkpoint, contents.scope)
    past = await check_unspent(store, ref, contents.checkpoint, past, contents.scope, again=again)
    with Reading(ref.id):
        _take_up(contents)
        contents.scope.reopen_approvals()
        if not is_branch:
            _leave_behind(contents.scope)
    header = await _header(store, ref, contents)
    new = SessionRef(target, ref.app, contents.head.user)
    origin = contents.head if is_branch else None
    await _write(settings, new, contents, past, header, origin)
    return target


async def cancel(settings: Settings, ref: SessionRef) -> None:
    """Cancel a session that nobody runs, without its program; its questions stay open, under the same tokens.

    Raises:
        Conflict, SessionBusy: somebody writes or runs it.
    """
    loaded = await load(settings.store, ref)
    tree, point = folded(loaded), loaded.point
    branch, number = split_id(point)
    chain = _chain(settings, ref)
    chain.stand(loaded, pauses=tree.pauses)
    near, _ = await _near(settings.store, ref, point)
    header, proof = replace(near, source="cancel", metadata=tree.metadata), chain.proof("cancelled", (), {})
    body, _ = chain.encode(Record(v=FORMAT), proof, f"{branch}.{number + 1}", point, header, b"")
    write = Write(
        branch=branch,
        number=number + 1,
        parent=point,
        full=False,
        body=body,
        header=header,
        status="cancelled",
    )
    lease, _ = await _claim(settings, ref, settings.new_branch(), loaded.head)
    await settings.store.write(Commit(lease=lease, writes=(write,), after=point, release=True))


def _leave_behind(scope: Scope) -> None:
    """Drop the session values that count only in their own session."""
    for _, image in scope.dormant.everything():
        drop_values(image, lambda name: name.startswith(SESSION_ONLY))


def _take_up(contents: Contents) -> None:
    """Apply the answers that no run has taken up."""
    scope = contents.scope
    for given in contents.loaded.answers:
        if given.id in scope.questions.open:
            scope.answer(given.id, how=given.how, value=given.value, by=given.by, at=given.at)


async def _near(store: Store, ref: SessionRef, point: str) -> tuple[Header, bool]:
    """Return the header of the listed checkpoint at or before a record, and whether that is the record itself."""
    newest = await store.read(ListCheckpoints(ref, limit=1))
    rows = {row.id: row.header for row in newest}
    if Listed(rows).nearest(point) is None:  # It is not the head.
        rows = {row.id: row.header for row in await rows_up_to(store, ref, point)}
    return rows.get(Listed(rows).nearest(point) or "", Header()), point in rows


async def _header(store: Store, ref: SessionRef, contents: Contents) -> Header:
    """Return the header of the fork, from the listed checkpoint at or before where it begins."""
    point = contents.checkpoint
    near, is_listed = await _near(store, ref, point)
    # Between two checkpoints, some of what was to run has ended.
    following = near.next if is_listed else contents.unfinished or near.next
    origin: dict[str, Any] = {"forked_from": {"session_id": ref.id, "checkpoint_id": point}}
    return replace(near, source="fork", next=following, metadata={**contents.scope.metadata, **origin})


async def _write(
    settings: Settings,
    ref: SessionRef,
    contents: Contents,
    past: tuple[Question, ...],
    header: Header,
    origin: Head | None,
) -> None:
    scope, store, branch = contents.scope, settings.store, settings.new_branch()
    chain = _chain(settings, ref)
    if origin is None:
        chain.fork(contents.loaded)
        base, number = split_id(contents.checkpoint)
        came_from = (await read_lineage(store, contents.head.ref, base)).origin(number)
    else:
        came_from = None
        chain.stand(contents.loaded, pauses=contents.pauses)
        chain.left = await read_left(store, origin)
    with Reading(contents.head.session):
        record, asks = _record(contents, ref.id), with_past(past, _asks(contents))
    status: Status = "waiting" if scope.questions.open else "cancelled" if header.next else "done"
    parent = None if origin is None else contents.checkpoint
    body, digest = chain.encode(record, chain.proof(status, asks, {}), f"{branch}.0", parent, header, b"")
    chain.digest, chain.left = digest, None
    first = Write(
        branch=branch,
        number=0,
        parent=parent,
        full=True,
        body=body,
        header=header,
        status=status,
        asks=asks,
        program=contents.head.program,
        origin=came_from,
    )
    lease, at = await _claim(settings, ref, branch, origin, first)
    # A lease is released with a record, so write an empty one.
    chain.stored.append(Stored(0, 0, at))
    empty, _ = chain.encode(Record(v=FORMAT), chain.proof(status, (), {}), f"{branch}.1", first.id, Header(), b"")
    last = Write(
        branch=branch,
        number=1,
        parent=first.id,
        full=False,
        body=empty,
        header=Header(),
        status=status,
    )
    await store.write(Commit(lease=lease, writes=(last,), after=first.id, release=True))


def _chain(settings: Settings, ref: SessionRef) -> Chain:
    return Chain(ref, settings.audit_keys[0] if settings.audit_keys else None)


async def _claim(
    settings: Settings, ref: SessionRef, owner: str, head: Head | None, write: Write | None = None
) -> tuple[Lease, float]:
    """Take a session's lease, and return it with the time; `head` is what it stands at, if it is there yet."""
    claimed = await settings.store.write(
        Claim(
            ref=ref,
            owner=f"{process_id()}/{owner}",
            ttl=TTL,
            after=None if head is None else head.checkpoint,
            write=write,
            replaces=head.owner if head is not None and head.owner is not None and is_dead(head.owner) else None,
        )
    )
    if claimed.lease is None:
        raise Conflict(ref.id, "somebody else runs it")
    return claimed.lease, claimed.at


def _record(contents: Contents, session_id: str) -> Record:
    """Return everything that a session holds as one full record, for the session or branch that begins with it."""
    scope = contents.scope
    record = Record(
        v=FORMAT,
        full=True,
        session=session_id,
        app=scope.app,
        user=scope.user_id,
        asked=scope.questions.asked,
    )
    scope.describe_turn(record)
    if scope.usage.calls:
        record.usage = scope.usage
    if scope.unsettled:
        record.unsettled = dict(scope.unsettled)
    record.frames = dict(scope.dormant.snapshot(""))
    record.changed = scope.questions.changes(record.frames)
    record.lineage = scope.first_place or place_of(scope.app, scope.session_id, split_id(contents.checkpoint)[0])
    return record


def _asks(contents: Contents) -> tuple[Question, ...]:
    """Return the questions for their rows; those that have ended come with their answers."""
    asked = contents.scope.questions.named(contents.rows)
    return tuple(stored_question(each, None, ended(each)) for each in asked)
