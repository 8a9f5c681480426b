"""Who may do what: every route with every kind of caller, on a session that is theirs or another's."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote
from uuid import uuid4

import msgspec
import pytest
from starlette.requests import Request

from adjourn import Runner, UsageError, interrupt
from adjourn.graph import START, StateGraph
from adjourn.server import App, Caller, Tokens
from adjourn.server._api import ROWS, Access, Refused, Row
from adjourn.server._callers import Role
from adjourn.server.serve import Server
from adjourn.spec import Served

from .agents import booker, counter
from .serving import Reply, Serving


class Desk(NamedTuple):
    """A server, its tokens by what their holders are, and the file of them."""

    server: Serving
    tokens: dict[str, str]
    file: Tokens

    def request(self, who: str, method: str, path: str, data: Any = None) -> Reply:
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        with self.server.open(method, path, data, **headers) as stream:
            is_stream = stream.headers.get("content-type", "").startswith("text/event-stream")
            return Reply(stream.status, stream.headers, b"" if is_stream else stream.rest())

    def answer(self, who: str, paused: Any, answer: Any, **more: Any) -> Any:
        """Answer the only question of a session, wait, and return what came of it."""
        body = {"session_id": paused["session_id"], "answer": answer, "stream": False, **more}
        reply = self.request(who, "POST", "/api/v1/chat/resume", body)
        return reply.json if reply.status == 200 else (reply.status, reply.code)

    def paused(self) -> Any:
        """A session of ann's that waits for an approval."""
        return self.paused_by("ann")

    def paused_by(self, who: str) -> Any:
        """A session of somebody's that waits for an approval."""
        chat = {"agent": "booker", "message": "book Rome", "stream": False}
        return self.request(who, "POST", "/api/v1/chat", chat).json


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    file = Tokens(tmp_path_factory.mktemp("desk") / "tokens.json")
    tokens = {
        "ann": file.create("ann")[1],
        "bob": file.create("bob")[1],
        "reviewer": file.create("rita", roles=["review"])[1],
        "another reviewer": file.create("dora", roles=["review"])[1],
        "admin": file.create("ada", roles=["admin"])[1],
        "reviewer of another agent": file.create("carl", roles=["review"], agents=["count*"])[1],
        "ann for another agent": file.create("ann", agents=["count*"])[1],
        "wrong": "adj_0123456789ab_wrong",
    }
    tokens["ann with a wrong secret"] = tokens["ann"][:-1] + ("A" if tokens["ann"][-1] != "A" else "B")
    with Serving(App([booker(), counter()], tokens=file, self_approval=False)) as server:
        yield Desk(server, tokens, file)


STRANGERS = ("nobody", "wrong", "ann with a wrong secret")
OTHERS = {
    Access.OWN: {"reviewer": 403},
    Access.LOOK: {"bob": 404, "reviewer of another agent": 404, "ann for another agent": 404},
    Access.CHANGE: {"bob": 404, "reviewer": 403, "reviewer of another agent": 403, "ann for another agent": 404},
    Access.METRICS: {"ann": 403, "bob": 403, "reviewer": 403},
    Access.ADMIN: {"ann": 403, "bob": 403, "reviewer": 403},
}
"""Who is refused on a session of ann's, and how."""

INSIDERS = {
    Access.OWN: ("ann", "bob", "admin"),
    Access.LOOK: ("ann", "reviewer", "admin"),
    Access.CHANGE: ("ann", "admin"),
    Access.METRICS: ("admin",),
    Access.ADMIN: ("admin",),
}
ACCESS = {row.route: row.access for row in ROWS}
CLOSED = [name for name, access in ACCESS.items() if access is not Access.OPEN]


def filled(name: str, paused: Any) -> tuple[str, str, Any]:
    """A request to a route that makes sense for a session."""
    method, _, path = name.partition(" ")
    session_id, checkpoint_id = paused["session_id"], paused["checkpoint_id"]
    token = paused["interrupts"][0]["token"]
    for field, value in {
        "{agent}": "booker" if method == "GET" else "counter",
        "{id}": session_id,
        "{question}": token,
        "{input}": "i1",
        "{checkpoint}": checkpoint_id,
    }.items():
        path = path.replace(field, quote(value, safe=""))
    bodies: dict[str, dict[str, Any]] = {
        "/chat": {"agent": "counter", "message": "count", "stream": False},
        "/resume": {"session_id": session_id, "answer": "yes", "stream": False},
        "/answers": {"answers": {token: "yes"}},
        "/inputs": {"agent": "booker", "message": "hello", "on_busy": "error"},
        "/edit": {"values": {}},
        "/ag-ui/counter": {
            "threadId": str(uuid4()),
            "runId": "r",
            "messages": [{"id": str(uuid4()), "role": "user", "content": "count"}],
        },
    }
    body = next((body for end, body in bodies.items() if path.endswith(end)), None)
    query = f"?a={checkpoint_id}&b={checkpoint_id}" if path.endswith("/diff") else ""
    return method, path + query, body if method == "POST" else None


def test_every_route_says_who_may_use_it(desk: Desk):  # rule V7, attack 12
    few = {access: {name for name, each in ACCESS.items() if each is access} for access in Access}
    del few[Access.LOOK]
    session = "/api/v1/sessions/{id}"
    assert few == {
        Access.OPEN: {"GET /healthz", "GET /readyz"},
        Access.OWN: {"POST /api/v1/chat", "POST /api/v1/ag-ui/{agent}", f"POST {session}/inputs"},
        Access.CHANGE: {
            f"DELETE {session}",
            f"POST {session}/cancel",
            f"POST {session}/recover",
            f"POST {session}/fork",
            f"DELETE {session}/inputs/{{input}}",
        },
        Access.METRICS: {"GET /metrics"},
        Access.ADMIN: {f"POST {session}/edit"},
    }
    assert [desk.request("nobody", "GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]


@pytest.mark.parametrize("name", CLOSED)
def test_a_route_lets_in_those_who_may_use_it_and_nobody_else(desk: Desk, name: str):  # rule V7, attacks 3 and 12
    access, paused = ACCESS[name], desk.paused()
    method, path, body = filled(name, paused)
    has_session = paused["session_id"] in f"{path}{body}"
    for who in STRANGERS:
        reply = desk.request(who, method, path, body)
        assert (who, reply.status, reply.code) == (who, 401, "unauthenticated")
        assert reply.headers["www-authenticate"] == "Bearer"
    for who, status in OTHERS[access].items():
        if status == 404 and not has_session:
            continue
        reply = desk.request(who, method, path, body)
        assert (who, reply.status) == (who, status)
        if status == 404:
            missing = {**paused, "session_id": "nothing"}
            unknown = desk.request(who, *filled(name, missing))
            assert unknown.body == reply.body.replace(paused["session_id"].encode(), b"nothing")
    still = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}").json
    assert (still["status"], still["checkpoint_id"]) == ("waiting", paused["checkpoint_id"])
    for who in INSIDERS[access]:
        method, path, body = filled(name, desk.paused())
        reply = desk.request(who, method, path, body)
        assert (who, _refusal(reply)) == (who, _wanted(method, path, who))


def _refusal(reply: Reply) -> str | None:
    return reply.code if reply.status >= 400 else None


def _wanted(method: str, path: str, who: str) -> str | None:
    """How a request is refused although its caller may use the route."""
    if path.endswith(("/resume", "/answers")) and who == "ann":
        return "answer_refused"  # It is her own request.
    if method == "POST" and path.endswith("/inputs") and who != "ann":
        return "checkpoint_not_found"  # Nobody has a turn in a session of another's.
    return "input_not_found" if path.endswith("/i1") else None


SENDING = [row for row in ROWS if (row.answers or row.frames) and row.name != "describe"]


@pytest.mark.parametrize("row", SENDING, ids=lambda row: row.name)
def test_every_role_is_sent_exactly_the_fields_of_the_structs_in_its_row(desk: Desk, row: Row):  # rule V7
    sent = 0
    for who in (*STRANGERS, "bob", "another reviewer", *INSIDERS.get(row.access, ())):
        paused = desk.paused()
        if row.name == "recover":
            failed = desk.request(
                "ann", "POST", "/api/v1/chat", {"agent": "booker", "message": "fail", "stream": False}
            )
            paused["session_id"] = failed.json["session_id"]
        method, path, body = filled(row.route, paused)
        headers = {"authorization": f"Bearer {desk.tokens[who]}"} if who in desk.tokens else {}
        with desk.server.open(method, path, body, **headers) as stream:
            if stream.headers["content-type"].startswith("text/event-stream"):
                for frame in stream.until("caught_up") if method == "GET" else stream.frames():
                    if frame.data is not None:
                        msgspec.convert(frame.data, row.frames)
                        sent += 1
            else:
                kind = row.answers[0] if stream.status < 400 else Refused
                sent += stream.status < 400
                # A field that the struct does not have fails, as one that is missing does.
                msgspec.json.decode(stream.rest(), type=kind)
    assert sent


def test_lists_have_only_what_a_caller_may_see(desk: Desk):  # rule V7
    session_id = desk.paused()["session_id"]

    def seen(who: str) -> list[bool]:
        sessions = desk.request(who, "GET", "/api/v1/sessions").json["sessions"]
        questions = desk.request(who, "GET", "/api/v1/inbox?limit=1000").json["questions"]
        return [any(each["session_id"] == session_id for each in found) for found in (sessions, questions)]

    assert {who: seen(who) for who in ("ann", "bob", "reviewer", "admin")} == {
        "ann": [True, True],
        "bob": [False, False],
        "reviewer": [True, True],
        "admin": [True, True],
    }
    assert seen("reviewer of another agent") == seen("ann for another agent") == [False, False]
    agents = desk.request("ann for another agent", "GET", "/api/v1/agents").json["agents"]
    assert [each["name"] for each in agents] == ["counter"]


def test_the_stream_of_the_inbox_has_only_what_a_caller_may_see(desk: Desk):  # rule V7
    session_id = desk.paused()["session_id"]
    found: dict[str, list[str]] = {}
    for who in ("bob", "reviewer", "reviewer of another agent"):
        headers = {"authorization": f"Bearer {desk.tokens[who]}"}
        with desk.server.open("GET", "/api/v1/inbox/events", **headers) as stream:
            found[who] = [each.data["session_id"] for each in stream.until("caught_up") if each.type == "question"]
    assert session_id in found["reviewer"]
    assert found["bob"] == found["reviewer of another agent"] == []


def test_an_agent_that_is_not_for_somebody_is_as_one_that_does_not_exist(desk: Desk):
    reply = desk.request("ann for another agent", "POST", "/api/v1/chat", {"agent": "booker", "message": "hi"})
    assert (reply.status, reply.code, reply.json["error"]["agents"]) == (404, "agent_not_found", ["counter"])


def test_nobody_approves_their_own_request_and_nobody_in_anothers_name(desk: Desk):  # attack 7
    paused = desk.paused()
    answer = {"answers": {paused["interrupts"][0]["token"]: "yes"}, "by": "ann"}
    path = f"/api/v1/sessions/{paused['session_id']}/answers"
    refused = desk.request("ann", "POST", path, {**answer, "by": "rita"})
    assert (refused.status, refused.code) == (403, "answer_refused")
    assert desk.request("reviewer", "POST", path, answer).status == 202
    (entry,) = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}/audit").json["entries"]
    assert (entry["by"], entry["answer"]) == ("rita", "yes")


OSLO = {"decision": "edit", "arguments": {"place": "Oslo"}}


def test_a_reviewer_alone_neither_edits_nor_leads_a_call_into_their_own(desk: Desk):  # rules T4, V19
    edited = desk.answer("reviewer", desk.paused(), OSLO)
    led = desk.answer("reviewer", desk.paused(), "no", message="book Oslo")
    for again in (edited, led):
        (asked,) = again["interrupts"]
        assert (asked["info"]["arguments"], asked["requesters"]) == ({"place": "Oslo"}, ["ann", "rita"])
        for who in ("ann", "reviewer"):
            assert desk.answer(who, again, "yes") == (403, "answer_refused")
        assert desk.answer("another reviewer", again, "yes")["output"] == "Result: booked: Oslo"
    messages = desk.request("ann", "GET", f"/api/v1/sessions/{led['session_id']}/messages").json["messages"]
    assert [each.get("name") for each in messages if each["content"] == "book Oslo"] == ["rita"]


class Bill(TypedDict, total=False):
    to: str
    ok: bool


def check_bill(state: Bill) -> Bill:
    return {"ok": interrupt({"to": state.get("to")}, reason="need_approval", schema=bool)}


def test_an_admin_who_edits_the_state_does_not_approve_what_follows(tmp_path: Path):  # rule V19
    file = Tokens(tmp_path / "tokens.json")
    tokens = {
        "ann": file.create("ann")[1],
        "admin": file.create("ada", roles=["admin"])[1],
        "reviewer": file.create("rita", roles=["review"])[1],
    }
    graph = StateGraph(Bill, name="bill").add_sequence(check_bill).add_edge(START, "check_bill").compile()
    with Serving(App([graph], tokens=file, self_approval=False)) as server:
        desk = Desk(server, tokens, file)
        chat = {"agent": "bill", "message": {"to": "bob"}, "stream": False}
        path = f"/api/v1/sessions/{desk.request('ann', 'POST', '/api/v1/chat', chat).json['session_id']}"
        assert desk.request("admin", "POST", f"{path}/edit", {"values": {"to": "mallory"}}).status == 200
        desk.request("admin", "POST", f"{path}/recover", {"stream": False})
        again = desk.request("ann", "GET", path).json
        (asked,) = again["pending"]
        assert (asked["info"], asked["requesters"]) == ({"to": "mallory"}, ["ann", "ada"])
        paused = {**again, "interrupts": [asked]}
        for who in ("ann", "admin"):
            assert desk.answer(who, paused, True) == (403, "answer_refused")
        assert desk.answer("reviewer", paused, True)["status"] == "done"


def test_a_reviewer_does_not_approve_everything_for_others(desk: Desk):  # rule V19
    paused = desk.paused()
    always = {"decision": "approve", "remember": "always"}
    assert desk.answer("reviewer", paused, always) == (422, "invalid_answer")
    assert desk.answer("reviewer", paused, {**always, "pattern": {"place": "Lima"}})["output"] == "Result: booked: Rome"


def test_whoever_asks_may_take_it_back(desk: Desk):  # rule V19
    assert desk.answer("ann", desk.paused(), "no")["output"] == "Result: A person refused this call."


@pytest.mark.parametrize(
    "program", [Runner(booker(), self_approval=False), Served(program=booker(), self_approval=False)]
)
def test_one_agent_alone_may_need_two_people(tmp_path: Path, program: Any):  # rule V19
    tokens = Tokens(tmp_path / "tokens.json")
    headers = {"authorization": f"Bearer {tokens.create('ann')[1]}"}
    with Serving(App([program, counter()], tokens=tokens)) as server:
        chat = {"agent": "booker", "message": "book Rome", "stream": False}
        (asked,) = server.post("/api/v1/chat", chat, **headers).json["interrupts"]
        assert asked["requesters"] == ["ann"]
    with pytest.raises(UsageError, match="nobody knows who approves"):
        App([program])


def test_who_has_no_name_cannot_be_two():  # rules V18, V19
    def known(request: Request) -> Caller:
        name = request.headers.get("x-user")
        return Caller(name=name, roles=frozenset(["use" if name else "review"]))

    with Serving(App([booker()], identify=known, self_approval=False)) as server:
        chat = {"message": "book Rome", "stream": False}
        session_id = server.post("/api/v1/chat", chat, x_user="ann").json["session_id"]
        for path in ("chat/resume", f"sessions/{session_id}/answers"):
            body = {"answer": "yes", "by": "carl"} | ({"session_id": session_id} if path == "chat/resume" else {})
            assert server.post(f"/api/v1/{path}", body).code == "answer_refused"


def test_a_front_end_that_edits_is_asked_anew(desk: Desk):  # rule V19
    paused = desk.paused()
    payload = {"approved": True, "editedArgs": {"place": "Oslo"}}
    resume = [{"interruptId": paused["interrupts"][0]["token"], "status": "resolved", "payload": payload}]
    body = {"threadId": paused["session_id"], "runId": "r", "resume": resume}
    headers = {"authorization": f"Bearer {desk.tokens['ann']}"}
    with desk.server.open("POST", "/api/v1/ag-ui/booker", body, **headers) as stream:
        *_, last = [each for each in stream.frames() if each.data is not None]
    assert last.data["type"] == "RUN_FINISHED"
    (asked,) = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}").json["pending"]
    assert (asked["info"]["arguments"], asked["requesters"]) == ({"place": "Oslo"}, ["ann"])


def test_front_ends_get_around_neither_the_rule_nor_the_owner(desk: Desk):  # rule V7, attack 7
    paused = desk.paused()
    resume = [{"interruptId": paused["interrupts"][0]["token"], "status": "resolved", "payload": {"approved": True}}]
    body = {"threadId": paused["session_id"], "runId": "r", "resume": resume}
    for who, code in (("ann", "answer_refused"), ("bob", "checkpoint_not_found")):
        headers = {"authorization": f"Bearer {desk.tokens[who]}"}
        with desk.server.open("POST", "/api/v1/ag-ui/booker", body, **headers) as stream:
            *_, last = [each for each in stream.frames() if each.data is not None]
        assert (who, last.data["type"], last.data["code"]) == (who, "RUN_ERROR", code)
    found = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}").json
    assert found["status"] == "waiting"


def test_what_is_not_an_approval_is_for_whoever_is_asked(desk: Desk):
    asked = desk.request("ann", "POST", "/api/v1/chat", {"agent": "booker", "message": "name", "stream": False}).json
    body = {"session_id": asked["session_id"], "answer": "Ann", "stream": False}
    assert desk.request("ann", "POST", "/api/v1/chat/resume", body).json["output"] == "Result: Ann"


def test_one_key_of_two_callers_stands_for_two_requests(desk: Desk):
    chat = {"agent": "booker", "message": "hello", "stream": False}
    ids = set[str]()
    for who in ("ann", "admin"):
        headers = {"authorization": f"Bearer {desk.tokens[who]}", "idempotency-key": "k1"}
        ids.add(desk.server.post("/api/v1/chat", chat, **headers).json["session_id"])
    assert len(ids) == 2


def test_a_token_counts_in_either_header_and_nowhere_else(desk: Desk):
    ann, get = desk.tokens["ann"], desk.server.get
    assert get("/api/v1/agents", x_api_key=ann).status == 200
    assert get("/api/v1/agents", authorization=f"bearer {ann}").status == 200
    assert get(f"/api/v1/agents?token={ann}&access_token={ann}").status == 401
    for wrong in (ann, f"Basic {ann}", "Bearer", "Bearer adj_", f"Bearer {ann} x", "Bearer \xff"):
        assert get("/api/v1/agents", authorization=wrong).status == 401
    assert get("/api/v1/agents", authorization="Basic x", x_api_key=ann).status == 401


def test_a_token_counts_from_when_it_is_made_until_it_is_revoked_or_expires(desk: Desk):
    token, text = desk.file.create("dan")
    desk.tokens["dan"] = text
    assert desk.request("dan", "GET", "/api/v1/agents").status == 200
    assert desk.file.revoke(token.id)
    assert desk.request("dan", "GET", "/api/v1/agents").status == 401
    assert not desk.file.revoke(token.id)
    desk.tokens["dan"] = desk.file.create("dan", lifetime=-1)[1]
    assert desk.request("dan", "GET", "/api/v1/agents").status == 401


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_streams_end_with_the_token_that_opened_them(how: str, tmp_path: Path):  # rule V7
    tokens = Tokens(tmp_path / "tokens.json")
    kept = {"x_api_key": tokens.create("ann")[1]}
    token, text = tokens.create("ann", lifetime=None if how == "revoked" else 0.5)
    with Serving(App([booker()], tokens=tokens, keep_alive=0.05)) as server:
        server.post("/api/v1/chat", {"message": "book Rome", "session_id": "old", "stream": False}, **kept)
        paths = ("/api/v1/inbox/events", "/api/v1/sessions/old/events?follow=session")
        ending = [server.open("GET", path, x_api_key=text) for path in paths]
        staying = server.open("GET", paths[0], **kept)
        if how == "revoked":
            tokens.revoke(token.id)
        for stream in ending:
            assert stream.all()[-1].type == "closing"
            assert server.get("/api/v1/inbox", x_api_key=text).status == 401
        server.post("/api/v1/chat", {"message": "book Oslo", "session_id": "new", "stream": False}, **kept)
        asked = (frame for frame in staying.frames() if frame.type == "question")
        assert [next(asked).data["session_id"] for _ in range(2)] == ["old", "new"]
        staying.close()


def test_a_file_that_cannot_be_trusted_lets_nobody_in(tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens.json")
    text = tokens.create("ann")[1]
    with Serving(App([booker()], tokens=str(tokens.path))) as server:
        assert server.get("/api/v1/agents", x_api_key=text).status == 200
        tokens.path.chmod(0o666)
        tokens.path.write_bytes(tokens.path.read_bytes() + b"\n")
        reply = server.get("/api/v1/agents", x_api_key=text)
        assert (reply.status, reply.code) == (503, "unavailable")
        assert str(tmp_path).encode() not in reply.body
    with pytest.raises(UsageError, match="chmod 600"):
        App([booker()], tokens=tokens.path)
    tokens.path.chmod(0o600)
    tokens.path.write_text("{")
    with pytest.raises(UsageError, match="not a file of tokens"):
        App([booker()], tokens=tokens.path)


@pytest.mark.parametrize("wrong", [{"roles": ["use", "nope"]}, {"roles": "admin"}, {"agents": [1]}])
def test_a_token_that_the_file_cannot_have_is_not_written(tmp_path: Path, wrong: dict[str, Any]):
    tokens = Tokens(tmp_path / "tokens.json")
    ann, _ = tokens.create("ann")
    with pytest.raises(UsageError, match="Roles are use, review, metrics, admin"):
        tokens.create("x", **wrong)
    assert tokens.all() == [ann]


def test_the_file_has_no_secret_and_nobody_else_reads_it(tmp_path: Path):
    tokens = Tokens(tmp_path / "tokens.json")
    token, text = tokens.create("ann", roles=["use", "review"], agents=["a*"])
    assert text.startswith(f"adj_{token.id}_")
    assert text.split("_", 2)[2] not in tokens.path.read_text()
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert Tokens(tokens.path).all() == [token]
    tokens.path.with_name("tokens.json.new").touch()
    with pytest.raises(UsageError, match="Somebody else is changing"):
        tokens.create("bob")


NAMELESS: list[tuple[str | None, list[Role]]] = [
    (None, ["use"]),
    (None, []),
    (None, ["metrics"]),
    (None, ["use", "review"]),
    ("", ["use"]),
    (" ", ["review"]),
    ("", ["admin"]),
]


@pytest.mark.parametrize(("name", "roles"), NAMELESS)
def test_a_caller_without_a_name_is_nobody(tmp_path: Path, name: str | None, roles: list[Role]):  # rule V18
    def who(_: Any) -> Caller:
        return Caller(name=name, roles=frozenset(roles))

    with pytest.raises(UsageError, match="Give a name"):
        who(None)
    with Serving(App([booker()], identify=who)) as server:
        reply = server.get("/api/v1/sessions")
        assert (reply.status, reply.code) == (503, "unavailable")
        assert b"Caller(" not in reply.body
    if name is not None:
        tokens = Tokens(tmp_path / "tokens.json")
        with pytest.raises(UsageError, match="Give a name"):
            tokens.create(name, roles=roles)
        tokens.create("ann")
        tokens.path.write_text(tokens.path.read_text().replace('"ann"', f'"{name}"'))
        with pytest.raises(UsageError, match="not a file of tokens"):
            App([booker()], tokens=tokens.path)


@pytest.mark.parametrize("roles", [["admin"], ["review"], ["review", "metrics"], ["admin", "use"]])
def test_reviewers_and_admins_need_no_name(roles: list[Role]):  # rule V18
    with Serving(App([booker()], identify=lambda _: Caller(roles=frozenset(roles)))) as server:
        assert server.get("/api/v1/sessions").status == 200
        is_admin = "admin" in roles
        assert server.request("DELETE", "/api/v1/sessions/nothing").status == (404 if is_admin else 403)
        assert server.post("/api/v1/chat", {"message": "hi"}).status == (200 if is_admin else 403)


async def known(_: Any) -> Caller | None:
    return None


def test_an_application_may_know_its_callers_by_itself(tmp_path: Path):
    with Serving(App([booker()], identify=lambda request: Caller(name=request.headers["x-user"]))) as server:
        chat = {"message": "book Rome", "stream": False}
        session_id = server.post("/api/v1/chat", chat, x_user="ann").json["session_id"]
        assert server.get(f"/api/v1/sessions/{session_id}", x_user="ann").status == 200
        assert server.get(f"/api/v1/sessions/{session_id}", x_user="bob").status == 404
    with Serving(App([booker()], identify=known)) as server:
        assert server.get("/api/v1/agents").status == 401
    with pytest.raises(UsageError, match="not both"):
        App([booker()], tokens=tmp_path / "tokens.json", identify=known)


def test_who_lets_everybody_in_listens_only_to_this_machine(tmp_path: Path):  # attack 12
    app = App([booker()])
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(UsageError, match="adjourn token create"):
            Server(app, host=host)
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        Server(app, host=host)
    Server(App([booker()], tokens=tmp_path / "tokens.json"), host="0.0.0.0")
    with pytest.raises(UsageError, match="nobody knows who approves"):
        App([booker()], self_approval=False)


BODIES: dict[str, tuple[str, Any]] = {
    "chat": ("POST /api/v1/chat", {"agent": "counter", "message": "count", "session_id": "ID", "stream": False}),
    "queued chat": ("POST /api/v1/chat", {"agent": "counter", "message": "x", "session_id": "ID", "on_busy": "queue"}),
    "abandoning chat": (
        "POST /api/v1/chat",
        {"agent": "counter", "message": "x", "session_id": "ID", "on_pending": "abandon"},
    ),
    "overtaking chat": (
        "POST /api/v1/chat",
        {"agent": "counter", "message": "x", "session_id": "ID", "on_busy": "cancel"},
    ),
    "resume": ("POST /api/v1/chat/resume", {"session_id": "ID", "answer": "yes", "stream": False}),
    "input": ("POST /api/v1/sessions/ID/inputs", {"agent": "counter", "message": "count"}),
    "fork": ("POST /api/v1/sessions/OWN/fork", {"to": "ID"}),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_session_of_another_agent_is_unknown_in_every_body(desk: Desk, kind: str):  # rule V18
    paused, who = desk.paused(), "ann for another agent"
    session_id = paused["session_id"]
    chat = {"agent": "counter", "message": "count", "stream": False}
    own = desk.request(who, "POST", "/api/v1/chat", chat).json["session_id"]
    (method, _, path), body = BODIES[kind][0].partition(" "), BODIES[kind][1]
    path = path.replace("ID", session_id).replace("OWN", own)
    body = {name: session_id if value == "ID" else value for name, value in body.items()}
    unknown = desk.request(who, "GET", "/api/v1/sessions/nothing").body.replace(b"nothing", session_id.encode())
    for headers in ({}, {"idempotency_key": kind.replace(" ", "-")}):
        headers["authorization"] = f"Bearer {desk.tokens[who]}"
        reply = desk.server.request(method, path, body, **headers)
        assert (reply.status, reply.body) == (404, unknown)
    still = desk.request("ann", "GET", f"/api/v1/sessions/{session_id}").json
    assert (still["status"], still["checkpoint_id"], still["inputs"]) == ("waiting", paused["checkpoint_id"], 0)


@pytest.mark.parametrize("resume", [[], [{"interruptId": "x", "status": "cancelled"}]])
def test_a_thread_of_another_agent_is_unknown(desk: Desk, resume: list[Any]):  # rule V18
    paused, who = desk.paused(), "ann for another agent"
    said = [{"id": "m", "role": "user", "content": "count"}]
    told = [
        desk.server.post(
            "/api/v1/ag-ui/counter",
            {"threadId": thread, "runId": "r", "messages": said, "resume": resume},
            authorization=f"Bearer {desk.tokens[token]}",
        ).body.replace(thread.encode(), b"THREAD")
        for thread, token in ((paused["session_id"], who), (paused["session_id"], "bob"))
    ]
    assert b'"code":"checkpoint_not_found"' in told[0]
    assert b"agent:" not in told[0]
    if not resume:
        assert told[0] == told[1]
    still = desk.request("ann", "GET", f"/api/v1/sessions/{paused['session_id']}").json
    assert (still["status"], still["checkpoint_id"]) == ("waiting", paused["checkpoint_id"])


def test_a_cursor_says_nothing_of_what_a_caller_may_not_see(tmp_path: Path):  # rule V18
    file = Tokens(tmp_path / "tokens.json")
    tokens = {"ann": file.create("ann")[1], "limited": file.create("ann", agents=["asker"])[1]}
    agents = [booker(), booker("asker")]
    with Serving(App(agents, tokens=file)) as server:
        desk = Desk(server, tokens, file)
        mine: list[str] = []
        for agent in ["booker", "asker", "booker", "booker", "asker", "asker", "booker", "booker", "asker", "booker"]:
            chat = {"agent": agent, "message": "book Rome", "stream": False}
            begun = desk.request("ann", "POST", "/api/v1/chat", chat).json["session_id"]
            mine += [begun] if agent == "asker" else []
        for route, what in (("sessions", "sessions"), ("inbox", "questions")):
            everything = desk.request("ann", "GET", f"/api/v1/{route}?limit=100").json[what]
            hidden = {each["session_id"] for each in everything} - set(mine)
            assert len(hidden) == 6
            for limit in range(1, 12):
                after, found, pages = "", list[str](), 0
                while after is not None:
                    page = desk.request("limited", "GET", f"/api/v1/{route}?limit={limit}{after and '&after='}{after}")
                    items, after = page.json[what], page.json["next"]
                    found += [each["session_id"] for each in items]
                    pages += 1
                    assert 0 < len(items) <= limit
                    if after is not None and route == "sessions":
                        told = urlsafe_b64decode(after).decode()
                        assert items[-1]["session_id"] in told
                        assert not any(each in told for each in hidden)
                assert (sorted(found), pages <= len(mine)) == (sorted(mine), True)
