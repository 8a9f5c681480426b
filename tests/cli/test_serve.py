"""`adjourn serve`: agents on the network, and an end in time."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adjourn.cli import main
from adjourn.cli._serving import bound, url_of
from adjourn.server import Tokens
from adjourn.stores import SQLiteStore
from adjourn.stores.kit import ListSessions
from tests.cli.test_workers import wait_until
from tests.server.serving import PATIENCE, Stream
from tests.spec.folder import Folder
from tests.test_docs import ROOT

AGENTS = ("tests.server.agents:WAITER", "tests.server.agents:BOOKER")


def serve(
    *options: str, agents: tuple[str, ...] = AGENTS, said: str = "waiter, booker in SQLiteStore("
) -> tuple[subprocess.Popen[str], int]:
    """A process that serves, and its port."""
    command = [sys.executable, "-m", "adjourn", "serve", *agents, "--port", "0", "--grace", "0.1", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    assert lines[0].startswith(f"Serving {said}"), lines
    return process, int(lines[1].removeprefix("Listening on http://127.0.0.1:").partition(".")[0])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_time_with_streams_open(tmp_path: Path, how: signal.Signals):  # rule V8
    file = tmp_path / "s.db"
    process, port = serve("--store", f"sqlite:///{file}")
    with process, Stream(port, "POST", "/api/v1/chat", {"agent": "waiter", "message": "hi"}, {}) as stream:
        stream.until("delta")
        process.send_signal(how)
        assert stream.all()[-1].type == "closing"
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")
    (head,) = asyncio.run(SQLiteStore(file).read(ListSessions()))
    assert (head.status, head.owner) == ("queued", None)  # The next process goes on at once.


def test_a_second_signal_ends_it_at_once_and_without_a_trace(tmp_path: Path):  # rule V8
    process, port = serve("--store", f"sqlite:///{tmp_path / 's.db'}", "--grace", "300")
    with process, Stream(port, "POST", "/api/v1/chat", {"agent": "waiter", "message": "hi"}, {}) as stream:
        stream.until("delta")
        with Stream(port, "GET", "/api/v1/inbox/events", None, {}) as inbox:
            inbox.until("caught_up")
            process.send_signal(signal.SIGINT)
            wait_until(lambda: Stream(port, "GET", "/readyz", None, {}).reply().status == 503)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")


def test_without_authentication_it_does_not_listen_to_the_network(capsys: pytest.CaptureFixture[str]):  # rule V7
    assert main(["serve", "tests.server.agents:BOOKER", "--host", "0.0.0.0"]) != 0
    assert "without tokens this would let everybody in" in capsys.readouterr().err


def test_a_folder_of_yaml_is_served(tmp_path: Path):
    folder = Folder(tmp_path)
    store = f"checkpoint: {{backend: sqlite, url: 'sqlite:///{tmp_path}/s.db'}}"
    folder.add("helper", f"type: chat_model_agent\nmodel: python://parts:model\n{store}")
    process, port = serve("--reload", agents=(str(folder.path),), said="helper in SQLiteStore(")
    with process, Stream(port, "POST", "/api/v1/chat", {"message": "hi"}, {}) as stream:
        assert stream.all()[-1].type == "done"
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")


def test_a_folder_with_mistakes_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]):  # rule V6
    folder = Folder(tmp_path)
    folder.add("helper", "type: chat_model_agent\nmodel: python://parts:modl")
    assert main(["serve", str(folder.path)]) == 2
    assert "helper.yaml:6:10: parts has no 'modl'. Did you mean 'model'?" in capsys.readouterr().err.replace(
        "\n  ", " "
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tests.server.agents:BOOKER --port 99999", "--port 99999: give a number from 0 to 65,535"),
        ("tests.server.agents:BOOKER --grace -1", "--grace -1.0: give a number of seconds, 0 or more"),
        ("tests.server.agents:BOOKER --grace nan", "--grace nan: give a number of seconds, 0 or more"),
        ("tests.server.agents:BOOKER --workers 0", "--workers 0: give a number from 1 to"),
        ("tests.server.agents:BOOKER --port -1", "--port -1: give a number from 0"),
        ("tests.server.agents:BOOKER --tokens gone.json", "Make a token with `adjourn token create NAME --tokens gone"),
        ("gone/", "There is no folder 'gone/'. Name a folder of YAML agents, or MODULE:ATTRIBUTE."),
    ],
)
def test_mistakes_are_refused_before_anything_is_served(words: str, said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["serve", *words.split()]) == 2
    assert said in capsys.readouterr().err.replace("\n  ", " ")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_where_nobody_can_listen_is_said_in_one_line(workers: str, capsys: pytest.CaptureFixture[str]):
    def refused(*words: str) -> str:
        assert main(["serve", "tests.server.agents:BOOKER", "--workers", workers, *words]) == 2
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for host in ("127.0.0.1", "localhost"):
            said = refused("--host", host, "--port", port)
            assert f"--port {port}: somebody listens there already. Stop that one, or choose another port" in said


def test_an_address_that_this_machine_does_not_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokens = tmp_path / "tokens.json"
    Tokens(tokens).create("ann")
    for host, said in (
        ("192.0.2.1", "this machine does not have that address"),
        ("x" * 70, "there is no such address"),
    ):
        words = ["--host", host, "--port", "0", "--tokens", str(tokens)]
        assert main(["serve", "tests.server.agents:BOOKER", *words]) == 2
        assert f"--host {host}: {said}." in capsys.readouterr().err.replace("\n  ", " ")


def test_all_addresses_of_a_name_get_one_port():
    """What `localhost` is differs: one address or two, but one port."""
    sockets = bound("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert url_of("localhost", sockets) == f"http://localhost:{sockets[0].getsockname()[1]}"
        assert url_of("::1", sockets).startswith("http://[::1]:")
    finally:
        for each in sockets:
            each.close()


def test_a_media_host_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):  # rule V17
    assert main(["serve", AGENTS[0], "--allow-media-host", "https://images.example.com"]) != 0
    assert "'https://images.example.com' is not a host that media may come from" in capsys.readouterr().err
