"""Session values over HTTP: what a session begins with, and what callers may set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from adjourn import UsageError, interrupt, session_value, set_session_value, workflow
from adjourn.server import App, Caller
from adjourn.spec import Served, load
from tests.test_docs import ROOT

from .serving import Reply, Serving


@workflow
async def refund(amount: Any) -> str:
    """Refund at once up to the limit; above it the manager decides. `raise` raises the limit."""
    if amount == "raise":
        set_session_value("limit", 5000)
        return "raised"
    euros = cast("dict[str, Any]", amount)["euros"] if isinstance(amount, dict) else amount
    if int(euros) > session_value("limit"):
        interrupt({"amount": amount}, reason="need_approval", prompt="Refund?")
    return f"refunded in {session_value('locale', 'en')}"


@workflow
async def plain(_: Any) -> Any:
    return session_value("limit", None)


EXAMPLE = ROOT / "examples" / "service" / "agents"


class Desk(NamedTuple):
    server: Serving

    def post(self, who: str, path: str, **data: Any) -> Reply:
        return self.server.post(f"/api/v1/{path}", {"agent": "refund", "stream": False, **data}, x_user=who)

    def queued(self, who: str, session_id: str, **data: Any) -> Reply:
        path = f"/api/v1/sessions/{session_id}/inputs"
        return self.server.post(path, {"agent": "refund", "message": "500", **data}, x_user=who)

    def exists(self, who: str, session_id: str) -> bool:
        return self.server.get(f"/api/v1/sessions/{session_id}", x_user=who).status == 200


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    served = Served(program=refund, values={"limit": 100}, caller_values=["locale"])
    app = App([served, plain], identify=lambda request: known(request.headers["x-user"]))
    with Serving(app) as server:
        yield Desk(server)


def known(name: str) -> Caller:
    return Caller(name=name, roles=frozenset({"admin" if name == "ada" else "use"}))


FORGED: list[dict[str, Any]] = [
    {"limit": 1000},
    {"locale": "it", "limit": 1000},
    {"other": 1},
    {"limit ": 1},
    {"": 1},
    {"~own:calls:A": {}},
    {"files:a": "forged"},
    {"Locale": "it"},
]


@pytest.mark.parametrize("values", FORGED)
def test_a_caller_sets_only_what_the_agent_declares(desk: Desk, values: dict[str, Any]):  # rule V15
    session_id = f"forged {values}"
    begun = desk.post("ann", "chat", message="1", session_id="ann's").json
    for reply in (
        desk.post("ann", "chat", message="500", session_id=session_id, values=values),
        desk.post("ann", "chat", message="500", session_id=session_id, values=values, on_busy="queue"),
        desk.queued("ann", "forged", values=values),
        desk.post("ann", "chat", message="500", session_id="ann's", values=values),
        desk.queued("ann", "ann's", values=values),
    ):
        assert (reply.status, reply.code) == (422, "values_refused")
        error = reply.json["error"]
        assert error["allowed"] == ["locale"]
        assert set(error["refused"]) == set(values) - {"locale"}
        assert "You may set locale." in error["hint"]
    assert not desk.exists("ann", "forged")
    found = desk.server.get("/api/v1/sessions/ann's", x_user="ann").json
    assert (found["status"], found["inputs"]) == ("done", 0)
    assert begun["status"] == "done"
    keyed = desk.server.post(
        "/api/v1/chat", {"agent": "refund", "message": "500", "values": values}, x_user="ann", idempotency_key="k"
    )
    assert keyed.status == 422


def test_an_agent_that_declares_none_takes_none(desk: Desk):  # rule V15
    reply = desk.post("ann", "chat", agent="plain", message="x", values={"limit": 1})
    assert (reply.status, reply.code) == (422, "values_refused")
    assert "You may set none." in reply.json["error"]["hint"]
    assert desk.post("ann", "chat", agent="plain", message="x", values={}).json["output"] == ""


def test_a_caller_sets_what_is_declared_beside_what_the_operator_gives(desk: Desk):  # rule V15
    paused = desk.post("ann", "chat", message="500", values={"locale": "it"}).json
    assert paused["status"] == "interrupted"
    assert desk.post("ann", "chat", message="50", values={"locale": "it"}).json["output"] == "refunded in it"


def test_every_route_begins_a_session_with_the_operators_values(desk: Desk):  # rule V15
    assert desk.post("ann", "chat", message="500").json["status"] == "interrupted"
    assert desk.queued("ann", "queued").status == 202
    with desk.server.events("queued", x_user="ann") as stream:
        stream.until("interrupt")
    thread: dict[str, Any] = {
        "threadId": "thread",
        "runId": "r",
        "messages": [],
        "state": {"limit": 1000, "values": {"limit": 1000}},
        "forwardedProps": {"input": {"euros": 500}, "values": {"limit": 1000}, "limit": 1000},
    }
    with desk.server.open("POST", "/api/v1/ag-ui/refund", thread, x_user="ann") as stream:
        assert b'"outcome":{"type":"interrupt"' in stream.rest()
    keyed = desk.server.post(
        "/api/v1/chat", {"agent": "refund", "message": "500", "stream": False}, x_user="ann", idempotency_key="k2"
    )
    assert keyed.json["status"] == "interrupted"


def test_callers_do_not_set_the_state_of_a_graph_agent():  # rule V15
    with Serving(App([load(EXAMPLE)], identify=lambda request: Caller(name="ann"))) as server:
        for fields in ({"decision": "refund"}, {"order": "B-42", "amount": 1}, {"user_input": "B-42"}, {}):
            chat = {"agent": "refund-desk", "message": fields, "session_id": "s", "stream": False}
            assert server.post("/api/v1/chat", chat).code == "invalid_request"
            thread = {"threadId": "s", "runId": "r", "forwardedProps": {"input": fields}}
            with server.open("POST", "/api/v1/ag-ui/refund-desk", thread) as stream:
                assert b'"RUN_ERROR"' in stream.rest()
            assert server.post("/api/v1/sessions/s/inputs", {"agent": "refund-desk", "message": fields}).status == 400
        chat = {"agent": "refund-desk", "message": "refund B-42", "session_id": "s", "stream": False}
        (asked,) = server.post("/api/v1/chat", chat).json["interrupts"]
        assert asked["tags"] == ["manager"]


def test_what_the_program_sets_stays_set(desk: Desk):  # rule V15
    desk.post("ann", "chat", message="raise", session_id="raised")
    assert desk.post("ann", "chat", message="500", session_id="raised").json["status"] == "done"


def test_an_admin_sets_any_but_the_librarys_own(desk: Desk):  # rule V15
    assert desk.post("ada", "chat", message="500", values={"limit": 1000}).json["output"] == "refunded in en"
    reply = desk.post("ada", "chat", message="500", values={"~own:calls:A": {}})
    assert (reply.status, reply.code) == (422, "values_refused")
    assert desk.queued("ada", "ada's", values={"~session:approved:x": {}}).status == 422
    edit = desk.server.post("/api/v1/sessions/ada's/edit", {"values": {}}, x_user="ada")
    assert edit.status == 404


def test_sessions_keep_their_values_when_others_are_served() -> None:  # rule V15
    app = App([Served(program=refund, values={"limit": 1000})])
    with Serving(app) as server:
        chat = {"message": "500", "session_id": "s", "stream": False}
        assert server.post("/api/v1/chat", chat).json["status"] == "done"
        app.replace([Served(program=refund, values={"limit": 100})])
        assert server.post("/api/v1/chat", chat).json["status"] == "done"
        assert server.post("/api/v1/chat", {**chat, "session_id": "t"}).json["status"] == "interrupted"


@pytest.mark.parametrize("names", ["locale", ["~own:todos"], [7]])
def test_names_that_cannot_be_declared_are_refused(names: Any):
    with pytest.raises(UsageError):
        Served(program=refund, caller_values=names)


def test_files_declare_them_too(tmp_path: Path):
    text = "apiVersion: adjourn/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n  type: chat_model_agent\n"
    (tmp_path / "a.yaml").write_text(
        f"{text}  model: demo:tickets\n  values: {{limit: 1}}\n  caller_values: [locale]\n"
    )
    served = load(tmp_path).check().served["a"]
    assert (served.values, served.caller_values) == ({"limit": 1}, ("locale",))
