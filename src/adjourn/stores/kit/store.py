"""Stores on top of the decisions: the verbs that write, and the driver for stores that are reached in two trips."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from adjourn.errors import AdjournError, StoreUnavailable, UsageError
from adjourn.stores.types import (
    ALL_QUESTIONS,
    Answer,
    AuditEntry,
    Begun,
    CheckpointRow,
    Claimed,
    Committed,
    Due,
    EventBatch,
    Head,
    Input,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    Renewed,
    SessionRef,
    Status,
    StoredRecord,
    Write,
)

from .changes import Changes, Later, changes_of
from .effects import Applied, Effects, advanced
from .facts import FactSheet, NotRead, Query, Remembered
from .hints import worth_a_hint
from .queries import (
    Audit,
    CountQuestions,
    FindSessions,
    GetHead,
    HasInput,
    ListAsked,
    ListBegun,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListInputs,
    ListOpen,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    SessionQuery,
    StoreQuery,
)
from .requests import (
    Cancel,
    Claim,
    Commit,
    Decision,
    Delete,
    GiveAnswers,
    Prune,
    Renew,
    Request,
    Submit,
    Withdraw,
)
from .rows import SessionRow

T = TypeVar("T")

TRIES = 50
"""How often a write whose guard failed is decided again."""

_REMEMBERED = 10_000  # rows


class KitStore(ABC):
    """The verbs of `Store`, as requests and queries; each store defines how these are carried out."""

    @abstractmethod
    async def carry_out(self, request: Request[T]) -> T:
        """Read the facts that the request wants, let it decide, apply the effects, and return the result."""

    async def read(self, query: StoreQuery[T]) -> T:
        """Answer a query: those of one session from facts, the others as the store can."""
        raise NotImplementedError

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
        alone: bool = False,
    ) -> Claimed:
        return await self.carry_out(
            Claim(
                ref=ref,
                owner=owner,
                ttl=ttl,
                after=after,
                write=write,
                answers=answers,
                replaces=replaces,
                alone=alone,
            )
        )

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self.carry_out(Commit(lease=lease, writes=writes, after=after, release=release))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self.carry_out(GiveAnswers(ref=ref, answers=answers, after=after))

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        return await self.carry_out(Submit(ref=ref, input=input))

    async def withdraw(self, ref: SessionRef, id: str) -> bool:
        return await self.carry_out(Withdraw(ref=ref, id=id))

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self.carry_out(Cancel(ref=ref, mode=mode))

    async def delete(self, ref: SessionRef) -> None:
        await self.carry_out(Delete(ref=ref))

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self.carry_out(Prune(ref=ref, keep=keep, before=before))

    async def head(self, ref: SessionRef) -> Head | None:
        return await self.read(GetHead(ref))

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        return await self.read(Load(ref, checkpoint))

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        return await self.read(ListInputs(ref, limit))

    async def has_input(self, ref: SessionRef, id: str) -> bool:
        return await self.read(HasInput(ref, id))

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        return await self.read(ListCheckpoints(ref, limit, before, source, under))

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        return await self.read(ListRecords(ref, after, limit))

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        return await self.read(ListEvents(ref, after, limit))

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        return await self.read(Audit(ref, branch, all_branches))

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        return await self.read(ListAsked(ref, branch, ids))

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        return await self.read(ListSessions(app=app, user=user, status=status, after=after, limit=limit))

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        return await self.read(FindSessions(session, user))

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        if ref is not None:
            return await self.read(ListOpen(ref, filter, after, limit))
        return await self.read(ListQuestions(filter=filter, after=after, limit=limit))

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        return await self.read(CountQuestions(filter))

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        return await self.read(ListDue(app=app, user=user, programs=programs, skip_users=skip_users, limit=limit))

    async def begun(self, digest: str) -> list[Begun]:
        return await self.read(ListBegun(digest))


def unknown_query(store: object, query: object) -> UsageError:
    """Return the error for a query that a store does not answer."""
    name = type(query).__name__
    return UsageError(f"{store!r} was asked {name}, which it does not know. Give it a query of `adjourn.stores.kit`.")


class RemoteStore(KitStore):
    """A store that reads facts in one trip and applies effects in another, while others may write in between.

    Such a store has `facts`, `apply` and `idle`, and the verbs of `Store` that only read. It should also have a
    `renew` that does all leases in one trip.

    A live owner's commit takes one trip: its facts are those that its last write left. So does a claim of a session
    that is new, or that was written or loaded here last. Writes that one event loop makes to one session take effect
    in the order in which they were made.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SessionRow] = {}  # as they were last written or read here
        self._turns: dict[tuple[int, str, str], deque[asyncio.Future[None]]] = {}  # who waits behind a write

    @abstractmethod
    async def facts(self, query: Query) -> FactSheet:
        """Return the facts that are wanted, all as they are at one moment."""

    async def read(self, query: StoreQuery[T]) -> T:
        if not isinstance(query, SessionQuery):
            raise unknown_query(self, query)
        return query.answer(await self.facts(query.wanted()))

    async def write(self, changes: Changes) -> Applied | None:
        """Write all of the changes, or return None and write nothing because a guard or an expectation does not hold.

        `changes.ref` names a user only where the session must be that user's; with `guard.exists` False it is the new
        session.
        """
        raise NotImplementedError

    async def apply(self, ref: SessionRef, effects: Effects) -> Applied | None:
        """Write all of the effects, or return None and write nothing because a guard does not hold.

        `ref` names a user only where the session must be that user's; with `guard.exists` False it is the new session.
        """
        raise NotImplementedError

    async def _write_or_apply(self, ref: SessionRef, facts: FactSheet, effects: Effects) -> Applied | None:
        # Stores are moved from effects to changes one by one.
        if type(self).write is RemoteStore.write:
            return await self.apply(ref, effects)
        return await self.write(changes_of(ref, facts.row, effects, Later(facts.now)))

    @abstractmethod
    async def idle(
        self,
        ttl: float,
        *,
        app: str | None,
        user: str | None,
        statuses: Sequence[Status] | None,
        limit: int | None,
    ) -> list[SessionRef]:
        """List sessions that nobody runs, and nobody has written, answered or renewed for `ttl` seconds.

        `statuses` are as in `may_be_removed`. Damaged sessions are left out, and do not count.
        """

    async def carry_out(self, request: Request[T]) -> T:
        ref = request.ref
        key = (id(asyncio.get_running_loop()), ref.app, ref.id)
        if key in self._turns:
            await self._wait(key)
        else:
            self._turns[key] = deque()
        try:
            return await self._decide(request)
        finally:
            self._let_next(key)

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

    async def _decide(self, request: Request[T]) -> T:
        remembered = self._remembered(request)
        if remembered is not None:
            try:
                decision = request.decide(remembered)
            except (NotRead, AdjournError):
                pass  # others may have changed what it depends on; only what was read is a reason to refuse
            else:
                done = await self._carry(request, remembered, decision)
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
            facts = await self.facts(query)
            try:
                decision = request.decide(facts)
            except NotRead as more:
                query = query.widened(more.query)
            else:
                return await self._carry(request, facts, decision), query

    async def _carry(self, request: Request[T], facts: FactSheet, decision: Decision[T]) -> tuple[T] | None:
        """Apply a decision; None if a guard did not hold, so it must be decided again."""
        effects, result = decision
        if effects is None:
            return (result,)
        if effects.lease is not None or effects.removes:
            self._known.pop((request.ref.app, request.ref.id), None)
        applied = await self._write_or_apply(request.ref, facts, effects)
        if applied is None:
            return None
        if isinstance(result, Committed):
            at = applied.at if effects.records else result.at
            result = replace(result, cancel=applied.cancel, at=at, inputs=applied.inputs)
        elif isinstance(result, Claimed) and effects.records:
            result = replace(result, at=applied.at)
        if effects.lease is not None:
            row = facts.row or SessionRow(0, request.ref.id, request.ref.app, request.ref.user, applied.at)
            self._remember(advanced(row, effects, applied.at))
        if worth_a_hint(effects):
            self.hint(request.ref)
        return (result,)

    def hint(self, ref: SessionRef) -> None:
        """Let others know that a session has something new, if the store can: see `Hints`. It must not wait."""

    def note_loaded(self, row: SessionRow) -> None:
        """Keep the row that `load` has just read, so that a claim need not read it again."""
        if row.owner is None:  # otherwise its owner may be here, and knows more by now
            self._remember(row)

    def _remember(self, row: SessionRow) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()  # most of them belong to sessions that nobody goes on with here
        self._known[row.app, row.session] = row

    def _remembered(self, request: Request[object]) -> Remembered | None:
        """Return what is known without reading; None if it is not where this request means to go on."""
        if not isinstance(request, Claim | Commit):
            return None
        row = self._known.get((request.ref.app, request.ref.id))
        if isinstance(request, Commit):
            lease = request.lease
            is_next = row is not None and (row.fence, row.owner) == (lease.fence, lease.owner)
        elif row is None:
            # A new session has nothing to read. If there is one, the guard sees it.
            is_next = request.after is None and request.write is not None and request.write.input is None
        else:
            is_next = row.owner in (None, request.replaces)
        if not is_next or (row is not None and row.checkpoint != (request.after or "")):
            return None
        return Remembered(request.ref, row)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return [await self._renew(lease) for lease in leases]

    async def _renew(self, lease: Lease) -> Renewed:
        if not lease.ttl:
            self._known.pop((lease.ref.app, lease.ref.id), None)
        applied = await self.apply(lease.ref, Renew(lease=lease).effects())
        if applied is None:
            return Renewed(ref=lease.ref, lost=True)
        if not lease.ttl:
            self.hint(lease.ref)
        return Renewed(ref=lease.ref, lost=False, cancel=applied.cancel)

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        found = await self.idle(ttl, app=app, user=user, statuses=statuses, limit=limit)
        return [ref for ref in found if await self.carry_out(Delete(ref=ref, idle=ttl, statuses=statuses))]
