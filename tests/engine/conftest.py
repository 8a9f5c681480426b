"""Stores for tests of the engine: what concerns storage runs over every kind of store."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import pytest

from adjourn.checkpoint import MemoryStore, SQLiteStore, Store


class MakeStore(Protocol):
    """Opens a fresh store, of the kind that the test runs over."""

    def __call__(self, clock: Callable[[], float] = time.time) -> Store: ...


@pytest.fixture(params=["memory", "sqlite"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    stores: list[Store] = []

    def make(clock: Callable[[], float] = time.time) -> Store:
        if request.param == "memory":
            stores.append(MemoryStore(clock=clock))
        else:
            stores.append(SQLiteStore(tmp_path / f"{len(stores)}.db", clock=clock))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()
