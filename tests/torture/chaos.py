"""What happens to the soak: the stores with what can break in each, and the processes that are killed and frozen."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tests.proof.places import Kind
from tests.servers import Postgres, Redis

from .crew import LEASE, Job

S = TypeVar("S", Postgres, Redis)
STOPPING = 40.0
"""Seconds that a worker may take to stop: its grace, and a store that is away."""

ROOT = Path(__file__).parents[2]
DISK = 64 * 1024 * 1024
"""Bytes of the file system that is filled."""


class Backend:
    """A store, and what can break in it: `breaks` are functions that break something, and mend it again."""

    def __init__(self, url: str, *breaks: Callable[[], None]) -> None:
        self.url = url
        self.breaks = breaks


@contextlib.contextmanager
def backend(kind: Kind, folder: Path, tally: Counter[str], *, promotes: bool = False) -> Generator[Backend]:
    """Start a store; with `promotes`, a replica takes the place of its server now and then."""
    with ExitStack() as stack:
        match kind:
            case "sqlite":
                yield _sqlite(folder, tally, stack)
            case "postgres":
                yield _networked(_PostgresServers(tally, stack), promotes=True)
            case "redis":
                yield _networked(_RedisServers(tally, stack), promotes=promotes)


def _sqlite(folder: Path, tally: Counter[str], stack: ExitStack) -> Backend:
    disk = folder / "disk"
    disk.mkdir()
    url = f"sqlite:///{disk / 'sessions.db'}"
    if not _is_mounted(disk):
        return Backend(url)  # Only root can mount a file system that is small enough to be filled.
    stack.callback(subprocess.run, ["umount", "--lazy", disk], check=True)

    def fill_disk() -> None:
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        tally["disks filled"] += 1
        time.sleep(1.0)
        ballast.unlink()

    return Backend(url, fill_disk)


def _is_mounted(disk: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "adjourn-torture", disk]
    return os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0


class _Servers(Generic[S]):
    """The server behind a URL, which is another one after a replica was promoted."""

    def __init__(self, server: S, tally: Counter[str], stack: ExitStack) -> None:
        self.server = server
        self.tally = tally
        stack.callback(lambda: self.server.close())
        server.start()
        self.url = server.url

    def restart(self) -> None:
        self.server.kill()
        time.sleep(0.2)
        self.server.start()
        self.tally["restarts"] += 1

    def cut(self) -> None:
        self.tally["connections cut"] += self.server.cut_connections()

    def freeze(self) -> None:
        self.server.freeze()
        time.sleep(1.0)
        self.server.thaw()
        self.tally["freezes"] += 1

    def promote(self) -> None:
        """Kill the server while a replica follows it; the replica takes over, at the same address."""
        replica = self._replica()
        time.sleep(1.0)
        self.server.kill()
        replica.promote()
        replica.kill()
        replica.set_port(self.server.port)
        self.server.close()
        self.server = replica
        replica.start()
        self.tally["promotions"] += 1

    def _replica(self) -> S:
        raise NotImplementedError


class _PostgresServers(_Servers[Postgres]):
    def __init__(self, tally: Counter[str], stack: ExitStack) -> None:
        super().__init__(Postgres(durable=True), tally, stack)

    def restart(self) -> None:
        if self.tally["restarts"] % 2:
            super().restart()
            return
        self.server.stop_immediately()
        time.sleep(0.2)
        self.server.start()
        self.tally["restarts"] += 1

    def _replica(self) -> Postgres:
        replica = self.server.standby()
        # From now on nothing is acknowledged that the replica does not have.
        self.server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.server.execute("SELECT pg_reload_conf()")
        return replica


class _RedisServers(_Servers[Redis]):
    def __init__(self, tally: Counter[str], stack: ExitStack) -> None:
        super().__init__(Redis(), tally, stack)

    def _replica(self) -> Redis:
        replica = Redis(replica_of=self.server).start()
        while replica.execute("INFO", "replication")["master_link_status"] != "up":
            time.sleep(0.01)
        return replica


def _networked(servers: _Servers[Postgres] | _Servers[Redis], *, promotes: bool) -> Backend:
    breaks = [servers.restart, servers.restart, servers.cut, servers.cut, servers.freeze]
    return Backend(servers.url, *breaks, *([servers.promote] if promotes else []))


class Crew:
    """The workers and people of a soak; whoever is killed is replaced."""

    def __init__(self, url: str, folder: Path, chance: random.Random, tally: Counter[str]) -> None:
        self._url = url
        self._folder = folder
        self._chance = chance
        self._tally = tally
        self._members: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._names: dict[int, str] = {}
        self._frozen: dict[int, float] = {}
        self.mishaps: list[str] = []
        self._count = 0
        self.are_stores_sound = False
        """Whether workers from now on have stores that do not fail by themselves."""

    def add(self, role: str) -> None:
        """Start a worker or a person."""
        self._count += 1
        fail_at = 0 if role == "person" or self.are_stores_sound else self._chance.choice([0, 0, 5, 20, 50])
        job = Job(
            url=self._url,
            folder=str(self._folder),
            name=f"{role}{self._count}",
            seed=self._chance.getrandbits(32),
            fail_at=fail_at,
            mode=self._chance.choice(["before", "after"]),
        )
        command = [sys.executable, "-m", "tests.torture.crew", role, msgspec.json.encode(job).decode()]
        with (self._folder / "logs" / job.name).open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._members.append((role, process))
        self._names[process.pid] = job.name

    def kill_one(self) -> None:
        """Kill a worker or a person, and start another."""
        self._replace(self._chance.randrange(len(self._members)))
        self._tally["kills"] += 1

    def stop_worker(self) -> None:
        """Ask a worker to stop, as a deployment does, and start another; it gives its sessions back by itself."""
        awake = [
            number
            for number, (role, process) in enumerate(self._members)
            if role == "worker" and self._is_at_work(process)
        ]
        if not awake:
            return
        _, process = self._members[awake[0]]
        process.send_signal(signal.SIGTERM)
        self.add("worker")
        try:
            code = process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            code = "nothing"
        if code != 0:
            self.mishaps.append(f"{self._names[process.pid]} was asked to stop, and ended with {code}")
        self._end(self._members.pop(awake[0])[1])
        self._tally["stops"] += 1

    def _is_at_work(self, process: subprocess.Popen[bytes]) -> bool:
        is_ready = (self._folder / "ready" / self._names[process.pid]).exists()
        return is_ready and process.pid not in self._frozen and process.poll() is None

    def replace_all(self) -> None:
        """Kill everybody, and start others."""
        for _ in range(len(self._members)):
            self._replace(0)

    def freeze_one(self) -> None:
        """Stop somebody for longer than a lease."""
        _, process = self._chance.choice(self._members)
        process.send_signal(signal.SIGSTOP)
        self._frozen[process.pid] = time.monotonic() + 1.5 * LEASE
        self._tally["freezes"] += 1

    def look_after(self) -> None:
        """Let those go on that were frozen for long enough, and replace those that ended by themselves."""
        now = time.monotonic()
        for pid, until in list(self._frozen.items()):
            if now >= until:
                del self._frozen[pid]
                os.kill(pid, signal.SIGCONT)
        for number, (_, process) in enumerate(self._members):
            if process.poll() is not None:
                self.mishaps.append(f"{self._names[process.pid]} has ended by itself")
                self._replace(number)

    def end(self) -> None:
        """End everybody."""
        for _, process in self._members:
            self._end(process)
        self._members.clear()

    def _replace(self, number: int) -> None:
        role, process = self._members.pop(number)
        self._end(process)
        self.add(role)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._frozen.pop(process.pid, None)
        process.kill()
        process.communicate()
