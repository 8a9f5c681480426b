"""A store that a test can watch and hold up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from adjourn.stores import Answer, Claimed, Committed, Lease, SessionRef, Store, Write
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
    ) -> Claimed:
        self.calls_made.append("claim")
        claimed = await super().claim(ref, owner, ttl, after=after, write=write, answers=answers, replaces=replaces)
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
