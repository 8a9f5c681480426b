"""Stores on top of the decisions: the verbs that write, and the driver for stores that are reached in two trips."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import random
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from adjourn.errors import StoreUnavailable
from adjourn.stores.protocol import Answer, Claimed, Committed, Head, Lease, Renewed, SessionRef, Write

from .effects import Applied, Effects, advanced
from .facts import FactSheet, NotRead, Query, Remembered
from .requests import Cancel, Claim, Commit, Delete, GiveAnswers, Prune, Renew, Request
from .rows import SessionRow

T = TypeVar("T")

TRIES = 50
"""How often a write whose guard failed is decided again."""

_REMEMBERED = 10_000  # rows of sessions that are run here


class KitStore(ABC):
    """The verbs of `Store` that write to one session; each store defines how a request is carried out."""

    @abstractmethod
    async def carry_out(self, request: Request[T]) -> T:
        """Read the facts that the request wants, let it decide, apply the effects, and return the result."""

    async def claim(
        self,
        ref: SessionRef,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        replaces: str | None = None,
    ) -> Claimed:
        return await self.carry_out(
            Claim(ref=ref, owner=owner, ttl=ttl, after=after, write=write, answers=answers, replaces=replaces)
        )

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self.carry_out(Commit(lease=lease, writes=writes, after=after, release=release))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self.carry_out(GiveAnswers(ref=ref, answers=answers, after=after))

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self.carry_out(Cancel(ref=ref, mode=mode))

    async def delete(self, ref: SessionRef) -> None:
        await self.carry_out(Delete(ref=ref))

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self.carry_out(Prune(ref=ref, keep=keep, before=before))


class RemoteStore(KitStore):
    """A store that reads facts in one trip and applies effects in another, while others may write in between.

    Such a store has `read`, `apply` and `idle`, and the verbs of `Store` that only read. It should also have a
    `renew` that does all leases in one trip.

    A live owner's commit takes one trip: its facts are those that its last write left. Writes that one event loop
    makes to one session take effect in the order in which they were made.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], SessionRow] = {}
        self._turns: weakref.WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = weakref.WeakValueDictionary()

    @abstractmethod
    async def read(self, query: Query) -> FactSheet:
        """Return the facts that a query wants, all as they are at one moment."""

    @abstractmethod
    async def apply(self, ref: SessionRef, effects: Effects) -> Applied | None:
        """Write all of the effects, or return None and write nothing because a guard does not hold.

        `ref` names a user only where the session must be that user's; with `guard.exists` False it is the new session.
        """

    @abstractmethod
    async def idle(self, ttl: float, *, app: str | None, user: str | None) -> list[SessionRef]:
        """List sessions that nobody runs, and nobody has written, answered or renewed for `ttl` seconds."""

    async def carry_out(self, request: Request[T]) -> T:
        ref = request.ref
        key = (id(asyncio.get_running_loop()), ref.app, ref.id)
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = asyncio.Lock()
        async with turn:
            return await self._decide(request)

    async def _decide(self, request: Request[T]) -> T:
        remembered = self._remembered(request)
        if remembered is not None:
            try:
                done = await self._try(request, remembered)
            except NotRead:
                pass  # others may have changed what it depends on
            else:
                if done is not None:
                    return done[0]
        query = request.query()
        for attempt in range(TRIES):
            done, query = await self._read_and_try(request, query)
            if done is not None:
                return done[0]
            if attempt > 2:
                await asyncio.sleep(random.uniform(0, 0.001 * min(attempt, 20)))
        raise StoreUnavailable(repr(self), f"others keep changing session '{request.ref.id}'")

    async def _read_and_try(self, request: Request[T], query: Query) -> tuple[tuple[T] | None, Query]:
        while True:
            facts = await self.read(query)
            try:
                return await self._try(request, facts), query
            except NotRead as more:
                query = query.widened(more.query)

    async def _try(self, request: Request[T], facts: FactSheet) -> tuple[T] | None:
        """Decide and apply; None if a guard did not hold, so it must be decided again."""
        effects, result = request.decide(facts)
        if effects is None:
            return (result,)
        if effects.lease is not None or effects.removes:
            self._held.pop((request.ref.app, request.ref.id), None)
        applied = await self.apply(request.ref, effects)
        if applied is None:
            return None
        if isinstance(result, Committed) and result.cancel != applied.cancel:
            result = replace(result, cancel=applied.cancel)
        self._remember(request.ref, facts, effects)
        return (result,)

    def _remember(self, ref: SessionRef, facts: FactSheet, effects: Effects) -> None:
        if effects.lease is None or effects.lease.owner is None:
            return
        if len(self._held) >= _REMEMBERED:
            self._held.clear()  # most of them belong to runs that have died
        row = facts.row or SessionRow(0, ref.id, ref.app, ref.user, facts.now)
        self._held[ref.app, ref.id] = advanced(row, effects, facts.now)

    def _remembered(self, request: Request[object]) -> Remembered | None:
        """Return what a live owner knows; None if this is not its next commit."""
        if not isinstance(request, Commit):
            return None
        row, lease = self._held.get((request.ref.app, request.ref.id)), request.lease
        if row is None or (row.fence, row.owner, row.checkpoint) != (lease.fence, lease.owner, request.after):
            return None
        return Remembered(request.ref, row)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return [await self._renew(lease) for lease in leases]

    async def _renew(self, lease: Lease) -> Renewed:
        applied = await self.apply(lease.ref, Renew(lease=lease).effects())
        if applied is None:
            return Renewed(ref=lease.ref, lost=True)
        return Renewed(ref=lease.ref, lost=False, cancel=applied.cancel)

    async def delete_idle(self, ttl: float, *, app: str | None = None, user: str | None = None) -> list[SessionRef]:
        found = await self.idle(ttl, app=app, user=user)
        return [ref for ref in found if await self.carry_out(Delete(ref=ref, idle=ttl))]
