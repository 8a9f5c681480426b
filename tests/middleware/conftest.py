"""What tests of middleware share: agents from scripts, and a store that is opened anew as another process would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adjourn.stores import SQLiteStore, Store

Reopen = Callable[[], Store]


@pytest.fixture
async def reopen(tmp_path: Path) -> AsyncIterator[Reopen]:
    """Open the same store again, with nothing of the one before in memory."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(SQLiteStore(tmp_path / "sessions.db"))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()
