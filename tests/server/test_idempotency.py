"""Requests that are sent again under their Idempotency-Key: they count once, and have the same answer."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn.errors import CheckpointNotFound, Conflict, StoreUnavailable
from adjourn.server import App, Served
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, SessionRef
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import GetHead, ListInputs, StoreQuery, StoreRequest, Submit, Withdraw
from adjourn.stores.types import OWN_APPS
from tests.servers import postgres, redis

from .agents import ASKER, DIER, GATES, booker, counter
from .serving import Reply, Serving, Stream, dying, ids

T = TypeVar("T")


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
    for path in ("/api/v1/sessions/x/inputs", "/api/v1/chat?again=1"):
        reply = server.post(path, body, idempotency_key="reused")
        assert reply.code == "idempotency_key_reused"


def test_what_was_refused_may_be_sent_again(server: Serving):  # rule V13
    reply = chat(server, "refused", agent="nobody")
    assert (reply.status, reply.code) == (404, "agent_not_found")
    assert chat(server, "refused").status == 200


def test_of_several_at_once_one_counts_and_the_others_join_it(server: Serving):  # rule V13, failures 2
    body = {"agent": "counter", "message": "count keys", "stream": False}
    replies: list[Reply] = []

    def send() -> None:
        replies.append(server.post("/api/v1/chat", body, idempotency_key="at-once"))

    first, second = threading.Thread(target=send), threading.Thread(target=send)
    first.start()
    GATES.reached("keys")
    second.start()
    GATES.open("keys")
    first.join()
    second.join()
    send()
    assert replies[0].json["output"] == "one two three four five "
    assert replies[0].json == replies[1].json == replies[2].json


def test_what_nobody_can_join_is_refused_while_it_is_being_handled(server: Serving):  # rule V13
    with server.chat(agent="counter", message="count recover", session_id="recovered") as stream:
        GATES.reached("recover")
        assert server.post("/api/v1/sessions/recovered/cancel", {}).json["cancelled"]
        stream.all()
    replies: list[Reply] = []
    path = "/api/v1/sessions/recovered/recover"

    def send() -> None:
        replies.append(server.post(path, {"stream": False}, idempotency_key="recover"))

    first = threading.Thread(target=send)
    first.start()
    while (
        head := asyncio.run(server.app.store.read(GetHead(SessionRef("recovered", "adjourn"))))
    ) is None or head.owner is None:
        pass
    reply = server.post(path, {"stream": False}, idempotency_key="recover")
    assert (reply.status, reply.code) == (409, "request_in_progress")
    GATES.open("recover")
    first.join()
    send()
    assert replies[0].json == replies[1].json


def test_answers_that_are_sent_at_once_under_one_key_are_one(server: Serving):  # rule V13, failures 2
    session_id = chat(server, "answers at once").headers["x-session-id"]
    body = {"session_id": session_id, "answer": "yes"}
    replies: list[Reply] = []

    def send() -> None:
        replies.append(server.post("/api/v1/chat/resume", body, idempotency_key="answer"))

    senders = [threading.Thread(target=send) for _ in range(5)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert [reply.status for reply in replies] == [200] * 5
    assert all(durable(reply) == durable(replies[0]) for reply in replies)
    assert server.post("/api/v1/chat/resume", body, idempotency_key="another").code == "already_resumed"
    audit = server.get(f"/api/v1/sessions/{session_id}/audit").json["entries"]
    assert [each["outcome"] for each in audit] == ["answered"]


def test_answers_and_inputs_that_are_recorded_count_once(server: Serving):  # rule V13
    session_id = chat(server, "recorded").headers["x-session-id"]
    path = f"/api/v1/sessions/{session_id}"
    for _ in range(2):
        assert server.post(f"{path}/answers", {"answer": "yes"}, idempotency_key="record").status == 202
    ids_ = [
        server.post(f"{path}/inputs", {"agent": "booker", "message": "hi"}, idempotency_key="input").json["id"]
        for _ in range(2)
    ]
    assert ids_[0] == ids_[1]


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


def test_a_key_that_was_forgotten_is_for_another_request():  # rule V13
    store = MemoryStore()
    with Serving(App([booker()], store=store)) as server:

        def send(path: str, **body: Any) -> Any:
            return server.post(f"/api/v1/chat{path}", {**body, "stream": False}, idempotency_key="order 7").json

        def forget() -> None:
            keys = Sessions(store, app_name=f"{OWN_APPS}adjourn:keys")
            assert asyncio.run(keys.clean_up(0, statuses=["queued"]))

        first = send("", message="hello")
        forget()
        assert send("", message="hello") == first  # The session still knows it.
        forget()
        second = send("", message="book Rome")
        assert (second["status"], second["session_id"] == first["session_id"]) == ("interrupted", False)
        forget()
        said = {"session_id": second["session_id"], "on_pending": "abandon"}
        assert send("", message="book Oslo", **said)["status"] == "interrupted"
        forget()
        answered = send("/resume", session_id=second["session_id"], answer="no")
        assert answered["output"] == "Result: A person refused this call."
        forget()
        server.post("/api/v1/chat", {"message": "book Bonn", "session_id": second["session_id"], "stream": False})
        assert send("/resume", session_id=second["session_id"], answer="yes")["output"] == "Result: booked: Bonn"


def test_several_keys_are_refused(server: Serving):  # rule V13
    connection = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=30)
    body = b'{"agent": "booker", "message": "hi", "session_id": "several keys", "stream": false}'
    connection.putrequest("POST", "/api/v1/chat")
    for name, value in [("content-type", "application/json"), ("content-length", str(len(body)))]:
        connection.putheader(name, value)
    for key in ("one", "two"):
        connection.putheader("idempotency-key", key)
    connection.endheaders(body)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (400, "invalid_request")
    connection.close()
    assert server.get("/api/v1/sessions/several%20keys").status == 404


STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 's.db'}",
    "redis": lambda _: redis().fresh(),
    "postgres": lambda _: postgres().fresh(),
}


@pytest.mark.parametrize("how", ["named", "alone", "message"])
@pytest.mark.parametrize("kind", STORES)
def test_an_answer_whose_process_died_is_the_same_answer(kind: str, how: str, tmp_path: Path):  # rule V13
    store = STORES[kind](tmp_path)
    with dying("ASKER", store) as port:
        with Stream(port, "POST", "/api/v1/chat", {"message": "go", "session_id": "s"}, {}) as stream:
            asked = stream.all()[-1].data["interrupts"][0]["id"]
        path = "/api/v1/chat" if how == "message" else "/api/v1/chat/resume"
        said = {"named": {"answers": {asked: "yes"}}, "alone": {"answer": "yes"}, "message": {"message": "yes"}}[how]
        body = {"session_id": "s", "stream": False, **said}
        with pytest.raises(ConnectionError):
            Stream(port, "POST", path, body, {"idempotency-key": "dead"})
    with Serving(App([Served(program=ASKER, answer_pending=True)], store=store)) as server:
        # It goes on with the answer by itself, and asks something else by the time that the client comes back.
        while [each["id"] for each in server.get("/api/v1/sessions/s").json["pending"]] in ([], [asked]):
            pass
        replies = [server.post(path, body, idempotency_key="dead") for _ in range(2)]
        assert [reply.status for reply in replies] == [200, 200]
        assert replies[0].json["status"] == "interrupted"
        assert replies[0].json == replies[1].json
        audit = server.get("/api/v1/sessions/s/audit").json["entries"]
        assert [each["outcome"] for each in audit] == ["answered", "open"]
        new = server.post(path, body, idempotency_key="new")
        assert new.code == "already_resumed" if how == "named" else new.json["status"] == "done"


def test_a_message_whose_process_died_begins_one_turn(tmp_path: Path):  # rule V13
    store = f"sqlite:///{tmp_path / 's.db'}"
    body = {"message": "go", "stream": False}
    with dying("DIER", store) as port, pytest.raises(ConnectionError):
        Stream(port, "POST", "/api/v1/chat", body, {"idempotency-key": "dead"})
    with Serving(App([DIER], store=store)) as server:
        replies = [server.post("/api/v1/chat", body, idempotency_key="dead") for _ in range(2)]
        assert replies[0].json["output"] == "Still here."
        assert replies[0].json == replies[1].json
        (session,) = server.get("/api/v1/sessions").json["sessions"]  # It went on with the session that was begun.
        assert session["session_id"] == replies[0].json["session_id"]


def test_a_turn_that_waits_in_the_queue_is_followed_again(server: Serving):  # rules V11, V13
    with server.chat(agent="counter", message="count queued", session_id="queued") as running:
        GATES.reached("queued")
        body = {"agent": "counter", "message": "count", "session_id": "queued", "on_busy": "queue"}
        streams = [server.open("POST", "/api/v1/chat", body, idempotency_key="queued") for _ in range(2)]
        assert [stream.headers.get("idempotent-replayed") for stream in streams] == [None, "true"]
        GATES.open("queued")
        running.all()
        first, again = ([frame.raw for frame in stream.all() if frame.id and frame.data] for stream in streams)
    assert first == again
    said = server.get("/api/v1/sessions/queued/messages").json["messages"]
    assert [each["content"] for each in said if each["role"] == "user"] == ["count queued", "count"]


# A store that is away in the wrong moment


class Faulty(StoreWrapper):
    """A store that can lose what is kept about keys."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.answers: Exception | None = None
        self.withdrawals: Exception | None = None
        self.reads: Exception | None = None

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if isinstance(asked, Submit) and asked.input.id == "answer" and self.answers is not None:
            error, self.answers = self.answers, None
            raise error
        if isinstance(asked, Withdraw) and self.withdrawals is not None:
            raise self.withdrawals
        return await super().write(request)

    async def read(self, query: StoreQuery[T]) -> T:
        asked: object = query
        if isinstance(asked, ListInputs) and asked.ref.app.endswith(":keys") and self.reads is not None:
            raise self.reads
        return await super().read(query)


@pytest.fixture
def faulty() -> Iterator[tuple[Serving, Faulty]]:
    store = Faulty()
    with Serving(App([booker()], store=store)) as serving:
        yield serving, store


def test_what_was_done_is_said_though_it_cannot_be_kept(
    faulty: tuple[Serving, Faulty], caplog: pytest.LogCaptureFixture
):  # rule V13
    server, store = faulty
    path = f"/api/v1/sessions/{chat(server, 'one', stream=False).json['session_id']}/fork"
    store.answers = StoreUnavailable("a store", "no answer")
    forks = [server.post(path, {}, idempotency_key="fork") for _ in range(3)]
    assert [fork.status for fork in forks] == [201, 201, 201]
    assert "an answer could not be kept for its key" in caplog.text
    # Nobody knows that it was done, so it is done again, and that is kept.
    assert forks[0].json != forks[1].json == forks[2].json
    store.answers = Conflict("key", "somebody else has answered")
    assert server.post(path, {}, idempotency_key="two").status == 201


def test_a_key_that_cannot_be_freed_stays_in_use(
    faulty: tuple[Serving, Faulty], caplog: pytest.LogCaptureFixture
):  # rule V13
    server, store = faulty
    store.withdrawals = StoreUnavailable("a store", "no answer")
    assert chat(server, "kept", agent="nobody").code == "agent_not_found"
    assert "a key stays in use for now" in caplog.text
    assert chat(server, "kept").code == "idempotency_key_reused"


def test_a_key_whose_request_comes_and_goes_is_in_progress(faulty: tuple[Serving, Faulty]):  # rule V13
    server, store = faulty
    assert chat(server, "gone", stream=False).status == 200
    store.reads = CheckpointNotFound("gone")
    reply = chat(server, "gone", stream=False)
    assert (reply.status, reply.code) == (409, "request_in_progress")
    store.reads = None
    assert chat(server, "gone", stream=False).headers["idempotent-replayed"] == "true"
