"""The Postgres store: the whole suite, over a real server, and what only this store has."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from adjourn.stores import Store
from adjourn.testing import FakeClock, StoreSuite
from tests.servers import pgbouncer

from .postgres_clock import Timed


class TestPostgresStore(StoreSuite):
    shared = True
    timed: Timed

    async def make_store(self, clock: FakeClock) -> Store:
        self.timed = Timed(clock, self.url())
        return await self.timed.open()

    def url(self) -> str | None:
        return None

    async def reopen(self, clock: FakeClock) -> Store:
        return self.timed.store()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        self.timed.sync()

    @asynccontextmanager
    async def fresh(self, clock: FakeClock | None = None) -> AsyncGenerator[Store, None]:
        async with super().fresh(clock) as store:
            yield store
        self.timed.drop()


class TestBehindPgBouncer(TestPostgresStore):  # rule K3
    """In transaction mode: each statement may get another connection to the server."""

    def url(self) -> str:
        return pgbouncer().url
