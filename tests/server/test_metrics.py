"""Metrics: what the processes of a server do, and what waits, as Prometheus reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adjourn.errors import StoreUnavailable
from adjourn.server import App, Caller, Tokens
from adjourn.server._metrics import FOLDER
from adjourn.stores import MemoryStore
from adjourn.stores.kit import CountQuestions, StoreQuery

from .agents import GATES, booker, counter
from .serving import PATIENCE, Serving, Stream

T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter()])) as serving:
        yield serving


class Numbers:
    """The samples of a scrape."""

    def __init__(self, text: str) -> None:
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((f"adjourn_{name}", frozenset(labels.items())), 0)

    @property
    def labels(self) -> dict[str, set[str]]:
        """What each label has been seen with."""
        found: dict[str, set[str]] = {}
        for _, labels in self.samples:
            for name, value in labels:
                found.setdefault(name, set()).add(value)
        return found


def scrape(server: Serving, **headers: str) -> Numbers:
    reply = server.get("/metrics", **headers)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Numbers(reply.body.decode())


def test_runs_are_counted_by_agent_and_ending(server: Serving):  # rule V9
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id = stream.session_id
        stream.all()
    assert server.post(f"/api/v1/sessions/{session_id}/answers", {"answer": "nonsense"}).status == 422
    with server.resume(session_id=session_id, answer="yes") as stream:
        stream.all()
    assert server.post("/api/v1/chat/resume", {"session_id": session_id, "answer": "yes"}).status == 409
    server.post("/api/v1/chat", {"agent": "booker", "message": "fail", "stream": False})
    with server.chat(agent="counter", message="count metrics") as stream:
        GATES.reached("metrics")
        seen = scrape(server)
        assert (seen("runs", agent="counter"), seen("http_streams", route="/api/v1/chat")) == (1, 1)
        server.post(f"/api/v1/sessions/{stream.session_id}/cancel", {})
        stream.all()
        GATES.open("metrics")
    seen = scrape(server)
    ended = {
        dict(labels)["agent"] + " " + dict(labels)["outcome"]: value
        for (name, labels), value in seen.samples.items()
        if name == "adjourn_runs_ended_total"
    }
    assert ended == {"booker interrupted": 1, "booker done": 1, "booker error": 1, "counter cancelled": 1}
    assert (seen("runs_begun_total", agent="booker"), seen("runs", agent="booker")) == (3, 0)
    assert (seen("run_seconds_count", agent="booker"), seen("runs", agent="counter")) == (3, 0)
    outcomes = ("taken", "invalid_answer", "already_resumed")
    assert [seen("answers_total", outcome=outcome) for outcome in outcomes] == [1, 1, 1]
    assert seen("model_calls_total", agent="booker") == 3


def test_requests_are_counted_by_route_and_never_by_what_clients_choose(server: Serving):  # rule V9, attack 16
    for name in ("secret-session", "a%2Fb", "%0Ainjected", "x" * 3000):
        assert server.get(f"/api/v1/sessions/{name}").status == 404
        assert server.get(f"/nowhere/{name}").status == 404
        assert server.get("/healthz", host=name if name.isalpha() else "evil").status == 421
    assert server.request("PROPFIND", "/healthz").status == 405
    seen = scrape(server)
    assert seen("http_requests_total", route="/api/v1/sessions/{id}", method="GET", status="404") == 4
    assert seen("http_request_seconds_count", route="/api/v1/sessions/{id}", method="GET") == 4
    assert seen("http_requests_total", route="none", method="GET", status="404") == 4
    assert seen("http_requests_total", route="none", method="GET", status="421") == 4
    assert seen("http_requests_total", route="/healthz", method="other", status="405") == 1
    seen = scrape(server)
    assert seen("http_requests_total", route="/metrics", method="GET", status="200") == 1
    assert seen.labels["route"] == {"/api/v1/sessions/{id}", "/healthz", "/metrics", "none"}
    assert seen.labels["method"] == {"GET", "other"}


def test_open_streams_are_those_that_are_open(server: Serving):
    streams = [server.open("GET", "/api/v1/inbox/events") for _ in range(3)]
    for stream in streams:
        stream.until("caught_up")
    assert scrape(server)("http_streams", route="/api/v1/inbox/events") == 3
    for stream in streams:
        stream.close()
    assert any(scrape(server)("http_streams", route="/api/v1/inbox/events") == 0 for _ in range(1000))


class Watched(MemoryStore):
    """A store that counts how often it is asked what waits, and may be away."""

    looks = 0
    is_away = False

    async def read(self, query: StoreQuery[T]) -> T:
        self.looks += isinstance(query, CountQuestions)
        if self.is_away and isinstance(query, CountQuestions):
            raise StoreUnavailable("watched", "it is away")
        return await super().read(query)


def test_what_waits_is_counted_and_looked_at_only_now_and_then():  # rule V9
    store = Watched()
    with Serving(App([booker()], store=store)) as server:
        for _ in range(2):
            server.post("/api/v1/chat", {"message": "book Rome", "stream": False})
        seen = scrape(server)
        assert (seen("questions_open"), seen("store_up"), seen("sessions_due", why="answer")) == (2, 1, 0)
        assert 0 < seen("questions_oldest_seconds") < PATIENCE
        assert seen("processes") == 1
        assert seen.samples["adjourn_draining_processes", frozenset()] == 0
        (build,) = [dict(labels) for name, labels in seen.samples if name == "adjourn_build_info"]
        assert build.keys() == {"version", "python"}
        looked = store.looks
        assert scrape(server)("questions_open") == 2
        assert store.looks == looked == 1


def test_while_the_store_is_away_the_rest_is_told(caplog: pytest.LogCaptureFixture):  # rules V8, V9
    store = Watched()
    store.is_away = True
    with Serving(App([booker()], store=store)) as server:
        seen = scrape(server)
        assert seen.samples["adjourn_store_up", frozenset()] == 0
        assert not any(name == "adjourn_questions_open" for name, _ in seen.samples)
        assert seen("processes") == 1
    assert "metrics: the store does not say what waits" in caplog.text


def test_sessions_that_are_taken_up_are_counted_by_why(server: Serving):
    paused = server.post("/api/v1/chat", {"agent": "booker", "message": "book Rome", "stream": False}).json
    with server.events(paused["session_id"], "?follow=session") as stream:
        stream.until("caught_up")
        assert server.post(f"/api/v1/sessions/{paused['session_id']}/answers", {"answer": "yes"}).status == 202
        stream.until("done")
    assert any(scrape(server)("sessions_taken_up_total", why="answer") == 1 for _ in range(100))


# Who may read them


def test_metrics_are_for_a_role_of_their_own_and_for_admins(tmp_path: Path):  # rules V7, V9
    file = Tokens(tmp_path / "tokens.json")
    tokens = {role: file.create(role, roles=[role])[1] for role in ("use", "review", "metrics", "admin")}
    limited = file.create("limited", roles=["metrics", "admin"], agents=["count*"])[1]
    with Serving(App([booker(), counter()], tokens=file)) as server:
        found = {role: server.get("/metrics", x_api_key=token).status for role, token in tokens.items()}
        assert found == {"use": 403, "review": 403, "metrics": 200, "admin": 200}
        assert server.get("/metrics", x_api_key=limited).status == 403  # It would see agents that are not for it.
        assert server.get("/metrics").status == 401
        for path in ("/api/v1/agents", "/api/v1/sessions", "/api/v1/inbox", "/openapi.json"):
            assert server.get(path, x_api_key=tokens["metrics"]).status == 403
    with Serving(App([booker()], tokens=file, open_metrics=True)) as server:
        assert server.get("/metrics").status == 200
        document = server.get("/openapi.json", x_api_key=tokens["use"]).json
        assert document["paths"]["/metrics"]["get"]["security"] == []
        assert server.get("/api/v1/agents").status == 401


def test_two_applications_in_one_process_count_for_themselves():
    first, second = App([booker()]), App([booker()], identify=lambda _: Caller(name="a", roles=frozenset(("admin",))))
    with Serving(first) as one, Serving(second) as two:
        one.post("/api/v1/chat", {"message": "hello", "stream": False})
        assert scrape(one)("runs_begun_total", agent="booker") == 1
        assert scrape(two)("runs_begun_total", agent="booker") == 0


# Many processes


def of_port(port: int) -> Numbers:
    return Numbers(Stream(port, "GET", "/metrics", None, {}).reply().body.decode())


SERVE = """
import sys
from adjourn.server import App
from adjourn.server.serve import Server
from tests.server.agents import BOOKER
Server(App([BOOKER], store=sys.argv[1]), port=0, tell=lambda url: print(url, flush=True)).run()
"""


def test_whichever_process_is_asked_has_the_numbers_of_all(tmp_path: Path):  # rules V8, V9
    folder = tmp_path / "metrics"
    folder.mkdir()
    environment = {**os.environ, FOLDER: str(folder)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SERVE, f"sqlite:///{tmp_path / 's.db'}"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        ports: list[int] = []
        for process in processes:
            assert process.stdout is not None
            ports.append(int(process.stdout.readline().rpartition(":")[2]))
        for port in ports:
            Stream(port, "POST", "/api/v1/chat", {"message": "hello"}, {}).all()
        held = Stream(ports[1], "GET", "/api/v1/inbox/events", None, {})
        held.until("caught_up")
        (folder / "counter_4194304.db").touch()  # of a process that is just starting
        for port in ports:
            seen = of_port(port)
            assert (seen("processes"), seen("runs_begun_total", agent="booker")) == (2, 2)
            assert seen("http_streams", route="/api/v1/inbox/events") == 1
        processes[1].kill()
        processes[1].wait(PATIENCE)
        seen = of_port(ports[0])
        assert (seen("processes"), seen("http_streams", route="/api/v1/inbox/events")) == (1, 0)
        assert seen("runs_begun_total", agent="booker") == 2  # What has happened has happened.
        held.close()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    environment = {**os.environ, FOLDER: str(tmp_path / "nothing")}
    code = "from adjourn.server import App; from tests.server.agents import BOOKER; App([BOOKER])"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 1
    assert f"${FOLDER} is '{tmp_path / 'nothing'}', which is not a folder. Make an empty one" in ended.stderr
