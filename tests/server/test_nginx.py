"""The configuration of nginx that docs/deployment.md prints, tried with a real one."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adjourn.server import App
from adjourn.stores import MemoryStore
from tests.servers import free_port
from tests.test_docs import ROOT

from .agents import GATES, booker, counter
from .serving import PATIENCE, Serving, Stream, types

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


def printed() -> str:
    text = (ROOT / "docs" / "deployment.md").read_text()
    found = re.search(r"```nginx\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


@contextmanager
def nginx(folder: Path, *ports: int) -> Generator[int]:
    """A proxy before servers, as it is printed but for its ports and TLS; and its own port."""
    assert NGINX is not None
    port = free_port()
    config = re.sub(r"\n *ssl_[^\n]*", "", printed()).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    for number, each in enumerate(ports, 8001):
        config = config.replace(f"127.0.0.1:{number}", f"127.0.0.1:{each}")
    places = " ".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;"
        f"events {{}} http {{ access_log off; {places}\n{config}\n}}"
    )
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(file)], stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + PATIENCE
            while time.monotonic() < ends:
                try:
                    Stream(port, "GET", "/healthz", None, {}).reply()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "errors").read_text()
            yield port
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="No nginx here. Install Debian's `nginx-light`.")
def test_streams_pass_piece_by_piece_and_a_server_may_stop(tmp_path: Path):  # rules V3, V8, failures 82
    store, hosts = MemoryStore(), ["desk.example.com"]
    agents = [counter(), booker()]
    with (
        Serving(App(agents, store=store, hosts=hosts, keep_alive=0.05)) as one,
        Serving(App(agents, store=store, hosts=hosts, keep_alive=0.05)) as other,
        nginx(tmp_path, one.server.port, other.server.port) as port,
    ):
        host = {"host": "desk.example.com"}
        with Stream(port, "POST", "/api/v1/chat", {"agent": "counter", "message": "count nginx"}, host) as stream:
            # It stands still, so these frames have come through although there is no more to come.
            frames: list[bytes] = []
            for frame in stream.frames():
                frames.append(frame.raw)
                if frame.raw.startswith(b": keep-alive"):
                    break
            assert any(b'"type":"delta"' in each for each in frames)
            GATES.open("nginx")
            assert types(stream.all())[-1] == "done"
        with Stream(port, "POST", "/api/v1/chat", {"agent": "booker", "message": "book Rome"}, host) as stream:
            session_id = stream.session_id
            assert types(stream.all())[-1] == "interrupt"
        one.stop()
        for _ in range(4):
            assert Stream(port, "GET", "/api/v1/agents", None, host).reply().status == 200
        body = {"session_id": session_id, "answer": "yes"}
        with Stream(port, "POST", "/api/v1/chat/resume", body, host) as stream:
            assert types(stream.all())[-1] == "done"
