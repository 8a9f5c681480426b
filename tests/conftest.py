"""What holds for every test, whatever it tests: settings, and a store of each kind for what concerns storage."""

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from adjourn.stores import MemoryStore, SQLiteStore, Store

# No deadlines: an example's time says more about the machine than about the code, and pytest-timeout ends what hangs.
# In CI the examples are the same every time, so that a red run is the change's doing and can be had again at will;
# at the desk they are new every time, and that is where new counter-examples are found.
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", max_examples=50, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


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
