"""Requests that are sent again under their Idempotency-Key: they count once, and have the same answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjourn.server import App
from tests.test_docs import ROOT

from .agents import DIER, GATES, booker, counter
from .serving import Reply, Serving, Stream, ids


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter()])) as serving:
        yield serving


def chat(server: Serving, key: str, **data: Any) -> Reply:
    return server.post("/api/v1/chat", {"agent": "booker", "message": "book Rome", **data}, idempotency_key=key)


def durable(reply: Reply) -> list[bytes]:
    return [frame for frame in reply.body.split(b"\n\n") if frame.startswith(b"id: ") and b"data: " in frame]


def test_a_stream_is_read_again_and_nothing_is_done_twice(server: Serving):  # rule V13
    first, again = chat(server, "stream"), chat(server, "stream")
    assert first.headers["x-session-id"] == again.headers["x-session-id"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert durable(first) == durable(again)
    body = {"session_id": first.headers["x-session-id"], "answer": "yes"}
    replies = [server.post("/api/v1/chat/resume", body, idempotency_key="resume") for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert durable(replies[0]) == durable(replies[1]) == durable(replies[2])
    assert b'"type":"done"' in durable(replies[2])[-1]


def test_a_document_is_given_again(server: Serving):  # rule V13
    first, again = (chat(server, "document", stream=False) for _ in range(2))
    assert first.body == again.body
    session_id = first.json["session_id"]
    forks = [server.post(f"/api/v1/sessions/{session_id}/fork", {}, idempotency_key="fork") for _ in range(2)]
    assert [reply.status for reply in forks] == [201, 201]
    assert forks[0].json == forks[1].json


def test_another_request_under_the_same_key_is_refused(server: Serving):  # rule V13
    chat(server, "reused")
    reply = chat(server, "reused", message="book Oslo")
    assert (reply.status, reply.code) == (422, "idempotency_key_reused")
    body = {"agent": "booker", "message": "book Rome"}
    reply = server.post("/api/v1/sessions/x/inputs", body, idempotency_key="reused")
    assert reply.code == "idempotency_key_reused"


def test_what_was_refused_may_be_sent_again(server: Serving):  # rule V13
    reply = chat(server, "refused", agent="nobody")
    assert (reply.status, reply.code) == (404, "agent_not_found")
    assert chat(server, "refused").status == 200


def test_of_several_at_once_one_is_handled(server: Serving):  # rule V13
    body = {"agent": "counter", "message": "count keys", "stream": False}
    replies: list[Reply] = []

    def send() -> None:
        replies.append(server.post("/api/v1/chat", body, idempotency_key="at-once"))

    first = threading.Thread(target=send)
    first.start()
    GATES.reached("keys")
    reply = server.post("/api/v1/chat", body, idempotency_key="at-once")
    assert (reply.status, reply.code) == (409, "request_in_progress")
    GATES.open("keys")
    first.join()
    send()
    assert replies[0].json == replies[1].json


def test_a_stream_that_is_going_on_is_joined(server: Serving):  # rules V3, V13
    body = {"agent": "counter", "message": "count joined"}
    with server.open("POST", "/api/v1/chat", body, idempotency_key="joined") as one:
        GATES.reached("joined")
        with server.open("POST", "/api/v1/chat", body, idempotency_key="joined") as other:
            GATES.open("joined")
            assert ids(one.all()) == ids(other.all())


def test_a_message_with_a_key_is_refused_and_accepted_as_without(server: Serving):  # rules V11, V13
    session_id = chat(server, "k1").headers["x-session-id"]
    more = {"session_id": session_id, "message": "hello", "stream": False}
    reply = chat(server, "k2", **more)
    assert (reply.status, reply.code) == (409, "pending_interrupts")
    assert chat(server, "k3", **more, on_pending="abandon").json["output"] == "You said: hello"
    failed = chat(server, "k4", message="fail", stream=False)
    assert failed.json["status"] == "failed"
    more["session_id"] = failed.json["session_id"]
    assert chat(server, "k5", **more).code == "unfinished_run"
    assert chat(server, "k6", **more, on_pending="abandon").json["output"] == "You said: hello"
    assert chat(server, "k6", **more, on_pending="abandon").headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e9"])
def test_what_is_not_a_key_is_refused(server: Serving, key: str):
    assert chat(server, key).code == "invalid_request"


def test_a_message_whose_process_died_begins_one_turn(tmp_path: Path):  # rule V13
    store = f"sqlite:///{tmp_path / 's.db'}"
    body = {"message": "go", "stream": False}
    command = [sys.executable, "-m", "adjourn", "serve", "tests.server.agents:DIER", "--port", "0", "--store", store]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "ADJOURN_TEST_DIES": "1"}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int([process.stdout.readline() for _ in range(2)][1].rpartition(":")[2].partition(".")[0])
        with pytest.raises(ConnectionError):
            Stream(port, "POST", "/api/v1/chat", body, {"idempotency-key": "dead"})
    with Serving(App([DIER], store=store)) as server:
        replies = [server.post("/api/v1/chat", body, idempotency_key="dead") for _ in range(2)]
        assert replies[0].json["output"] == "Still here."
        assert replies[0].json == replies[1].json
        (session,) = server.get("/api/v1/sessions").json["sessions"]  # It went on with the session that was begun.
        assert session["session_id"] == replies[0].json["session_id"]
