"""Agents as tools: a conversation of their own, with a boundary that only questions cross."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adjourn import (
    AgentTool,
    Approve,
    ChatModelAgent,
    ExitTool,
    LoopAgent,
    MessageEvent,
    RunContext,
    Runner,
    ToolResult,
    current,
    tool,
)
from adjourn.stores import Store

from .crew import ask, call, chat, events_of, ids, model_of, note, said, seen, transfer


class Order(msgspec.Struct):
    item: str
    count: int = 1


async def test_the_result_is_the_inner_agents_text(store: Store) -> None:  # rule A6
    inner = chat("Inner", call("note", text="x"), "inner says", tools=[note], description="Looks things up")
    outer = chat("Outer", call("Inner", request="find"), "end", tools=[inner])
    result = await Runner(outer, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: inner says", "assistant: end"]
    assert seen(model_of(inner).requests[0]) == ["user: find"]
    spec = model_of(outer).requests[0].tools[0]
    assert (spec.name, spec.description) == ("Inner", "Looks things up")
    assert list(spec.schema["properties"]) == ["request"]


@pytest.mark.parametrize("emits", [False, True])
async def test_inner_events_are_hidden_unless_wanted(store: Store, emits: bool) -> None:  # rule A6
    inner = chat("Inner", call("note", text="x"), "inner says", tools=[note])
    outer = chat("Outer", call("Inner", request="find"), "end", tools=[inner.as_tool(emit_internal_events=emits)])
    events = await events_of(Runner(outer, store=store).run("go", session_id="s"))
    heard = {event.agent for event in events if event.agent}
    assert heard == ({"Outer", "Inner"} if emits else {"Outer"})
    if emits:
        message = next(event for event in events if isinstance(event, MessageEvent) and event.agent == "Inner")
        assert message.path == ("Outer", "Inner")
        assert message.address == "agent:Outer;tool:Inner:c1;agent:Inner"


async def test_questions_cross_the_boundary(store: Store) -> None:  # rule I6
    def outer(inner_script: list[Any], *script: Any) -> ChatModelAgent:
        deep = chat("Deep", *inner_script, tools=[ask])
        middle = chat(
            "Middle",
            *([call("Deep", "d1", request="deeper")] if inner_script != ["deep"] else ["middle"]),
            tools=[deep],
        )
        return chat("Outer", *script, tools=[middle])

    paused = await Runner(
        outer([call("ask", "x1", question="?")], call("Middle", "m1", request="go")), store=store
    ).run("go", session_id="s")
    place = "agent:Outer;tool:Middle:m1;agent:Middle;tool:Deep:d1;agent:Deep;tool:ask:x1"
    assert ids(paused) == [place]
    result = await Runner(outer(["deep"], "end"), store=store).resume("s", {place: "y"})
    assert (result.output, said(result.messages)) == ("end", ["user: go", "tool: middle", "assistant: end"])


async def test_two_calls_of_one_agent_are_apart(store: Store) -> None:  # rule I6
    def outer(*script: Any, inner: Any = ()) -> ChatModelAgent:
        return chat("Outer", *script, tools=[chat("Inner", *inner, tools=[ask])])

    calls = [call("Inner", "c1", request="a"), call("Inner", "c2", request="b")]
    first = outer(calls, inner=[call("ask", "q", question="1?"), call("ask", "q", question="2?")])
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert ids(paused) == [f"agent:Outer;tool:Inner:c{n};agent:Inner;tool:ask:q" for n in (1, 2)]
    half = await Runner(outer(inner=["second"]), store=store).resume("s", {ids(paused)[1]: "y"})
    assert ids(half) == ids(paused)[:1]
    result = await Runner(outer("end", inner=["first"]), store=store).resume("s", {ids(paused)[0]: "x"})
    assert said(result.messages) == ["user: go", "tool: first", "tool: second", "assistant: end"]


async def test_exit_ends_the_inner_agent_alone() -> None:  # rule A6
    inner = chat("Inner", call("exit", final_result="inner out"), exit_tool=ExitTool())
    result = await Runner(chat("Outer", call("Inner", request="x"), "end", tools=[inner])).run("go")
    assert said(result.messages) == ["user: go", "tool: inner out", "assistant: end"]


async def test_a_loop_outside_is_not_broken_from_inside() -> None:  # rule A6
    @tool
    async def leave(ctx: RunContext) -> str:
        """Leave the loop."""
        ctx.break_loop()
        return "left"

    inner = chat("Inner", call("leave"), call("leave"), tools=[leave])
    outer = chat("Outer", call("Inner", request="x"), "one", call("Inner", request="y"), "two", tools=[inner])
    result = await Runner(LoopAgent("Loop", agents=[outer], max_iterations=2)).run("go")
    assert result.output == "two"


async def test_a_transfer_inside_stays_inside(store: Store) -> None:  # rule A6
    inner = chat("Inner", transfer("Helper"), sub_agents=[chat("Helper", "helped")])
    runner = Runner(chat("Outer", call("Inner", request="x"), "end", "next", tools=[inner]), store=store)
    result = await runner.run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: helped", "assistant: end"]
    assert (await runner.run("more", session_id="s")).output == "next"


async def test_full_history_shows_the_conversation_so_far() -> None:  # rule A4
    inner = chat("Inner", "ok", "ok")
    outer = chat("Outer", "hello", call("Inner", request="now"), "end", tools=[AgentTool(inner, full_history=True)])
    runner = Runner(outer)
    await runner.run("first", session_id="s")
    await runner.run("second", session_id="s")
    assert seen(model_of(inner).requests[0]) == [
        "user: first",
        "user: For context: Outer said: hello",
        "user: second",
        "user: now",
    ]


async def test_each_call_starts_empty() -> None:  # rule A4
    inner = chat("Inner", "one", "two")
    outer = chat("Outer", call("Inner", request="a"), call("Inner", "c2", request="b"), "end", tools=[inner])
    await Runner(outer).run("go")
    assert [seen(request) for request in model_of(inner).requests] == [["user: a"], ["user: b"]]


@pytest.mark.parametrize(
    "schema",
    [
        Order,
        {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["item"],
            "additionalProperties": False,
        },
    ],
)
async def test_input_may_have_a_form(schema: Any) -> None:
    inner = chat("Inner", "ok")
    outer = chat(
        "Outer", call("order", item="tea", count=2), "end", tools=[AgentTool(inner, input_schema=schema, name="order")]
    )
    await Runner(outer).run("go")
    assert msgspec.json.decode(model_of(inner).requests[0].messages[0].text) == {"item": "tea", "count": 2}


async def test_input_that_does_not_fit_is_told_to_the_model() -> None:
    inner = chat("Inner")
    outer = chat("Outer", call("Inner", item=3), "sorry", tools=[AgentTool(inner, input_schema=Order)])
    result = await Runner(outer).run("go")
    assert result.output == "sorry"
    assert model_of(inner).requests == []


async def test_a_call_of_an_agent_may_need_approval(store: Store) -> None:  # rule I6
    outer = chat("Outer", call("Inner", request="x"), "end", tools=[AgentTool(chat("Inner", "ran"), approval=True)])
    runner = Runner(outer, store=store)
    paused = await runner.run("go", session_id="s")
    assert [(asked.id, asked.reason) for asked in paused.interrupts] == [("agent:Outer;tool:Inner:c1", "need_approval")]
    assert said((await runner.resume("s", {ids(paused)[0]: Approve()})).messages)[1] == "tool: ran"


async def test_an_inner_failure_is_told_to_the_outer_model(store: Store) -> None:  # rule A6
    inner = chat("Inner", RuntimeError("away"))
    outer = chat("Outer", call("Inner", request="x"), "sorry", tools=[inner])
    result = await Runner(outer, store=store).run("go", session_id="s")
    assert result.output == "sorry"
    assert "away" in said(result.messages)[1]


async def test_an_inner_failure_that_is_raised_is_recovered_inside(store: Store) -> None:  # rule R5
    def outer(*inner: Any) -> ChatModelAgent:
        child = chat("Inner", *inner, tools=[note])
        first = [call("Inner", request="x")] if len(inner) == 2 else ["end"]
        return chat("Outer", *first, tools=[child], on_tool_error="raise")

    with pytest.raises(Exception, match="away"):
        await Runner(outer(call("note", text="n"), RuntimeError("away")), store=store).run("go", session_id="s")
    mended = outer("inner end")
    result = await Runner(mended, store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: inner end", "assistant: end"]


async def test_an_inner_agent_that_lacks_a_value_runs_once_it_is_there(store: Store) -> None:  # rule A10
    def outer(template: str, inner: list[Any], *script: Any) -> ChatModelAgent:
        return chat("Outer", *script, tools=[chat("Inner", *inner, instruction=template)], on_tool_error="raise")

    with pytest.raises(Exception, match="'word'"):
        await Runner(outer("{word}", [], call("Inner", request="x")), store=store).run("go", session_id="s")
    result = await Runner(outer("{word?}", ["ran"], "end"), store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: ran", "assistant: end"]


async def test_only_the_outer_result_is_told(store: Store) -> None:  # rule A6
    inner = chat("Inner", call("note", text="x"), "in", tools=[note])
    events = await events_of(
        Runner(chat("Outer", call("Inner", request="x"), "end", tools=[inner]), store=store).run("go", session_id="s")
    )
    assert [(event.tool, event.result) for event in events if isinstance(event, ToolResult)] == [("Inner", "in")]


async def test_usage_of_inner_agents_counts(store: Store) -> None:  # rule A13
    outer = chat("Outer", call("Inner", request="x"), "end", tools=[chat("Inner", "in")])
    assert (await Runner(outer, store=store).run("go", session_id="s")).usage.calls == 3


async def test_a_tool_may_run_an_agent_by_itself(store: Store) -> None:  # rule A15
    def outer(*script: Any, inner: Any = ()) -> ChatModelAgent:
        helper = chat("Helper", *inner, tools=[ask])

        @tool
        async def delegate() -> str:
            """Have a helper do it."""
            return "helper: " + await current().run(helper, "help")

        return chat("Outer", *script, tools=[delegate])

    paused = await Runner(outer(call("delegate"), inner=[call("ask", "q", question="?")]), store=store).run(
        "go", session_id="s"
    )
    assert ids(paused) == ["agent:Outer;tool:delegate:c1;agent:Helper;tool:ask:q"]
    result = await Runner(outer("end", inner=["helped"]), store=store).resume("s", {ids(paused)[0]: "y"})
    assert said(result.messages) == ["user: go", "tool: helper: helped", "assistant: end"]
