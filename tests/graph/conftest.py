"""Stores for tests of graphs: what concerns storage runs over every kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adjourn.checkpoint import MemoryStore, SQLiteStore, Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "graph.db")
    yield opened
    await opened.close()
