"""Hooks around models: what they know, and what they may return."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import (
    ChatModelAgent,
    Delta,
    Message,
    Middleware,
    ParallelAgent,
    Retrying,
    Runner,
    SequentialAgent,
    UsageError,
    tool,
)
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.middleware import ModelState, RedactPII, ToolRequest
from adjourn.testing import ScriptedModel

from .scripts import call, scripted


@tool
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


async def test_hooks_know_calls_by_the_ids_under_which_they_run() -> None:
    known: list[str] = []
    ran: list[str] = []

    class Ids(Middleware):
        def after_model(self, state: ModelState, ctx: Any) -> ModelState:
            known.extend(each.id for each in state.messages[-1].tool_calls)
            return state

        async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
            ran.append(request.call_id)
            return await call(request)

    twice = [call("look", "c1", at="a"), call("look", "c1", at="b"), call("look", "", at="c")]
    agent, _ = scripted(twice, call("look", "c1", at="d"), "done", tools=[look], middleware=[Ids()])
    await Runner(agent).run("go")
    assert known == ran
    assert len(set(known)) == 4


class Watching(Middleware):
    """Changes nothing, and knows the ids of the calls that it has seen."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def after_model(self, state: ModelState, ctx: Any) -> ModelState:
        self.known.extend(each.id for each in state.messages[-1].tool_calls)
        return state


async def test_hooks_of_an_agent_below_another_know_calls_by_these_ids_too() -> None:
    watching = Watching()
    inner, _ = scripted(
        call("look", "c1", at="a"), call("look", "c1", at="b"), "done", middleware=[watching], tools=[look]
    )
    result = await Runner(SequentialAgent("Row", agents=[inner])).run("go")
    assert watching.known == ["c1", "c1~2"]
    assert [each.tool_call_id for each in result.messages if each.role == "tool"] == watching.known


@pytest.mark.parametrize("how", ["agent", "node"])
async def test_an_id_that_a_call_gets_voids_nothing_that_readers_have(how: str) -> None:  # rule A9
    model = ScriptedModel([call("look", "", at="a"), "done"])
    if how == "agent":
        run = Runner(ChatModelAgent("A", model=model, tools=[look], middleware=[Watching()])).run("go")
    else:
        graph = StateGraph(MessagesState, name="g").add_llm_node("llm", model, tools=[look], middleware=[Watching()])
        run = graph.add_edge(START, "llm").compile().run({"user_input": "go"})
    events = [event async for event in run]
    assert any(isinstance(event, Delta) for event in events)
    assert not any(isinstance(event, Retrying) for event in events)


@pytest.mark.parametrize("left", [(), (Message.user("hm"),)])
async def test_an_answer_cannot_be_taken_away(left: tuple[Message, ...]) -> None:
    class Silent(Middleware):
        def after_model(self, state: ModelState, ctx: Any) -> ModelState:
            return ModelState(messages=left)

    agent, _ = scripted("hello", middleware=[Silent()])
    with pytest.raises(UsageError, match="does not end in the model's answer"):
        await Runner(agent).run("go")


async def test_what_agents_beside_it_said_stays_in_a_view_that_hooks_have_changed() -> None:
    model = ScriptedModel(["a1", "a2"])
    beside = ChatModelAgent("B", model=ScriptedModel(["b1", "b2"]))
    redacted = ChatModelAgent("A", model=model, middleware=[RedactPII()])
    runner = Runner(ParallelAgent("P", agents=[beside, redacted]))
    await runner.run("I am ann@example.org", session_id="s1")
    await runner.run("two", session_id="s1")
    seen = [message.text for message in model.requests[1].messages]
    assert seen == ["I am [email]", "For context: B said: b1", "a1", "two"]
