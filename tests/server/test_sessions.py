"""Sessions over HTTP: looking at them, answering without waiting, stopping, branching and removing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from adjourn.server import App

from .agents import GATES, booker, counter, refunds
from .serving import Serving, types


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter(), refunds()])) as serving:
        yield serving


def asked(server: Serving, message: Any = "book Rome", agent: str = "booker") -> Any:
    """The result of a turn that has paused."""
    return server.post("/api/v1/chat", {"agent": agent, "message": message, "stream": False}).json


def url(session_id: str, rest: str = "") -> str:
    return f"/api/v1/sessions/{quote(session_id, safe='')}{rest}"


def until_done(server: Serving, session_id: str) -> Any:
    with server.events(session_id, "?follow=session") as stream:
        return stream.until("done")[-1].data


def test_the_agents_are_listed(server: Serving):
    agents = {each["name"]: each for each in server.get("/api/v1/agents").json["agents"]}
    assert list(agents) == ["booker", "counter", "refunds"]
    assert agents["booker"]["description"] == "Books tickets."
    assert agents["booker"]["kind"] == "agent"


def test_a_session_is_shown_with_its_questions(server: Serving):
    paused = asked(server)
    found = server.get(url(paused["session_id"])).json
    assert (found["status"], found["agent"]) == ("waiting", "booker")
    assert found["pending"] == paused["interrupts"]
    assert server.get(url("nowhere")).code == "checkpoint_not_found"


def test_sessions_are_listed_page_by_page(server: Serving):
    mine = [asked(server)["session_id"] for _ in range(3)]
    found: list[str] = []
    after = ""
    while len(found) < 3:
        page = server.get(f"/api/v1/sessions?status=waiting&limit=2{after}").json
        found += [each["session_id"] for each in page["sessions"]]
        after = f"&after={quote(page['next'] or '')}"
    assert found[:3] == mine[::-1]
    for wrong in ("status=asleep", "limit=0", "limit=x", "limit=100000", "colour=red"):
        reply = server.get(f"/api/v1/sessions?{wrong}")
        assert (reply.status, reply.code) == (400, "invalid_request")


def test_the_conversation_is_listed(server: Serving):
    session_id = asked(server, "hello")["session_id"]
    messages = server.get(url(session_id, "/messages")).json["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant"]


def test_an_answer_is_recorded_and_the_server_goes_on_by_itself(server: Serving):  # rules V8, R4
    paused = asked(server)
    session_id, (question,) = paused["session_id"], paused["interrupts"]
    body = {"answers": {question["token"]: "yes"}, "by": "ann"}
    reply = server.post(url(session_id, "/answers"), body)
    assert (reply.status, reply.json["session_id"]) == (202, session_id)
    assert until_done(server, session_id)["output"] == "Result: booked: Rome"
    assert server.post(url(session_id, "/answers"), body).code == "already_resumed"
    (entry,) = server.get(url(session_id, "/audit")).json["entries"]
    assert (entry["outcome"], entry["by"]) == ("answered", "ann")


def test_one_question_can_be_looked_at_before_and_after_its_answer(server: Serving):  # rule I12
    paused = asked(server)
    session_id, (question,) = paused["session_id"], paused["interrupts"]
    for name in (question["id"], question["token"]):
        found = server.get(url(session_id, f"/questions/{quote(name, safe='')}")).json
        assert (found["outcome"], found["info"]) == ("open", question["info"])
    server.post("/api/v1/chat/resume", {"session_id": session_id, "answer": "no", "stream": False})
    found = server.get(url(session_id, f"/questions/{quote(question['id'], safe='')}")).json
    assert found["outcome"] == "answered"
    assert server.get(url(session_id, "/questions/nothing")).code == "unknown_interrupt"


def test_a_run_is_cancelled_by_name_and_can_be_recovered(server: Serving):  # rule V10, failures 83
    with server.chat(agent="counter", message="count cancelled") as stream:
        session_id = stream.session_id
        GATES.reached("cancelled")
        reply = server.post(url(session_id, "/cancel"), {"mode": "now"})
        assert (reply.status, reply.json["cancelled"]) == (202, True)
        assert types(stream.all())[-1] == "cancelled"
    assert server.post(url(session_id, "/cancel"), None).json["cancelled"] is False
    GATES.open("cancelled")
    with server.open("POST", url(session_id, "/recover")) as stream:
        assert types(stream.all())[-1] == "done"


def test_a_session_is_removed(server: Serving):
    session_id = asked(server)["session_id"]
    assert server.request("DELETE", url(session_id)).status == 204
    assert server.get(url(session_id)).code == "checkpoint_not_found"
    assert server.request("DELETE", url(session_id)).code == "checkpoint_not_found"


def test_a_busy_session_is_not_removed(server: Serving):
    with server.chat(agent="counter", message="count removing") as stream:
        GATES.reached("removing")
        assert server.request("DELETE", url(stream.session_id)).code == "session_busy"
        GATES.open("removing")
        stream.all()


# The queue


def test_inputs_wait_for_their_turn_and_can_be_withdrawn(server: Serving):  # rule V11
    with server.chat(agent="counter", message="count queue", session_id="queue") as stream:
        GATES.reached("queue")
        for number in range(2):
            body = {"agent": "counter", "message": "count", "id": f"i{number}"}
            reply = server.post(url("queue", "/inputs"), body)
            assert (reply.status, reply.json["waiting"]) == (202, number + 1)
        waiting = server.get(url("queue", "/inputs")).json["inputs"]
        assert [each["id"] for each in waiting] == ["i0", "i1"]
        assert server.request("DELETE", url("queue", "/inputs/i0")).status == 204
        assert server.request("DELETE", url("queue", "/inputs/i0")).code == "input_not_found"
        GATES.open("queue")
        last = stream.all()[-1].data
    with server.events("queue", f"?follow=session&after={last['seq']}") as stream:
        assert types(stream.until("done")).count("message") == 1


# History


def test_checkpoints_are_listed_shown_compared_and_drawn(server: Serving):  # rule C7
    paused = asked(server, {"cents": 90}, "refunds")
    session_id = paused["session_id"]
    server.post("/api/v1/chat/resume", {"session_id": session_id, "answer": True, "stream": False})
    points = server.get(url(session_id, "/checkpoints")).json["checkpoints"]
    assert [each["source"] for each in points][-1] == "input"
    page = server.get(url(session_id, f"/checkpoints?limit=1&before={points[0]['id']}")).json
    assert page["checkpoints"] == [points[1]]
    assert page["next"] == points[1]["id"]
    found = server.get(url(session_id, f"/checkpoints/{paused['checkpoint_id']}")).json
    assert found["state"] == {"cents": 90}
    assert [each["id"] for each in found["pending"]] == [each["id"] for each in paused["interrupts"]]
    state = server.get(url(session_id, f"/state?checkpoint_id={paused['checkpoint_id']}")).json["state"]
    assert state == {"cents": 90}
    diff = server.get(url(session_id, f"/diff?a={paused['checkpoint_id']}&b={points[0]['id']}")).json
    assert diff["added"] == {"paid": True}
    tree = server.get(url(session_id, "/tree")).json
    assert tree["head"] == points[0]["id"]
    assert [each["id"] for each in tree["checkpoints"]] == [each["id"] for each in reversed(points)]
    missing = server.get(url(session_id, "/checkpoints/b.9999"))
    assert missing.code == "checkpoint_not_found"
    assert "checkpoints lists" in missing.json["error"]["hint"]
    assert server.get(url(session_id, "/diff?a=x")).code == "invalid_request"


def test_a_fork_is_a_session_of_its_own(server: Serving):  # rule C8
    paused = asked(server)
    reply = server.post(url(paused["session_id"], "/fork"), {"checkpoint_id": paused["checkpoint_id"]})
    assert reply.status == 201
    (question,) = server.get(url(reply.json["session_id"])).json["pending"]
    assert question["info"]["arguments"] == {"place": "Rome"}
    assert server.get(url(paused["session_id"])).json["status"] == "waiting"


def test_the_state_is_edited_on_a_branch_which_can_go_on(server: Serving):  # rule C8
    paused = asked(server, {"cents": 90}, "refunds")
    session_id = paused["session_id"]
    reply = server.post(url(session_id, "/edit"), {"values": {"cents": 5}})
    assert reply.json["state"]["cents"] == 5
    with server.open("POST", url(session_id, "/recover")) as stream:
        assert stream.all()[-1].data["interrupts"][0]["info"] == {"cents": 5}
    assert server.post(url(session_id, "/edit"), {"values": {"cents": "x"}}).code == "state_invalid"
    assert server.post(url(session_id, "/edit"), {}).code == "invalid_request"


def test_ids_with_any_characters_work(server: Serving):  # failures, attack 18
    session_id = "../a b/{x}?#é;:%2F"
    with server.chat(agent="booker", message="hi", session_id=session_id) as stream:
        location = stream.headers["content-location"]
        stream.all()
    assert server.get(url(session_id)).json["session_id"] == session_id
    with server.open("GET", location) as stream:
        assert types(stream.all())[-1] == "caught_up"


def test_what_is_sent_is_plain_json_without_the_tags_of_stored_types(server: Serving):  # rule V1
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id, frames = stream.session_id, stream.all()
    user, model = server.get(url(session_id, "/messages")).json["messages"]
    assert (user["role"], user["content"]) == ("user", "book Rome")
    assert (model["role"], model["content"]) == ("assistant", "")
    assert model["tool_calls"] == [{"id": "c1", "name": "book_ticket", "arguments": {"place": "Rome"}}]
    assert [frame.data["message"] for frame in frames if frame.type == "message"] == [model]
    assert frames[-1].data["interrupts"][0]["info"].keys() >= {"tool", "arguments"}
    assert server.get(url(session_id, "/state")).json["state"]["messages"] == [user, model]
    listed = ["", "/messages", "/audit", "/checkpoints", "/state", "/events"]
    assert not any(b'"$t"' in server.get(url(session_id, rest)).body for rest in listed)
    assert not any(b'"$t"' in frame.raw for frame in frames)
