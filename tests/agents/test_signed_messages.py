"""What a provider signs comes back to it as it was: after a pause, an edit, a summary, in another process."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from adjourn import ChatModelAgent, Edit, Message, MessageEvent, Runner, ToolCall, tool
from adjourn.events import from_json, to_json
from adjourn.messages import CallPart, OpaquePart, ReasoningPart, TextPart
from adjourn.middleware import PatchToolCalls, Summarize
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel
from tests.agents.calling import all_of, lone


@tool(approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def signed(*calls: ToolCall, number: int = 1) -> Message:
    """An answer with thoughts between its calls, all of it signed."""
    content: list[Any] = [OpaquePart(provider="p", data={"type": "compaction", "id": f"k{number}"})]
    for place, call in enumerate(calls):
        content += [
            ReasoningPart(text=f"thought {place}", signature=f"s{number}.{place}", provider="p"),
            CallPart(id=call.id),
        ]
    return Message(
        role="assistant",
        content=(*content, TextPart(text="Working.", provider="p", extra={"phase": "commentary"})),
        tool_calls=tuple(replace(call, provider="p", extra={"signature": call.id}) for call in calls),
        finish_reason="tool_calls",
        provider="p",
        model="m-1",
        response_id=f"resp_{number}",
        extra={"items": [number]},
    )


PAY = ToolCall(id="c1", name="pay", arguments={"cents": 5})
LOOK = ToolCall(id="c2", name="look", arguments={"at": "Rome"})


def without_id(message: Message) -> Message:
    return replace(message, id=None)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_signed_answer_is_sent_back_as_it_was_after_a_pause(store: Store, streaming: bool) -> None:
    answer = signed(PAY, LOOK)
    first = ChatModelAgent("A", model=ScriptedModel([answer]), tools=[pay, look])
    events = await all_of(Runner(first, store=store, streaming=streaming).run("go", session_id="s"))
    told = [each for each in events if isinstance(each, MessageEvent) and each.message.role == "assistant"]
    assert without_id(told[0].message) == answer
    assert from_json(to_json(told[0])) == told[0]
    model = ScriptedModel(["done"])
    runner = Runner(ChatModelAgent("A", model=model, tools=[pay, look]), store=store, streaming=streaming)
    (asked,) = (await runner.status("s")).interrupts
    await runner.resume("s", {asked.id: True})
    assert without_id(model.requests[0].messages[1]) == answer


async def test_an_edit_keeps_signatures_and_places(store: Store) -> None:  # rule T4
    answer, model = signed(PAY, LOOK), ScriptedModel(["done"])
    runner = Runner(ChatModelAgent("A", model=ScriptedModel([answer]), tools=[pay, look]), store=store)
    asked = await runner.run("go", session_id="s")
    runner = Runner(ChatModelAgent("A", model=model, tools=[pay, look]), store=store)
    await runner.resume("s", {lone(asked): Edit({"cents": 3})})
    sent = without_id(model.requests[0].messages[1])
    call = answer.tool_calls[0]
    assert sent == replace(answer, tool_calls=(call.with_arguments({"cents": 3}), answer.tool_calls[1]))
    assert [type(block).__name__ for block in sent.blocks] == [
        *("OpaquePart", "ReasoningPart", "ToolCall", "ReasoningPart", "ToolCall", "TextPart")
    ]


async def test_calls_that_get_new_ids_stay_in_their_places() -> None:  # rule T2
    answer = signed(replace(LOOK, id="x"), replace(LOOK, id="x", arguments={"at": "Bonn"}))
    model = ScriptedModel([answer, "done"])
    await Runner(ChatModelAgent("A", model=model, tools=[look])).run("go")
    sent = model.requests[1].messages[1]
    calls = [(i, block.id, block.arguments["at"]) for i, block in enumerate(sent.blocks) if isinstance(block, ToolCall)]
    assert calls == [(2, "x", "Rome"), (4, "x~2", "Bonn")]
    assert [call.extra for call in sent.tool_calls] == [{"signature": "x"}] * 2


async def test_another_agent_sees_words_and_no_signatures() -> None:  # rule A4
    seen = ScriptedModel(["ok"])
    helper = ChatModelAgent("helper", model=seen, description="helps")
    transfer = ToolCall(id="t", name="transfer_to_agent", arguments={"agent_name": "helper"})
    model = ScriptedModel([signed(LOOK), transfer])
    agent = ChatModelAgent("A", model=model, tools=[look], sub_agents=[helper])
    await Runner(agent).run("go")
    assert any("A called tool 'look'" in message.text for message in seen.requests[0].messages)
    for message in seen.requests[0].messages:
        assert all(isinstance(part, TextPart) and part.provider is None for part in message.parts)
        assert (message.extra, message.tool_calls) == (None, ())


async def test_a_summary_never_cuts_inside_a_signed_answer() -> None:
    answers = [signed(replace(LOOK, id=f"c{n}a"), replace(LOOK, id=f"c{n}b"), number=n) for n in range(6)]
    model = ScriptedModel([*answers, "done"])
    summarize = Summarize(FunctionModel(lambda _: "short"), messages=5, keep=4)
    await Runner(ChatModelAgent("A", model=model, tools=[look], middleware=[summarize])).run("go")
    assert len(model.requests[-1].messages) < 10, "it was summarized"
    for request in model.requests:
        sent = [without_id(message) for message in request.messages if message.role == "assistant"]
        assert all(message in answers for message in sent)
        results = [message.tool_call_id for message in request.messages if message.role == "tool"]
        assert results == [call.id for message in sent for call in message.tool_calls]


async def test_patched_calls_leave_the_signed_answer_alone() -> None:
    answer, model = signed(PAY, LOOK), ScriptedModel(["done"])
    agent = ChatModelAgent("A", model=model, tools=[pay, look], middleware=[PatchToolCalls("none")])
    await Runner(agent).run([Message.user("go"), answer, Message.tool("seen", tool_call_id="c2", name="look")])
    sent = [without_id(message) for message in model.requests[0].messages]
    assert sent[1] == answer
    assert {message.tool_call_id: message.text for message in sent[2:4]} == {"c1": "none", "c2": "seen"}


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_the_result_says_why_the_answer_ended(reason: str) -> None:
    model = ScriptedModel([Message.assistant("so", finish_reason=reason)])
    assert (await Runner(ChatModelAgent("A", model=model)).run("go")).finish_reason == reason
