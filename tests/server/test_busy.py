"""Messages that come while a turn runs: refused, queued, or in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adjourn.server import App, Served

from .agents import GATES, WORDS, booker, counter
from .serving import Serving, ids, text, types


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([counter(), Served(program=booker(), on_busy="queue")])) as serving:
        yield serving


def body(session_id: str, on_busy: str | None = None, **more: Any) -> dict[str, Any]:
    return {"agent": "counter", "message": "count", "session_id": session_id, "on_busy": on_busy, **more}


def test_a_message_waits_for_its_turn_and_its_stream_has_that_turn_alone(server: Serving):  # rule V11
    with server.chat(**body("waits", message="count waits")) as running:
        GATES.reached("waits")
        with server.chat(**body("waits", "queue", message="count waited")) as waiting:
            assert (waiting.status, waiting.session_id) == (200, "waits")
            GATES.open("waits")
            before = running.all()
            frames = waiting.frames()
            found = [next(frames)]
            while found[-1].type not in ("draft", "delta"):
                found.append(next(frames))
            GATES.open("waited")
            found += frames
    assert types(before)[-1] == "done"
    assert types(found)[-1] == "done"
    assert min(ids(found)) > max(ids(before))
    assert text(found) == "".join(WORDS)
    assert "caught_up" not in types(found)


def test_a_message_waits_behind_a_question_if_its_agent_says_so(server: Serving):  # rule V11
    with server.chat(agent="booker", message="book Rome", session_id="asks") as stream:
        stream.all()
    # An open question is no turn that runs: a message is refused.
    reply = server.post("/api/v1/chat", {"agent": "booker", "message": "hello", "session_id": "asks"})
    assert (reply.status, reply.code) == (409, "pending_interrupts")
    reply = server.post("/api/v1/sessions/asks/inputs", {"agent": "booker", "message": "hello"})
    assert reply.status == 202
    with server.resume(session_id="asks", answer="yes") as stream:
        last = stream.all()[-1].data
    with server.events("asks", f"?after={last['seq']}&follow=session") as stream:
        assert stream.until("done")[-1].data["output"] == "You said: hello"


def test_a_result_can_be_waited_for(server: Serving):  # rule V11
    with server.chat(**body("whole", message="count whole")) as running:
        GATES.reached("whole")
        with server.chat(**body("whole", "queue")) as first:
            GATES.open("whole")
            running.all()
            reply = server.post("/api/v1/chat", body("whole", "queue", stream=False))
            first.all()
    assert (reply.json["status"], reply.json["output"]) == ("done", "".join(WORDS))


def test_an_input_that_is_withdrawn_ends_its_stream(server: Serving):  # rule V11
    with server.chat(**body("gone", message="count gone")) as running:
        GATES.reached("gone")
        with server.chat(**body("gone", "queue")) as waiting:
            (queued,) = server.get("/api/v1/sessions/gone/inputs").json["inputs"]
            assert server.request("DELETE", f"/api/v1/sessions/gone/inputs/{queued['id']}").status == 204
            last = waiting.all()[-1].data
        GATES.open("gone")
        running.all()
    assert (last["type"], last["error"]) == ("error", "InputWithdrawn")


def test_a_message_takes_the_place_of_a_turn(server: Serving):  # rule V11
    with server.chat(**body("cancel", message="count cancel")) as running:
        GATES.reached("cancel")
        GATES.open("cancel")  # A cancel waits for tools and models that are at work.
        with server.chat(**body("cancel", "cancel")) as stream:
            frames = stream.all()
        assert types(running.all())[-1] in ("cancelled", "done")
    assert types(frames)[-1] == "done"
    messages = server.get("/api/v1/sessions/cancel/messages").json["messages"]
    assert messages[-1]["role"] == "assistant"
