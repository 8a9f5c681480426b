"""Lineage: which records lead to a place in a session's history, and what the log has that does not."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from adjourn.core.events import Event

from .logged import read_events
from .store import Listed, Store

PAGE = 100
"""Records whose events are read at once."""


async def logged_elsewhere(store: Store, session: str, branch: str, number: int = sys.maxsize) -> AsyncIterator[Event]:
    """The events on the branches that a session has left, or has gone on with, since the record `number` of `branch`.

    A session that was forked from another has left that one: its log counts, too.
    """
    if await store.head(session) is None:
        return  # It is not stored yet, or not any more.
    starts = {_split(start.id)[0]: start for start in await _starts(store, session)}
    leading = _leading(starts, branch, number)
    if number != sys.maxsize or any(start.parent is not None for start in starts.values()):
        async for event in _other_events(store, session, leading):
            yield event
    origin = _origin(starts, leading)
    if origin is not None and origin[0] != session:
        async for event in logged_elsewhere(store, origin[0], *_split(origin[1])):
            yield event


async def _starts(store: Store, session: str) -> list[Listed]:
    """The records that begin a branch; that of the first is here only if the session was forked from another."""
    found = [*await store.list(session, source="fork"), *await store.list(session, source="edit")]
    return [each for each in found if _split(each.id)[1] == 0]


def _leading(starts: Mapping[str, Listed], branch: str, number: int) -> dict[str, int]:
    """The branches that lead to a record, each with the number up to which it does."""
    leading = {branch: number}
    while (start := starts.get(branch)) is not None and start.parent is not None:
        branch, number = _split(start.parent)
        leading[branch] = number
    return leading


async def _other_events(store: Store, session: str, leading: Mapping[str, int]) -> AsyncIterator[Event]:
    after = 0
    while batches := await store.events(session, after, limit=PAGE):
        for batch in batches:
            after = batch.first + batch.count - 1
            branch, number = _split(batch.id)
            if number > leading.get(branch, -1):
                for event in read_events(batch):
                    yield event


def _origin(starts: Mapping[str, Listed], leading: Mapping[str, int]) -> tuple[str, str] | None:
    """The session and checkpoint that a session was forked from."""
    for branch in leading:
        start = starts.get(branch)
        if start is not None and start.parent is None and "forked_from" in start.header.metadata:
            came = cast("dict[str, Any]", start.header.metadata["forked_from"])
            return came["session_id"], came["checkpoint_id"]
    return None


def _split(checkpoint: str) -> tuple[str, int]:
    branch, _, number = checkpoint.rpartition(".")
    return branch, int(number)
