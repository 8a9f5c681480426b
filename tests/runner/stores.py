"""Stores that a test can watch and hold up."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, TypeVar

from adjourn.stores import Loaded, Store, Write
from adjourn.stores.kit import (
    Audit,
    Claim,
    Commit,
    ListAsked,
    ListCheckpoints,
    ListEvents,
    ListOpen,
    ListQuestions,
    Load,
    StoreQuery,
    StoreRequest,
)
from adjourn.testing import FaultStore

T = TypeVar("T")

READS: dict[type, str] = {
    Load: "load",
    ListCheckpoints: "checkpoints",
    ListOpen: "questions",
    ListQuestions: "questions",
    ListAsked: "asked",
    Audit: "audit",
    ListEvents: "events",
}
"""What is counted of what is read, and by which name."""


class WatchedStore(FaultStore):
    """Notes what is written, in order, and holds commits back while `held` is closed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.writes: list[Write] = []
        self.calls_made: list[str] = []
        self.held = asyncio.Event()
        self.held.set()
        self.reached = asyncio.Event()

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if isinstance(asked, Claim):
            self.calls_made.append("claim")
        if isinstance(asked, Commit):
            self.reached.set()
            await self.held.wait()
            self.calls_made.append("commit and release" if asked.release else "commit")
        done = await super().write(request)
        if isinstance(asked, Claim) and asked.write is not None:
            self.writes.append(asked.write)
        if isinstance(asked, Commit):
            self.writes += asked.writes
        return done


class ReadStore(FaultStore):
    """Counts the rows that are read, by what they are read for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.rows: Counter[str] = Counter()

    async def read(self, query: StoreQuery[T]) -> T:
        found = await super().read(query)
        rows: Any = found.rows if isinstance(found, Loaded) else found or ()
        if name := READS.get(type(query)):
            self.rows[name] += len(rows)
        return found
