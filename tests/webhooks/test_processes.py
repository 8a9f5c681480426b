"""Processes that die and race: what was stored is sent, by whoever is left, and by one of them in the normal case."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn.stores import open_store
from adjourn.webhooks import Webhooks
from tests.server.agents import BOOKER
from tests.server.serving import PATIENCE, Stream
from tests.servers import postgres, redis
from tests.test_docs import ROOT

from .receiving import SECRET, Receiver

# What a dead process has taken is nobody's for the better part of a minute; here it is for some seconds.
SERVE = """
import sys
from adjourn.cli import main
from adjourn.webhooks import _delivery
_delivery.LEASE, _delivery.POLL = 0.5, 0.2
sys.exit(main(["serve", "tests.server.agents:BOOKER", "--port", "0", "--grace", "0.1", *sys.argv[1:]]))
"""

DELIVER = """
import asyncio, sys
from adjourn.stores import open_store
from adjourn.stores.kit import TakeNotices
from adjourn.webhooks import Webhook, Webhooks

async def main(url, to, secret):
    hooks = Webhooks([Webhook(to, secret=secret, name="desk", allow_http=True, allow_private=True)])
    store = open_store(url)
    await store.write(TakeNotices("adjourn", ["nobody"], 1.0))
    print("ready", flush=True)
    sys.stdin.readline()
    print(await hooks.deliver(store), flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    return postgres().fresh() if request.param == "postgres" else redis().fresh()


def serve(url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[subprocess.Popen[str], int]:
    """A process that serves, and its port."""
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    command = [
        sys.executable,
        "-c",
        SERVE,
        "--store",
        url,
        "--webhooks",
        str(file),
        "--public-url",
        "https://x.example",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    return process, int(lines[1].removeprefix("Listening on http://127.0.0.1:").partition(".")[0])


def test_what_a_killed_server_has_not_sent_another_one_sends(
    url: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # rule V12
    file, ends = tmp_path / "webhooks.yaml", threading.Event()
    file.write_text(
        f"webhooks: [{{url: '{receiver.url()}', secret: '${{WEBHOOK_SECRET}}', "
        "timeout: 3, allow_http: true, allow_private: true}]"
    )

    def hold(_: BaseHTTPRequestHandler) -> None:
        ends.wait(PATIENCE)

    receiver.answers = [hold]
    one, port = serve(url, file, monkeypatch)
    with one:
        with Stream(port, "POST", "/api/v1/chat", {"message": "book Rome", "session_id": "s"}, {}) as stream:
            assert stream.all()[-1].type == "interrupt"
        first = receiver.next()
        one.kill()
        one.wait(PATIENCE)
        ends.set()
    other, _ = serve(url, file, monkeypatch)
    with other:
        second = receiver.next()
        other.kill()
    assert (second.id, second.type, second.data["session_id"]) == (first.id, "interrupt", "s")
    assert second.data["questions"][0]["url"].startswith("https://x.example/api/v1/sessions/s/questions/")


def test_a_worker_tells_of_what_it_goes_on_with(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # rule V12
    url, file = f"sqlite:///{tmp_path}/s.db", tmp_path / "webhooks.json"
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    hook = {"url": receiver.url(), "secret": "${WEBHOOK_SECRET}", "allow_http": True, "allow_private": True}
    file.write_text(json.dumps({"webhooks": [hook]}))

    async def submit() -> None:
        store = open_store(url)
        await Runner(BOOKER, store=store).submit("book Rome", session_id="s")
        await store.close()

    asyncio.run(submit())
    command = [sys.executable, "-m", "adjourn", "worker", "tests.server.agents:BOOKER"]
    options = ["--store", url, "--webhooks", str(file), "--quiet"]
    with subprocess.Popen([*command, *options], cwd=ROOT) as worker:
        told = receiver.next()
        worker.terminate()
    assert (told.type, told.data["session_id"], worker.returncode) == ("interrupt", "s", 0)


@workflow
async def ask(what: str) -> str:
    return str(interrupt(what))


async def fill(url: str, hooks: Webhooks, sessions: list[str]) -> None:
    store = open_store(url)
    runner = Runner(ask, store=store, notify=hooks)
    for session in sessions:
        await runner.run("date", session_id=session)
    await store.close()


def test_two_processes_share_an_outbox(url: str, receiver: Receiver):  # rule V12
    sessions = [f"s{number}" for number in range(20)]
    asyncio.run(fill(url, Webhooks([receiver.webhook(name="desk")]), sessions))
    command = [sys.executable, "-c", DELIVER, url, receiver.url(), SECRET]
    racing = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
    ]
    for each in racing:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in racing:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    made = [int(each.communicate(timeout=PATIENCE)[0]) for each in racing]
    assert sum(made) == len(sessions)
    got = [receiver.next() for _ in sessions]
    assert sorted(each.data["session_id"] for each in got) == sorted(sessions)
    assert len({each.id for each in got}) == len(sessions)
    assert receiver.has_none()
