"""How much one caller may do at a time, and what happens to bodies that do not arrive."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

import adjourn.server
from adjourn import Runner, UsageError, current, workflow
from adjourn.server import App, Caller, CallerLimits
from adjourn.server._callers import everybody
from adjourn.server._errors import ApiError
from adjourn.server._limits import Usage

from .agents import GATES, booker, counter
from .serving import PATIENCE, Serving

ANN, BOB = Caller(name="ann"), Caller(name="bob")


def caller(request: Request) -> Caller:
    return Caller(name=request.headers["x-user"])


def app(limits: CallerLimits) -> App:
    return App([booker(), counter()], limits=limits, identify=caller)


def test_a_caller_has_so_many_requests_open_and_no_more():  # failure F84, attack 16
    with Serving(app(CallerLimits(requests=2))) as server:
        streams = [server.open("GET", "/api/v1/inbox/events", x_user="ann") for _ in range(2)]
        refused = server.get("/api/v1/agents", x_user="ann")
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "too_many_requests", "1")
        assert refused.headers["ratelimit"] == '"requests";r=0;t=1'
        assert refused.headers["ratelimit-policy"] == '"requests";q=2'
        assert server.get("/api/v1/agents", x_user="bob").status == 200
        assert server.get("/healthz").status == 200
        for stream in streams:
            stream.close()
        assert any(server.get("/api/v1/agents", x_user="ann").status == 200 for _ in range(1000))
        with server.open("POST", "/api/v1/chat", {"agent": "booker", "message": "hello"}, x_user="bob") as stream:
            stream.rest()
        for _ in range(5):  # Whatever has ended, also in a refusal, is not open any more.
            assert server.get("/api/v1/sessions/nothing", x_user="bob").status == 404
        assert server.get("/api/v1/agents", x_user="bob").status == 200


def test_the_queue_of_a_session_is_bounded(tmp_path: Path):  # rule V16
    with Serving(App([booker()], store=f"sqlite:///{tmp_path}/q.db", limits=CallerLimits(inputs=2))) as server:
        asked = server.post("/api/v1/chat", {"message": "book Rome", "stream": False}).json["session_id"]
        queue, keyed = f"/api/v1/sessions/{asked}/inputs", {"message": "again", "session_id": asked, "on_busy": "queue"}
        for name in ("a", "b", "b"):
            assert server.post(queue, {"message": "next", "id": name}).status == 202
        refused = [
            server.post(queue, {"message": "next"}),
            server.post(queue, {"message": "next", "on_busy": "cancel"}),
            server.post("/api/v1/chat", {**keyed, "on_pending": "abandon"}),
            server.post("/api/v1/chat", {**keyed, "on_pending": "abandon"}, idempotency_key="k"),
        ]
        assert [(each.status, each.json["error"]["limit"]) for each in refused] == [(429, "inputs")] * 4
        assert server.request("DELETE", f"{queue}/a").status == 204
        assert server.post(queue, {"message": "next", "id": "c"}).status == 202
        assert server.post("/api/v1/chat", {"message": "hello", "stream": False}).status == 200


def test_a_caller_whose_turns_run_begins_no_other_and_still_answers():  # failure F84: answers go first
    with Serving(app(CallerLimits(runs=1))) as server:
        asked = server.post("/api/v1/chat", {"agent": "booker", "message": "book Rome", "stream": False}, x_user="ann")
        thread = server.post("/api/v1/chat", {"agent": "booker", "message": "book Oslo", "stream": False}, x_user="ann")
        chat = {"agent": "counter", "message": "count limits"}
        with server.open("POST", "/api/v1/chat", chat, x_user="ann") as running:
            GATES.reached("limits")
            refused = server.post("/api/v1/chat", {"agent": "booker", "message": "hello"}, x_user="ann")
            assert (refused.status, refused.code, refused.json["error"]["limit"]) == (429, "too_many_requests", "runs")
            body = {"session_id": asked.json["session_id"], "answer": "yes", "stream": False}
            assert server.post("/api/v1/chat/resume", body, x_user="ann").json["status"] == "done"
            said = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hello"}]}
            assert server.post("/api/v1/ag-ui/booker", said, x_user="ann").status == 429
            (question,) = thread.json["interrupts"]
            answer = {"interruptId": question["token"], "status": "resolved", "payload": {"approved": True}}
            body = {"threadId": thread.json["session_id"], "runId": "r", "resume": [answer]}
            with server.open("POST", "/api/v1/ag-ui/booker", body, x_user="ann") as stream:
                assert b"booked: Oslo" in stream.rest()
            GATES.open("limits")
            running.until("done")
        again = server.post("/api/v1/chat", {"agent": "booker", "message": "hello", "stream": False}, x_user="ann")
        assert (again.status, again.headers["ratelimit-policy"]) == (200, '"turns";q=600;w=60')


@pytest.fixture
def limited() -> Iterator[Serving]:
    with Serving(app(CallerLimits(runs=2))) as server:
        yield server


def gated(server: Serving, gate: str, *, session_id: str | None = None) -> str:
    """A session of ann's whose turn runs until its gate is opened."""
    chat = {"agent": "counter", "message": f"count {gate}", "session_id": session_id}
    with server.open("POST", "/api/v1/chat", chat, x_user="ann") as stream:
        GATES.reached(gate)
        return stream.session_id


def test_recoveries_and_forks_are_turns(limited: Serving):  # rule V18
    gate = "recoveries"
    failed = gated(limited, gate)
    path = f"/api/v1/sessions/{failed}"
    assert limited.post(f"{path}/cancel", {}, x_user="ann").status == 202
    with limited.events(failed, x_user="ann") as stream:
        stream.until("cancelled")
    forks = [limited.post(f"{path}/fork", {}, x_user="ann").json["session_id"] for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:  # All at once: none of them has begun when the next is looked at.

        def recover(session_id: str) -> int:
            with limited.open("POST", f"/api/v1/sessions/{session_id}/recover", x_user="ann") as stream:
                return stream.status

        statuses = list(pool.map(recover, forks))
    assert sorted(statuses) == [200, 200, 429, 429, 429, 429]
    for refused in ("fork", "recover"):
        reply = limited.post(f"{path}/{refused}", {}, x_user="ann")
        assert (reply.status, reply.json["error"]["limit"]) == (429, "runs")
    GATES.open(gate)


def test_what_the_server_begins_by_itself_are_turns_of_their_callers(limited: Serving):  # rule V18
    for session_id, gates in (("queue", ["first", "then"]), ("beside", ["other"])):
        for gate in gates:
            body = {"agent": "counter", "message": f"count {gate}"}
            assert limited.post(f"/api/v1/sessions/{session_id}/inputs", body, x_user="ann").status == 202
        GATES.reached(gates[0])
    chat = {"agent": "booker", "message": "hello", "stream": False}
    for gate in ("first", "then"):  # The second input is begun by whoever has ended the first turn.
        GATES.reached(gate)
        assert limited.post("/api/v1/chat", chat, x_user="ann").status == 429
        assert limited.post("/api/v1/sessions/x/inputs", chat, x_user="ann").status == 429
        assert limited.post("/api/v1/chat", chat, x_user="bob").status == 200
        GATES.open(gate)
    with limited.events("queue", x_user="ann") as stream:
        stream.until("done")
    assert limited.post("/api/v1/chat", chat, x_user="ann").status == 200
    GATES.open("other")


async def submit(program: Any, url: str, user: str, count: int, name: str = "") -> list[str]:
    """Submit an input to each of some sessions, as another process does."""
    runner = Runner(program, store=url)
    names = [f"{user}{name}{number}" for number in range(count)]
    for each in names:
        await runner.submit("hello", session_id=each, user_id=user)
    await runner.close()
    return names


async def test_inputs_begin_only_as_far_as_their_caller_may_run_turns(tmp_path: Path):  # rule V18
    running, most = Counter[str | None](), Counter[str | None]()

    @workflow
    async def slow(_: str) -> None:
        user = current().user_id
        running[user] += 1
        most[user] = max(most[user], running[user])
        await asyncio.sleep(0.05)
        running[user] -= 1

    url = f"sqlite:///{tmp_path}/s.db"
    names = await submit(slow, url, "ann", 12)
    with Serving(App([slow], store=url, limits=CallerLimits(runs=2), identify=caller)) as server:
        for name in names:
            with server.events(name, x_user="ann") as stream:
                stream.until("done")
    assert most["ann"] == 2


async def test_inputs_that_wait_hold_up_neither_others_nor_answers(tmp_path: Path):  # rule V18
    url, limits = f"sqlite:///{tmp_path}/s.db", CallerLimits(runs=1)
    with Serving(App([booker(), counter()], store=url, concurrency=1, limits=limits, identify=caller)) as server:
        chat = {"agent": "booker", "message": "book Rome", "stream": False}
        asked = server.post("/api/v1/chat", chat, x_user="ann").json["session_id"]
        gated(server, "crowd")
        waiting = await submit(booker(), url, "ann", 5)
        assert server.post(f"/api/v1/sessions/{asked}/answers", {"answer": "yes"}, x_user="ann").status == 202
        with server.events(asked, "?follow=session", x_user="ann") as stream:
            stream.until("done")
        waiting += await submit(booker(), url, "ann", 12, "more")  # more than are listed at a time
        (name,) = await submit(booker(), url, "bob", 1)
        with server.events(name, x_user="bob") as stream:
            stream.until("done")
        assert {server.get(f"/api/v1/sessions/{name}", x_user="ann").json["status"] for name in waiting} == {"queued"}
        GATES.open("crowd")
        for name in waiting:
            with server.events(name, x_user="ann") as stream:
                stream.until("done")


def test_turns_are_counted_by_the_minute():
    now = [1000.0]
    usage = Usage(CallerLimits(turns=2), clock=lambda: now[0])
    assert usage.begin_turn(ANN) == {"ratelimit-policy": '"turns";q=2;w=60', "ratelimit": '"turns";r=1;t=30'}
    assert usage.begin_turn(ANN)["ratelimit"] == '"turns";r=0;t=60'
    with pytest.raises(ApiError) as refused:
        usage.begin_turn(ANN)
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "30")
    usage.begin_turn(BOB)
    now[0] += 29.0
    with pytest.raises(ApiError) as refused:
        usage.begin_turn(ANN)
    assert refused.value.headers["retry-after"] == "1"
    now[0] += 1.0
    usage.begin_turn(ANN)
    now[0] += 3600.0
    usage.begin_turn(ANN)
    assert usage.begin_turn(ANN)["ratelimit"].startswith('"turns";r=0')


def test_where_nobody_has_a_name_nothing_is_counted():
    usage = Usage(CallerLimits(requests=1, turns=1))
    for _ in range(3):
        usage.open(everybody())
        assert usage.begin_turn(everybody()) == {}


def test_a_body_that_does_not_arrive_is_not_waited_for():  # failure F86
    with Serving(App([booker()], limits=CallerLimits(upload=0.1))) as server:
        for sent in (b"", b'{"message": '):
            with socket.create_connection(("127.0.0.1", server.server.port), timeout=PATIENCE) as client:
                head = "POST /api/v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                client.sendall(f"{head}content-length: 100\r\n\r\n".encode() + sent)
                answer = b"".join(iter(lambda: client.recv(65536), b""))  # To the end: the connection is closed.
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"too_slow"' in answer
        with server.chat(message="hello") as stream:
            assert stream.all()[-1].type == "done"


@pytest.mark.parametrize("name", ["requests", "runs", "turns", "upload", "stall"])
def test_a_limit_of_nothing_is_refused(name: str):
    with pytest.raises(UsageError, match=name):
        CallerLimits(**{name: 0})


def test_the_old_name_says_the_new_one():
    with pytest.raises(AttributeError, match="CallerLimits limit callers"):
        _ = getattr(adjourn.server, "Limits")  # noqa: B009  # a type checker knows better
    with pytest.raises(ImportError, match="CallerLimits limit callers"):
        __import__("adjourn.server", fromlist=["Limits"])  # as `from adjourn.server import Limits`
    assert not hasattr(adjourn.server, "Limits")
