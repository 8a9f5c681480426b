"""The inbox: open questions over all sessions, as pages and as one stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn import Runner, UsageError
from adjourn.errors import StoreUnavailable
from adjourn.server import App, Tokens
from adjourn.stores import MemoryStore
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import ListSessions, StoreQuery

from .agents import booker, counter
from .serving import Serving, types

T = TypeVar("T")


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
    with server.open("GET", "/api/v1/inbox/events?reason=need_name") as stream:
        stream.until("caught_up")
        ticket = asked(server)
        server.post("/api/v1/chat/resume", {"session_id": ticket["session_id"], "answer": "yes", "stream": False})
        # Neither the question that was not wanted nor its end is reported, but that its session has ended.
        ended = stream.until("ended")
    assert types(ended) == ["ended"]
    assert ended[-1].data["session_id"] == ticket["session_id"]


def test_a_token_for_some_agents_hears_of_those_only(tmp_path: Path):  # rules V7, V10
    tokens = Tokens(tmp_path / "tokens.json")
    ann = {"authorization": f"Bearer {tokens.create('ann')[1]}"}
    rita = {"authorization": f"Bearer {tokens.create('rita', roles=['review'], agents=['count*'])[1]}"}
    with Serving(App([booker(), counter()], tokens=tokens)) as server:

        def chat(agent: str, message: str) -> Any:
            body = {"agent": agent, "message": message, "stream": False}
            return server.post("/api/v1/chat", body, **ann).json

        chat("booker", "book Rome")
        with server.open("GET", "/api/v1/inbox/events", **rita) as stream:
            assert types(stream.until("caught_up")) == ["caught_up"]
            chat("booker", "book Oslo")
            chat("booker", "hello")
            counted = chat("counter", "count")
            frames = stream.until("ended")
    assert types(frames) == ["ended"]
    assert frames[-1].data["session_id"] == counted["session_id"]


def test_a_store_that_goes_away_ends_the_stream_in_order(caplog: pytest.LogCaptureFixture):  # rule V10
    class Leaving(StoreWrapper):
        is_away = False

        async def read(self, query: StoreQuery[T]) -> T:
            if self.is_away and isinstance(query, ListSessions):
                raise StoreUnavailable("a store", "it is away")
            return await super().read(query)

    store = Leaving(MemoryStore())
    with Serving(App([booker()], store=store)) as server:
        with server.open("GET", "/api/v1/inbox/events") as stream:
            stream.until("caught_up")
            store.is_away = True
            assert stream.all()[-1].type == "closing"
        store.is_away = False
    assert "the stream of the inbox ended early" in caplog.text


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ([], "give it at least one agent"),
        ([booker(), booker()], "two agents are called 'booker'"),
        ([print], "is not an agent, a compiled graph, a @workflow function or a Runner"),
        ([Runner(booker(), store=MemoryStore()), Runner(counter(), store=MemoryStore())], "share one store"),
    ],
)
def test_what_cannot_be_served_is_refused_when_it_is_made(agents: Any, said: str):
    with pytest.raises(UsageError, match=said):
        App(agents)


def test_a_session_of_an_agent_that_is_not_served_any_more_says_so(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 's.db'}"
    with Serving(App([booker()], store=url)) as server:
        session_id = asked(server)["session_id"]
    with Serving(App([counter()], store=url)) as server:
        reply = server.post("/api/v1/chat/resume", {"session_id": session_id, "answer": "yes"})
        assert (reply.status, reply.code) == (409, "program_changed")
        assert "this server does not serve it" in reply.json["error"]["message"]
