"""A store that fails when a test wants it to."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores.protocol import (
    Answer,
    AuditEntry,
    Begun,
    CheckpointRow,
    Claimed,
    Committed,
    Due,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    Renewed,
    SessionRef,
    Status,
    Store,
    Write,
)

T = TypeVar("T")

Mode = Literal["before", "after", "hang"]


class FaultStore:
    """Passes everything to `inner`, and fails at the write call number `fail_at` (the first is 1).

    `before`: nothing was written. `after`: it was, but the caller does not hear of it. `hang`: nothing happens until
    the caller is cancelled. `times` is how many write calls in a row fail, None for all from there on: the caller is
    told that waiting does not help. Renewals do not count: they come by time.
    To meet every place where a program can fail, try `fail_at` from 1 upwards until `fired` stays False.
    """

    def __init__(self, inner: Store, fail_at: int, mode: Mode = "before", times: int | None = 1) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.mode: Mode = mode
        self.times = times
        self.calls = 0
        self.fired = False

    async def _write(self, call: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        if self.calls < self.fail_at or (self.times is not None and self.calls >= self.fail_at + self.times):
            return await call()
        self.fired = True
        if self.mode == "hang":
            await asyncio.get_running_loop().create_future()
        if self.mode == "after":
            await call()
        detail = f"write call {self.calls} was made to fail ({self.mode})"
        raise StoreUnavailable("faults", detail, is_lasting=self.times is None)

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
        return await self._write(
            lambda: self.inner.claim(ref, owner, ttl, after=after, write=write, answers=answers, replaces=replaces)
        )

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self._write(lambda: self.inner.commit(lease, *writes, after=after, release=release))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self._write(lambda: self.inner.answer(ref, answers, after=after))

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self._write(lambda: self.inner.cancel(ref, mode))

    async def delete(self, ref: SessionRef) -> None:
        await self._write(lambda: self.inner.delete(ref))

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self._write(lambda: self.inner.prune(ref, keep=keep, before=before))

    async def delete_idle(self, ttl: float, *, app: str | None = None, user: str | None = None) -> list[SessionRef]:
        return await self._write(lambda: self.inner.delete_idle(ttl, app=app, user=user))

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return await self.inner.renew(leases)

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
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        return await self.inner.sessions(app=app, user=user, status=status, limit=limit)

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        app: str | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        return await self.inner.questions(ref, app=app, user=user, limit=limit)

    async def audit(self, ref: SessionRef) -> list[AuditEntry]:
        return await self.inner.audit(ref)

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        return await self.inner.asked(ref, branch, ids)

    async def begun(self, digest: str) -> list[Begun]:
        return await self.inner.begun(digest)

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        return await self.inner.events(ref, after, limit=limit)

    async def due(self, *, app: str | None = None, user: str | None = None, limit: int = 100) -> list[Due]:
        return await self.inner.due(app=app, user=user, limit=limit)

    async def close(self) -> None:
        await self.inner.close()
