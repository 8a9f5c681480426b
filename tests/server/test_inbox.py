"""The inbox: open questions over all sessions, as pages and as one stream."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import pytest

from adjourn import Runner, UsageError
from adjourn.errors import StoreUnavailable
from adjourn.server import App, Tokens
from adjourn.server._csv import to_csv
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


def test_a_stream_from_now_on_has_only_what_happens(server: Serving):  # rule V10
    before = asked(server)
    with server.open("GET", "/api/v1/inbox/events?from=now") as stream:
        (caught_up,) = [each for each in stream.until("caught_up") if each.data is not None]
        assert caught_up.data == {"type": "caught_up", "count": 0}
        server.post("/api/v1/chat/resume", {"session_id": before["session_id"], "answer": "yes", "stream": False})
        after = asked(server)
        told = [each for each in stream.until("question") if each.data is not None]
    assert [(each.type, each.data["session_id"]) for each in told] == [
        ("ended", before["session_id"]),
        ("question", after["session_id"]),
    ]
    assert server.get("/api/v1/inbox/events?from=then").code == "invalid_request"


@pytest.fixture
def decided(tmp_path: Path) -> Iterator[tuple[Serving, dict[str, dict[str, str]]]]:
    """A server on which three people have had something decided, by two others; headers by who sends them."""
    file = Tokens(tmp_path / "tokens.json")
    made = {
        "ann": file.create("ann"),
        "bob": file.create("bob"),
        "rita": file.create("rita", roles=["review"]),
        "dora": file.create("dora", roles=["review"], agents=["other"]),
    }
    headers = {who: {"x_api_key": text} for who, (_, text) in made.items()}
    with Serving(App([booker(), booker("other")], tokens=file)) as server:
        for number, (who, agent, by) in enumerate(
            [("ann", "booker", "rita"), ("bob", "booker", "rita"), ("ann", "other", "dora"), ("ann", "booker", "ann")]
        ):
            chat = {"agent": agent, "message": f"book ={number}+1", "stream": False, "session_id": f"s{number}"}
            server.post("/api/v1/chat", chat, **headers[who])
            body = {"session_id": f"s{number}", "answer": "yes", "message": f" =cmd|{number}", "stream": False}
            assert server.post("/api/v1/chat/resume", body, **headers[by]).status == 200
        yield server, headers


def ids(page: Any) -> list[str]:
    return [each["session_id"] for each in page["decisions"]]


def test_decisions_are_listed_selected_and_paged(decided: tuple[Serving, dict[str, dict[str, str]]]):
    server, headers = decided

    def get(query: str = "", who: str = "rita") -> Any:
        return server.get(f"/api/v1/decisions{query}", **headers[who]).json

    assert ids(get()) == ["s3", "s2", "s1", "s0"]
    assert [ids(get(query)) for query in ("?by=rita", "?by=dora", "?agent=other", "?how=expired", "?by=")] == [
        ["s1", "s0"],
        ["s2"],
        ["s2"],
        [],
        [],
    ]
    first = get("?limit=3")
    assert (ids(first), ids(get(f"?limit=3&after={quote(first['next'])}"))) == (["s3", "s2", "s1"], ["s0"])
    (newest,) = get("?limit=1")["decisions"]
    assert (newest["outcome"], newest["answer"], newest["by"], newest["message"]) == (
        "answered",
        "yes",
        "ann",
        " =cmd|3",
    )
    at = quote(newest["at"])
    assert (ids(get(f"?since={at}")), ids(get(f"?until={at}"))) == (["s3"], ["s2", "s1", "s0"])
    for wrong in ("?since=yesterday", "?since=2026-01-01T00:00:00", "?how=abandoned", "?limit=0", "?format=pdf"):
        reply = server.get(f"/api/v1/decisions{wrong}", **headers["rita"])
        assert (wrong, reply.status, reply.code) == (wrong, 400, "invalid_request")


def test_decisions_are_those_that_a_caller_may_see(decided: tuple[Serving, dict[str, dict[str, str]]]):  # rules V7, V18
    server, headers = decided
    seen = {who: ids(server.get("/api/v1/decisions", **headers[who]).json) for who in headers}
    assert seen == {"ann": ["s3", "s2", "s0"], "bob": ["s1"], "rita": ["s3", "s2", "s1", "s0"], "dora": ["s2"]}
    page = server.get("/api/v1/decisions?limit=1", **headers["dora"]).json
    assert (ids(page), page["next"]) == (["s2"], None)


def test_decisions_are_a_file_that_a_spreadsheet_opens_without_running_it(
    decided: tuple[Serving, dict[str, dict[str, str]]],
):
    server, headers = decided
    reply = server.get("/api/v1/decisions?format=csv&limit=3", **headers["rita"])
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"] == 'attachment; filename="decisions.csv"'
    rows = list(csv.DictReader(io.StringIO(reply.body.decode(), newline="")))
    documents = server.get("/api/v1/decisions?limit=3", **headers["rita"]).json["decisions"]
    assert list(rows[0]) == list(documents[0])
    for row, document in zip(rows, documents, strict=True):
        assert row["message"] == f"'{document['message']}"
        assert json.loads(row["info"]) == document["info"]
        assert (row["session_id"], row["title"], row["answer"]) == (document["session_id"], "", "yes")
    url, _, rel = reply.headers["link"].partition(">")
    last = server.get(f"/api/v1/decisions{url.removeprefix('<')}", **headers["rita"])
    assert (rel, [each["session_id"] for each in csv.DictReader(io.StringIO(last.body.decode()))]) == (
        '; rel="next"',
        ["s0"],
    )
    assert "link" not in last.headers
    for accept, kind in {"text/csv": "text/csv", "application/json, text/csv": "application/json"}.items():
        found = server.get("/api/v1/decisions", accept=accept, **headers["rita"])
        assert found.headers["content-type"].startswith(kind)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r\n=1", "  =1", "\uff1d1"])
def test_what_begins_as_a_formula_is_text(text: str):
    class Row(msgspec.Struct):
        said: str

    (_, (cell,)) = csv.reader(io.StringIO(to_csv(Row, [Row(text)]), newline=""))
    assert cell == f"'{text}"


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
