"""Servers that hang up, are busy or talk nonsense, and what an agent makes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest

from adjourn import ChatModelAgent, Delta, MessageEvent, OpenAIChatModel, Retry, Retrying, Runner, UsageError, tool
from adjourn.errors import ModelError, RetryExhausted
from adjourn.graph import MessagesState, StateGraph
from adjourn.testing import ScriptedModel
from tests.models.openai_server import (
    Connection,
    Json,
    Reply,
    Server,
    answers,
    call_piece,
    delta,
    hangs_up,
    said,
    serving,
    streams,
)

BUSY: Json = {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}
HELLO = streams(delta(content="Hello"), delta("stop"))
NOW = {"retry-after": "0"}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def model(server: Server) -> AsyncIterator[OpenAIChatModel]:
    made = OpenAIChatModel("m", base_url=server.url, timeout=10)
    yield made
    await made.close()


@tool
async def look() -> str:
    """Look."""
    return "a cat"


async def watched(runner: Runner[Any, Any], session_id: str = "s") -> tuple[list[Any], str]:
    """The events of a run, and its text as a reader has it at the end."""
    events, text = list[Any](), ""
    async for event in runner.run("hi", session_id=session_id):
        events.append(event)
        match event:
            case Retrying():
                text = ""
            case Delta():
                text += event.text
            case MessageEvent() if event.message.tool_calls:
                text = ""
            case _:
                pass
    return events, text


async def closes_after(connection: Connection) -> None:
    """A whole answer, then the connection is closed without a word."""
    await streams(call_piece(0, "{}", id="c1", name="look"), delta("tool_calls"))(connection)
    await hangs_up(connection)


async def test_a_kept_connection_that_was_closed_is_tried_once_more(server: Server, model: OpenAIChatModel) -> None:
    # rule A8: this is llama.cpp between the calls of a tool loop
    runner = Runner(ChatModelAgent("A", model=model, tools=[look], retry=None))
    for turn in range(3):
        server.replies += [closes_after, hangs_up, HELLO]
        events, text = await watched(runner, f"s{turn}")
        assert text == "Hello"
        assert not [event for event in events if isinstance(event, Retrying)], (
            "nothing was shown, so nothing is dropped"
        )


async def test_a_server_that_always_hangs_up_is_an_error(server: Server, model: OpenAIChatModel) -> None:
    server.replies += [hangs_up] * 2
    with pytest.raises(ModelError, match="could not be reached"):
        await Runner(ChatModelAgent("A", model=model, retry=None)).run("hi")
    assert server.replies == []


RUDE: dict[str, Reply] = {
    "429 with seconds": answers(BUSY, status=429, headers=NOW),
    "429 with a date": answers(BUSY, status=429, headers={"retry-after": formatdate(0, usegmt=True)}),
    "500": answers({}, status=500, headers=NOW),
    "503 with HTML": answers("<html>away</html>", status=503, headers=NOW),
    "cut in mid-stream": streams(delta(content="Hel"), cut=True),
    "an error in mid-stream": streams(
        delta(content="Hel"), {"error": {"message": "Overloaded", "type": "server_error"}}
    ),
    "200 with HTML": answers("<html>please log in</html>"),
}


@pytest.mark.parametrize("how", RUDE)
async def test_a_temporary_failure_is_tried_again_by_default(  # rule A8
    server: Server, model: OpenAIChatModel, how: str
) -> None:
    server.replies += [RUDE[how], HELLO]
    events, text = await watched(Runner(ChatModelAgent("A", model=model)))
    assert text == "Hello"
    [retry] = [event for event in events if isinstance(event, Retrying)]
    assert (retry.attempt, retry.max_attempts) == (1, 3)
    assert retry.delay < 1


@pytest.mark.parametrize("how", ["off", "replaced", "default"])
async def test_the_default_policy_is_replaced_and_switched_off(  # rule A8
    server: Server, model: OpenAIChatModel, how: str
) -> None:
    tries, retry = {"off": (1, None), "replaced": (2, Retry(attempts=2, backoff=0)), "default": (3, ...)}[how]
    server.replies += [answers(BUSY, status=429, headers=NOW)] * tries
    given: dict[str, Any] = {} if retry is ... else {"retry": retry}
    with pytest.raises(RetryExhausted if how == "replaced" else ModelError) as caught:
        await Runner(ChatModelAgent("A", model=model, **given)).run("hi")
    assert server.replies == []
    if how == "default":
        assert "Tried 3 times." in caught.value.__notes__


async def test_a_nodes_model_has_the_same_policy(server: Server, model: OpenAIChatModel) -> None:  # rule L1
    server.replies += [answers(BUSY, status=429, headers=NOW), answers(said(content="Hello"))]
    graph = StateGraph(MessagesState).add_llm_node("ask", model).set_entry_point("ask").compile()
    assert (await graph.run({"user_input": "hi"})).state["last_response"] == "Hello"


async def test_a_nodes_own_policy_replaces_it(server: Server, model: OpenAIChatModel) -> None:  # rule L1
    server.replies += [answers(BUSY, status=429, headers=NOW)] * 2
    builder = StateGraph(MessagesState).add_llm_node("ask", model, retry=Retry(attempts=2, backoff=0))
    with pytest.raises(RetryExhausted):
        await builder.set_entry_point("ask").compile().run({"user_input": "hi"})
    assert server.replies == []


async def test_what_a_provider_did_not_report_is_not_tried_again() -> None:  # rule A8
    for error in (ModelError("no"), ValueError("no"), ModelError("no", status=400, retryable=False)):
        model = ScriptedModel([error, "Hello"])
        with pytest.raises(ModelError):
            await Runner(ChatModelAgent("A", model=model)).run("hi")
        assert len(model.requests) == 1


@pytest.mark.parametrize(("asked", "delay"), [(0.5, 2), (10, 10), (86_400, 60)])
def test_a_provider_can_ask_for_a_longer_wait_but_not_for_any(asked: float, delay: float) -> None:  # rule A8
    assert Retry(backoff=2.0).delay(1, asked) == delay


def test_a_wrong_bound_is_named() -> None:
    with pytest.raises(UsageError, match=r"max_wait=-1"):
        Retry(max_wait=-1)


async def test_a_redirect_is_followed(server: Server, model: OpenAIChatModel) -> None:
    moved = answers({}, status=307, headers={"location": f"{server.url}/elsewhere"})
    server.replies += [moved, answers(said(content="Hello"))]
    assert (await Runner(ChatModelAgent("A", model=model)).run("hi")).output == "Hello"
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions", "/v1/elsewhere"]
    assert server.asked[0].body == server.asked[1].body
