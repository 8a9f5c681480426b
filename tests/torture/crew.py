"""The processes of the soak: `python -m tests.torture.crew {worker|person} <job as JSON>`.

A worker takes up sessions that are due. A person begins sessions and answers whatever is asked, at the same time as
the others, and writes down what was promised: a receipt goes to the disk before a call, and one after it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from adjourn import Interrupt, ToolCallInfo, Worker
from adjourn.errors import AdjournError, AlreadyResumed, InterruptExpired, StoreUnavailable, UnknownInterrupt
from adjourn.sessions import Sessions
from adjourn.stores import Claimed, Lease, Store, Write, open_store
from adjourn.stores.kit import Claim, Commit, StoreRequest
from adjourn.testing import FaultStore
from adjourn.tools import Approve, Reject, Respond

from .programs import PROGRAMS, input_of, ledger_of, runners

T = TypeVar("T")
LEASE = 2.0
TURNS = 3
MOST_OPEN = 30
"""Open questions at which nobody begins more sessions."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of the crew does. `fail_at` is the write of a worker that its store fails at, 0 for none."""

    url: str
    folder: str
    name: str
    seed: int
    fail_at: int = 0
    mode: Literal["before", "after"] = "before"


Outcome = Literal["trying", "accepted", "refused", "unknown"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person did, and what came of it: without an answer from the store, nobody knows."""

    outcome: Outcome
    session: str
    app: str
    input: Any = None  # Any: what was submitted, as JSON
    question: str = ""
    by: str = ""
    said: Any = None  # Any: an answer, as JSON
    shown: Any = None  # Any: the arguments of a call that was approved, as JSON


class Receipts:
    """The receipts of one person, on the disk before the person goes on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, receipt: Receipt) -> None:
        """Add a receipt."""
        os.write(self._file, msgspec.json.encode(receipt) + b"\n")
        os.fsync(self._file)


class WatchedStore(FaultStore):
    """Writes every claim and commit that the store has acknowledged into the ledger of its session."""

    def __init__(self, inner: Store, job: Job) -> None:
        super().__init__(inner, job.fail_at, job.mode, times=2)
        self._folder = Path(job.folder)
        self._faults = self._folder / "faults" / job.name

    async def write(self, request: StoreRequest[T]) -> T:
        try:
            done = await super().write(request)
        finally:
            if self.fired:
                self._faults.touch()
        asked = request.plain
        if isinstance(asked, Claim) and isinstance(done, Claimed) and done.lease is not None:
            ledger_of(self._folder, asked.ref.id).write("claimed", done.checkpoint, fence=done.lease.fence)
            self._note(done.lease, [asked.write] if asked.write else [])
        if isinstance(asked, Commit):
            self._note(asked.lease, asked.writes)
        return done

    def _note(self, lease: Lease, writes: Sequence[Write]) -> None:
        for write in writes:
            digest = sha256(write.body).hexdigest()
            ledger_of(self._folder, lease.ref.id).write("committed", write.id, fence=lease.fence, arguments=digest)


async def work(job: Job) -> None:
    """Take up what is due, for ever."""
    store = WatchedStore(open_store(job.url), job)
    worker = Worker(runners(store, lease_ttl=LEASE).values(), concurrency=8, poll=0.3)
    working = asyncio.create_task(worker.run())
    await asyncio.sleep(0)  # From here on it can be asked to stop.
    (Path(job.folder) / "ready" / job.name).touch()
    await working


class Person:
    """Begins sessions, and answers what is asked."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._chance = random.Random(job.seed)
        self._store = WatchedStore(open_store(job.url), job)
        self._runners = runners(self._store, lease_ttl=LEASE)
        self._receipts = Receipts(Path(job.folder) / "receipts" / job.name)
        self._open = 0

    async def live(self) -> None:
        """Begin all sessions, and answer until the end of time."""
        beginning = asyncio.create_task(self._begin_all())
        while True:
            try:
                await self._look_round()
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            await asyncio.sleep(self._chance.uniform(0.0, 0.1))
            if beginning.done():
                beginning.result()

    async def _begin_all(self) -> None:
        """Begin sessions for as long as there are not enough, and never many more than are answered."""
        for number in itertools.count():
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))
            if (Path(self._job.folder) / "enough").exists():
                return
            if self._open < MOST_OPEN:
                await self._begin(self._chance.choice(list(PROGRAMS)), f"{self._job.name}-{number}")

    async def _begin(self, app: str, session: str) -> None:
        """Run a session until it asks, or submit its input for a worker to take up."""
        if app == "errand":
            for number in range(TURNS):
                await self._submit(app, session, f"{session}/{number}")
        elif self._chance.random() < 0.5:
            await self._submit(app, session, input_of(app, session))
        else:
            await self._run(app, session)

    async def _submit(self, app: str, session: str, input: Any) -> None:
        """Submit an input until the store has it: however often that takes, it is one input."""
        receipt = Receipt(outcome="trying", session=session, app=app, input=input)
        self._receipts.write(receipt)
        name = f"input {input}"
        while True:
            try:
                await self._runners[app].submit(input, session_id=session, id=name)
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            else:
                self._receipts.write(msgspec.structs.replace(receipt, outcome="accepted"))
                return

    async def _run(self, app: str, session: str) -> None:
        receipt = Receipt(outcome="trying", session=session, app=app)
        self._receipts.write(receipt)
        try:
            await self._runners[app].run(input_of(app, session), session_id=session)
        except AdjournError:
            return  # Whether it began, the store knows.
        self._receipts.write(msgspec.structs.replace(receipt, outcome="accepted"))

    async def _look_round(self) -> None:
        self._open = 0
        for app in PROGRAMS:
            asked = await Sessions(self._store, app_name=app).pending(limit=20)
            self._open += len(asked)
            for question in asked[:10]:
                if self._chance.random() < 0.6:
                    await self._answer(app, question)

    async def _answer(self, app: str, asked: Interrupt) -> None:
        said = self._said(asked)
        receipt = Receipt(
            outcome="trying",
            session=asked.session_id,
            app=app,
            question=asked.id,
            by=f"{self._job.name}-{self._chance.getrandbits(64):x}",
            said=msgspec.to_builtins(said),
            shown=dict(asked.info.arguments) if isinstance(asked.info, ToolCallInfo) else None,
        )
        self._receipts.write(receipt)
        outcome: Outcome = "accepted"
        try:
            await Sessions(self._store, app_name=app).answer(asked.session_id, {asked.id: said}, by=receipt.by)
        except (AlreadyResumed, InterruptExpired, UnknownInterrupt):
            outcome = "refused"
        except StoreUnavailable:
            outcome = "unknown"
        self._receipts.write(msgspec.structs.replace(receipt, outcome=outcome))

    def _said(self, asked: Interrupt) -> Any:
        if not isinstance(asked.info, ToolCallInfo):
            return f"{self._job.name} says {self._chance.getrandbits(32):x}"
        if asked.key == "at_most_once":
            return Respond(text="nobody knows")  # Never "run it again": then it must not have run twice.
        edited = asked.info.edit(cents=self._chance.randrange(1, 100))
        return self._chance.choice([Approve(), Reject(reason="no"), edited])


def _end_with_the_soak() -> None:
    """End this process when whoever started it is gone, in whatever way: it holds the other end of our input."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_soak, daemon=True).start()
    given = msgspec.json.decode(sys.argv[2], type=Job)
    os.environ["ADJOURN_TORTURE"] = given.folder
    asyncio.run(work(given) if sys.argv[1] == "worker" else Person(given).live())
