"""Child processes: `python -m tests.proof.child <socket>` forks one for each job that comes over the socket.

A fork of a process that has everything loaded costs a tenth of a new interpreter. Each child has a line of its own to
the test, of JSON objects: `at` says where it stands and waits to be let on, `ended` is what its job came to. The end of
that line is the end of the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import psycopg  # pyright: ignore[reportUnusedImport]  # noqa: F401  # loaded before any fork, as all drivers are
import redis.asyncio  # pyright: ignore[reportUnusedImport]  # noqa: F401

from adjourn import CheckpointNotFound, Interrupt, MessageEvent, NodeEnd, Run, Runner, RunResult, ToolResult
from adjourn.errors import AlreadyResumed, SessionBusy
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Commit, GetHead, StoreRequest
from adjourn.stores.types import Claimed
from adjourn.testing import FaultStore

from .agent_workloads import PROGRAMS
from .ledger import Ledger
from .places import store_of
from .workloads import World

T = TypeVar("T")
SESSION = "s"
ROUNDS = 50
"""Runs that a client makes at most until its session has ended."""

Do = Literal["live", "run", "resume", "recover", "take_over", "cancel", "delete"]
When = Literal["before", "during", "after", "effect"]
Fault = Literal["before", "after"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child does. It kills itself before, while or after the store makes write `kill_at`, or after an effect.

    Write `fail_at` fails before or after the store makes it.
    """

    do: Do
    workload: str
    folder: str
    answers: dict[str, Any] | None = None
    by: str | None = None
    kill_at: int = 0
    when: When = "before"
    fail_at: int = 0
    fault: Fault = "before"
    durability: Literal["step", "pause", "async"] = "step"
    lease_ttl: float = 30.0
    gated: bool = False
    ahead: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job came to: a result, or the name of an error."""

    status: str = ""
    state: Any = None  # Any: what the workload ends with
    error: str = ""
    message: str = ""
    live: bool = False
    writes: int = 0
    """Writes that the store was asked for."""


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line from a child to the test."""

    at: str = ""
    ended: Ended | None = None


class Line:
    """A child's end of its line to the test."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._file = end.makefile("rb")

    def say(self, said: Said) -> None:
        self._end.sendall(msgspec.json.encode(said) + b"\n")

    def halt(self, where: str) -> None:
        """Tell the test where this process is, and go on when it says so."""
        self.say(Said(at=where))
        if not self._file.readline():
            os._exit(1)  # The test is gone.


class WatchedStore(FaultStore):
    """Writes every claim and commit into the ledger, and kills its own process when it is time."""

    calls: int

    def __init__(self, inner: Store, ledger: Ledger, job: Job) -> None:
        super().__init__(inner, job.fail_at, job.fault)
        self._ledger = ledger
        self._kill_at = 0 if job.when == "effect" else job.kill_at
        self._when = job.when

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if isinstance(asked, Commit):
            self._note("asked", asked)
        done = await self._made(request)
        if isinstance(done, Claimed) and done.lease is not None:
            self._ledger.write("claimed", done.checkpoint, fence=done.lease.fence)
        if isinstance(asked, Commit):
            self._note("committed", asked)
        return done

    def _note(self, what: Literal["asked", "committed"], commit: Commit) -> None:
        for write in commit.writes:
            self._ledger.write(what, write.id, fence=commit.lease.fence)

    async def _made(self, request: StoreRequest[T]) -> T:
        if self.calls + 1 != self._kill_at:
            return await super().write(request)
        self.calls += 1
        if self._when == "during":
            # Under way on the writer's thread; or made at once, and its caller does not hear of it.
            under_way = asyncio.ensure_future(self.inner.write(request))
            await asyncio.sleep(0)
            del under_way
        elif self._when == "after":
            await self.inner.write(request)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")


class Client:
    """Someone who uses a session: starts it, answers it, and picks it up after a crash."""

    def __init__(self, job: Job, line: Line) -> None:
        folder = Path(job.folder)
        self.job = job
        self.line = line
        self.workload = PROGRAMS[job.workload]
        self.ledger = Ledger(folder / "ledger")
        self.store = WatchedStore(store_of(folder, lambda: time.time() + job.ahead), self.ledger, job)
        self.runner: Runner = self.workload.runner(
            store=self.store,
            durability=job.durability,
            lease_ttl=job.lease_ttl,
            clock=lambda: time.time() + job.ahead,
        )
        self.world = World(self.ledger, line, job.kill_at if job.when == "effect" else 0)

    async def do(self) -> Ended:
        # What every job needs is open before the race begins.
        await self.store.read(GetHead(SessionRef(SESSION)))
        if self.job.gated:
            self.line.halt("gate")
        try:
            result = await self._done()
        except Exception as error:  # noqa: BLE001  # the test judges what went wrong
            live = isinstance(error, AlreadyResumed) and error.live
            return Ended(error=type(error).__name__, message=str(error), live=live, writes=self.store.calls)
        if result is None:
            return Ended(status="done", writes=self.store.calls)
        return Ended(status=result.status, state=self.workload.show(result), writes=self.store.calls)

    async def _done(self) -> RunResult | None:
        job, runner = self.job, self.runner
        match job.do:
            case "live":
                return await self._live()
            case "run":
                return await runner.run(self.workload.input, session_id=SESSION, deps=self.world)
            case "resume":
                return await runner.resume(SESSION, job.answers, by=job.by, deps=self.world)
            case "recover":
                return await runner.recover(SESSION, deps=self.world)
            case "take_over":
                return await self._take_over()
            case "cancel":
                await runner.cancel(SESSION)
            case "delete":
                await runner.delete(SESSION)
        return None

    async def _take_over(self) -> RunResult:
        """Finish the session as soon as its owner's lease is over."""
        while True:
            try:
                await self.runner.recover(SESSION, deps=self.world)
            except SessionBusy:
                await asyncio.sleep(0.02)
            else:
                return await self._live()

    async def _live(self) -> RunResult:
        """Bring the session to its end, wherever it stands, with one answer at a time."""
        for _ in range(ROUNDS):
            run, asked = await self._next_run()
            if run is None:
                return await self.runner.recover(SESSION)
            await self._follow(run, asked)
        raise AssertionError("the session does not come to an end")

    async def _next_run(self) -> tuple[Run | None, Interrupt | None]:
        try:
            found = await self.runner.status(SESSION)
        except CheckpointNotFound:
            return self.runner.run(self.workload.input, session_id=SESSION, deps=self.world), None
        if found.status == "done":
            return await self._next_turn(), None
        if found.status == "waiting" and found.interrupts:
            asked = found.interrupts[0]
            answers = {asked.id: self.workload.answer(asked)}
            return self.runner.resume(SESSION, answers, by=f"pid {os.getpid()}", deps=self.world), asked
        return self.runner.recover(SESSION, deps=self.world), None

    async def _next_turn(self) -> Run | None:
        turns = await self.runner.history(SESSION, source="input")
        if len(turns) == self.workload.turns:
            return None
        return self.runner.run(self.workload.input, session_id=SESSION, deps=self.world)

    async def _follow(self, run: Run, asked: Interrupt | None) -> None:
        async for event in run:
            if asked is not None:
                self.ledger.write("accepted", asked.id, arguments=f"pid {os.getpid()}")
                asked = None
            # With durability "pause" it is told before it is stored, and nothing is promised.
            if isinstance(event, NodeEnd | ToolResult | MessageEvent) and self.job.durability != "pause":
                # A message tells that its model was asked; whoever said it may still be at work.
                what = "think" if isinstance(event, MessageEvent) else ""
                self.ledger.write("told", what, address=event.address)


def _work(job: Job, end: socket.socket) -> None:
    async def work() -> None:
        client = Client(job, line)
        ended = await client.do()
        await client.store.close()
        line.say(Said(ended=ended))

    line = Line(end)
    asyncio.run(work())


def _fork(job: Job, end: socket.socket, orders: socket.socket) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        orders.close()
        _work(job, end)
        code = 0
    except BaseException as error:  # noqa: BLE001  # the process that forks must not be had twice
        sys.excepthook(type(error), error, error.__traceback__)
    os._exit(code)


def _serve(orders: socket.socket) -> None:
    while True:
        order, fds, _, _ = socket.recv_fds(orders, 1 << 16, 1)
        if not order:
            return
        if fds:
            end = socket.socket(fileno=fds[0])
            reply = _fork(msgspec.json.decode(order, type=Job), end, orders)
            end.close()
        else:
            reply = os.waitpid(int(order), 0)[1]
        orders.sendall(b"%d" % reply)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
