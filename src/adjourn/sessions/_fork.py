"""Forking from storage: a new session, or a new branch, from the records of a session, without its program."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adjourn._engine.record import FORMAT, NONE, Left, Record, drop_values, encode, place_of
from adjourn._engine.scope import SESSION_ONLY, Scope
from adjourn._owner import is_dead, process_id
from adjourn._values.damage import Reading
from adjourn.errors import Conflict, UsageError
from adjourn.stores.protocol import Head, Header, Question, SessionRef, Status, Store, Write

from ._contents import Contents
from ._log import ended, log_question
from ._settings import Settings, check_name
from .history import Listed

TTL = 30.0
"""Seconds within which a fork must be written."""


async def fork(settings: Settings, ref: SessionRef, checkpoint_id: str | None, to: str | None) -> str:
    """Begin a new session as another one was at a checkpoint, by default its head, and return its id.

    With the session's own id as `to` it is a new branch of that session. Answers that were recorded there also count
    in the fork, whether a run has taken them up or not; but an approval is spent where it was given, so it is asked
    again (rule R16), and what was remembered for the session is left behind.

    Raises:
        CheckpointNotFound: there is no such session or checkpoint.
        UsageError: the new session exists already.
        SessionBusy: a new branch was asked for, and somebody runs the session.
    """
    store, target = settings.store, settings.new_id() if to is None else to
    check_name("session_id", target)
    is_branch = target == ref.id
    if not is_branch and await store.head(replace(ref, id=target)) is not None:
        raise UsageError(f"There is a session '{target}' already. Give the new one another id.")
    contents = await Contents.at(store, ref, checkpoint_id)
    contents.scope.clock = settings.clock
    with Reading(ref.id):
        _take_up(contents)
        contents.scope.reopen_approvals()
        if not is_branch:
            _leave_behind(contents.scope)
    header = await _header(store, ref, contents.checkpoint)
    new = SessionRef(target, ref.app, contents.head.user)
    origin = contents.head if is_branch else None
    await _write(store, new, contents, settings.new_branch(), header, origin)
    return target


def _leave_behind(scope: Scope) -> None:
    """Drop the session values that count only in their own session."""
    for _, image in scope.dormant.everything():
        drop_values(image, lambda name: name.startswith(SESSION_ONLY))


def _take_up(contents: Contents) -> None:
    """Apply the answers that no run has taken up."""
    scope = contents.scope
    for given in contents.loaded.answers:
        if given.id in scope.questions.open:
            value = Raw(given.value) if given.value else NONE
            scope.answer(given.id, how=given.how, value=value, by=given.by, at=given.at)


async def _header(store: Store, ref: SessionRef, point: str) -> Header:
    """Return the header of the fork, from the listed checkpoint at or before the point."""
    rows = {row.id: row.header for row in await store.checkpoints(ref)}
    near = rows.get(Listed(rows).nearest(point) or "", Header())
    origin: dict[str, Any] = {"forked_from": {"session_id": ref.id, "checkpoint_id": point}}
    return replace(near, source="fork", metadata=origin)


async def _write(
    store: Store, ref: SessionRef, contents: Contents, branch: str, header: Header, origin: Head | None
) -> None:
    scope = contents.scope
    with Reading(contents.head.session):
        record, asks = _record(contents, ref.id), _asks(contents)
    status: Status = "waiting" if scope.questions.open else "cancelled" if header.next else "done"
    first = Write(
        branch=branch,
        number=0,
        parent=None if origin is None else contents.checkpoint,
        full=True,
        body=encode(record),
        header=header,
        status=status,
        asks=asks,
    )
    dead = origin.owner if origin is not None and origin.owner is not None and is_dead(origin.owner) else None
    claimed = await store.claim(
        ref,
        f"{process_id()}/{branch}",
        TTL,
        after=None if origin is None else origin.checkpoint,
        write=first,
        replaces=dead,
    )
    if claimed.lease is None:
        raise Conflict(ref.id, "somebody else runs it")
    # A lease is released with a record, so write an empty one.
    last = Write(
        branch=branch,
        number=1,
        parent=first.id,
        full=False,
        body=encode(Record(v=FORMAT)),
        header=Header(),
        status=status,
    )
    await store.commit(claimed.lease, last, after=first.id, release=True)


def _record(contents: Contents, session_id: str) -> Record:
    """Return everything that a session holds as one full record, for the session or branch that begins with it."""
    scope = contents.scope
    record = Record(
        v=FORMAT,
        full=True,
        turn=scope.turn,
        session=session_id,
        app=scope.app,
        user=scope.user_id,
        asked=scope.questions.asked,
    )
    record.options, record.needs_deps = dict(scope.turn_options), scope.needs_deps
    if scope.usage.calls:
        record.usage = scope.usage
    record.frames = dict(scope.dormant.snapshot(""))
    record.changed = scope.questions.changes(record.frames)
    branch, _, number = contents.checkpoint.rpartition(".")
    record.line = [*scope.line, Left(place_of(scope.app, scope.session_id, branch), int(number))]
    return record


def _asks(contents: Contents) -> tuple[Question, ...]:
    """Return the questions for their rows; those that have ended come with their answers."""
    asked = contents.scope.questions.named(contents.rows)
    return tuple(
        Question(id=each.id, body=log_question(each, None), expires=each.expires, ended=ended(each)) for each in asked
    )
