"""`adjourn serve --workers`: several processes on one port, which are replaced, restarted and stopped as one."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.serving import PATIENCE, Stream, ids, types
from tests.spec.folder import Folder
from tests.test_docs import ROOT

AGENTS = ("tests.server.agents:WAITER", "tests.server.agents:BOOKER")


class Served:
    """`adjourn serve` in a process of its own."""

    def __init__(self, *words: str, folder: Path, env: dict[str, str] | None = None) -> None:
        self.errors = folder / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adjourn", "serve", "--port", "0", "--grace", "0.1", *words],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder), **(env or {})},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        said = [self.process.stdout.readline(), self.process.stdout.readline()]
        found = re.fullmatch(r"Listening on http://127.0.0.1:(\d+)\. 2 processes, Ctrl-C stops them\.\n", said[1])
        assert found, (said, self.errors.read_text())
        self.port = int(found[1])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def members(self) -> set[int]:
        """The processes that serve, or are about to."""
        return {pid for pid, parent in _parents() if parent == self.process.pid}

    def get(self, path: str) -> int:
        """The status of an answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def metrics(self) -> str:
        """The numbers of all of them, whichever is asked."""
        return Stream(self.port, "GET", "/metrics", None, {}).reply().body.decode()

    def chat(self, message: str, agent: str = "booker") -> Stream:
        return Stream(self.port, "POST", "/api/v1/chat", {"agent": agent, "message": message}, {})

    def end(self) -> int:
        """Wait for the end, and return the code."""
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


def _parents() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            yield int(path.parent.name), int(fields[1])


def wait_until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


@contextmanager
def serving(folder: Path, *words: str, env: dict[str, str] | None = None) -> Generator[Served]:
    served = Served(*words, folder=folder, env=env)
    try:
        yield served
    finally:
        members = served.members
        served.process.kill()
        served.process.communicate()
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def store(folder: Path) -> tuple[str, ...]:
    return ("--workers", "2", "--store", f"sqlite:///{folder / 's.db'}")


def test_processes_are_replaced_restarted_and_stopped(tmp_path: Path):  # rule V8, failures 25, 27
    with serving(tmp_path, *AGENTS, *store(tmp_path)) as served:
        with served.chat("book Rome") as stream:
            session_id, frames = stream.session_id, stream.all()
        assert types(frames)[-1] == "interrupt"

        killed = min(served.members)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in served.members and len(served.members) == 2)
        wait_until(lambda: "adjourn_processes 2.0" in served.metrics())  # rule V9
        assert 'adjourn_runs_ended_total{agent="booker",outcome="interrupted"} 1.0' in served.metrics()
        assert "was ended by SIGKILL. Another one starts now." in served.errors.read_text()

        # All of them are replaced, and whoever connects meanwhile is served.
        before, statuses = served.members, set[int]()
        served.signal(signal.SIGHUP)
        wait_until(lambda: statuses.add(served.get("/readyz")) or (served.members.isdisjoint(before)))
        wait_until(lambda: statuses.add(served.get("/api/v1/inbox")) or len(served.members) == 2)
        assert statuses == {200}

        with Stream(
            served.port, "POST", "/api/v1/chat/resume", {"session_id": session_id, "answer": "yes"}, {}
        ) as stream:
            frames += stream.all()
        assert types(frames)[-1] == "done"
        assert ids(frames) == list(range(1, len(ids(frames)) + 1))

        with served.chat("hi", agent="waiter") as stream:
            stream.until("delta")
            served.signal(signal.SIGTERM)
            assert stream.all()[-1].type == "closing"
        assert served.end() == 0
        assert not served.members
        assert "Traceback" not in served.errors.read_text()


def test_a_second_signal_stops_at_once(tmp_path: Path):  # rule V8
    with serving(tmp_path, *AGENTS, *store(tmp_path), "--grace", "300") as served:
        with served.chat("hi", agent="waiter") as stream:
            stream.until("delta")
            served.signal(signal.SIGINT)
            wait_until(lambda: len(served.members) == 1)  # The other one has nothing to do.
            assert served.get("/readyz") == 503
            served.signal(signal.SIGINT)
            served.end()
        wait_until(lambda: not served.members)
        assert "Traceback" not in served.errors.read_text()


def test_who_loses_its_parent_stops(tmp_path: Path):  # rule V8
    with serving(tmp_path, *AGENTS, *store(tmp_path)) as served, served.chat("hi", agent="waiter") as stream:
        stream.until("delta")
        members = served.members
        served.signal(signal.SIGKILL)
        assert stream.all()[-1].type == "closing"
        wait_until(lambda: not members & {pid for pid, _ in _parents()})


def test_a_restart_with_code_that_cannot_start_changes_nothing(tmp_path: Path):  # rule V8
    folder = Folder(tmp_path)
    folder.add("helper", "type: chat_model_agent\nmodel: python://parts:model")
    with serving(tmp_path, str(folder.path), *store(tmp_path)) as served:
        before = served.members
        folder.add("helper", "type: nonsense")
        served.signal(signal.SIGHUP)
        wait_until(lambda: "so the others stay as they are" in served.errors.read_text())
        assert served.members == before
        assert served.get("/readyz") == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tests.server.agents:BOOKER", "--workers 2: sessions would be in the memory of one process"),
        ("tests.server.agents:BOOKER --store memory://", "Give --store URL, such as --store sqlite:///"),
        ("tests.server.agents:GONE --store sqlite:///gone.db", "has no 'GONE'"),
        ("tests.server.agents:BOOKER --store sqlite:////gone/gone.db", "the folder '/gone' does not exist"),
        ("tests.server.agents:BOOKER --host 0.0.0.0 --store sqlite:///gone.db", "would let everybody in"),
    ],
)
def test_what_cannot_be_served_is_said_once(words: str, said: str):  # rules V7, V8, failures 52
    command = [sys.executable, "-m", "adjourn", "serve", "--workers", "2", "--port", "0", *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    text = " ".join(done.stderr.split())
    assert text.count(said) == 1, text
    assert text.count("✘") == 1


WORKER = """
import os, signal, sys, threading
connection = int(sys.argv[1].split(",")[0])
os.write(connection, b"ready\\n")
while said := os.read(connection, 1):
    if said == b"p":
        os.write(connection, b"p")
    else:
        sys.exit()
"""

FLEET = """
import sys
from adjourn.cli._fleet import Fleet
fails = sys.argv[2] == "fails"
begun = []
def command(given):
    begun.append(given)
    if fails and len(begun) > 1:
        return [sys.executable, "-c", "raise SystemExit(7)"]
    return [sys.executable, "-c", sys.argv[1], given]
def say(line):
    print(line, flush=True)
sys.exit(Fleet(command, [], workers=1, grace=1, tell=say, warn=say, every=0.05, pauses=(0.01, 0.04)).run())
"""


@contextmanager
def fleet(how: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A parent with one worker that serves nothing, and the worker."""
    command = [sys.executable, "-c", FLEET, WORKER, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            (worker,) = [pid for pid, parent in _parents() if parent == process.pid]
            yield process, worker
        finally:
            process.kill()


def test_one_that_hangs_is_replaced():  # rule V8, failures 26
    with fleet("works") as (process, worker):
        assert process.stdout is not None
        os.kill(worker, signal.SIGSTOP)
        assert process.stdout.readline() == f"Worker {worker} does not answer, and is killed.\n"
        assert process.stdout.readline().startswith(f"Worker {worker} was ended by SIGKILL. Another one starts")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_parent_whose_workers_cannot_start_any_more_ends():  # rule V8, failures 23
    with fleet("fails") as (process, worker):
        assert process.stdout is not None
        os.kill(worker, signal.SIGKILL)
        lines = process.stdout.readlines()
        assert process.wait(PATIENCE) == 7
        waits = [line.rpartition(" starts ")[2] for line in lines]
        assert waits == ["now.\n", "in 0.01 s.\n", "in 0.02 s.\n", "in 0.04 s.\n", "in 0.04 s.\n"]


AS_NOBODY = """
import encodings.idna, os
from adjourn.cli._serving import bound
if os.geteuid() == 0:
    os.setuid(65534)
bound("127.0.0.1", 81)
"""


def test_a_port_that_this_user_may_not_use_is_named():
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert "UsageError: --port 81: this user may not listen there. Choose a port from 1024 on" in done.stderr


def test_every_process_sees_new_tokens(tmp_path: Path):  # rules V7, V8
    tokens = tmp_path / "tokens.json"

    def token(*words: str) -> str:
        command = [sys.executable, "-m", "adjourn", "token", *words, "--tokens", str(tokens)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    def make(name: str) -> str:
        found = re.search(r"adj_\w+", token("create", name).replace("-", "_minus_"))
        assert found
        return found[0].replace("_minus_", "-")

    make("ann")
    with serving(tmp_path, *AGENTS, *store(tmp_path), "--tokens", str(tokens)) as served:
        headers = {"x-api-key": make("ben")}
        # Many connections at once reach both.
        replies: list[int] = []

        def send() -> None:
            with Stream(served.port, "GET", "/api/v1/agents", None, headers) as stream:
                replies.append(stream.status)

        senders = [threading.Thread(target=send) for _ in range(20)]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        assert replies == [200] * 20
