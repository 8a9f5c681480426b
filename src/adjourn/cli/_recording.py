"""Recording an answer beside a session's log, without the code that asked."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from adjourn._schemas.answers import problems, to_json_data
from adjourn._values import codec
from adjourn.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    InvalidAnswer,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.sessions._log import read_interrupt
from adjourn.stores.protocol import Answer, AuditEntry, Head, SessionRef, Store

from .output.documents import owner_of
from .output.questions import open_questions

TRIES = 20
"""How often an answer looks again when the session moves under it."""


class Recorded(NamedTuple):
    """An answer that counts: where the session stands, and what it still asks."""

    head: Head
    left: list[Interrupt]

    @property
    def is_running(self) -> bool:
        """Whether somebody runs the session, and takes the answer up."""
        return owner_of(self.head) is not None


async def find_question(store: Store, ref: SessionRef, name: str | None) -> Interrupt:
    """The open question of this id or key, or the only one.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired: there is none, or none any more.
        UsageError: there are several to choose from.
    """
    found = await open_questions(store, ref)
    if name is not None:
        named = [asked for asked in found if asked.id == name] or [asked for asked in found if asked.key == name]
    else:
        named = found
    if len(named) == 1:
        return named[0]
    if not named:
        raise await _none(store, ref, name, [asked.id for asked in found])
    ids = "\n".join(f"  {asked.id}" for asked in named)
    raise UsageError(f"Session '{ref.id}' asks {len(named)} questions. Choose one with --question ID:\n{ids}")


async def _none(store: Store, ref: SessionRef, name: str | None, open_: list[str]) -> Exception:
    session_id, head = ref.id, await store.head(ref)
    if head is None:
        return CheckpointNotFound(session_id)
    ended = [each for each in await store.audit(ref) if name is None or _has_name(each, session_id, name)]
    if not ended:
        if name is None:
            return UsageError(
                f"Session '{session_id}' asks nothing now. `adjourn show {session_id}` tells how it stands."
            )
        return UnknownInterrupt(session_id, name, open_)
    last = max(ended, key=lambda each: each.at or 0.0)
    if last.how in (None, "expired"):
        return InterruptExpired(session_id, last.id)
    return AlreadyResumed(session_id, last.id, live=owner_of(head) is not None, by=last.by, at=last.at)


def _has_name(decision: AuditEntry, session_id: str, name: str) -> bool:
    return name in (decision.id, read_interrupt(decision.body, session_id).key)


async def record(
    store: Store, ref: SessionRef, asked: Interrupt, value: Any, *, by: str | None, seen: str | None = None
) -> Recorded:
    """Write an answer, provided that the question is still the one that was shown.

    With the checkpoint that was `seen` it counts only if nothing at all has moved since.

    Raises:
        InvalidAnswer: it does not fit; the question stays open.
        AlreadyResumed, InterruptExpired, UnknownInterrupt: as for `find_question`.
        StaleCheckpoint: what is asked there now is something else, or something moved.
    """
    answer = Answer(id=asked.id, value=_checked(asked, value), by=by)
    for _ in range(TRIES):
        now = await find_question(store, ref, asked.id)
        standing = now.checkpoint_id or ""
        if _shown(now) != _shown(asked) or seen not in (None, standing):
            raise StaleCheckpoint(asked.session_id, seen or asked.checkpoint_id or "", standing)
        try:
            head = await store.answer(ref, [answer], after=standing)
        except Conflict:
            continue  # Something else of the session went on; the question may still be the same.
        return Recorded(head, await open_questions(store, ref))
    raise Conflict(asked.session_id, "others keep writing it")


def _shown(asked: Interrupt) -> Interrupt:
    return msgspec.structs.replace(asked, checkpoint_id=None)


def _checked(asked: Interrupt, value: Any) -> bytes:
    try:
        found = problems(to_json_data(value), asked.schema)
    except (TypeError, ValueError) as error:
        found = [str(error)]
    if found:
        raise InvalidAnswer(asked.session_id, asked.id, found)
    return codec.encode(*codec.adopt(value, "the answer"))
