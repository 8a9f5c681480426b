"""What a server signed or thought goes back to it, and only to it, through an agent and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from adjourn import ChatModelAgent, Runner, tool
from adjourn.models import OpenAIChatModel
from adjourn.stores import Store
from tests.models.openai_server import Server, answers, call_piece, delta, said, serving, streams

SIGNED: dict[str, Any] = {"google": {"thought_signature": "EjQK"}}
DETAILS: list[dict[str, Any]] = [{"type": "reasoning.encrypted", "data": "gAAA", "index": 0}]


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving() as made:
        yield made


@tool(approval=True)
async def book(to: str) -> str:
    """Book a trip."""
    return f"booked {to}"


def agent(*models: OpenAIChatModel) -> ChatModelAgent:
    return ChatModelAgent("A", model=models[0], failover=models[1:], tools=[book], retry=None)


def calls(**fields: Any) -> list[dict[str, Any]]:
    return [{"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"to":"Rome"}'}, **fields}]


@pytest.mark.parametrize("streaming", [True, False])
async def test_signatures_and_details_go_back_after_a_pause(  # rule A8
    server: Server, store: Store, streaming: bool
) -> None:
    fields: dict[str, Any] = {"reasoning": "Hm.", "reasoning_details": DETAILS}
    if streaming:
        piece = call_piece(0, '{"to":"Rome"}', id="c1", name="book", extra_content=SIGNED)
        server.replies += [
            streams(delta(**fields), piece, delta("tool_calls")),
            streams(delta(content="ok"), delta("stop")),
        ]
    else:
        whole = said("tool_calls", tool_calls=calls(extra_content=SIGNED), **fields)
        server.replies += [answers(whole), answers(said(content="ok"))]
    model = OpenAIChatModel("m", base_url=server.url)
    first = Runner(agent(model), store=store, streaming=streaming).run("go", session_id="s")
    _ = [event async for event in first]
    answers_given = {asked.id: True for asked in (await first).interrupts}
    second = Runner(agent(model), store=store, streaming=streaming).resume("s", answers_given)
    _ = [event async for event in second]
    sent = server.asked[1].body["messages"][1]
    assert sent["tool_calls"] == calls(extra_content=SIGNED)
    assert sent["reasoning_details"] == DETAILS
    await model.close()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_within_its_turn_under_its_name(server: Server, name: str) -> None:
    thought: dict[str, Any] = {name: "Hm."}
    server.replies += [
        answers(said("tool_calls", tool_calls=calls(), **thought)),
        answers(said(content="ok")),
    ] * 2
    model = OpenAIChatModel("m", base_url=server.url)
    runner = Runner(agent(model))
    for turn in range(2):
        asked = await runner.run("go", session_id="s")
        await runner.resume("s", {asked.interrupts[0].id: True})
        thoughts = [
            message.get(name) for message in server.asked[-1].body["messages"] if message["role"] == "assistant"
        ]
        assert thoughts == ([None, None, "Hm."] if turn else ["Hm."]), "older turns are sent without"
    await model.close()


@pytest.mark.parametrize(("wanted", "expected"), [(False, None), (True, "Hm.")])
async def test_whether_reasoning_goes_back_can_be_said(server: Server, wanted: bool, expected: str | None) -> None:
    server.replies += [answers(said(content="one", reasoning_content="Hm.")), answers(said(content="two"))]
    model = OpenAIChatModel("m", base_url=server.url, send_reasoning=wanted)
    runner = Runner(ChatModelAgent("A", model=model))
    for _ in range(2):
        await runner.run("go", session_id="s")
    assert server.asked[1].body["messages"][1].get("reasoning_content") == expected
    await model.close()


async def test_another_provider_gets_the_words_alone(server: Server) -> None:  # rule A8
    whole = said("tool_calls", content="One moment.", tool_calls=calls(extra_content=SIGNED), reasoning_details=DETAILS)
    server.replies += [answers(whole), answers({"error": "down"}, status=500), answers(said(content="ok"))]
    first = OpenAIChatModel("m", base_url=server.url, provider="one")
    second = OpenAIChatModel("m", base_url=server.url, provider="two")
    runner = Runner(agent(first, second))
    asked = await runner.run("go", session_id="s")
    await runner.resume("s", {asked.interrupts[0].id: True})
    assert server.asked[1].body["messages"][1]["tool_calls"] == calls(extra_content=SIGNED)
    sent = server.asked[2].body["messages"][1]
    assert sent == {"role": "assistant", "content": "One moment.", "tool_calls": calls()}
    await first.close()
    await second.close()


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_was_cut_short_says_so_on_the_result(server: Server, reason: str) -> None:
    server.replies += [answers(said(reason, content="Once")), streams(delta(content="Once"), delta(reason))]
    model = OpenAIChatModel("m", base_url=server.url)
    for streaming in (False, True):
        run = Runner(ChatModelAgent("A", model=model), streaming=streaming).run("go")
        _ = [event async for event in run] if streaming else []
        assert (await run).finish_reason == reason
    await model.close()
