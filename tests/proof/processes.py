"""Processes: the test's side of its children."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from .child import Ended, Job, Said

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
"""Seconds after which a child that says nothing counts as hanging."""


class Process:
    """A child at work."""

    def __init__(self, nursery: Nursery, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self._nursery = nursery
        self._end = end
        self._lines = end.makefile("rb")
        self._is_over = False

    def hear(self) -> Said | None:
        """The next line from the child, None when it has ended."""
        line = self._lines.readline()
        return msgspec.json.decode(line, type=Said) if line.endswith(b"\n") else None

    def wait_at(self, where: str) -> None:
        """Return when the child stands at `where`, waiting to be let on."""
        said = self.hear()
        assert said is not None, "the child has died"
        assert said.at == where, said

    def let_on(self) -> None:
        """Let the child go on."""
        self._end.sendall(b"\n")

    def end(self) -> Ended | None:
        """Wait for the end; None if the child was killed before it could say what its job came to."""
        ended = None
        while said := self.hear():
            assert not said.at, f"the child stands at {said.at} and would wait for ever"
            ended = said.ended
        self.close()
        return ended

    def ended(self) -> Ended:
        """Wait for the end of a child that nobody kills."""
        ended = self.end()
        assert ended is not None, "the child has died"
        return ended

    def ended_without_stops(self) -> Ended:
        """Wait for the end of a child, and let it on wherever it stands."""
        ended = self.last_word()
        self.close()
        return ended

    def last_word(self) -> Ended:
        """Wait until a child says how it ended, and let it on wherever it stands; it must still be closed."""
        while (said := self.hear()) and said.ended is None:
            self.let_on()
        assert said is not None, "the child has died"
        assert said.ended is not None
        return said.ended

    def send_signal(self, number: int) -> None:
        """Send a signal to the child."""
        os.kill(self.pid, number)

    def close(self) -> None:
        """Make sure that the process is gone."""
        if self._is_over:
            return
        self._is_over = True
        self.send_signal(signal.SIGKILL)
        self._lines.close()
        self._end.close()
        self._nursery.reap(self)


class Nursery:
    """Starts children, and ends those that are left over."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._orders.settimeout(PATIENCE)
        command = [sys.executable, "-W", "error", "-m", "tests.proof.child", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        self._children: list[Process] = []

    def start(self, job: Job) -> Process:
        """Start a child."""
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        with theirs:
            socket.send_fds(self._orders, [msgspec.json.encode(job)], [theirs.fileno()])
            child = Process(self, int(self._orders.recv(64)), ours)
        self._children.append(child)
        return child

    def do(self, job: Job) -> Ended | None:
        """Start a child and wait for its end."""
        return self.start(job).end()

    def race(self, *jobs: Job) -> list[Ended]:
        """Let children do their jobs all at once, and wait for their ends."""
        racers = [self.start(msgspec.structs.replace(job, gated=True)) for job in jobs]
        for racer in racers:
            racer.wait_at("gate")
        for racer in racers:
            racer.let_on()
        return [racer.ended() for racer in racers]

    def reap(self, child: Process) -> None:
        """Wait until the system has forgotten a child that is dead."""
        self._orders.sendall(b"%d" % child.pid)
        self._orders.recv(64)
        self._children.remove(child)

    def close_children(self) -> None:
        """End every child that is left."""
        for child in list(self._children):
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_children()
        self._orders.close()
        self._process.wait(PATIENCE)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return when something holds that another process brings about, so that only looking can tell."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110  # nobody here could set an event
            await asyncio.sleep(0.005)


def job(do: Any, workload: str, folder: Path, **options: Any) -> Job:
    """A job in a folder."""
    return Job(do=do, workload=workload, folder=str(folder), **options)
