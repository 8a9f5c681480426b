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
from adjourn.stores.protocol import Answer, Header, Loaded, Question, Status, Store, Write

from ._settings import Settings, check_name

TTL = 30.0


async def fork_stored(store: Store, session_id: str, checkpoint_id: str | None = None, to: str | None = None) -> str:
    """Begin a new session as another one was at a checkpoint, by default its head; returns its id.

    What was answered there and not taken up is answered in the new session, too.

    Raises:
        CheckpointNotFound: there is no such session or checkpoint.
        UsageError: the new session exists already.
    """
    settings = Settings({"store": store})
    target = settings.new_id() if to is None else to
    check_name("session_id", target)
    if await store.head(target) is not None:
        raise UsageError(f"There is a session '{target}' already. Give the new one another id.")
    loaded = await store.load(session_id, checkpoint_id)
    if loaded is None:
        raise CheckpointNotFound(session_id, checkpoint_id)
    scope = Scope(target, app="", user_id=None, clock=time.time)
    scope.restore(fold(loaded.rows))
    header = await _header(store, session_id, loaded.point)
    await _write(store, scope, settings.new_branch(), header)
    await _answer_again(store, target, scope, loaded)
    return target


async def _header(store: Store, session_id: str, point: str) -> Header:
    """The header of the fork, from the listed checkpoint that the point is or follows on."""
    listed = {each.id: each.header for each in await store.list(session_id)}
    branch, _, digits = point.rpartition(".")
    near = next((listed[name] for n in range(int(digits), -1, -1) if (name := f"{branch}.{n}") in listed), Header())
    origin: dict[str, Any] = {"forked_from": {"session_id": session_id, "checkpoint_id": point}}
    return msgspec.structs.replace(near, source="fork", metadata=origin)


async def _write(store: Store, scope: Scope, branch: str, header: Header) -> None:
    status: Status = "waiting" if scope.questions.open else "cancelled" if header.next else "done"
    record = Record(
        v=FORMAT, full=True, turn=scope.turn, app=scope.app, user=scope.user_id, asked=scope.questions.asked
    )
    record.frames = dict(scope.dormant.snapshot(""))
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
    claimed = await store.claim(
        scope.session_id, owner, TTL, after=None, write=first, app=scope.app, user=scope.user_id
    )
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
    asked = [question for _, question in scope.questions.open.values()]
    return tuple(
        Question(id=each.id, body=log_question(each, parents.above(each.id)), expires=each.expires) for each in asked
    )


async def _answer_again(store: Store, target: str, scope: Scope, loaded: Loaded) -> None:
    for given in loaded.answers:
        if given.id in scope.questions.open:
            answer = Answer(id=given.id, value=given.value, how=given.how, by=given.by)
            try:
                await store.answer(target, [answer])
            except AlreadyResumed:
                continue  # Somebody found the new session and was faster.
