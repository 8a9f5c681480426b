"""The methods of a store that callers use, each of them a request or a query."""

# Each is documented in the protocol.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

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
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
    Write,
)

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
    StoreQuery,
)
from .requests import (
    Cancel,
    Claim,
    Commit,
    Delete,
    DeleteIdle,
    DropNotices,
    GiveAnswers,
    Prune,
    SettleNotice,
    StoreRequest,
    Submit,
    TakeNotices,
    Withdraw,
)

T = TypeVar("T")


class StoreVerbs(ABC):
    """Every verb of `Store`, for a store that has `write` and `read`."""

    @abstractmethod
    async def write(self, request: StoreRequest[T]) -> T:
        """Do what a request asks, all of it or nothing."""

    @abstractmethod
    async def read(self, query: StoreQuery[T]) -> T:
        """Answer a query."""

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
        return await self.write(
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
        return await self.write(Commit(lease=lease, writes=writes, after=after, release=release))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self.write(GiveAnswers(ref=ref, answers=answers, after=after))

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        return await self.write(Submit(ref=ref, input=input))

    async def withdraw(self, ref: SessionRef, id: str) -> bool:
        return await self.write(Withdraw(ref=ref, id=id))

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self.write(Cancel(ref=ref, mode=mode))

    async def delete(self, ref: SessionRef) -> None:
        await self.write(Delete(ref=ref))

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self.write(Prune(ref=ref, keep=keep, before=before))

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        return await self.write(DeleteIdle(ttl=ttl, app=app, user=user, statuses=statuses, limit=limit))

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        return await self.write(TakeNotices(app, to, ttl, limit))

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        return await self.write(SettleNotice(taken, again))

    async def drop_notices(self, app: str, age: float) -> int:
        return await self.write(DropNotices(app, age))

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
