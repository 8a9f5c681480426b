"""The inbox: open questions over all sessions, as pages and as one stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adjourn.server import App

from .agents import booker
from .serving import Serving, types


@pytest.fixture
def server() -> Iterator[Serving]:
    with Serving(App([booker()])) as serving:
        yield serving


def asked(server: Serving, message: str = "book Rome") -> Any:
    return server.post("/api/v1/chat", {"message": message, "stream": False}).json


def test_open_questions_are_listed_and_selected(server: Serving):
    tickets = [asked(server)["session_id"] for _ in range(3)]
    name = asked(server, "name")
    page = server.get("/api/v1/inbox?limit=2").json
    assert [each["session_id"] for each in page["questions"]] == tickets[:2]
    rest = server.get(f"/api/v1/inbox?after={page['next']}").json
    assert [each["session_id"] for each in rest["questions"]] == [tickets[2], name["session_id"]]
    assert rest["next"] is None
    assert server.get("/api/v1/inbox?reason=need_name").json["questions"] == name["interrupts"]
    assert len(server.get("/api/v1/inbox?agent=booker&reason=need_approval").json["questions"]) == 3
    assert server.get("/api/v1/inbox?older_than=3600").json["questions"] == []
    assert len(server.get(f"/api/v1/inbox?session_id={tickets[0]}").json["questions"]) == 1
    for wrong in (
        "limit=0",
        "older_than=-1",
        "older_than=x",
        "older_than=null",
        "older_than=nan",
        "older_than=1&older_than=2",
        "after=x",
        "colour=red",
    ):
        assert server.get(f"/api/v1/inbox?{wrong}").code == "invalid_request"


def test_one_stream_has_what_is_open_and_then_what_happens(server: Serving):  # rule V10
    before = asked(server)
    with server.open("GET", "/api/v1/inbox/events") as stream:
        frames = stream.until("caught_up")
        assert types(frames) == ["question", "caught_up"]
        assert frames[-1].event == "live"
        assert frames[-1].data["count"] == 1
        assert frames[1].data["token"] == before["interrupts"][0]["token"]
        later = asked(server, "name")
        assert stream.until("question")[-1].data["session_id"] == later["session_id"]
        body = {"session_id": before["session_id"], "answer": "yes", "stream": False}
        server.post("/api/v1/chat/resume", body)
        closed = stream.until("closed")[-1].data
        assert (closed["session_id"], closed["id"]) == (before["session_id"], before["interrupts"][0]["id"])
        ended = stream.until("ended")[-1].data
        assert (ended["session_id"], ended["status"]) == (before["session_id"], "done")


def test_the_stream_has_only_what_is_wanted(server: Serving):
    asked(server)
    asked(server, "name")
    with server.open("GET", "/api/v1/inbox/events?reason=need_name") as stream:
        frames = stream.until("caught_up")
    assert [frame.data["reason"] for frame in frames if frame.type == "question"] == ["need_name"]
