"""A store in one SQLite file: the embedded default, for any number of processes on one machine."""

# An override is documented where it is declared.

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from adjourn.errors import StoreUnavailable, UsageError
from adjourn.stores.kit.hints import Fanout
from adjourn.stores.kit.queries import ListBegun, SessionQuery, StoreQuery
from adjourn.stores.kit.requests import (
    Claim,
    Commit,
    Delete,
    DeleteIdle,
    DropNotices,
    Prune,
    Renew,
    SessionRequest,
    SettleNotice,
    StoreRequest,
    TakeNotices,
    Withdraw,
)
from adjourn.stores.kit.rows import cancel_of
from adjourn.stores.kit.store import KitStore, unknown_request
from adjourn.stores.types import Lease, Renewed, SessionRef

from . import _outbox as outbox
from ._facts import TooBig, find
from ._files import Connection, Identity, identity, replaced
from ._ledger import SQLiteLedger
from ._listing import answer
from ._presence import Presence, presence_at
from ._readers import Readers
from ._schema import Synchronous, connect, grow_log
from ._writer import Writer

T = TypeVar("T")

_LOOK = 0.1  # seconds between two looks at what other processes have written


class SQLiteStore(KitStore):
    """Keeps sessions in one file, with its write-ahead log beside it.

    Every commit is on the disk before it is acknowledged; with `synchronous="NORMAL"` a power cut (but not a crash of
    the process) may lose the last ones. A file that another process has locked is tried again for `timeout` seconds.
    Safe to use from any loop, thread or process of one machine, even after a fork. The file is opened at the first
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
            raise UsageError(
                f"SQLiteStore({os.fspath(path)!r}) does not name a file. Give a path, or use MemoryStore()."
            )
        if synchronous not in get_args(Synchronous):
            raise UsageError(f"SQLiteStore(synchronous={synchronous!r}) is not one of {get_args(Synchronous)}.")
        self.path: Path = Path(path).resolve()
        self._clock = clock
        self._database = database = _Database(self.path, synchronous)
        self._readers = Readers(self.path, database.connect, timeout)
        self._hints = Fanout()
        self._writer = Writer(self.path, database.connect_to_write, clock, timeout, self._hints)
        weakref.finalize(self, _let_go, self._writer, self._readers, database)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    async def carry_out(self, request: SessionRequest[T]) -> T:
        def operation(ledger: SQLiteLedger, now: float) -> T:
            return ledger.carry_out(request, now)

        ref, asked = request.ref, request.plain
        session = (ref.app, ref.id)
        if isinstance(asked, Commit):
            gathered = len(asked.writes) > 1
            return await self._writer.submit_for(session, operation, ends=asked.release, gathered=gathered)
        if isinstance(asked, Claim):
            return await self._writer.submit_for(session, operation, begins=True)
        if isinstance(asked, Withdraw | Prune):
            return await self._writer.submit_removal(operation)
        if isinstance(asked, Delete):
            return cast("T", await self._writer.submit_removal(lambda ledger, now: ledger.delete(asked, now)))
        return await self._writer.submit(operation)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        return await self._writer.submit(
            lambda ledger, now: [ledger.carry_out(Renew(lease=lease), now) for lease in leases]
        )

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        return await self._readers.read(lambda c: _cancels(c, leases), small=True)

    async def maintain(self, request: StoreRequest[Any]) -> Any:
        match request:
            case DeleteIdle():
                return await self._writer.submit_removal(lambda ledger, now: ledger.delete_idle(request, now))
            case TakeNotices():
                now = self._clock()
                # Most look in vain, and must not keep others from writing.
                if not await self._readers.read(lambda c: outbox.has_due(c, now, request), small=True):
                    return []
                return await self._writer.submit(lambda ledger, now: outbox.take(ledger.connection, now, request))
            case SettleNotice():
                return await self._writer.submit(lambda ledger, now: outbox.settle(ledger.connection, now, request))
            case DropNotices():
                return await self._writer.submit(lambda ledger, now: outbox.drop(ledger.connection, now, request))
            case _:
                raise unknown_request(self, request)

    async def read(self, query: StoreQuery[T]) -> T:
        now = self._clock()
        is_small = not query.is_long if isinstance(query, SessionQuery) else type(query) is ListBegun
        if is_small:
            with contextlib.suppress(TooBig):
                return await self._readers.read(lambda c: answer(c, query, now, small=True), small=True)
        return await self._readers.read(lambda c: answer(c, query, now, small=False))

    async def hints(self) -> AsyncGenerator[SessionRef | None]:
        with self._hints.listening() as listener:
            seen, looked = await self._foreign_writes(None), time.monotonic()
            yield None
            while True:
                for ref in await listener.wait(_LOOK):
                    yield ref
                if time.monotonic() - looked < _LOOK:
                    continue
                before, seen, looked = seen, await self._foreign_writes(seen), time.monotonic()
                if seen != before:
                    yield None

    async def _foreign_writes(self, before: object) -> object:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._writer.foreign_writes)
        except StoreUnavailable:
            return before  # Others who use the store learn of it; here, the next look may succeed.

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, _let_go, self._writer, self._readers, self._database)


def _cancels(connection: sqlite3.Connection, leases: Sequence[Lease]) -> list[str | None]:
    rows = [find(connection, lease.ref.app, lease.ref.id) for lease in leases]
    return [cancel_of(row, lease) for row, lease in zip(rows, leases, strict=True)]


class _Database:
    """Opens connections to one file: the one that was there at the first, until all are closed."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self._path = path
        self._synchronous: Synchronous = synchronous
        self._opened: Identity = None
        self._presence: Presence | None = None

    def connect(self) -> Connection:
        """Open a connection.

        Raises:
            StoreUnavailable: the file is not the one that other connections have open.
        """
        if self._opened is not None:
            self._check(identity(self._path))  # before SQLite would create an empty one in its place
        connection = connect(self._path, self._synchronous)
        if self._opened is None:
            self._opened = connection.database
            self._presence = presence_at(self._path)
        return connection

    def connect_to_write(self) -> Connection:
        """Open a connection that writes."""
        connection = self.connect()
        grow_log(connection)
        if self._presence is not None:
            self._presence.show(connection)
        return connection

    def forget(self) -> None:
        """Use whatever file is there when the next connection is opened."""
        self._opened = self._presence = None

    def _check(self, found: Identity) -> None:
        if found != self._opened:
            raise replaced(self._path, self._path, is_gone=found is None)


def _let_go(writer: Writer, readers: Readers, database: _Database) -> None:
    writer.stop()
    readers.close()
    database.forget()
