"""A store in one SQLite file: the embedded default, for any number of processes on one machine."""

# An override is documented where it is declared.

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from adjourn.errors import UsageError
from adjourn.stores import _transitions as transitions
from adjourn.stores.protocol import (
    Answer,
    Claimed,
    Committed,
    Decision,
    Due,
    Events,
    Head,
    Lease,
    Listed,
    Loaded,
    Pending,
    Renewed,
    Status,
    Write,
)

from . import _reads as reads
from ._errors import explained
from ._readers import Readers
from ._schema import Synchronous, connect, grow_log
from ._writer import Writer


class SQLiteStore:
    """Keeps sessions in one file, with its write-ahead log beside it.

    Every commit is on the disk before it is acknowledged; with `synchronous="NORMAL"` a power cut (not a crash of the
    process) may cost the last ones. A file that another process has locked is tried again for `timeout` seconds.
    Safe to use from any loop, thread or process of one machine, also after a fork. The file is opened at the first
    call; after `close`, at the next one. `clock` gives the store's time.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        timeout: float = 30.0,
        synchronous: Synchronous = "FULL",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise UsageError(f"SQLiteStore({os.fspath(path)!r}) names no file. Give a path, or use MemoryStore().")
        if synchronous not in get_args(Synchronous):
            raise UsageError(f"SQLiteStore(synchronous={synchronous!r}) is not one of {get_args(Synchronous)}.")
        self.path = Path(path).resolve()
        self._clock = clock
        explain = partial(explained, path=self.path)
        self._readers = Readers(partial(connect, self.path, synchronous), explain, timeout)
        self._writer = Writer(partial(_connect_to_write, self.path, synchronous), explain, clock, timeout)
        weakref.finalize(self, _let_go, self._writer, self._readers)
        _stores.add(self)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    async def claim(
        self,
        session: str,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        over: str | None = None,
        app: str = "adjourn",
        user: str | None = None,
    ) -> Claimed:
        return await self._writer.submit_for(
            session,
            lambda ledger, now: transitions.claim(
                ledger,
                now,
                session,
                owner,
                ttl,
                after=after,
                write=write,
                answers=answers,
                over=over,
                app=app,
                user=user,
            ),
            begins=True,
        )

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return await self._writer.submit(lambda ledger, now: transitions.renew(ledger, now, leases))

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        return await self._writer.submit_for(
            lease.session,
            lambda ledger, now: transitions.commit_all(ledger, now, lease, writes, after=after, release=release),
            ends=release,
            gathered=len(writes) > 1,
        )

    async def answer(self, session: str, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        return await self._writer.submit(
            lambda ledger, now: transitions.answer(ledger, now, session, answers, after=after)
        )

    async def cancel(self, session: str, mode: str) -> bool:
        return await self._writer.submit(lambda ledger, now: transitions.cancel(ledger, now, session, mode))

    async def delete(self, session: str) -> None:
        await self._writer.submit(lambda ledger, now: transitions.delete(ledger, now, session))

    async def prune(self, session: str, *, keep: int | None = None, before: float | None = None) -> int:
        return await self._writer.submit(lambda ledger, _: transitions.prune(ledger, session, keep=keep, before=before))

    async def expire(self, ttl: float) -> list[str]:
        return await self._writer.submit(lambda ledger, now: transitions.expire(ledger, now, ttl))

    async def load(self, session: str, checkpoint: str | None = None) -> Loaded | None:
        now = self._clock()
        if checkpoint is None:
            try:
                return await self._readers.read(lambda c: reads.load(c, now, session, None, small=True), small=True)
            except reads.TooBig:
                pass
        return await self._readers.read(lambda c: reads.load(c, now, session, checkpoint, small=False))

    async def head(self, session: str) -> Head | None:
        now = self._clock()
        return await self._readers.read(lambda c: reads.head(c, now, session), small=True)

    async def list(
        self,
        session: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[Listed]:
        return await self._readers.read(lambda c: reads.listed(c, session, limit, before, source, under or ""))

    async def sessions(
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        now = self._clock()
        return await self._readers.read(lambda c: reads.sessions(c, now, app, user, status, limit))

    async def interrupts(
        self, session: str | None = None, *, app: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[Pending]:
        now = self._clock()
        return await self._readers.read(
            lambda c: reads.interrupts(c, now, session, app, user, limit), small=session is not None
        )

    async def decisions(self, session: str) -> list[Decision]:
        return await self._readers.read(lambda c: reads.decisions(c, session))

    async def events(self, session: str, after: int = 0, *, limit: int | None = None) -> list[Events]:
        return await self._readers.read(lambda c: reads.events(c, session, after, limit))

    async def due(self, *, limit: int = 100) -> list[Due]:
        now = self._clock()
        return await self._readers.read(lambda c: reads.due(c, now, limit))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, _let_go, self._writer, self._readers)

    def _forget(self) -> list[sqlite3.Connection]:
        return [*self._writer.forget(), *self._readers.forget()]


def _connect_to_write(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    connection = connect(path, synchronous)
    grow_log(connection, path)
    return connection


def _let_go(writer: Writer, readers: Readers) -> None:
    writer.stop()
    readers.close()


_stores: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()
_inherited: list[sqlite3.Connection] = []


def _after_fork() -> None:
    # A connection must not cross a fork, not even to be closed: its locks are the parent's. It is kept out of reach.
    for store in list(_stores):
        _inherited.extend(store._forget())  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
