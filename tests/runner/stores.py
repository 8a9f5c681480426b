"""Stores that a test can watch and hold up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from adjourn.stores import (
    ALL_QUESTIONS,
    Answer,
    AuditEntry,
    CheckpointRow,
    Claimed,
    Committed,
    EventBatch,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    SessionRef,
    Store,
    Write,
)
from adjourn.testing import FaultStore


class WatchedStore(FaultStore):
    """Notes what is written, in order, and holds commits back while `held` is closed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.writes: list[Write] = []
        self.calls_made: list[str] = []
        self.held = asyncio.Event()
        self.held.set()
        self.reached = asyncio.Event()

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
        self.calls_made.append("claim")
        claimed = await super().claim(
            ref, owner, ttl, after=after, write=write, answers=answers, replaces=replaces, alone=alone
        )
        if write is not None:
            self.writes.append(write)
        return claimed

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        self.reached.set()
        await self.held.wait()
        self.calls_made.append("commit and release" if release else "commit")
        committed = await super().commit(lease, *writes, after=after, release=release)
        self.writes += writes
        return committed


class ReadStore(FaultStore):
    """Counts the rows that are read, by the method that reads them."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.rows: Counter[str] = Counter()

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        loaded = await super().load(ref, checkpoint)
        self.rows["load"] += 0 if loaded is None else len(loaded.rows)
        return loaded

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        found = await super().checkpoints(ref, limit=limit, before=before, source=source, under=under)
        self.rows["checkpoints"] += len(found)
        return found

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        found = await super().questions(ref, filter=filter, after=after, limit=limit)
        self.rows["questions"] += len(found)
        return found

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        found = await super().asked(ref, branch, ids)
        self.rows["asked"] += len(found)
        return found

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        found = await super().audit(ref, branch, all_branches=all_branches)
        self.rows["audit"] += len(found)
        return found

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        found = await super().events(ref, after, limit=limit)
        self.rows["events"] += len(found)
        return found
