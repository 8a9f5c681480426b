"""Streams that a client can come back to: what was missed, one frame that says so, then what happens."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Runner
from adjourn.server import App
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore
from adjourn.stores.kit import ListSessions
from adjourn.testing import FunctionModel
from tests.servers import postgres, redis

from .agents import FLOOD, GATES, WORDS, booker, counter
from .serving import Frame, Reply, Serving, Stream, dying, ids, text, types


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter()], keep_alive=0.05)) as serving:
        yield serving


def durable(frames: list[Frame]) -> list[Any]:
    return [frame.data for frame in frames if frame.id is not None and frame.data is not None]


def test_who_comes_back_in_the_middle_reads_what_was_missed_and_goes_on(server: Serving):  # rules V3, V10
    with server.chat(agent="counter", message="count middle") as stream:
        session_id, before = stream.session_id, stream.until("delta")
    GATES.reached("middle")
    with server.events(session_id) as stream:
        assert stream.headers["content-location"] == f"/api/v1/sessions/{session_id}/events"
        frames = stream.until("draft")
        assert text(frames) == "".join(WORDS[:3])
        live = frames[-2]
        assert (live.event, live.type, live.id) == ("live", "caught_up", None)
        assert live.data["status"] == "running"
        assert live.data["pending"] == []
        assert live.data["seq"] == max(ids(frames))
        GATES.open("middle")
        frames += stream.all()
    assert text(frames) == "".join(WORDS)
    assert ids(frames) == list(range(1, len(ids(frames)) + 1))
    assert types(frames).count("caught_up") == 1
    assert types(frames)[-1] == "done"
    assert durable(before) == durable(frames)[: len(durable(before))]


def test_cut_at_every_event_it_is_the_same_in_the_end(server: Serving):  # rules V3, V10, failures 79
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id, whole = stream.session_id, durable(stream.all())
    with server.resume(session_id=session_id, answer="yes") as stream:
        whole += durable(stream.all())
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
    for cut in range(len(whole) + 1):
        for query, headers in [("", {"last_event_id": str(cut)}), (f"?after={cut}", {})]:
            with server.events(session_id, query, **headers) as stream:
                frames = stream.all()
            assert whole[:cut] + durable(frames) == whole
            assert frames[0].raw == b"id: %d\nretry: 2000\n" % cut
            assert types(frames)[-1] == "caught_up"


def test_after_a_pause_the_frame_in_between_has_the_open_questions(server: Serving):  # rule V10
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id, last = stream.session_id, stream.all()[-1]
    with server.events(session_id, last_event_id=str(last.id)) as stream:
        frames = stream.all()
    assert types(frames) == ["caught_up"]
    assert frames[-1].data["status"] == "waiting"
    assert frames[-1].data["pending"] == last.data["interrupts"]


def test_a_client_that_leaves_stops_nothing(server: Serving):  # rules V3, V10
    with server.chat(agent="counter", message="count leaving") as stream:
        session_id = stream.session_id
        GATES.reached("leaving")
    GATES.open("leaving")
    with server.events(session_id, "?follow=session") as stream:
        assert stream.until("done")[-1].data["output"] == "".join(WORDS)


def test_who_stays_reads_the_answer_of_somebody_else(server: Serving):  # rule V3
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id = stream.session_id
        stream.all()
    with server.events(session_id, "?follow=session") as staying:
        frames = staying.until("caught_up")
        with server.resume(session_id=session_id, answer="no") as stream:
            answered = durable(stream.all())
        frames += staying.until("done")
    assert durable(frames)[-len(answered) :] == answered


def test_many_read_one_run(server: Serving):  # rule V3
    with server.chat(agent="counter", message="count many") as stream:
        GATES.reached("many")
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(server.events(stream.session_id)) for _ in range(5)]
            heard = [other.until("draft") for other in others]
            GATES.open("many")
            for frames, other in zip(heard, others, strict=True):
                assert text(frames + other.all()) == "".join(WORDS)
        assert text(stream.all()) == "".join(WORDS)


def test_a_silent_stream_is_kept_alive(server: Serving):  # rule V3, failures 82
    with server.chat(agent="counter", message="count silent") as stream:
        frames = stream.frames()
        assert any(frame.raw == b": keep-alive\n" for frame in frames)
        GATES.open("silent")
        assert list(frames)[-1].type == "done"


def test_the_head_of_a_stream_is_all_that_comes_if_only_that_is_wanted(server: Serving):  # rule V3
    server.post("/api/v1/chat", {"agent": "booker", "message": "book Rome", "session_id": "head", "stream": False})
    connection = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=10)
    for path in ("/api/v1/inbox/events", "/api/v1/sessions/head/events?follow=session"):
        connection.request("HEAD", path)
        head = connection.getresponse()
        assert (head.status, head.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        assert head.read() == b""
        connection.request("GET", "/healthz")  # Over the same connection, which has nothing else to do.
        assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "٣", "9" * 30])
def test_what_is_not_the_id_of_an_event_is_refused(server: Serving, given: str):  # rule V3, failures 80
    with server.chat(agent="booker", message="hi") as stream:
        session_id = stream.session_id
        stream.all()
    reply = server.events(session_id, last_event_id=given.encode().decode("latin-1")).reply()
    assert (reply.status, reply.code) == (400, "invalid_event_id")


def test_an_id_of_the_future_waits_for_it(server: Serving):  # rule V3, failures 80
    with server.chat(agent="booker", message="hi") as stream:
        session_id = stream.session_id
        stream.all()
    with server.events(session_id, last_event_id="1000") as stream:
        assert types(stream.all()) == ["caught_up"]


def test_events_that_were_removed_are_said_to_be_gone():  # rule V3, failures 80
    store = MemoryStore()
    with Serving(App([booker()], store=store)) as server:
        session_id = "pruned"
        for _ in range(40):
            with server.chat(message="hi", session_id=session_id) as stream:
                stream.all()
        removed = Sessions(store).prune_sync(session_id, keep=1)
        assert removed
        reply = server.events(session_id, last_event_id="1").reply()
        assert (reply.status, reply.code) == (410, "events_gone")
        assert reply.json["error"]["status"] == "done"
        with server.events(session_id, last_event_id=str(reply.json["error"]["seq"])) as stream:
            assert types(stream.all())[-2:] == ["done", "caught_up"]


def test_text_that_looks_like_frames_stays_text(server: Serving):  # failures, attack 17
    hostile = "a\n\nevent: done\ndata: {}\r\n\r\n\u2028id: 7\x00"
    with server.chat(agent="booker", message=hostile) as stream:
        frames = stream.all()
    assert frames[-1].data["output"] == f"You said: {hostile}"
    assert types(frames).count("done") == 1


def test_a_run_of_another_process_is_followed():  # rules V3, V8
    store = MemoryStore()
    with Serving(App([counter()], store=store)) as server:
        elsewhere = threading.Thread(target=Runner(counter(), store=store).run_sync, args=("count elsewhere",))
        elsewhere.start()
        GATES.reached("elsewhere")
        (head,) = asyncio.run(store.read(ListSessions()))
        with server.events(head.session) as stream:
            frames = stream.until("caught_up")
            assert frames[-1].data["status"] == "running"
            GATES.open("elsewhere")
            frames += stream.all()
        elsewhere.join()
        assert ids(frames) == list(range(1, len(ids(frames)) + 1))
        assert types(frames)[-1] == "done"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_reader_elsewhere_outlasts_the_process_that_is_killed(moment: str, tmp_path: Path):  # rules V8, V10
    store = f"sqlite:///{tmp_path / 's.db'}"
    heir = ChatModelAgent("waiter", model=FunctionModel(lambda _: "Well, done."))
    with Serving(App([heir], store=store)) as server:
        with dying("WAITER", store) as port:
            begun = Stream(port, "POST", "/api/v1/chat", {"message": "go", "session_id": "s"}, {})
            begun.until("delta")
            reading = server.events("s") if moment == "before" else None
            frames = reading.until("caught_up") if reading else []
        begun.close()
        reading = reading or server.events("s")
        frames += reading.all()
    (caught_up,) = [frame.data for frame in frames if frame.type == "caught_up"]
    assert caught_up["status"] in ("running", "done")  # It did not fail: somebody else goes on with it.
    assert [kind for kind in types(frames) if kind in ("done", "error", "cancelled", "closing")] == ["done"]
    assert ids(frames) == list(range(1, len(ids(frames)) + 1))


def test_a_reader_who_stands_still_holds_nothing_up_and_misses_nothing(server: Serving):  # rule V3, failures 81
    with server.chat(agent="counter", message="flood", session_id="flood") as still:
        with server.events("flood", "?follow=session") as quick:
            assert text(quick.until("message")) in ("", "".join(FLOOD))
            quick.until("done")
        frames = still.all()  # Two megabytes were written meanwhile, which no buffer of a socket holds.
    assert ids(frames) == list(range(1, len(ids(frames)) + 1))
    assert types(frames)[-1] == "done"
    assert text(frames) == "".join(FLOOD)


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_two_servers_on_one_store_are_as_one(kind: str, tmp_path: Path):  # rule V8
    urls = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 's.db'}",
        "redis": lambda: redis().fresh(),
        "postgres": lambda: postgres().fresh(),
    }
    url = urls[kind]()
    with Serving(App([counter(), booker()], store=url)) as one, Serving(App([counter(), booker()], store=url)) as other:
        with one.chat(agent="booker", message="book Rome") as stream:
            session_id, whole = stream.session_id, durable(stream.all())
        with (
            one.events(session_id, "?follow=session") as staying,
            other.resume(session_id=session_id, answer="yes") as stream,
        ):
            whole += durable(stream.all())
            assert durable(staying.until("done")) == whole
        gate = f"{kind} one"
        with one.chat(agent="counter", message=f"count {gate}", session_id="c") as stream:
            GATES.reached(gate)
            with other.events("c") as following:
                following.until("caught_up")
                assert other.post("/api/v1/chat", {"agent": "counter", "message": "x", "session_id": "c"}).status == 409
                assert other.post("/api/v1/sessions/c/cancel", {}).json["cancelled"]
                assert types(following.all())[-1] == "cancelled"
            assert types(stream.all())[-1] == "cancelled"
        GATES.open(gate)
        with other.open("POST", "/api/v1/sessions/c/recover") as stream:
            assert types(stream.all())[-1] == "done"


# Stopping


def test_a_server_that_stops_tells_every_stream_and_leaves_what_it_did_to_the_next():  # rules V8, V10
    store = MemoryStore()
    with Serving(App([counter(), booker()], store=store, grace=0.1)) as server:
        stream = server.chat(agent="counter", message="count stopping")
        GATES.reached("stopping")
        staying = server.events(stream.session_id, "?follow=session")
        staying.until("draft")
        idle = socket.create_connection(("127.0.0.1", server.server.port))
        server.stop()
        for each in (stream, staying):
            last = each.all()[-1]
            assert last.raw == b'event: closing\nretry: 500\ndata: {"type":"closing"}\n'
        idle.close()
    GATES.open("stopping")
    with Serving(App([counter(), booker()], store=store)) as server:
        with server.events(stream.session_id, "?follow=session") as following:
            frames = following.until("done")
        assert frames[-1].data["output"] == "".join(WORDS)
        assert ids(frames) == list(range(1, len(ids(frames)) + 1))


def test_who_waits_for_a_result_is_told_that_the_turn_goes_on_elsewhere():  # rules V8, V13
    store, replies = MemoryStore(), dict[str, Reply]()
    key = {"idempotency_key": "k1"}

    def ask(server: Serving, name: str, **headers: str) -> None:
        body = {"agent": "counter", "message": "count elsewhere too", "session_id": "s", "stream": False}
        replies[name] = server.post("/api/v1/chat", {**body, "on_busy": "queue"}, **headers)

    with Serving(App([counter(), booker()], store=store, grace=0.1)) as server:
        asking = [threading.Thread(target=ask, args=(server, "running"), kwargs=key)]
        asking[0].start()
        GATES.reached("elsewhere too")
        asking.append(threading.Thread(target=ask, args=(server, "queued")))
        asking[1].start()
        while not server.get("/api/v1/sessions/s").json["inputs"]:
            pass
        server.stop()
        for each in asking:
            each.join()
    for reply in replies.values():
        assert (reply.status, reply.code, reply.json["error"]["session_id"]) == (503, "handed_over", "s")
        assert reply.headers["x-session-id"] == "s"
        assert "retry-after" not in reply.headers  # Without a key, whoever tries again begins another turn.
    GATES.open("elsewhere too")
    with Serving(App([counter(), booker()], store=store)) as server:
        ask(server, "again", **key)
        assert replies["again"].json["output"] == "".join(WORDS)
        while server.get("/api/v1/sessions/s").json["status"] != "done":
            pass
        said = server.get("/api/v1/sessions/s/messages").json["messages"]
        assert [each["role"] for each in said] == ["user", "assistant"] * 2


def test_while_it_stops_it_is_not_ready_and_begins_nothing():  # rules V8, V9
    with Serving(App([counter()], grace=20.0)) as server:
        assert server.get("/readyz").json == {"status": "ready"}
        assert server.get("/healthz").json == {"status": "ok"}
        stream = server.chat(message="count draining")
        GATES.reached("draining")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while (reply := server.get("/readyz")).status == 200:
            pass
        assert (reply.status, reply.code) == (503, "draining")
        assert reply.headers["retry-after"]
        assert server.get("/healthz").status == 200
        assert server.post("/api/v1/chat", {"message": "count"}).code == "draining"
        GATES.open("draining")
        assert stream.all()[-1].type in ("done", "closing")
        stopping.join()
