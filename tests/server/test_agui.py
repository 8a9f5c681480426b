"""AG-UI: runs and threads as front ends know them, checked with the models of the protocol's own package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import Event, Message, RunFinishedEvent
from pydantic import TypeAdapter

from adjourn import ChatModelAgent, Retry, current, tool
from adjourn.messages import ToolCall
from adjourn.models import Chunk, ModelRequest
from adjourn.server import App, Served
from adjourn.testing import FunctionModel

from .agents import GATES, booker, counter, refunds
from .serving import Serving

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
MESSAGES: TypeAdapter[Any] = TypeAdapter(list[Message])


class Thinker:
    """A model that thinks before it answers; the first time, its answer breaks off."""

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.calls += 1
        yield Chunk(reasoning="Well, ")
        yield Chunk(reasoning="easy.")
        yield Chunk(text="For")
        if self.calls == 1:
            raise ConnectionError("broken off")
        yield Chunk(text="ty-two.")


@tool
async def dig() -> AsyncIterator[str]:
    """Dig."""
    current().progress(1, 2, "digging")
    yield "a stone, "
    yield "a coin"
    current().emit({"depth": 3})


def digger() -> ChatModelAgent:
    def decide(request: ModelRequest) -> str | list[ToolCall]:
        return "done" if request.messages[-1].role == "tool" else [ToolCall(id="d1", name="dig", arguments={})]

    return ChatModelAgent("digger", model=FunctionModel(decide), tools=[dig])


def thinker() -> ChatModelAgent:
    return ChatModelAgent("thinker", model=Thinker(), retry=Retry(attempts=2, backoff=0.0))


def watcher() -> ChatModelAgent:
    def decide(request: ModelRequest) -> str:
        return " ".join(type(part).__name__ for part in request.messages[-1].parts)

    return ChatModelAgent("watcher", model=FunctionModel(decide))


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    answering = Served(program=booker("answering"), answer_pending=True)
    finishing = Served(program=booker("finishing"), on_pending="finish")
    agents = [booker(), counter(), refunds(), digger(), thinker(), watcher(), answering, finishing]
    with Serving(App(agents, media_hosts=["example.com"])) as serving:
        yield serving


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """The event, which is one of the protocol: nothing is missing, unknown or null."""
    event = EVENTS.validate_python(data)
    assert not _unknown(event), data
    assert json.loads(event.model_dump_json(by_alias=True, exclude_unset=True)) == data
    assert None not in data.values()
    return data


def _unknown(model: Any) -> dict[str, Any]:
    return model.model_extra or {}


class Thread:
    """A front end with one thread."""

    def __init__(self, server: Serving, agent: str, thread_id: str) -> None:
        self.server = server
        self.agent = agent
        self.id = thread_id
        self.messages: list[dict[str, Any]] = []

    def body(self, **data: Any) -> dict[str, Any]:
        more: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}, "protocolVersion": "1.0"}
        return {"threadId": self.id, "runId": "r1", "messages": self.messages, **more, **data}

    def run(self, **data: Any) -> list[dict[str, Any]]:
        with self.server.open("POST", f"/api/v1/ag-ui/{self.agent}", self.body(**data)) as stream:
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
            events = [checked(frame.data) for frame in stream.frames() if frame.data is not None]
        assert events[0] == {"type": "RUN_STARTED", "threadId": self.id, "runId": "r1", "protocolVersion": "1.0"}
        check_order(events)
        return events

    def say(self, content: Any, **data: Any) -> list[dict[str, Any]]:
        self.messages.append({"id": f"{self.agent}-{len(self.messages)}", "role": "user", "content": content})
        return self.run(**data)

    def resume(self, *answers: dict[str, Any]) -> list[dict[str, Any]]:
        return self.run(resume=list(answers))

    def snapshot(self) -> dict[str, Any]:
        reply = self.server.get(f"/api/v1/ag-ui/{self.agent}/threads/{self.id}")
        assert reply.status == 200
        MESSAGES.validate_python(reply.json["messages"])
        return reply.json


def check_order(events: list[dict[str, Any]]) -> None:
    """Everything is started before it goes on, ended before the run ends, and nothing comes after the end."""
    active: set[tuple[str, str]] = set()
    for event in events:
        kind = event["type"]
        name = next((event[key] for key in ("toolCallId", "stepName", "messageId") if key in event), "")
        if kind.endswith(("_STARTED", "_START")) and kind != "RUN_STARTED":
            key = kind.rpartition("_")[0], name
            assert key not in active
            active.add(key)
        elif kind.endswith(("_CONTENT", "_ARGS")):
            assert (kind.rpartition("_")[0], name) in active
        elif kind.endswith(("_FINISHED", "_END")) and kind != "RUN_FINISHED":
            active.remove((kind.rpartition("_")[0], name))
        elif kind == "RUN_FINISHED":
            assert not active
            RunFinishedEvent.model_validate(event)
    assert [each["type"] in ("RUN_FINISHED", "RUN_ERROR") for each in events] == [False] * (len(events) - 1) + [True]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def asked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return events[-1]["outcome"]["interrupts"]


def resolved(question: dict[str, Any], payload: Any) -> dict[str, Any]:
    return {"interruptId": question["id"], "status": "resolved", "payload": payload}


def cancelled(question: dict[str, Any]) -> dict[str, Any]:
    return {"interruptId": question["id"], "status": "cancelled"}


APPROVED = {"approved": True}


def test_a_turn_is_a_run_with_its_text_in_pieces(server: Serving):
    events = Thread(server, "counter", "text").say("count")
    pieces = ["TEXT_MESSAGE_CONTENT"] * 5
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        *pieces,
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert events[-1]["outcome"] == {"type": "success"}
    assert [each["content"] for each in events[-2]["messages"]] == ["count", "one two three four five "]
    assert events[1]["messageId"] == events[-2]["messages"][1]["id"]  # The ids of the log, in the stream as well.


def test_lines_end_with_a_line_feed_alone(server: Serving):
    thread = Thread(server, "watcher", "lines")
    thread.messages = [{"id": "1", "role": "user", "content": "a\r\n\r\nb\u2028c"}]
    reply = server.post("/api/v1/ag-ui/watcher", thread.body())
    assert b"\r" not in reply.body
    assert all(part.startswith(b"data: {") and b"\n" not in part for part in reply.body.split(b"\n\n")[:-1])


def test_a_pause_has_the_calls_a_snapshot_and_questions_named_by_their_tokens(server: Serving):
    thread = Thread(server, "booker", "pause")
    events = thread.say("two")
    assert kinds(events)[1:7] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"] * 2
    assert kinds(events)[7:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    first, second = asked(events)
    assert [first["toolCallId"], second["toolCallId"]] == ["c0", "c1"]
    assert first["reason"] == "tool_call"
    assert first["responseSchema"] == {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "editedArgs": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
            "reason": {"type": "string"},
        },
        "required": ["approved"],
    }
    pending = server.get("/api/v1/sessions/pause").json["pending"]
    assert [first["id"], second["id"]] == [each["token"] for each in pending]
    assert thread.snapshot()["interrupts"] == [first, second]
    assert thread.snapshot()["messages"] == events[-2]["messages"]


def test_answers_go_on_without_the_calls_again_whatever_the_front_end_wrote_into_its_history(server: Serving):
    thread = Thread(server, "booker", "answers")
    first, second = asked(thread.say("two"))
    # CopilotKit resumes under the same run id, and adds what the user decided as messages of the tools.
    for question in (first, second):
        fake = {"id": f"f{question['toolCallId']}", "role": "tool", "toolCallId": question["toolCallId"]}
        thread.messages.append({**fake, "content": '{"approved":true}'})
    events = thread.resume(
        resolved(first, {"approved": True, "editedArgs": {"place": "Bern"}}),
        resolved(second, {"approved": False, "reason": "too far"}),
    )
    results = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert [each["toolCallId"] for each in results] == ["c0", "c1"]
    assert results[0]["content"] == "booked: Bern"
    assert "too far" in results[1]["content"]
    assert "TOOL_CALL_START" not in kinds(events)
    assert events[-1]["outcome"] == {"type": "success"}
    messages = events[-2]["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [each["messageId"] for each in results] == [each["id"] for each in messages if each["role"] == "tool"]
    assert len({each["id"] for each in messages}) == 5


def test_an_id_is_never_used_again_though_run_ids_and_calls_repeat(server: Serving):
    thread = Thread(server, "booker", "ids")
    for place in ("Rome", "Oslo"):  # The model gives both calls the same id.
        (question,) = asked(thread.say(f"book {place}"))
        events = thread.resume(resolved(question, APPROVED))
    ids = [each["id"] for each in events[-2]["messages"]]
    assert len(ids) == len(set(ids)) == 8
    (result,) = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert result["messageId"] == ids[6]


def test_a_resume_has_to_cover_every_open_question(server: Serving):
    thread = Thread(server, "booker", "batch")
    first, second = asked(thread.say("two"))
    refused = thread.resume(resolved(first, APPROVED))
    assert refused[-1]["code"] == "pending_interrupts"
    assert second["id"] in refused[-1]["message"]
    assert thread.snapshot()["interrupts"] == [first, second]


def test_what_was_answered_elsewhere_is_covered(server: Serving):
    thread = Thread(server, "booker", "elsewhere")
    first, second = asked(thread.say("two"))
    server.post("/api/v1/sessions/elsewhere/answers", {"answers": {first["id"]: True}})
    assert thread.resume(resolved(second, APPROVED))[-1]["outcome"] == {"type": "success"}


def test_the_second_to_answer_is_told_so_and_nothing_runs_twice(server: Serving):
    thread = Thread(server, "booker", "late")
    (question,) = asked(thread.say("book Rome"))
    thread.resume(resolved(question, APPROVED))
    late = thread.resume(resolved(question, APPROVED))
    assert kinds(late) == ["RUN_STARTED", "RUN_ERROR"]
    assert late[-1]["code"] == "already_resumed"
    assert len(thread.snapshot()["messages"]) == 4


@pytest.mark.parametrize(("payload", "code"), [({"approved": "maybe"}, "invalid_answer"), (None, "invalid_answer")])
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(server: Serving, payload: Any, code: str):
    thread = Thread(server, "booker", f"misfit-{payload is None}")
    (question,) = asked(thread.say("book Rome"))
    assert thread.resume(resolved(question, payload))[-1]["code"] == code
    assert thread.snapshot()["interrupts"] == [question]


def test_two_answers_to_one_question_are_refused_and_the_question_stays(server: Serving):
    thread = Thread(server, "booker", "two-answers")
    [question] = asked(thread.say("book Rome"))
    yes, no = resolved(question, APPROVED), resolved(question, {"approved": False})
    for answers in ((no, yes), (yes, no), (cancelled(question), yes)):
        assert thread.resume(*answers)[-1]["code"] == "invalid_request"
    assert thread.snapshot()["interrupts"] == [question]
    assert thread.resume(yes, yes)[-1]["result"] == "Result: booked: Rome"


def test_an_unknown_question_is_refused(server: Serving):
    thread = Thread(server, "watcher", "unknown")
    thread.say("hello")
    assert thread.resume({"interruptId": "nope", "status": "resolved"})[-1]["code"] == "unknown_interrupt"


def test_an_approval_that_is_cancelled_is_a_rejection(server: Serving):
    thread = Thread(server, "booker", "closed")
    (question,) = asked(thread.say("book Rome"))
    events = thread.resume(cancelled(question))
    assert events[-1]["outcome"] == {"type": "success"}
    assert "cancelled" in events[-1]["result"]


def test_a_question_that_is_cancelled_ends_the_turn_and_another_can_follow(server: Serving):
    thread = Thread(server, "booker", "given-up")
    (question,) = asked(thread.say("name"))
    assert question["reason"] == "adjourn:need_name"
    assert question["responseSchema"] == {"type": "string"}
    assert thread.resume(cancelled(question))[-1]["outcome"] == {"type": "cancelled"}
    assert thread.snapshot()["interrupts"] == []
    assert thread.resume(cancelled(question))[-1]["outcome"] == {"type": "cancelled"}  # Again, and nothing happens.
    assert thread.say("hello")[-1]["result"] == "You said: hello"


def test_a_message_while_a_question_is_open_is_refused(server: Serving):
    thread = Thread(server, "booker", "open")
    (question,) = asked(thread.say("book Rome"))
    refused = thread.say("hello")
    assert refused[-1]["code"] == "pending_interrupts"
    assert question["id"] in refused[-1]["message"]


def test_a_message_is_the_answer_if_the_agent_says_so(server: Serving):
    thread = Thread(server, "answering", "answering")
    thread.say("name")
    assert thread.say("Ann")[-1]["result"] == "Result: Ann"


def test_what_was_said_before_is_not_said_again(server: Serving):
    thread = Thread(server, "watcher", "again")
    thread.messages = thread.say("hello")[-2]["messages"]
    assert thread.run()[-1]["code"] == "nothing_to_do"
    thread.messages = thread.messages[:1]  # A page that begins with our ids.
    assert thread.run()[-1]["code"] == "nothing_to_do"


@pytest.mark.parametrize("agent", ["booker", "finishing"])
def test_a_failure_is_an_error_without_its_details_and_the_thread_goes_on(server: Serving, agent: str):
    thread = Thread(server, agent, f"failure of {agent}")
    failed = thread.say("fail")
    assert failed[-1]["type"] == "RUN_ERROR"
    assert "secret-path" not in json.dumps(failed)
    assert thread.say("hello")[-1]["result"] == "You said: hello"


def test_reasoning_and_an_answer_that_begins_again(server: Serving):
    events = Thread(server, "thinker", "thoughts").say("What is it?")
    reasoning = [each["delta"] for each in events if each["type"] == "REASONING_MESSAGE_CONTENT"]
    assert reasoning == ["Well, ", "easy."] * 2
    begins = kinds(events).index("TEXT_MESSAGE_START")
    # Nothing but a snapshot can take back what was sent.
    assert kinds(events)[begins : begins + 4] == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
    ]
    assert [each["role"] for each in events[begins + 3]["messages"]] == ["user"]
    assert [each["content"] for each in events[-2]["messages"]] == ["What is it?", "Well, easy.", "Forty-two."]
    assert events[-2]["messages"][1]["id"] in {each.get("messageId") for each in events}


def test_progress_output_and_data_of_tools(server: Serving):
    events = Thread(server, "digger", "digging").say("go")
    shown = [each for each in events if each["type"].startswith("ACTIVITY") or each["type"] == "CUSTOM"]
    assert kinds(shown) == ["ACTIVITY_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "CUSTOM"]
    assert shown[0]["content"]["fraction"] == 0.5
    assert shown[1]["content"] == {"toolCallId": "d1", "pieces": ["a stone, "]}
    assert shown[2]["patch"] == [{"op": "add", "path": "/pieces/-", "value": "a coin"}]
    assert shown[3]["value"] == {"depth": 3}


def test_a_graph_takes_its_input_and_shows_steps_and_state(server: Serving):
    thread = Thread(server, "refunds", "graph")
    events = thread.run(forwardedProps={"input": {"cents": 90}})
    assert kinds(events) == ["RUN_STARTED", "STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT", "RUN_FINISHED"]
    (question,) = asked(events)
    assert question["reason"] == "input_required"
    assert question["metadata"]["adjourn"]["info"] == {"cents": 90}
    assert thread.snapshot()["state"] == {"cents": 90}
    ended = thread.resume(resolved(question, True))
    assert ended[-2]["snapshot"] == {"cents": 90, "paid": True}


def test_parts_of_a_message(server: Serving):
    data = base64.b64encode(b"picture").decode()
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}},
        {"type": "audio", "source": {"type": "url", "value": "https://example.com/a.mp3"}},
        {"type": "document", "source": {"type": "url", "value": "https://example.com/a", "mimeType": "text/plain"}},
    ]
    events = Thread(server, "watcher", "parts").say(content)
    assert events[-1]["result"] == "TextPart ImagePart AudioPart FilePart"
    assert events[-2]["messages"][0]["content"] == content


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "data", "value": "not base64!", "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "file", "value": "f1"}},
        {"type": "hologram"},
    ],
    ids=["data", "source", "type"],
)
def test_a_part_that_cannot_be_read_is_refused(server: Serving, part: dict[str, Any]):
    assert Thread(server, "watcher", "bad-part").say([part])[-1]["code"] == "invalid_request"


def test_what_cannot_be_read_at_all_has_a_status(server: Serving):
    assert server.post("/api/v1/ag-ui/nobody", {}).code == "agent_not_found"
    refused = server.post("/api/v1/ag-ui/booker", {"threadId": "t"})
    assert refused.status == 400
    assert "threadId, runId" in refused.json["error"]["hint"]
    assert server.get("/api/v1/ag-ui/booker/threads/nothing").code == "checkpoint_not_found"


def test_a_thread_of_another_agent_is_not_found_and_not_run(server: Serving):
    Thread(server, "watcher", "other").say("hello")
    assert server.get("/api/v1/ag-ui/booker/threads/other").status == 404
    assert Thread(server, "booker", "other").say("hello")[-1]["code"] == "program_changed"


def test_a_page_that_leaves_stops_nothing_and_a_thread_that_runs_is_busy(server: Serving):
    thread = Thread(server, "counter", "left")
    thread.messages = [{"id": "1", "role": "user", "content": "count left-gate"}]
    with server.open("POST", "/api/v1/ag-ui/counter", thread.body()) as stream:
        GATES.reached("left-gate")
        stream.close()
    assert thread.snapshot()["status"] == "running"
    assert thread.say("count")[-1]["code"] == "session_busy"
    with server.events("left") as following:
        GATES.open("left-gate")
        assert following.all()[-1].type == "done"
    assert thread.snapshot()["messages"][-1]["content"] == "one two three four five "


def test_a_server_that_stops_ends_the_run_of_the_page_in_its_words():
    with Serving(App([counter()], grace=0.1)) as server:
        thread = Thread(server, "counter", "stopped")
        thread.messages = [{"id": "1", "role": "user", "content": "count stopped-gate"}]
        with server.open("POST", "/api/v1/ag-ui/counter", thread.body()) as stream:
            GATES.reached("stopped-gate")
            server.stop()
            GATES.open("stopped-gate")
            last = [checked(frame.data) for frame in stream.frames() if frame.data is not None][-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "closing")


# The official client

PACKAGES = Path(os.environ.get("NODE_PACKAGES", Path(sys.prefix) / "node" / "node_modules"))


def in_node(server: Serving, agent: str, *steps: dict[str, Any]) -> list[dict[str, Any]]:
    """What the official client has after each of these runs."""
    url = f"http://127.0.0.1:{server.server.port}/api/v1/ag-ui/{agent}"
    command = ["node", str(Path(__file__).with_name("agui.mjs")), url, json.dumps(steps)]
    ended = subprocess.run(
        command,
        env={**os.environ, "NODE_PACKAGES": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.skipif(
    shutil.which("node") is None or not (PACKAGES / "@ag-ui" / "client").is_dir(),
    reason="needs Node.js and npm when `make` sets up its environment: apt-get install nodejs npm, make clean test",
)
def test_the_official_client_shows_answers_and_ends_with_our_conversation(server: Serving):
    fake = [{"toolCallId": each, "content": '{"approved":true}'} for each in ("c0", "c1")]
    payloads = [{"approved": True, "editedArgs": {"place": "Bern"}}, {"approved": False, "reason": "too far"}]
    paused, ended, refused = in_node(
        server,
        "booker",
        {"say": "two", "runId": "r1"},
        {"runId": "r1", "payloads": payloads, "fake": fake},
        {"runId": "r1"},
    )
    assert [each["toolCallId"] for each in paused["pending"]] == ["c0", "c1"]
    assert [each["errors"] for each in (paused, ended)] == [[], []]
    assert ended["results"][0]["content"] == "booked: Bern"
    assert ended["pending"] == []
    assert ended["messages"] == Thread(server, "booker", "from-node").snapshot()["messages"]
    assert [each["code"] for each in refused["errors"]] == ["nothing_to_do"]
