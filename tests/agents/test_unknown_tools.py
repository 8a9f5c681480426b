"""Calls of tools that do not exist, answered by a function."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Runner, ToolCall, ToolError, UsageError, interrupt, set_session_value, tool
from adjourn.errors import ProgramChanged
from adjourn.graph import END, START, CompiledGraph, MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .crew import call, chat, ids, model_of, note, said


def guess(asked: ToolCall) -> str:
    set_session_value("asked", asked.name)
    return f"no {asked.name} for {dict(asked.arguments)}"


async def helped(asked: ToolCall) -> str:
    return f"{asked.name}: {interrupt({'unknown': asked.name}, schema=str)}"


def looping(*script: Any, **options: Any) -> CompiledGraph:
    return (
        StateGraph(MessagesState, name="g")
        .add_llm_node("think", ScriptedModel(script), tools=[note])
        .add_tools_node("act", [note], **options)
        .add_edge(START, "think")
        .add_tools_conditional_edges("think", "act", END)
        .add_edge("act", "think")
        .compile()
    )


async def test_a_function_answers_calls_of_unknown_tools(store: Store) -> None:  # rule T1
    agent = chat("A", [call("gone", x=1), call("note", "c2", text="t")], "end", tools=[note], on_unknown_tool=guess)
    runner = Runner(agent, store=store)
    result = await runner.run("hi", session_id="s")
    assert said(result.messages) == ["user: hi", "tool: no gone for {'x': 1}", "tool: noted t", "assistant: end"]
    assert (await runner.state("s"))["values"] == {"asked": "gone"}


async def test_the_function_may_ask(store: Store) -> None:  # rules T1, R17
    first = chat("A", call("gone"), on_unknown_tool=helped)
    paused = await Runner(first, store=store).run("hi", session_id="s")
    assert ids(paused) == ["agent:A;tool:gone:c1"]
    last = chat("A", "end", on_unknown_tool=helped)
    result = await Runner(last, store=store).resume("s", dict.fromkeys(ids(paused), "use a pen"))
    assert "tool: gone: use a pen" in said(result.messages)


async def test_what_the_function_raises_is_told_as_for_any_tool() -> None:  # rule T1
    def refuse(asked: ToolCall) -> str:
        raise ToolError(f"I know no {asked.name}")

    result = await Runner(chat("A", call("gone"), "end", on_unknown_tool=refuse)).run("hi")
    assert "tool: Error: I know no gone" in said(result.messages)
    with pytest.raises(ToolError, match="I know no gone"):
        await Runner(chat("A", call("gone"), on_unknown_tool=refuse, on_tool_error="raise")).run("hi")


async def test_an_approval_of_a_tool_that_is_gone_is_not_used_up(store: Store) -> None:  # rule R17
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    with_tool = chat("A", call("pay"), "end", tools=[pay], on_unknown_tool=guess)
    paused = await Runner(with_tool, store=store).run("hi", session_id="s")
    with pytest.raises(ProgramChanged, match="no tool 'pay'"):
        await Runner(chat("A", on_unknown_tool=guess), store=store).resume("s", dict.fromkeys(ids(paused), True))
    back = chat("A", "end", tools=[pay], on_unknown_tool=guess)
    assert (await Runner(back, store=store).resume("s", dict.fromkeys(ids(paused), True))).output == "end"


async def test_a_tools_node_tells_raises_or_asks_the_function() -> None:  # rules T1, L6
    told = await looping(call("gone"), "end").run({"user_input": "hi"})
    assert "There is no tool 'gone'" in told.state["messages"][-2].text
    with pytest.raises(ToolError, match="There is no tool 'gone'"):
        await looping(call("gone"), on_unknown_tool="raise").run({"user_input": "hi"})
    asked = await looping(call("gone"), "end", on_unknown_tool=guess).run({"user_input": "hi"})
    assert asked.state["messages"][-2].text == "no gone for {}"
    graph = looping(call("gone"), "end", on_unknown_tool=helped)
    paused = await graph.run({"user_input": "hi"}, session_id="s")
    result = await graph.resume("s", dict.fromkeys(ids(paused), "so"))
    assert result.state["messages"][-2].text == "gone: so"


@pytest.mark.parametrize("wrong", ["ignore", "", 3])
def test_anything_else_is_refused_where_it_is_made(wrong: Any) -> None:
    with pytest.raises(UsageError, match="on_unknown_tool"):
        chat("A", on_unknown_tool=wrong)
    with pytest.raises(UsageError, match="on_unknown_tool"):
        looping(on_unknown_tool=wrong)


async def test_the_model_is_not_asked_again_for_a_handled_call() -> None:
    agent = chat("A", call("gone"), "end", on_unknown_tool=guess)
    await Runner(agent).run("hi")
    assert len(model_of(agent).requests) == 2
