"""The status of a session, and who owns it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from adjourn._owner import is_dead, owner_name
from adjourn._plain import Documented
from adjourn.events import Interrupt
from adjourn.stores.types import Head, Status


class SessionSummary(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The status of a session without its questions. A run whose process died counts as failed, and nobody owns it.

    `owner` is for people ("process 4711 on this machine"); `owner_id` is what the store knows it by. `inputs` is how
    many wait in its queue, and `program` the address of what runs it; one that no turn has begun in has no checkpoint.
    A store with a time to live removes the session after `removed_after`, unless something happens in it before.
    """

    session_id: str
    status: Status
    owner: str | None
    since: datetime
    checkpoint_id: str
    user_id: str | None = None
    owner_id: str | None = None
    app_name: str = "adjourn"
    inputs: int = 0
    program: str = ""
    removed_after: datetime | None = None


class SessionStatus(SessionSummary, frozen=True, kw_only=True):
    """The status of a session with the questions that wait for an answer."""

    interrupts: tuple[Interrupt, ...]


def owner_of(head: Head) -> str | None:
    """Return who runs a session now. The lease of a process that died remains for a while, but it owns nothing."""
    return None if head.owner is None or is_dead(head.owner) else head.owner


def status_of(head: Head) -> Status:
    """Return the status of a session; a run whose process died is stored as running, but has failed.

    One whose last turn is done, and whose queue has more for it, is queued.
    """
    if owner_of(head) is not None:
        return head.status
    if head.status == "running":
        return "failed"
    return "queued" if head.status == "done" and head.inputs else head.status


def summarize(head: Head) -> SessionSummary:
    """Return the status of a session without its questions."""
    owner = owner_of(head)
    return SessionSummary(
        session_id=head.session,
        status=status_of(head),
        owner=None if owner is None else owner_name(owner),
        since=datetime.fromtimestamp(head.updated, UTC),
        checkpoint_id=head.checkpoint,
        user_id=head.user,
        owner_id=owner,
        app_name=head.app,
        inputs=head.inputs,
        program=head.program,
        removed_after=None if head.removed_after is None else datetime.fromtimestamp(head.removed_after, UTC),
    )


def describe(head: Head, interrupts: Iterable[Interrupt]) -> SessionStatus:
    """Return the status of a session with its open questions."""
    return SessionStatus(**msgspec.structs.asdict(summarize(head)), interrupts=tuple(interrupts))
