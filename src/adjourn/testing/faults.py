"""A store that fails when a test wants it to."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.protocol import Store
from adjourn.stores.types import (
    Answer,
    Claimed,
    Committed,
    Head,
    Input,
    Lease,
    SessionRef,
    Status,
    TakenNotice,
    Write,
)

T = TypeVar("T")

Mode = Literal["before", "after", "hang"]


class FaultStore(StoreWrapper):
    """Passes everything to `inner`, and fails at the write call number `fail_at` (the first is 1).

    `before`: nothing was written. `after`: it was, but the caller does not hear of it. `hang`: nothing happens until
    the caller is cancelled. `times` is how many write calls in a row fail, None for all from there on: the caller is
    told that waiting does not help. Renewals do not count: they come by time.
    To meet every place where a program can fail, try `fail_at` from 1 upwards until `fired` stays False.
    """

    def __init__(self, inner: Store, fail_at: int, mode: Mode = "before", times: int | None = 1) -> None:
        super().__init__(inner)
        self.fail_at = fail_at
        self.mode: Mode = mode
        self.times = times
        self.calls: int = 0
        self.fired: bool = False

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
        alone: bool = False,
    ) -> Claimed:
        return await self._write(
            lambda: self.inner.claim(
                ref, owner, ttl, after=after, write=write, answers=answers, replaces=replaces, alone=alone
            )
        )

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self._write(lambda: self.inner.commit(lease, *writes, after=after, release=release))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self._write(lambda: self.inner.answer(ref, answers, after=after))

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        return await self._write(lambda: self.inner.submit(ref, input))

    async def withdraw(self, ref: SessionRef, id: str) -> bool:
        return await self._write(lambda: self.inner.withdraw(ref, id))

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        return await self._write(lambda: self.inner.cancel(ref, mode))

    async def delete(self, ref: SessionRef) -> None:
        await self._write(lambda: self.inner.delete(ref))

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        return await self._write(lambda: self.inner.prune(ref, keep=keep, before=before))

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        return await self._write(
            lambda: self.inner.delete_idle(ttl, app=app, user=user, statuses=statuses, limit=limit)
        )

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        return await self._write(lambda: self.inner.take_notices(app, to, ttl, limit=limit))

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        return await self._write(lambda: self.inner.settle_notice(taken, again=again))

    async def drop_notices(self, app: str, age: float) -> int:
        return await self._write(lambda: self.inner.drop_notices(app, age))
