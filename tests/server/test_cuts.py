"""Every stream, cut at every frame: whoever comes back has read, in the end, what the uncut reader has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adjourn.server import App
from tests.effort import EFFORT

from .agents import GATES, WORDS, booker, counter
from .serving import Frame, Serving, Stream, ids, store_url, text, types

LAST = {"done", "interrupt", "error", "cancelled"}
FEW = 4
"""At how many frames streams are cut by default, where every commit is a journey."""


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    url = store_url(request.param, tmp_path_factory.mktemp("cuts"))
    with Serving(App([booker(), counter()], store=url)) as serving:
        yield serving


def durable(frames: list[Frame]) -> list[Any]:
    return [frame.data for frame in frames if frame.id is not None and frame.data is not None]


def chat(server: Serving) -> Stream:
    return server.chat(agent="booker", message="two")


def resume(server: Serving) -> Stream:
    with server.chat(agent="booker", message="book Rome") as stream:
        stream.all()
    return server.resume(session_id=stream.session_id, answer="yes")


def recover(server: Serving) -> Stream:
    with server.chat(agent="booker", message="fail") as stream:
        stream.all()
    return server.open("POST", f"/api/v1/sessions/{stream.session_id}/recover")


def followed(server: Serving) -> Stream:
    """The stream of a session that has paused and gone on, which then only has what is stored."""
    stream = resume(server)
    stream.all()
    return server.events(stream.session_id)


STREAMS: list[Callable[[Serving], Stream]] = [chat, resume, recover, followed]


def cuts(server: Serving, count: int) -> list[int]:
    """After how many frames to cut: after all numbers, or in short on the networked stores."""
    every = list(range(1, count + 1))
    is_near = "SQLite" in repr(server.app.store) or "Memory" in repr(server.app.store)
    return every if is_near or EFFORT != "default" else every[:: max(1, count // FEW)]


def cut(stream: Stream, count: int) -> list[Frame]:
    """Read some frames and leave."""
    with stream:
        frames = stream.frames()
        return [next(frames) for _ in range(count)]


@pytest.mark.parametrize("begin", STREAMS)
def test_cut_at_every_frame_it_is_the_same_in_the_end(
    server: Serving, begin: Callable[[Serving], Stream]
):  # rules V3, V10, failure 79
    whole = begin(server).all()
    for number in cuts(server, len(whole)):
        stream = begin(server)
        read = cut(stream, number)
        # Even the first frame, which has no data, says where to go on.
        place = [frame.id for frame in read if frame.id is not None][-1]
        query, headers = (f"?after={place}", {}) if number % 2 else ("", {"last_event_id": place})
        with server.events(stream.session_id, query, **headers) as back:
            rest = back.all()
        with server.events(stream.session_id) as log:
            stored = log.all()
        first = int(read[0].id or 0)
        assert durable(read) + durable(rest) == [each for each in durable(stored) if each["seq"] > first]
        assert [each["type"] for each in durable(read + rest)] == [each["type"] for each in durable(whole)]
        ended = [kind for kind in types(read) + types(rest) if kind in LAST]
        assert ended == [kind for kind in types(whole) if kind in LAST]
        assert types(rest).count("caught_up") == 1
        assert rest[0].raw == f"id: {place}\nretry: 2000\n".encode()


def test_cut_in_the_middle_of_a_text_the_text_is_whole(server: Serving):  # rules V3, V10, failure 79
    for words in range(4):
        gate = f"{id(server)} {words}"
        stream = server.chat(agent="counter", message=f"count {gate}")
        GATES.reached(gate)
        read = cut_after("".join(WORDS[:words]), stream)
        place = [frame.id for frame in read if frame.id is not None][-1]
        with server.events(stream.session_id, last_event_id=str(place)) as back:
            rest = back.until("draft")
            assert text(read + rest) == "".join(WORDS[:3])  # Also of what was read before: a draft replaces it.
            GATES.open(gate)
            rest += back.all()
        assert text(read + rest) == "".join(WORDS)
        assert ids(read + rest) == list(range(1, len(ids(read + rest)) + 1))
        assert [kind for kind in types(read + rest) if kind in LAST] == ["done"]


def cut_after(said: str, stream: Stream) -> list[Frame]:
    """Read until so much of a text has come, and leave; pieces of it may come as one."""
    read: list[Frame] = []
    with stream:
        for frame in stream.frames():
            read.append(frame)
            if len(text(read)) >= len(said):
                return read
    raise AssertionError(text(read))


def open_questions(frames: list[Frame]) -> set[tuple[str, str]]:
    """What somebody knows to be open who has read this."""
    found = set[tuple[str, str]]()
    for frame in frames:
        if frame.type == "question":
            found.add((frame.data["session_id"], frame.data["id"]))
        elif frame.type == "closed":
            found.discard((frame.data["session_id"], frame.data["id"]))
    return found


def test_the_inbox_cut_at_every_frame_shows_what_is_open(server: Serving):  # rules V3, V10, failure 79
    for _ in range(2):
        server.post("/api/v1/chat", {"agent": "booker", "message": "two", "stream": False})

    def listed() -> set[tuple[str, str]]:
        found = server.get("/api/v1/inbox?limit=1000").json["questions"]
        return {(each["session_id"], each["id"]) for each in found}

    for number in cuts(server, 5):
        cut(server.open("GET", "/api/v1/inbox/events"), number)
        session_id, asked = min(listed())
        with server.open("GET", "/api/v1/inbox/events") as stream:
            frames = stream.until("caught_up")
            assert open_questions(frames) == listed()
            assert frames[-1].data["count"] == len(listed())
            server.post(f"/api/v1/sessions/{session_id}/answers", {"answers": {asked: "yes"}})
            frames += stream.until("closed")
            assert (session_id, asked) not in open_questions(frames)
        server.post("/api/v1/chat", {"agent": "booker", "message": "two", "stream": False})


def test_a_front_end_cut_at_every_frame_finds_the_thread_as_the_uncut_one(server: Serving):  # rules V3, failure 79
    def begin(name: str) -> Stream:
        said = [{"id": "m", "role": "user", "content": "book Rome"}]
        return server.open("POST", "/api/v1/ag-ui/booker", {"threadId": name, "runId": "r", "messages": said})

    def thread(name: str) -> Any:
        with server.events(name, "?follow=session") as stream:
            stream.until("interrupt")
        found = server.get(f"/api/v1/ag-ui/booker/threads/{name}").json
        said = [{**each, "id": "-"} for each in found["messages"]]
        return found["status"], said, [each["reason"] for each in found["interrupts"]]

    prefix = f"thread {server.server.port}".replace(" ", "-")
    whole = begin(prefix).all()
    wanted = thread(prefix)
    assert whole[-1].type == "RUN_FINISHED"
    for number in cuts(server, len(whole)):
        cut(begin(f"{prefix}-{number}"), number)
        assert thread(f"{prefix}-{number}") == wanted
