"""A store that fails when a test wants it to."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from typing import Literal, TypeVar

from adjourn.errors import StoreUnavailable
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import StoreRequest
from adjourn.stores.protocol import Store

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

    async def write(self, request: StoreRequest[T]) -> T:
        self.calls += 1
        if self.calls < self.fail_at or (self.times is not None and self.calls >= self.fail_at + self.times):
            return await self.inner.write(request)
        self.fired = True
        if self.mode == "hang":
            await asyncio.get_running_loop().create_future()
        if self.mode == "after":
            await self.inner.write(request)
        detail = f"write call {self.calls} was made to fail ({self.mode})"
        raise StoreUnavailable("faults", detail, is_lasting=self.times is None)
