"""The application on servers that are not ours: uvicorn as it is, with and without workers, and granian."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.test_docs import ROOT

from .serving import PATIENCE, Stream, ids, types

COMMANDS = {
    "uvicorn": ["uvicorn", "tests.server.hosted:app"],
    "uvicorn workers": ["uvicorn", "tests.server.hosted:app", "--workers", "2"],
    "granian": [
        "granian",
        "tests.server.hosted:app",
        "--interface",
        "asgi",
        "--workers",
        "2",
        "--workers-kill-timeout",
        "2",
    ],
}


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and process.poll() is None:
        try:
            if Stream(port, "GET", "/readyz", None, {}).reply().status == 200:
                return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("it does not serve")


@pytest.mark.parametrize("name", COMMANDS)
def test_any_server_serves_and_tells_its_streams_when_it_stops(name: str, tmp_path: Path):  # rules V1, V2, V3, V8
    port, log = free_port(), (tmp_path / "log").open("wb")
    with (
        log,
        subprocess.Popen(
            [sys.executable, "-m", *COMMANDS[name], "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "ADJOURN_STORE": f"sqlite:///{tmp_path / 's.db'}"},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            wait_for(port, process)
            with Stream(port, "POST", "/api/v1/chat", {"agent": "booker", "message": "book Rome"}, {}) as stream:
                session_id, frames = stream.session_id, stream.all()
            assert types(frames)[-1] == "interrupt"
            body = {"session_id": session_id, "answer": "yes"}
            with Stream(port, "POST", "/api/v1/chat/resume", body, {}) as stream:
                frames += stream.all()
            with Stream(port, "GET", f"/api/v1/sessions/{session_id}/events?after=2", None, {}) as stream:
                assert ids(stream.all()) == ids(frames)[2:]
            with Stream(port, "POST", "/api/v1/chat", {"agent": "waiter", "message": "hi"}, {}) as stream:
                stream.until("delta")
                process.send_signal(signal.SIGTERM)
                assert stream.all()[-1].type == "closing"
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM)  # uvicorn alone ends as signals end programs
        finally:
            process.kill()
