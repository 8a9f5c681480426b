"""The status of a session, and who owns it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from adjourn._owner import is_dead, owner_name
from adjourn.events import Interrupt
from adjourn.stores.protocol import Head, Status


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a session. A run whose process died counts as failed, and nobody owns it.

    `owner` is for people ("process 4711 on this machine"); `owner_id` is what the store knows it by.
    """

    session_id: str
    status: Status
    owner: str | None
    since: datetime
    interrupts: tuple[Interrupt, ...]
    checkpoint_id: str
    user_id: str | None = None
    owner_id: str | None = None
    app_name: str = "adjourn"


def owner_of(head: Head) -> str | None:
    """Return who runs a session now. The lease of a process that died remains for a while, but it owns nothing."""
    return None if head.owner is None or is_dead(head.owner) else head.owner


def status_of(head: Head) -> Status:
    """Return the status of a session; a run whose process died is stored as running, but has failed."""
    return "failed" if head.status == "running" and owner_of(head) is None else head.status


def describe(head: Head, interrupts: Iterable[Interrupt]) -> SessionStatus:
    """Return the status of a session with its open questions."""
    owner = owner_of(head)
    return SessionStatus(
        session_id=head.session,
        status=status_of(head),
        owner=None if owner is None else owner_name(owner),
        since=datetime.fromtimestamp(head.updated, UTC),
        interrupts=tuple(interrupts),
        checkpoint_id=head.checkpoint,
        user_id=head.user,
        owner_id=owner,
        app_name=head.app,
    )
