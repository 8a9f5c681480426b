"""Servers under fire: several on one store behind a balancer, clients that lose their streams and come back, and chaos.

Servers are killed, frozen for longer than a lease, and restarted one by one, while every client runs a session with
approvals. A client notes each durable event that it receives; in the end these are the events of the store, each once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tests.server.serving import Frame, Stream

from .served import FOLDER, LEASE, TIMES, ledger_of

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds within which everything must come to its end."""

IMPATIENCE = 5.0
"""Seconds after which a client gives a silent connection up, and comes back."""

LOST = (OSError, http.client.HTTPException)
FINAL = ("done", "error", "cancelled", "interrupt")


class ServerProcess:
    """`adjourn serve` in a process of its own."""

    def __init__(self, url: str, folder: Path, number: int, workers: int = 1) -> None:
        words = ["tests.proof.served:PAYER", "--store", url, "--port", "0", "--grace", "1", "--workers", str(workers)]
        self.log: IO[bytes] = (folder / f"log{number}").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adjourn", "serve", *words],
            cwd=ROOT,
            env={**os.environ, FOLDER: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        said = [self.process.stdout.readline(), self.process.stdout.readline()][1]
        found = re.match(r"Listening on http://127.0.0.1:(\d+)\.", said)
        assert found, (folder / f"log{number}").read_text()
        self.port = int(found[1])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()
        self.log.close()


class Balancer:
    """Passes each connection on to one of the servers, whichever takes it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listening.getsockname()[1]
        self.ports: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client:
            for port in self._chance.sample(self.ports, len(self.ports)):
                try:
                    server = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    continue
                with server:
                    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                    back.start()
                    _copy(client, server)
                    back.join()
                return


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Client(threading.Thread):
    """Runs one session to its end, approves what is asked, and notes every durable event."""

    def __init__(self, port: int, session: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.seen: list[tuple[int, Any]] = []
        self.failure: str = ""
        self.returns = 0
        self._port = port
        self._chance = chance
        self._ends = time.monotonic() + PATIENCE

    def run(self) -> None:
        try:
            last = self._turn("/api/v1/chat", {"session_id": self.session, "message": "pay"}, "begin")
            while last["type"] == "interrupt":
                token = last["interrupts"][0]["token"]
                body = {"session_id": self.session, "answers": {token: "yes"}}
                last = self._turn("/api/v1/chat/resume", body, f"answer {token}")
        except Exception as error:  # noqa: BLE001  # it is the test that has to hear of it
            self.failure = f"{type(error).__name__}: {error}"

    def _turn(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        """Send a message or an answer until somebody takes it, and return the last event of what it leads to."""
        while True:
            headers = {"idempotency-key": f"{self.session} {key}"}
            stream = self._open("POST", path, body, headers)
            if stream is not None:
                break
        last = self._read(stream)
        while last is None:
            self.returns += 1
            place = str(self.seen[-1][0]) if self.seen else "0"
            stream = self._open("GET", f"/api/v1/sessions/{self.session}/events", None, {"last-event-id": place})
            last = None if stream is None else self._read(stream)
        return last

    def _open(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Stream | None:
        """Return what was answered; None if it has to be tried again."""
        if time.monotonic() > self._ends:
            raise AssertionError("this takes too long")
        try:
            stream = Stream(self._port, method, path, body, headers, IMPATIENCE)
        except LOST:
            time.sleep(0.05)
            return None
        if stream.status == 200:
            return stream
        with contextlib.suppress(*LOST):
            reply = stream.reply()
            if reply.status != 503:
                raise AssertionError(f"{method} {path}: {reply.status} {reply.body.decode()}")
        time.sleep(0.05)
        return None

    def _read(self, stream: Stream) -> dict[str, Any] | None:
        """Read a stream, or the beginning of it; return the last event of the turn if it came."""
        leaves_at = self._chance.choice([2, 5, None])
        frames = 0
        with stream, contextlib.suppress(*LOST, AssertionError):
            for frame in stream.frames():
                frames += 1
                if self._note(frame):
                    return frame.data
                if frames == leaves_at:
                    return None
        return None

    def _note(self, frame: Frame) -> bool:
        """Note an event, and return whether it is the last one of a turn."""
        if frame.id is None or frame.data is None:
            return False
        self.seen.append((int(frame.id), frame.data))
        return frame.type in FINAL


class Fleet:
    """Servers on one store, each of which can be replaced at any time."""

    def __init__(self, url: str, folder: Path, *, servers: int, workers: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.balancer = Balancer(self.chance)
        self._url = url
        self._folder = folder
        self._workers = workers
        self._started = 0
        self.servers = [self._start() for _ in range(servers)]
        self._balance()

    def _start(self) -> ServerProcess:
        self._started += 1
        return ServerProcess(self._url, self._folder, self._started, self._workers)

    def _balance(self) -> None:
        self.balancer.ports = [each.port for each in self.servers]

    def close(self) -> None:
        self.balancer.close()
        for each in self.servers:
            each.close()

    # What happens to them

    def kill(self) -> None:
        """Kill one, or a worker of it, and start another in its place."""
        victim = self.chance.choice(self.servers)
        if self._workers > 1:
            os.kill(self.chance.choice(_children(victim.process.pid)), signal.SIGKILL)
            return
        victim.close()
        self.servers[self.servers.index(victim)] = self._start()
        self._balance()

    def freeze(self) -> None:
        """Stop one for longer than a lease, and let it go on."""
        victim = self.chance.choice(self.servers)
        pid = self.chance.choice(_children(victim.process.pid)) if self._workers > 1 else victim.process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5 * LEASE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def restart(self) -> None:
        """Replace all, one after the other: each is told to stop when another one serves."""
        if self._workers > 1:
            for each in self.servers:
                each.process.send_signal(signal.SIGHUP)
            return
        for old in list(self.servers):
            new = self._start()
            self.servers[self.servers.index(old)] = new
            self._balance()
            old.process.send_signal(signal.SIGTERM)
            assert old.process.wait(PATIENCE) == 0, "a server that is told to stop ends with 0"
            old.close()


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] not in "ZX":
                found.append(int(path.parent.name))
    return found


def under_fire(
    url: str, folder: Path, *, servers: int, sessions: int, rounds: int, workers: int = 1, seed: int = 1
) -> list[str]:
    """Run sessions while servers fail, and return what does not hold."""
    fleet = Fleet(url, folder, servers=servers, workers=workers, seed=seed)
    try:
        clients: list[Client] = []

        def begin(count: int) -> None:
            for _ in range(count):
                clients.append(Client(fleet.balancer.port, f"s{len(clients)}", random.Random(len(clients))))
                clients[-1].start()

        order: list[Callable[[], None]] = []
        for number in range(rounds):
            begin(sessions // rounds + (number < sessions % rounds))
            _wait_for_events(clients)
            if not order:
                order = [fleet.kill, fleet.restart, fleet.freeze]
                fleet.chance.shuffle(order)
            order.pop()()
        for client in clients:
            client.join(PATIENCE)
        return [each for client in clients for each in _violations(fleet, client, folder)]
    finally:
        fleet.close()


def _wait_for_events(clients: list[Client]) -> None:
    """Wait until each of the newest clients has heard something."""
    ends = time.monotonic() + PATIENCE
    while not all(client.seen or client.failure for client in clients):
        assert time.monotonic() < ends, "nobody is served"
        time.sleep(0.01)


def _violations(fleet: Fleet, client: Client, folder: Path) -> list[str]:
    name, found = client.session, list[str]()
    if client.failure or client.is_alive():
        return [f"{name}: {client.failure or 'does not end'}"]
    numbers = [number for number, _ in client.seen]
    if numbers != sorted(set(numbers)):
        found.append(f"{name}: I7 received {numbers}")
    stored = _stored(fleet, name)
    if [json.dumps(data, sort_keys=True) for _, data in client.seen] != stored:
        found.append(f"{name}: I7 received {numbers}, and the store has {len(stored)} events")
    ends = [data["type"] for _, data in client.seen if data["type"] in FINAL]
    if ends != ["interrupt"] * TIMES + ["done"]:
        found.append(f"{name}: I3 its turns ended with {ends}")
    for bill in range(TIMES):
        keys = {line.key for line in ledger_of(folder, name).effects(f"bill {bill}")}
        if len(keys) != 1:
            found.append(f"{name}: I6 bill {bill} was paid under {len(keys)} keys")
    return found


def _stored(fleet: Fleet, session: str) -> list[str]:
    """Return the events of a session as one uncut stream has them."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with (
            contextlib.suppress(*LOST),
            Stream(fleet.balancer.port, "GET", f"/api/v1/sessions/{session}/events", None, {}) as stream,
        ):
            if stream.status == 200:
                shown = [frame for frame in stream.frames() if frame.id is not None and frame.data is not None]
                return [json.dumps(frame.data, sort_keys=True) for frame in shown]
    raise AssertionError("nobody shows what is stored")
