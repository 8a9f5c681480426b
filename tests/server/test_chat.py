"""Chats over HTTP: a turn as a stream, a pause as its last event, and an answer that goes on, once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adjourn import ChatModelAgent, Retry, Runner, Tool, ToolCall, interrupt, tool, workflow
from adjourn._engine.program import Program
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.server import App, Served
from adjourn.testing import FunctionModel, ScriptedModel

from .agents import GATES, WORDS, booker, counter, refunds
from .serving import Reply, Serving, ids, types


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter(), refunds()])) as serving:
        yield serving


def paused(server: Serving, message: Any = "book Rome", agent: str = "booker") -> Any:
    """The interrupt event of a new session."""
    with server.chat(agent=agent, message=message) as stream:
        return stream.all()[-1].data


def test_a_turn_is_a_stream_that_ends_with_done(server: Serving):  # rule V1
    with server.chat(agent="counter", message="count") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["content-location"] == f"/api/v1/sessions/{stream.session_id}/events"
        frames = stream.all()
    assert frames[0].raw == b"id: 0\nretry: 2000\n"  # Even a client that is cut off here can come back.
    assert "".join(each.data["text"] for each in frames if each.type == "delta") == "".join(WORDS)
    assert types(frames)[-1] == "done"
    assert types(frames).count("done") == 1


def test_durable_events_have_ids_and_live_ones_have_none(server: Serving):  # rule V3
    with server.chat(agent="counter", message="count") as stream:
        frames = [frame for frame in stream.all() if frame.data is not None]
    assert ids(frames) == list(range(1, len(ids(frames)) + 1))
    for frame in frames:
        assert (frame.id is None) == (frame.type in ("delta", "node_start", "tool_call"))
        assert frame.data.get("seq") == (None if frame.id is None else int(frame.id))
        assert frame.event is None  # EventSource hands unnamed events to `onmessage`.


def test_on_a_pause_the_last_event_is_the_interrupt_and_there_is_no_done(server: Serving):  # rule V1
    with server.chat(agent="booker", message="book Rome") as stream:
        session_id, frames = stream.session_id, stream.all()
    last = frames[-1].data
    assert last["type"] == "interrupt"
    assert last["reason"] == "need_approval"
    assert last["prompt"]
    assert last["checkpoint_id"]
    assert last["session_id"] == session_id
    (asked,) = last["interrupts"]
    assert asked["info"]["tool"] == "book_ticket"
    assert asked["info"]["arguments"] == {"place": "Rome"}
    assert asked["token"].startswith(asked["id"])
    assert "done" not in types(frames)


def test_the_answer_goes_on_in_the_same_kind_of_stream(server: Serving):  # rule V2
    asked = paused(server)
    with server.resume(session_id=asked["session_id"], answer="yes") as stream:
        assert stream.session_id == asked["session_id"]
        frames = stream.all()
    assert frames[0].id == str(asked["seq"])
    assert frames[-1].data["output"] == "Result: booked: Rome"
    assert ids(frames)[0] == asked["seq"] + 1


@pytest.mark.parametrize("name", ["id", "token"])
def test_questions_are_answered_by_id_or_token(server: Serving, name: str):  # rules V2, I13
    asked = paused(server)
    answers = {asked["interrupts"][0][name]: {"decision": "edit", "arguments": {"place": "Oslo"}}}
    checkpoint = asked["checkpoint_id"]
    with server.resume(session_id=asked["session_id"], answers=answers, checkpoint_id=checkpoint) as stream:
        assert stream.all()[-1].data["output"] == "Result: booked: Oslo"


def test_a_graph_takes_its_state_and_shows_its_end(server: Serving):  # rule V1
    asked = paused(server, {"cents": 90}, "refunds")
    assert asked["prompt"] == "Pay it?"
    assert asked["interrupts"][0]["info"] == {"cents": 90}
    with server.resume(session_id=asked["session_id"], answer=True) as stream:
        assert stream.all()[-1].data["state"] == {"cents": 90, "paid": True}


def test_a_conversation_goes_on_in_its_session(server: Serving):  # rule V1
    first = server.post("/api/v1/chat", {"agent": "booker", "message": "hello", "stream": False}).json
    with server.chat(agent="booker", message="again", session_id=first["session_id"]) as stream:
        frames = stream.all()
    assert frames[-1].data["output"] == "You said: again"
    assert min(ids(frames)) > 1  # Only the events of this turn.


def test_of_many_who_answer_at_once_one_goes_on(server: Serving):  # rules V2, R3
    asked = paused(server)
    replies: list[Reply] = []

    def answer() -> None:
        with server.resume(session_id=asked["session_id"], answer="yes") as stream:
            replies.append(stream.reply())

    threads = [threading.Thread(target=answer) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409]
    assert {reply.code for reply in replies if reply.status == 409} == {"already_resumed"}


# Refusals: all of them come before the stream


def test_an_unknown_session_is_not_found(server: Serving):  # rule V2
    reply = server.post("/api/v1/chat/resume", {"session_id": "nowhere", "answer": "yes"})
    assert (reply.status, reply.code) == (404, "checkpoint_not_found")
    assert reply.headers["content-type"] == "application/json"
    assert server.events("nowhere").reply().code == "checkpoint_not_found"


def test_a_second_answer_is_refused(server: Serving):  # rule V2
    asked = paused(server)
    (question,) = asked["interrupts"]
    body = {"session_id": asked["session_id"], "answers": {question["id"]: True}, "by": "ann"}
    assert server.post("/api/v1/chat/resume", body).status == 200
    for again in (body, {"session_id": asked["session_id"], "answer": "yes"}):
        reply = server.post("/api/v1/chat/resume", again)
        assert (reply.status, reply.code) == (409, "already_resumed")


def test_a_message_while_a_question_is_open_is_refused_with_the_questions(server: Serving):  # rule V2
    asked = paused(server)
    body = {"agent": "booker", "message": "and?", "session_id": asked["session_id"]}
    reply = server.post("/api/v1/chat", body)
    assert (reply.status, reply.code) == (409, "pending_interrupts")
    assert [each["id"] for each in reply.json["error"]["interrupts"]] == [asked["interrupts"][0]["id"]]
    assert reply.json["error"]["interrupts"][0]["prompt"] == asked["prompt"]


def test_what_cannot_be_an_answer_is_refused_and_the_question_stays_open(server: Serving):  # rules V2, R2
    asked = paused(server)
    session_id = asked["session_id"]
    for body, code in [
        ({"answer": "perhaps"}, "invalid_answer"),
        ({"answers": {"agent:nobody": True}}, "unknown_interrupt"),
    ]:
        reply = server.post("/api/v1/chat/resume", {"session_id": session_id, **body})
        assert (reply.status, reply.code) == (422, code)
    stale = {"session_id": session_id, "answer": "yes", "checkpoint_id": f"{asked['checkpoint_id']}9"}
    assert server.post("/api/v1/chat/resume", stale).status in (404, 409)
    with server.resume(session_id=session_id, answer="yes") as stream:
        assert stream.all()[-1].type == "done"


@workflow
async def hasty(_: str) -> str:
    return "yes" if interrupt("Now?", schema=bool, expires_in=0.01) else "no"


def test_an_answer_that_comes_too_late_is_told_why():  # rule V2
    with Serving(App([hasty, booker()])) as server:
        with server.chat(agent="hasty", message="hi") as stream:
            asked = stream.all()[-1].data
        session_id, (question,) = asked["session_id"], asked["interrupts"]
        with server.events(session_id, f"?follow=session&after={asked['seq']}") as stream:
            stream.until("error")  # The server goes on by itself when it has expired.
        for given in ({"answer": True}, {"answers": {question["id"]: True}}):
            for path in ("/api/v1/chat/resume", f"/api/v1/sessions/{session_id}/answers"):
                body = given if path.endswith("answers") else {"session_id": session_id, **given}
                reply = server.post(path, body)
                assert (reply.status, reply.code) == (410, "interrupt_expired")
                assert reply.json["error"]["interrupt_id"] == question["id"]
        asked = paused(server)
        body = {"session_id": asked["session_id"], "answer": "yes", "by": "ann", "stream": False}
        assert server.post("/api/v1/chat/resume", body).status == 200
        late = server.post("/api/v1/chat/resume", body)
        assert (late.status, late.code) == (409, "already_resumed")
        assert (late.json["error"]["by"], late.json["error"]["interrupt_id"]) == ("ann", asked["interrupts"][0]["id"])


def test_one_answer_for_several_questions_is_refused_with_their_names(server: Serving):  # rule V2
    asked = paused(server, "two")
    reply = server.post("/api/v1/chat/resume", {"session_id": asked["session_id"], "answer": "yes"})
    assert (reply.status, reply.code) == (422, "unknown_interrupt")
    assert reply.json["error"]["open"] == [each["id"] for each in asked["interrupts"]]
    first, second = (each["id"] for each in asked["interrupts"])
    with server.resume(session_id=asked["session_id"], answers={first: True}) as stream:
        assert [each["id"] for each in stream.all()[-1].data["interrupts"]] == [second]
    with server.resume(session_id=asked["session_id"], answer="no") as stream:
        assert stream.all()[-1].type == "done"


def test_a_busy_session_is_refused(server: Serving):  # rule V11
    with server.chat(agent="counter", message="count busy", session_id="busy") as stream:
        GATES.reached("busy")
        reply = server.post("/api/v1/chat", {"agent": "counter", "message": "count", "session_id": "busy"})
        assert (reply.status, reply.code) == (409, "session_busy")
        GATES.open("busy")
        assert stream.all()[-1].type == "done"


def test_a_session_of_another_agent_is_refused(server: Serving):  # rule V2
    asked = paused(server)
    body = {"agent": "counter", "message": "count", "session_id": asked["session_id"]}
    reply = server.post("/api/v1/chat", body)
    assert (reply.status, reply.code) == (409, "program_changed")
    assert "Name the agent that began the session" in reply.json["error"]["hint"]
    assert server.get(f"/api/v1/sessions/{asked['session_id']}").json["agent"] == "booker"


def _pay(cents: int) -> Tool:
    async def pay(to: str, cents: int = cents) -> str:
        """Pay."""
        return f"paid {cents}"

    return tool(pay, approval=True)


def test_an_approval_of_less_than_would_run_is_asked_anew(tmp_path: Path):  # rules V2, R17
    def app(cents: int) -> App:
        call = ToolCall(id="c1", name="pay", arguments={"to": "bob"})
        agent = ChatModelAgent("payer", model=ScriptedModel([call, "done", "done"]), tools=[_pay(cents)])
        return App([agent], store=f"sqlite:///{tmp_path / 's.db'}")

    with Serving(app(100)) as server:
        asked = paused(server, "pay", "payer")
    with Serving(app(999)) as server:
        body = {"session_id": asked["session_id"], "answers": {asked["interrupts"][0]["id"]: True}}
        reply = server.post("/api/v1/chat/resume", body)
        assert (reply.status, reply.code) == (409, "stale_checkpoint")
        (now,) = server.get("/api/v1/inbox").json["questions"]
        assert now["info"]["arguments"] == {"to": "bob", "cents": 999}
        assert reply.json["error"]["open"] == [now["id"]]
        with server.resume(session_id=asked["session_id"], answers={now["id"]: True}) as stream:
            assert [each.data["result"] for each in stream.all() if each.type == "tool_result"] == ["paid 999"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[" * 100_000, 400, "too_deep"),
        ({"message": {"cents": json.loads("[" * 70 + "]" * 70)}, "agent": "refunds"}, 400, "too_deep"),
        ({"message": "[" * 100, "agent": "nobody"}, 404, "agent_not_found"),
        (b'{"message": "' + b"x" * 1_100_000 + b'"}', 413, "too_large"),
        ({}, 400, "invalid_request"),
        ({"message": 5, "agent": "booker"}, 400, "invalid_request"),
        ({"message": "hi", "agent": "booker", "sesion_id": "s"}, 400, "invalid_request"),
        ({"message": "hi", "agent": "booker", "on_busy": "later"}, 400, "invalid_request"),
        ({"message": "hi", "agent": "booker", "session_id": ""}, 400, "invalid_request"),
        ({"message": "hi"}, 400, "invalid_request"),
        ({"message": "hi", "agent": "boker"}, 404, "agent_not_found"),
        ({"message": {"cents": "many"}, "agent": "refunds"}, 422, "state_invalid"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_what_is_wrong_with_a_request_is_said(server: Serving, body: Any, status: int, code: str):  # rule V2
    reply = server.post("/api/v1/chat", body)
    assert (reply.status, reply.code) == (status, code)


def test_a_name_that_is_nearly_right_is_suggested(server: Serving):
    reply = server.post("/api/v1/chat", {"message": "hi", "agent": "boker"})
    assert "Did you mean 'booker'" in reply.json["error"]["message"]


def test_only_json_is_read(server: Serving):  # rule V7: a form of another page is not
    reply = server.post("/api/v1/chat", b'{"message": "hi"}', content_type="text/plain")
    assert (reply.status, reply.code) == (415, "unsupported_media_type")


def test_what_there_is_not_is_said_in_json(server: Serving):
    assert (server.get("/nothing").status, server.get("/nothing").code) == (404, "not_found")
    reply = server.get("/api/v1/chat")
    assert (reply.status, reply.code) == (405, "method_not_allowed")


# Failures


def test_a_failure_is_the_last_event_and_keeps_what_code_said_to_itself(server: Serving):  # rule V2
    with server.chat(agent="booker", message="fail") as stream:
        session_id, frames = stream.session_id, stream.all()
    assert types(frames)[-1] == "error"
    assert b"secret-path" not in b"".join(frame.raw for frame in frames)
    reply = server.post("/api/v1/chat", {"agent": "booker", "message": "hi", "session_id": session_id})
    assert (reply.status, reply.code) == (409, "unfinished_run")
    for stream in (True, False):  # Its code fails again: that is no failure of the server.
        body = {"agent": "booker", "message": "hi", "session_id": session_id, "on_pending": "finish", "stream": stream}
        reply = server.post("/api/v1/chat", body)
        assert (reply.status, reply.code) == (409, "unfinished_run")
        assert "secret" not in str(reply.json)
    body = {"agent": "booker", "message": "hi", "session_id": session_id, "on_pending": "abandon", "stream": False}
    assert server.post("/api/v1/chat", body).json["output"] == "You said: hi"


def broken(_: object) -> str:
    raise RuntimeError("/etc/secret-path is broken")


def broken_programs() -> list[Program]:
    """They fail in a node that is tried again, and in a model."""
    graph = StateGraph(MessagesState, name="node").add_node("work", broken, retry=Retry(attempts=2, backoff=0))
    return [graph.add_edge(START, "work").compile(), ChatModelAgent("model", model=FunctionModel(broken))]


def test_what_code_raised_is_in_the_log_and_in_no_answer(caplog: pytest.LogCaptureFixture):  # rule V2
    sent: list[bytes] = []
    with Serving(App(broken_programs())) as server:
        for agent in ("node", "model"):
            with server.chat(agent=agent, message="hi", session_id=f"{agent} in pieces") as stream:
                sent += [frame.raw for frame in stream.all()]
            body = {"agent": agent, "message": "hi", "session_id": f"{agent} at once", "stream": False}
            sent.append(server.post("/api/v1/chat", body).body)
            sent.append(server.get(f"/api/v1/sessions/{agent}%20at%20once/events").body)
    said = b"".join(sent)
    assert b"secret-path" not in said
    for kind in (b'"type":"retry"', b'"type":"node_end"', b'"type":"error"', b"RetryExhausted", b"model_error"):
        assert kind in said
    logged = [each.getMessage() for each in caplog.records if each.name == "adjourn.server"]
    for session in ("node in pieces", "node at once", "model in pieces", "model at once"):
        assert [f"session {session} failed" in each and "secret-path" in each for each in logged].count(True) == 1


# One result instead of a stream


def test_a_result_comes_at_once_if_no_stream_is_wanted(server: Serving):
    reply = server.post("/api/v1/chat", {"agent": "booker", "message": "book Rome", "stream": False})
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-session-id"] == reply.json["session_id"]
    assert reply.json["status"] == "interrupted"
    (asked,) = reply.json["interrupts"]
    body = {"session_id": reply.json["session_id"], "answers": {asked["token"]: "yes"}, "stream": False}
    reply = server.post("/api/v1/chat/resume", body)
    assert (reply.json["status"], reply.json["output"]) == ("done", "Result: booked: Rome")
    failed = server.post("/api/v1/chat", {"agent": "booker", "message": "fail", "stream": False})
    assert (failed.status, failed.json["status"]) == (200, "failed")
    assert b"secret-path" not in failed.body


# What an agent may choose


def test_a_message_can_be_the_answer_to_the_only_question():  # rule V11
    with Serving(App([Served(program=booker(), answer_pending=True)])) as server:
        asked = paused(server, "name")
        session_id = asked["session_id"]
        with server.chat(message="Ann", session_id=session_id) as stream:
            assert stream.all()[-1].data["output"] == "Result: Ann"
        session_id = paused(server, "two")["session_id"]
        reply = server.post("/api/v1/chat", {"message": "yes", "session_id": session_id})
        assert (reply.status, reply.code) == (409, "pending_interrupts")


@workflow
async def twice(input: str) -> str:
    count = interrupt("How many?", key="count", schema=int)
    is_sure = interrupt("Sure?", key="sure", schema=bool)
    return f"{input}: {count!r}, {is_sure!r}"


def _say(server: Serving, path: str, name: str, session_id: str, text: str, key: str | None = None) -> Reply:
    headers = {} if key is None else {"Idempotency-Key": f"{key} by {name}"}
    return server.post(f"/api/v1/{path}", {name: text, "session_id": session_id, "stream": False}, **headers)


def test_a_page_that_only_has_a_field_for_text_can_answer_with_it():  # rules V2, V11
    with Serving(App([Served(program=twice, answer_pending=True)])) as server:
        for path, name in (("chat/resume", "answer"), ("chat", "message")):
            session_id = paused(server, "tickets", "twice")["session_id"]

            say = partial(_say, server, path, name, session_id)

            for other in ("many", "5.5", "[5]", "yes", ""):
                assert say(other).code == "invalid_answer", other
            assert say(" 5 ", "five").json["status"] == "interrupted"
            assert say(" 5 ", "five").json["status"] == "interrupted"  # and not an answer to the next
            for other in ("5", "perhaps"):
                assert say(other).code == "invalid_answer", other
            assert say("Yes").json["output"] == "tickets: 5, True"


def test_an_agent_that_must_not_ask_fails_when_it_does():  # rule V5
    with Serving(App([Served(program=booker(), interrupts=False)])) as server, server.chat(message="name") as stream:
        last = stream.all()[-1].data
    assert (last["type"], last["error"]) == ("error", "InterruptsDisabled")


@pytest.mark.parametrize("is_runner", [False, True])
def test_a_message_is_no_approval_where_approvals_name_what_was_shown(is_runner: bool):  # rules I13, V11
    strict = Runner(booker("strict"), require_token=True) if is_runner else booker("strict")
    with Serving(App([Served(program=strict, require_token=not is_runner, answer_pending=True)])) as server:
        asked = paused(server, agent="strict")
        said: dict[str, Any] = {"message": "yes", "session_id": asked["session_id"], "stream": False}
        for headers in ({}, {"idempotency_key": "k"}):
            reply = server.post("/api/v1/chat", said, **headers)
            assert (reply.status, reply.code) == (409, "pending_interrupts")
        thread = {"threadId": asked["session_id"], "runId": "r", "messages": [{"role": "user", "content": "yes"}]}
        assert b"pending_interrupts" in server.post("/api/v1/ag-ui/strict", thread).body
        chat: dict[str, Any] = {"message": "name", "session_id": "other", "stream": False}
        assert server.post("/api/v1/chat", chat).json["status"] == "interrupted"
        # What is not an approval is answered as ever.
        assert server.post("/api/v1/chat", {**chat, "message": "Ann"}).json["output"] == "Result: Ann"


def test_an_agent_can_want_tokens():  # rule I13
    with Serving(App([Served(program=booker(), require_token=True)])) as server:
        asked = paused(server)
        reply = server.post("/api/v1/chat/resume", {"session_id": asked["session_id"], "answer": "yes"})
        assert reply.status in (400, 422)
        answers = {asked["interrupts"][0]["token"]: "yes"}
        with server.resume(session_id=asked["session_id"], answers=answers) as stream:
            assert stream.all()[-1].type == "done"
