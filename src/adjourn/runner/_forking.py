"""Forking by what is stored: a new session from the records of another, without the program that wrote them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from adjourn._engine.questions import Parents
from adjourn._engine.record import FORMAT, Record, encode, fold
from adjourn._engine.scope import Scope
from adjourn._owner import process_id
from adjourn.errors import AlreadyResumed, CheckpointNotFound, UsageError
from adjourn.sessions._log import log_question
from adjourn.stores.protocol import Answer, Header, Loaded, Question, SessionRef, Status, Store, Write

from ._settings import Settings, check_name

TTL = 30.0


async def fork_stored(store: Store, ref: SessionRef, checkpoint_id: str | None = None, to: str | None = None) -> str:
    """Begin a new session as another one was at a checkpoint, by default its head; returns its id.

    What was answered there and not taken up is answered in the new session, too.

    Raises:
        CheckpointNotFound: there is no such session or checkpoint.
        UsageError: the new session exists already.
    """
    settings = Settings({"store": store, "app_name": ref.app})
    target = settings.new_id() if to is None else to
    check_name("session_id", target)
    if await store.head(settings.ref(target)) is not None:
        raise UsageError(f"There is a session '{target}' already. Give the new one another id.")
    loaded = await store.load(ref, checkpoint_id)
    if loaded is None:
        raise CheckpointNotFound(ref.id, checkpoint_id)
    scope = Scope(target, app="", user_id=None, clock=time.time)
    scope.restore(fold(loaded.rows))
    header = await _header(store, ref, loaded.point)
    await _write(store, scope, settings.new_branch(), header)
    await _answer_again(store, settings.ref(target), scope, loaded)
    return target


async def _header(store: Store, ref: SessionRef, point: str) -> Header:
    """The header of the fork, from the listed checkpoint that the point is or follows on."""
    listed = {each.id: each.header for each in await store.checkpoints(ref)}
    branch, _, digits = point.rpartition(".")
    near = next((listed[name] for n in range(int(digits), -1, -1) if (name := f"{branch}.{n}") in listed), Header())
    origin: dict[str, Any] = {"forked_from": {"session_id": ref.id, "checkpoint_id": point}}
    return msgspec.structs.replace(near, source="fork", metadata=origin)


async def _write(store: Store, scope: Scope, branch: str, header: Header) -> None:
    status: Status = "waiting" if scope.open else "cancelled" if header.next else "done"
    record = Record(v=FORMAT, full=True, turn=scope.turn, app=scope.app, user=scope.user_id, asked=scope.asked)
    record.frames = dict(scope.stored_below(""))
    first = Write(
        branch=branch,
        number=0,
        parent=None,
        full=True,
        body=encode(record),
        header=header,
        status=status,
        asks=_asks(scope),
    )
    owner = f"{process_id()}/{branch}"
    target = SessionRef(scope.session_id, scope.app, scope.user_id)
    claimed = await store.claim(target, owner, TTL, after=None, write=first)
    assert claimed.lease is not None  # Nobody else can own what did not exist.
    # A lease is let go with a record, so there is one that says nothing.
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


def _asks(scope: Scope) -> tuple[Question, ...]:
    """The open questions as they are stored: their types may be known to the program alone."""
    parents = Parents(scope)
    asked = [question for _, question in scope.open.values()]
    return tuple(
        Question(id=each.id, body=log_question(each, parents.above(each.id)), expires=each.expires) for each in asked
    )


async def _answer_again(store: Store, target: SessionRef, scope: Scope, loaded: Loaded) -> None:
    for given in loaded.answers:
        if given.id in scope.open:
            answer = Answer(id=given.id, value=given.value, how=given.how, by=given.by)
            try:
                await store.answer(target, [answer])
            except AlreadyResumed:
                continue  # Somebody found the new session and was faster.
