"""What tests of agents share: a store of each kind, and scripts for models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adjourn.checkpoint import MemoryStore, SQLiteStore, Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "sessions.db")
    yield made
    await made.close()
