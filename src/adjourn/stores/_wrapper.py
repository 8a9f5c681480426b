"""A store around another one: what it does not change, it passes on."""

# An override is documented where it is declared.

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .kit.queries import StoreQuery
from .kit.requests import StoreRequest
from .protocol import Store
from .types import Lease, Renewed

T = TypeVar("T")


class StoreWrapper:
    """Passes every call on to `inner`; a subclass overrides what it does differently."""

    def __init__(self, inner: Store) -> None:
        self.inner: Store = inner

    async def write(self, request: StoreRequest[T]) -> T:
        return await self.inner.write(request)

    async def read(self, query: StoreQuery[T]) -> T:
        return await self.inner.read(query)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return await self.inner.renew(leases)

    async def close(self) -> None:
        await self.inner.close()
