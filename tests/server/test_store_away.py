"""A server whose store is away: it says so, holds what it can, and goes on by itself when the store is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from adjourn import Runner
from adjourn.server import App
from tests.servers import MissingServer, Postgres, Redis

from .agents import GATES, WORDS, booker, counter
from .serving import Frame, Serving, Stream, ids, types

Store = Postgres | Redis


@pytest.fixture(params=[Postgres, Redis])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    try:
        server = request.param()
    except MissingServer as missing:
        pytest.skip(str(missing))
    try:
        yield server
    finally:
        server.close()


def app(store: Store) -> App:
    return App([Runner(each, store_timeout=1.0, lease_ttl=2.0) for each in (booker(), counter())], store=store.url)


def until_ready(server: Serving) -> None:
    while server.get("/readyz").status != 200:
        pass


def test_it_starts_before_its_store(store: Store):  # rules V8, V9, failures 33
    with Serving(app(store)) as server:
        assert server.get("/healthz").status == 200
        reply = server.get("/readyz")
        assert (reply.status, reply.code) == (503, "store_unavailable")
        assert int(reply.headers["retry-after"]) > 0
        for path, body in [
            ("/api/v1/chat", {"agent": "booker", "message": "book Rome"}),
            ("/api/v1/chat/resume", {"session_id": "s", "answer": "yes"}),
            ("/api/v1/sessions/s/answers", {"answer": "yes"}),
            ("/api/v1/sessions/s/cancel", {}),
        ]:
            for headers in ({}, {"idempotency_key": "k"}):
                reply = server.post(path, body, **headers)
                assert (reply.status, reply.code) == (503, "store_unavailable"), path
                assert "retry-after" in reply.headers
        store.start()
        until_ready(server)
        assert types(_chat(server, "book Rome"))[-1] == "interrupt"


def test_what_runs_goes_on_when_the_store_is_back(store: Store):  # rules V3, V8, failures 31
    store.start()
    with Serving(app(store)) as server:
        until_ready(server)
        gate = f"away {type(store).__name__}"
        said = [{"id": "u1", "role": "user", "content": f"count {gate}"}]
        thread = server.open("POST", "/api/v1/ag-ui/counter", {"threadId": "t", "runId": "r", "messages": said})
        thread.until("TEXT_MESSAGE_CONTENT")
        with server.chat(agent="counter", message=f"count {gate}", session_id="s") as stream:
            GATES.reached(gate)
            stream.until("delta")
            store.kill()
            GATES.open(gate)
            frames = stream.all()
            shown = thread.all()
        assert shown[-1].data["type"] == "RUN_FINISHED" or shown[-1].data["code"] == "closing"
        # It was told to come back, unless the store was away for less time than a run waits for it.
        assert types(frames)[-1] in ("closing", "done")
        # Where the store is, is nobody's business.
        assert b"does not respond" not in b"".join(frame.raw for frame in (*frames, *shown))
        reply = server.get("/api/v1/sessions/s")
        assert (reply.status, reply.code) == (503, "store_unavailable")
        store.start()
        until_ready(server)
        seen = ids(frames)
        while True:
            with server.events("s", last_event_id=str(seen[-1] if seen else 0)) as following:
                frames = following.all()
            seen += ids(frames)
            if "done" in types(frames):
                break
        assert next(frame for frame in frames if frame.type == "done").data["output"] == "".join(WORDS)
        assert seen == list(range(1, len(seen) + 1))


def test_a_store_that_is_silent_is_not_waited_for(store: Store):  # rule V9
    store.start()
    with Serving(App([booker()], store=store.url)) as server:
        until_ready(server)
        store.freeze()
        began = time.monotonic()
        reply = server.get("/readyz")
        assert (reply.status, reply.code) == (503, "store_unavailable")
        assert time.monotonic() - began < 10
        store.thaw()
        until_ready(server)


def test_a_key_that_was_used_while_the_store_went_away_is_free_again(store: Store):  # rule V13
    store.start()
    with Serving(app(store)) as server:
        until_ready(server)
        session_id = _stream(server, "book Rome").session_id
        path = f"/api/v1/sessions/{session_id}/fork"
        replies: list[int] = []

        def send() -> None:
            replies.append(server.post(path, {}, idempotency_key="fork").status)

        sender = threading.Thread(target=send)
        store.freeze()
        sender.start()
        store.kill()
        sender.join()
        assert replies == [503]
        store.start()
        until_ready(server)
        send()
        assert replies == [503, 201]


def _stream(server: Serving, message: str) -> Stream:
    with server.chat(agent="booker", message=message) as stream:
        stream.all()
    return stream


def _chat(server: Serving, message: str) -> list[Frame]:
    with server.chat(agent="booker", message=message) as stream:
        return stream.all()
