"""What every part of the store suite works with: a store under test, and a session driven the way a run does."""

from __future__ import annotations

import unittest
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypedDict, TypeVar, Unpack

from adjourn.stores.kit import Claim, Commit, GetHead, Load
from adjourn.stores.protocol import Store
from adjourn.stores.types import (
    Answer,
    Begun,
    Claimed,
    Committed,
    Head,
    Header,
    Lease,
    Loaded,
    Notice,
    Question,
    SessionRef,
    Status,
    Write,
)
from adjourn.testing.clock import FakeClock

E = TypeVar("E", bound=Exception)

S = SessionRef("s")
"""The session that most tests work on."""


class Bench:
    """The hooks of the suite, and how its tests get their stores."""

    shared = False
    """Whether `reopen` can give a second store object on the same data."""

    tick: float = 1.0
    """The unit of all times in the suite, in seconds; small for a store whose clock cannot be given."""

    async def make_store(self, clock: FakeClock) -> Store:
        """A new and empty store whose time is `clock`."""
        raise NotImplementedError("Give your suite `async def make_store(self, clock)`.")

    async def reopen(self, clock: FakeClock) -> Store:
        """Another store object on the data of the one made last, as in another process."""
        raise NotImplementedError("Give your suite `async def reopen(self, clock)`, or leave `shared` False.")

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Let the store's time pass; a store with a clock of its own sleeps here."""
        clock.advance(seconds)

    @asynccontextmanager
    async def fresh(self, clock: FakeClock | None = None) -> AsyncGenerator[Store, None]:
        """A store for one test."""
        store = await self.make_store(clock or FakeClock())
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def second(self, clock: FakeClock) -> AsyncGenerator[Store, None]:
        """A second store object on the data of the first; skips the test where there can be none."""
        if not self.shared:
            raise unittest.SkipTest("this store cannot be shared")
        store = await self.reopen(clock)
        try:
            yield store
        finally:
            await store.close()


async def refused(error: type[E], call: Awaitable[object]) -> E:
    """The error that a call must raise."""
    try:
        result = await call
    except error as expected:
        return expected
    raise AssertionError(f"{error.__name__} was expected, but the call returned {result!r}")


def went_on(result: object) -> bool:
    """Whether a commit was made that met nothing: the run holds its lease and goes on."""
    return isinstance(result, Committed) and result == Committed(at=result.at)


def question(id: str, body: bytes = b"{}", expires: float | None = None) -> Question:
    """A question to ask."""
    return Question(id=id, body=body, expires=expires)


def yes(id: str, value: bytes = b"true", by: str | None = None) -> Answer:
    """An answer that a person gives."""
    return Answer(id=id, value=value, by=by)


class More(TypedDict, total=False):
    """What else a write may have; see `Write`."""

    full: bool
    header: Header
    status: Status
    asks: tuple[Question, ...]
    takes: tuple[str, ...]
    closes: tuple[Answer, ...]
    events: bytes
    event_count: int
    begins: tuple[Begun, ...]
    notices: tuple[Notice, ...]
    program: str
    input: str | None
    overtakes: bool
    summary: bytes
    origin: str | None


def record(
    number: int, parent: str | None, body: bytes | None = None, *, branch: str = "b", **more: Unpack[More]
) -> Write:
    """A write, full if it is the first of its branch, listed with source "step" unless `header` says otherwise."""
    usual: More = {"full": number == 0, "header": Header(source="step", step=number), "status": "running"}
    content = f"{branch}{number}".encode() if body is None else body
    return Write(branch=branch, number=number, parent=parent, body=content, **(usual | more))


class Drive:
    """One session, written as a run writes it."""

    def __init__(self, store: Store, session: str = "s", owner: str = "ann", ttl: float = 10.0) -> None:
        self.store = store
        self.session = session
        self.ref: SessionRef = SessionRef(session)
        self.owner: str = owner
        self.ttl = ttl
        self.lease: Lease | None = None
        self.at: str | None = None
        self.branch: str = "b"
        self.number: int = -1

    @property
    def held(self) -> Lease:
        """The lease, which the test has taken before."""
        assert self.lease is not None, "the session was not claimed"
        return self.lease

    @property
    def checkpoint(self) -> str:
        """The head as this run knows it."""
        assert self.at is not None, "the session was not started"
        return self.at

    def next(self, body: bytes | None = None, **more: Unpack[More]) -> Write:
        """The write that would come next."""
        return record(self.number + 1, self.at, body, branch=self.branch, **more)

    def moved(self, write: Write) -> None:
        """Stand at a write that was taken."""
        self.branch, self.number, self.at = write.branch, write.number, write.id

    async def start(self, write: Write | None = None, *, app: str = "adjourn", user: str | None = None) -> Claimed:
        """Make the session with its first record and take its lease."""
        first = write or self.next()
        self.ref = SessionRef(self.session, app, user)
        claimed = await self.store.write(Claim(ref=self.ref, owner=self.owner, ttl=self.ttl, after=None, write=first))
        self.lease = claimed.lease
        self.moved(first)
        return claimed

    async def claim(
        self,
        write: Write | None = None,
        *answers: Answer,
        replaces: str | None = None,
        owner: str | None = None,
        alone: bool = False,
    ) -> Claimed:
        """Take the lease of a session that is there."""
        self.owner = owner or self.owner
        claimed = await self.store.write(
            Claim(
                ref=self.ref,
                owner=self.owner,
                ttl=self.ttl,
                after=self.at,
                write=write,
                answers=answers,
                replaces=replaces,
                alone=alone,
            )
        )
        self.lease = claimed.lease
        if write is not None and claimed.lease is not None:
            self.moved(write)
        return claimed

    async def commit(self, write: Write | None = None, *, release: bool = False) -> Committed:
        """Write one more record."""
        write = write or self.next()
        committed = await self.store.write(
            Commit(lease=self.held, writes=(write,), after=self.checkpoint, release=release)
        )
        self.moved(write)
        return committed

    async def steps(self, count: int) -> None:
        """Write a few records."""
        for _ in range(count):
            await self.commit()

    async def pause(self, *asks: Question) -> Committed:
        """Ask, and let go of the session."""
        return await self.commit(self.next(status="waiting", asks=asks), release=True)

    async def end(self) -> Committed:
        """Finish and let go of the session."""
        return await self.commit(self.next(status="done"), release=True)

    async def loaded(self, checkpoint: str | None = None) -> Loaded:
        """What the store has of it."""
        found = await self.store.read(Load(self.ref, checkpoint))
        assert found is not None
        return found

    async def head(self) -> Head:
        """Where the store says it stands."""
        found = await self.store.read(GetHead(self.ref))
        assert found is not None
        return found


async def paused(store: Store, *ids: str, session: str = "s") -> Drive:
    """A session that waits for answers to these questions."""
    drive = Drive(store, session)
    await drive.start()
    await drive.pause(*(question(each) for each in ids))
    return drive
