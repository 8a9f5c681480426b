"""Retention: removing what is old, a little at a time, beside sessions that run and wait."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import timedelta
from typing import get_args

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, UsageError
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import DeleteIdle, ListSessions, Prune
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, Status

from ._status import status_of

ENDED: tuple[Status, ...] = ("done", "failed", "cancelled")
"""The statuses of sessions that wait for nothing."""

BATCH = 200
"""How many sessions are removed at a time, so that no write of others waits long."""


def seconds_of(older_than: timedelta | float) -> float:
    """Return an age in seconds.

    Raises:
        UsageError: it is not one.
    """
    age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    # Not a number compares as neither, and users pass anything.
    if isinstance(age, bool) or not isinstance(age, int | float) or not age >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"older_than={older_than!r}: give a timedelta, or seconds, 0 or more.")
    return float(age)


def check_statuses(statuses: Sequence[Status]) -> None:
    """Refuse statuses by which nothing could be removed.

    Raises:
        UsageError: there are none, or one is not the status of a session that nobody runs.
    """
    known = [each for each in get_args(Status) if each != "running"]
    # Users pass anything, such as an iterator, which could be read only once.
    given: list[object] = list(statuses) if isinstance(statuses, list | tuple | Set) else []
    if not given or [each for each in given if each not in known]:
        raise UsageError(f"statuses={statuses!r}: give a list with some of {', '.join(known)}.")


async def old_sessions(
    store: Store, before: float, app: str | None, user: str | None, statuses: Sequence[Status]
) -> list[Head]:
    """Return what `clean_up` would remove, page by page."""
    found: list[Head] = []
    after: str | None = None
    while page := await store.read(ListSessions(app=app, user=user, after=after, limit=BATCH)):
        found += [head for head in page if _is_old(head, before, statuses)]
        after = page[-1].cursor
    return found


def _is_old(head: Head, before: float, statuses: Sequence[Status]) -> bool:
    # As `Store.delete_idle` decides it: a lease that lasts counts, even if its process is gone.
    if head.owner is not None or max(head.touched, head.updated) >= before:
        return False
    return status_of(head) in statuses and (not head.inputs or "queued" in statuses)


async def clean_up(
    store: Store, age: float, app: str | None, user: str | None, statuses: Sequence[Status]
) -> list[str]:
    """Remove sessions that nobody has written or answered for `age` seconds, and return their ids."""
    removed: list[str] = []
    while gone := await store.write(DeleteIdle(ttl=age, app=app, user=user, statuses=statuses, limit=BATCH)):
        removed += [ref.id for ref in gone]
    return removed


async def prune_all(store: Store, app: str | None, user: str | None, keep: int | None, before: float | None) -> int:
    """Remove old checkpoints of all sessions, one session at a time, and return how many."""
    count = 0
    for head in await store.read(ListSessions(app=app, user=user)):
        try:
            count += await store.write(Prune(head.ref, keep=keep, before=before))
        except CheckpointNotFound:
            pass  # It was deleted meanwhile.
        except CheckpointCorrupt as damage:
            note_damage(damage)
    return count
