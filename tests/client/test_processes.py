"""A server that is killed in the middle of a run, and started again on the same file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from adjourn.client import Client, Reconnecting
from adjourn.events import Delta, Event, Retrying
from tests.test_docs import ROOT

from .cutting import Proxy


def serve(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that serves, and its port."""
    store = f"sqlite:///{folder}/s.db"
    command = [sys.executable, "-m", "adjourn", "serve", "tests.client.slow:AGENT", "--port", "0", "--store", store]
    environment = {**os.environ, "ADJOURN_TEST_GO": str(folder / "go")}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    return process, int(lines[1].removeprefix("Listening on http://127.0.0.1:").partition(".")[0])


async def test_a_server_that_is_killed_and_started_again_loses_nothing(tmp_path: Path):  # rules V8, V14
    first, port = serve(tmp_path)
    lost: list[Reconnecting] = []
    events: list[Event] = []
    processes = [first]
    try:
        with Proxy(port) as proxy:
            async with Client(proxy.url, on_reconnect=lost.append) as client:
                run = client.chat("hello")
                async for event in run:
                    events.append(event)
                    if isinstance(event, Delta) and len(processes) == 1:
                        first.kill()
                        first.wait()
                        (tmp_path / "go").touch()
                        second, proxy.target = serve(tmp_path)
                        processes.append(second)
                assert (await run).output == "one two"
                assert [message.text for message in await client.messages(run.session_id)] == ["hello", "one two"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    numbers = [event.seq for event in events if event.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert lost
    shown = ""
    for event in events:
        shown = "" if isinstance(event, Retrying) else shown + (event.text if isinstance(event, Delta) else "")
    assert shown == "one two"
