"""What every server is given: the same model, the same chats, the same store; and how it is measured.

A side gives a function that serves, how a chat is posted, and how a token is read. Its script is started twice: once as
the server (`--server PORT STORE`), and once as the load on it.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from socket import create_connection, create_server
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from uuid import uuid4

from bench.sides.service.load import Reply, hold_open, run_chats
from bench.sides.side import Outcome, main

INSTRUCTION = "You tell stories."
FIRST = "word0 "
STARTS = 60.0
"""Seconds that a server has to start."""

GATE = "BENCH_GATE"
"""The environment variable that names a file; when it is there, answers that are held go on."""

_gate: asyncio.Event | None = None
_looking: list[asyncio.Task[None]] = []


async def say(message: str) -> AsyncIterator[str]:
    """Yield the pieces of the model's answer; one that is to be held waits after the first, until the load is ready."""
    mode, count = message.split()
    for number in range(int(count)):
        yield f"word{number} "
        if mode == "hold" and not number:
            await _opened().wait()
        else:
            await asyncio.sleep(0)  # A real one would come from a socket.


def _opened() -> asyncio.Event:
    global _gate  # noqa: PLW0603
    if _gate is None:
        _gate = asyncio.Event()
        _looking.append(asyncio.get_running_loop().create_task(_look(_gate)))
    return _gate


async def _look(gate: asyncio.Event) -> None:
    while not os.path.exists(os.environ[GATE]):  # noqa: ASYNC110, ASYNC240, PTH110
        await asyncio.sleep(0.05)
    gate.set()


def expected(count: int) -> str:
    return "".join(f"word{number} " for number in range(count))


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One server.

    serve: a function of a port and a store ("memory", or the path of a SQLite file) that serves until it is stopped.
    post: the path and the body of a chat, given a session's id and a message.
    token: the text of a token that a frame has, if any.
    """

    serve: Callable[[int, str], None]
    post: Callable[[str, str], tuple[str, object]]
    token: Callable[[bytes], str]

    def request(self, message: str) -> bytes:
        path, data = self.post(uuid4().hex, message)
        body = json.dumps(data).encode()
        head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body

    def text(self, reply: Reply) -> str:
        return "".join(map(self.token, reply.events()))


class Server:
    """The process of a server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, gate: Path) -> None:
        self._process = process
        self.port = port
        self._gate = gate

    @property
    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """MB that are in use."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))

    def open_gate(self) -> None:
        self._gate.touch()


@contextmanager
def started(kind: str) -> Generator[Server]:
    """A process that serves, when it answers."""
    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    module = sys.modules["__main__"].__spec__
    assert module is not None
    with TemporaryDirectory() as folder:
        gate = Path(folder, "gate")
        store = "memory" if kind == "memory" else f"{folder}/bench.db"
        command = [sys.executable, "-m", module.name, "--server", str(port), store]
        with subprocess.Popen(command, stdout=sys.stderr, env={**os.environ, GATE: str(gate)}) as process:
            try:
                _wait(process, port)
                yield Server(process, port, gate)
            finally:
                process.kill()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    end = monotonic() + STARTS
    while True:
        try:
            create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if process.poll() is not None or monotonic() > end:
                raise RuntimeError("the server did not start") from None
            sleep(0.05)
        else:
            return


async def _chats(
    side: Contestant, server: Server, *, message: str, count: int, clients: int
) -> tuple[dict[str, float], list[Reply]]:
    requests = [side.request(message) for _ in range(count)]
    before = server.cpu
    took, replies = await run_chats(server.port, clients, requests)
    cpu = server.cpu - before
    times = sorted(reply.seconds for reply in replies)
    return {
        "wall": took / count,
        "cpu": cpu / count,
        "p50": median(times),
        "p99": times[int(len(times) * 0.99)],
    }, replies


def _check(side: Contestant, replies: list[Reply], words: int) -> int:
    """How many replies are not what they should be."""
    return sum(reply.status != 200 or side.text(reply) != expected(words) for reply in replies)


async def _serve(side: Contestant, store: str, **size: int) -> Outcome:
    with started(store) as server:
        short, long = f"say {size['words']}", f"say {size['tokens']}"
        await _chats(side, server, message=short, count=size["clients"], clients=size["clients"])  # warms up
        chat, replies = await _chats(side, server, message=short, count=size["chats"], clients=size["clients"])
        wrong = _check(side, replies, size["words"])
        told, replies = await _chats(side, server, message=long, count=size["streams"], clients=size["streams"])
        wrong += _check(side, replies, size["tokens"])
    figures = {
        "chat": chat["wall"] * 1e3,
        "chats": 1 / chat["wall"],
        "cpu": chat["cpu"] * 1e3,
        "p50": chat["p50"] * 1e3,
        "p99": chat["p99"] * 1e3,
        "token": told["wall"] / size["tokens"] * 1e6,
        "tokens": size["tokens"] / told["wall"],
        "token_cpu": told["cpu"] / size["tokens"] * 1e6,
        "wrong": wrong,
    }
    if size["open"]:
        with started(store) as server:
            figures |= await _open_streams(side, server, size["open"], size["words"])
    frames = sum(bool(side.token(each)) for reply in replies for each in reply.events())
    share = frames / size["streams"] / size["tokens"]
    note = "" if share == 1 else f"{share:.2f} frames for a token"
    return Outcome(figures=figures, result=sha256(side.text(replies[0]).encode()).hexdigest(), note=note)


async def _open_streams(side: Contestant, server: Server, count: int, words: int) -> dict[str, float]:
    await _chats(side, server, message=f"say {words}", count=10, clients=2)
    before, during = server.memory, list[float]()

    def when_open() -> None:
        during.append(server.memory)
        server.open_gate()

    requests = [side.request(f"hold {words}") for _ in range(count)]
    failed, replies = await hold_open(server.port, requests, FIRST.strip().encode(), when_open)
    return {
        "idle": before,
        "open": during[0],
        "stream": (during[0] - before) * 1000 / count,
        "failed": failed + _check(side, replies, words),
    }


def contest(side: Contestant) -> None:
    """Be the server, or the load on it, as the command line says."""
    if sys.argv[1] == "--server":
        side.serve(int(sys.argv[2]), sys.argv[3])
    else:
        main({"serve": partial(_serve, side, "memory"), "serve_sqlite": partial(_serve, side, "sqlite")})
