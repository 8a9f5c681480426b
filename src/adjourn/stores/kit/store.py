"""Stores on top of the decisions: what carries out requests, and the driver for stores reached in two trips."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from adjourn.errors import AdjournError, CheckpointCorrupt, StoreUnavailable, UsageError
from adjourn.stores._logging import note_damage
from adjourn.stores.types import (
    Claimed,
    Committed,
    Lease,
    Renewed,
    SessionRef,
)

from .effects import Applied, Effects, settled
from .facts import FactSheet, FactsWanted, NotRead, Remembered
from .queries import (
    ListIdle,
    SessionQuery,
    StoreQuery,
)
from .requests import (
    OF_MANY,
    Claim,
    Commit,
    Decision,
    Delete,
    DeleteIdle,
    Renew,
    SessionRequest,
    StoreRequest,
)
from .rows import SessionRow, is_named

T = TypeVar("T")

TRIES = 50
"""How often a write whose guard failed is decided again."""

_REMEMBERED = 10_000  # rows


class KitStore(ABC):
    """A store that decides requests and answers queries from facts; each defines how it gets those."""

    @abstractmethod
    async def carry_out(self, request: SessionRequest[T]) -> T:
        """Read the facts that the request wants, let it decide, apply the effects, and return the result."""

    async def write(self, request: StoreRequest[T]) -> T:
        """Do what a request asks, all of it or nothing."""
        if type(request) in OF_MANY:
            return await self.maintain(request)
        of_session: Any = request  # as all others are
        return await self.carry_out(of_session)

    async def maintain(self, request: StoreRequest[Any]) -> Any:  # Any: each request says what it returns
        """Do what a request asks of more than one session, or of the outbox."""
        raise unknown_request(self, request)

    async def read(self, query: StoreQuery[T]) -> T:
        """Answer a query: those of one session from facts, the others as the store can."""
        raise unknown_request(self, query)


def unknown_request(store: object, given: object) -> UsageError:
    """Return the error for a request or a query that a store does not know."""
    name = type(given).__name__
    return UsageError(f"{store!r} was given {name}, which it does not know. Use those of `adjourn.stores.kit`.")


class RemoteStore(KitStore):
    """A store that reads facts in one trip and applies effects in another, while others may write in between.

    Such a store has `facts`, `apply`, `listing`, and the outbox. It should also have a `renew` that does all leases in
    one trip.

    A live owner's commit takes one trip: its facts are those that its last write left. So does a claim of a session
    that is new, or that was written or loaded here last. Writes that one event loop makes to one session take effect
    in the order in which they were made.
    """

    ttl: float | None = None
    """For how many seconds a session is kept after it was last touched; None: until it is removed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SessionRow] = {}  # as they were last written or read here
        self._turns: dict[tuple[int, str, str], deque[asyncio.Future[None]]] = {}  # who waits behind a write

    @abstractmethod
    async def facts(self, wanted: FactsWanted) -> FactSheet:
        """Return the facts that are wanted, all as they are at one moment."""

    async def maintain(self, request: StoreRequest[Any]) -> Any:
        if not isinstance(request, DeleteIdle):
            return await self.outbox(request)
        found = await self.read(ListIdle(request.ttl, request.app, request.user, request.statuses, request.limit))
        return [ref for ref in found if await self._delete_if_idle(Delete(ref, request.ttl, request.statuses))]

    async def _delete_if_idle(self, request: Delete) -> bool:
        try:
            return await self.carry_out(request)
        except CheckpointCorrupt as damage:
            note_damage(damage)
            return False

    async def outbox(self, request: StoreRequest[Any]) -> Any:  # Any: each request says what it returns
        """Take, settle or drop notices."""
        raise unknown_request(self, request)

    async def read(self, query: StoreQuery[T]) -> T:
        if not isinstance(query, SessionQuery):
            return await self.listing(query)
        wanted = query.wanted()
        facts = await self.facts(wanted)
        if (wanted.head or wanted.fold) and facts.row is not None and is_named(facts.row, query.ref):
            self._note_loaded(facts.row)
        return query.answer(facts)

    async def listing(self, query: StoreQuery[Any]) -> Any:  # Any: each query says what it returns
        """Answer a query over many sessions, or about what outlives them."""
        raise unknown_request(self, query)

    @abstractmethod
    async def apply(self, effects: Effects) -> Applied | None:
        """Write all of the effects, or return None and write nothing because a guard or an expectation does not hold.

        `effects.ref` names a user only where the session must be that user's.
        """

    async def carry_out(self, request: SessionRequest[T]) -> T:
        ref = request.ref
        key = (id(asyncio.get_running_loop()), ref.app, ref.id)
        if key in self._turns:
            await self._wait(key)
        else:
            self._turns[key] = deque()
        try:
            return await self._decide(request)
        except CheckpointCorrupt as damage:
            asked = request.plain
            if not isinstance(asked, Delete) or asked.idle is not None:
                raise
            # A damaged row does not say who runs the session. The caller wants it gone.
            return cast("T", await self.remove_damaged(asked, damage))
        finally:
            self._let_next(key)

    async def remove_damaged(self, request: Delete, damage: CheckpointCorrupt) -> bool:
        """Remove a session although its rows cannot be read, with all that is below it; return whether it was there."""
        raise damage

    async def _wait(self, key: tuple[int, str, str]) -> None:
        """Wait until it is one's turn to write to a session."""
        turn = asyncio.get_running_loop().create_future()
        self._turns[key].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._let_next(key)  # it was its turn already
            raise

    def _let_next(self, key: tuple[int, str, str]) -> None:
        waiting = self._turns[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._turns[key]

    async def _decide(self, request: SessionRequest[T]) -> T:
        remembered = self._remembered(request)
        if remembered is not None:
            remembered.ttl = self.ttl
            try:
                decision = request.decide(remembered)
            except (NotRead, AdjournError):
                pass  # others may have changed what it depends on; only what was read is a reason to refuse
            else:
                done = await self._carry(request, decision)
                if done is not None:
                    return done[0]
        wanted = request.wanted()
        for attempt in range(TRIES):
            done, wanted = await self._read_and_try(request, wanted)
            if done is not None:
                return done[0]
            if attempt > 2:
                await asyncio.sleep(random.uniform(0, 0.001 * min(attempt, 20)))
        raise StoreUnavailable(repr(self), f"others keep changing session '{request.ref.id}'")

    async def _read_and_try(
        self, request: SessionRequest[T], wanted: FactsWanted
    ) -> tuple[tuple[T] | None, FactsWanted]:
        while True:
            facts = await self.facts(wanted)
            facts.ttl = self.ttl
            try:
                decision = request.decide(facts)
            except NotRead as more:
                wanted = wanted.widened(more.wanted)
            else:
                return await self._carry(request, decision), wanted

    async def _carry(self, request: SessionRequest[T], decision: Decision[T]) -> tuple[T] | None:
        """Apply a decision; None if a guard did not hold, so it must be decided again."""
        effects, result = decision
        if effects is None:
            return (result,)
        after = effects.after
        if after is None or effects.changes_lease:
            self.forget(request.ref)
        applied = await self.apply(effects)
        if applied is None:
            return None
        if isinstance(result, Committed):
            at = applied.at if effects.has_records else result.at
            result = replace(result, cancel=applied.cancel, at=at, inputs=applied.inputs)
        elif isinstance(result, Claimed) and effects.has_records:
            result = replace(result, at=applied.at)
        if after is not None and effects.changes_lease:
            self._remember(settled(after, applied.at))
        if effects.is_news:
            self.hint(request.ref)
        return (result,)

    def hint(self, ref: SessionRef) -> None:
        """Let others know that a session has something new, if the store can: see `Hints`. It must not wait."""

    def _note_loaded(self, row: SessionRow) -> None:
        """Keep the row that was just read with its head, so that a claim need not read it again."""
        if row.owner is None:  # otherwise its owner may be here, and knows more by now
            self._remember(row)

    def forget(self, ref: SessionRef) -> None:
        """Forget the row of a session, which somebody is about to change."""
        self._known.pop((ref.app, ref.id), None)

    def _remember(self, row: SessionRow) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()  # most of them belong to sessions that nobody goes on with here
        self._known[row.app, row.session] = row

    def _remembered(self, request: SessionRequest[object]) -> Remembered | None:
        """Return what is known without reading; None if it is not where this request means to go on."""
        asked = request.plain
        if not isinstance(asked, Claim | Commit):
            return None
        row = self._known.get((request.ref.app, request.ref.id))
        if isinstance(asked, Commit):
            lease = asked.lease
            is_next = row is not None and (row.fence, row.owner) == (lease.fence, lease.owner)
        elif row is None:
            # A new session has nothing to read. If there is one, the guard sees it.
            is_next = asked.after is None and asked.write is not None and asked.write.input is None
        else:
            is_next = row.owner in (None, asked.replaces)
        if not is_next or (row is not None and row.checkpoint != (asked.after or "")):
            return None
        return Remembered(request.ref, row)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return [await self.carry_out(Renew(lease=lease)) for lease in leases]
