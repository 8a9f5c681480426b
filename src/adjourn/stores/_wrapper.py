"""A store around another one: what it does not change, it passes on."""

# An override is documented where it is declared.

from __future__ import annotations

from collections.abc import Sequence

from .protocol import Store
from .types import (
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
    TakenNotice,
    Write,
)


class StoreWrapper:
    """Passes every call on to `inner`; a subclass overrides what it does differently."""

    def __init__(self, inner: Store) -> None:
        self.inner: Store = inner

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
        return await self.inner.claim(
            ref, owner, ttl, after=after, write=write, answers=answers, replaces=replaces, alone=alone
        )

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return await self.inner.renew(leases)

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self.inner.commit(lease, *writes, after=after, release=release)

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self.inner.answer(ref, answers, after=after)

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        return await self.inner.submit(ref, input)

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        return await self.inner.inputs(ref, limit=limit)

    async def has_input(self, ref: SessionRef, id: str) -> bool:
        return await self.inner.has_input(ref, id)

    async def withdraw(self, ref: SessionRef, id: str) -> bool:
        return await self.inner.withdraw(ref, id)

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        return await self.inner.load(ref, checkpoint)

    async def head(self, ref: SessionRef) -> Head | None:
        return await self.inner.head(ref)

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        return await self.inner.checkpoints(ref, limit=limit, before=before, source=source, under=under)

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        return await self.inner.sessions(app=app, user=user, status=status, after=after, limit=limit)

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        return await self.inner.find(session, user=user)

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        return await self.inner.questions(ref, filter=filter, after=after, limit=limit)

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        return await self.inner.count_questions(filter)

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        return await self.inner.audit(ref, branch, all_branches=all_branches)

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        return await self.inner.records(ref, after=after, limit=limit)

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        return await self.inner.asked(ref, branch, ids)

    async def begun(self, digest: str) -> list[Begun]:
        return await self.inner.begun(digest)

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        return await self.inner.events(ref, after, limit=limit)

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        return await self.inner.due(app=app, user=user, programs=programs, skip_users=skip_users, limit=limit)

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self.inner.cancel(ref, mode)

    async def delete(self, ref: SessionRef) -> None:
        await self.inner.delete(ref)

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self.inner.prune(ref, keep=keep, before=before)

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        return await self.inner.delete_idle(ttl, app=app, user=user, statuses=statuses, limit=limit)

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        return await self.inner.take_notices(app, to, ttl, limit=limit)

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        return await self.inner.settle_notice(taken, again=again)

    async def drop_notices(self, app: str, age: float) -> int:
        return await self.inner.drop_notices(app, age)

    async def close(self) -> None:
        await self.inner.close()
