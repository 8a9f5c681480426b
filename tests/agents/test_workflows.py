"""Workflow agents: in a row, side by side, in circles, and in one another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adjourn import (
    Agent,
    ChatModelAgent,
    ExitTool,
    LoopAgent,
    MessageEvent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    UsageError,
    set_session_value,
    tool,
)
from adjourn.events import BreakLoop
from adjourn.stores import Store
from adjourn.testing import FunctionModel

from .crew import ask, call, chat, events_of, ids, kinds, model_of, said, seen


@tool
async def leave(ctx: RunContext) -> str:
    """Leave the loop."""
    ctx.break_loop()
    return "left"


async def test_a_row_runs_in_order_and_each_sees_the_others(store: Store) -> None:  # rule A7
    a, b = chat("A", "one"), chat("B", "two")
    result = await Runner(SequentialAgent("Row", agents=[a, b]), store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "assistant: one", "assistant: two"]
    assert seen(model_of(b).requests[0]) == ["user: go", "user: For context: A said: one"]
    assert result.output == "two"


async def test_children_stand_below_the_workflow(store: Store) -> None:  # rule I6
    row = SequentialAgent("Row", agents=[chat("A", "one"), chat("B", call("ask", question="?"), "end", tools=[ask])])
    runner = Runner(row, store=store)
    paused = await runner.run("go", session_id="s")
    assert ids(paused) == ["agent:Row;agent:B;tool:ask:c1"]
    assert (await runner.resume("s", dict.fromkeys(ids(paused), "y"))).output == "end"


async def test_a_row_stops_on_exit() -> None:  # rule A7
    a = chat("A", call("exit", final_result="out"), exit_tool=ExitTool())
    result = await Runner(SequentialAgent("Row", agents=[a, chat("B")])).run("go")
    assert result.output == "out"


async def test_a_row_stops_on_an_error_and_goes_on_there(store: Store) -> None:  # rule A7
    def row(*script: Any) -> SequentialAgent:
        first = ["one"] if script and isinstance(script[0], Exception) else []
        return SequentialAgent("Row", agents=[chat("A", *first), chat("B", *script), chat("C", "three")])

    with pytest.raises(Exception, match="away"):
        await Runner(row(RuntimeError("away")), store=store).run("go", session_id="s")
    result = await Runner(row("two"), store=store).recover("s")
    assert said(result.messages) == ["user: go", "assistant: one", "assistant: two", "assistant: three"]


async def test_a_loop_runs_to_its_limit(store: Store) -> None:  # rule A7
    loop = LoopAgent("Loop", agents=[chat("A", "a1", "a2"), chat("B", "b1", "b2")], max_iterations=2)
    result = await Runner(loop, store=store).run("go", session_id="s")
    assert said(result.messages)[1:] == ["assistant: a1", "assistant: b1", "assistant: a2", "assistant: b2"]


async def test_break_loop_leaves_the_inner_loop_alone(store: Store) -> None:  # rule A7
    inner = LoopAgent(
        "Inner", agents=[chat("A", call("leave"), "a2", call("leave", "c2"), tools=[leave]), chat("B", "b")]
    )
    outer = LoopAgent("Outer", agents=[inner, chat("C", "c1", "c2")], max_iterations=2)
    events = await events_of(Runner(outer, store=store).run("go", session_id="s"))
    texts = [event.message.text for event in events if isinstance(event, MessageEvent) and event.message.text]
    assert texts == ["c1", "a2", "b", "c2"]
    assert sum(isinstance(event, BreakLoop) for event in events) == 2
    assert kinds(events)[-1] == "done"


async def test_exit_ends_every_loop_around() -> None:  # rule A7
    a = chat("A", call("exit", final_result="out"), exit_tool=ExitTool())
    loop = LoopAgent("Outer", agents=[LoopAgent("Inner", agents=[a]), chat("C")])
    assert (await Runner(loop).run("go")).output == "out"


async def test_a_loop_that_comes_back_asks_anew(store: Store) -> None:  # rule R8
    def loop(*script: Any) -> LoopAgent:
        return LoopAgent("Loop", agents=[chat("A", *script, tools=[ask])], max_iterations=2)

    first = await Runner(loop(call("ask", question="?")), store=store).run("go", session_id="s")
    second = await Runner(loop("one", call("ask", question="?")), store=store).resume(
        "s", dict.fromkeys(ids(first), "1")
    )
    place = "agent:Loop;agent:A;tool:ask:c1"
    assert ids(first) == [place]
    assert len(ids(second)) == 1
    assert ids(second) != ids(first)
    result = await Runner(loop("two"), store=store).resume("s", dict.fromkeys(ids(second), "2"))
    assert said(result.messages)[1:] == ["tool: 1", "assistant: one", "tool: 2", "assistant: two"]


async def test_side_by_side_entries_join_in_order(store: Store) -> None:  # rule A4
    gate = asyncio.Event()

    async def slow(_: Any) -> str:
        await gate.wait()
        return "slow"

    def quick(_: Any) -> str:
        gate.set()
        return "quick"

    a = ChatModelAgent("A", model=FunctionModel(slow))
    b = ChatModelAgent("B", model=FunctionModel(quick))
    last = chat("C", "end")
    row = SequentialAgent("Row", agents=[ParallelAgent("Side", agents=[a, b]), last])
    result = await Runner(row, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "assistant: slow", "assistant: quick", "assistant: end"]
    assert seen(model_of(last).requests[0])[1:] == [
        "user: For context: A said: slow",
        "user: For context: B said: quick",
    ]


async def test_side_by_side_nobody_sees_the_others(store: Store) -> None:  # rule A4
    a, b = chat("A", call("leave"), "a", tools=[leave]), chat("B", "b")
    await Runner(ParallelAgent("Side", agents=[b, a]), store=store).run("go", session_id="s")
    assert seen(model_of(a).requests[0]) == ["user: go"]
    assert seen(model_of(b).requests[0]) == ["user: go"]


def side(first: list[Any], second: list[Any]) -> ParallelAgent:
    return ParallelAgent(
        "Side",
        agents=[
            chat("A", *first, tools=[ask]),
            chat("B", *second, tools=[ask]),
        ],
    )


async def test_all_questions_come_in_one_pause(store: Store) -> None:  # rule A7
    asks = [call("ask", question="?")]
    events = await events_of(Runner(side(asks, asks), store=store).run("go", session_id="s"))
    assert kinds(events, without=("delta", "checkpoint", "message", "tool_call")) == ["interrupt"]
    runner = Runner(side([], ["b"]), store=store)
    half = await runner.resume("s", {"agent:Side;agent:B;tool:ask:c1": "1"})
    assert ids(half) == ["agent:Side;agent:A;tool:ask:c1"]
    result = await Runner(side(["a"], []), store=store).resume("s", {"agent:Side;agent:A;tool:ask:c1": "2"})
    assert said(result.messages) == ["user: go", "tool: 2", "assistant: a", "tool: 1", "assistant: b"]
    assert result.output == "a\n\nb"


async def test_what_a_finished_child_said_is_there_while_another_waits(store: Store) -> None:  # rule R7
    paused = await Runner(side(["a said"], [call("ask", question="?")]), store=store).run("go", session_id="s")
    assert said(paused.messages) == ["user: go", "assistant: a said"]
    runner = Runner(side([], ["b said"]), store=store)
    assert said(await runner.messages("s")) == ["user: go", "assistant: a said"]
    assert len(await runner.messages("s")) == 3
    result = await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    assert said(result.messages) == ["user: go", "assistant: a said", "tool: y", "assistant: b said"]


async def test_a_failed_child_lets_the_others_finish(store: Store) -> None:  # rule A7
    with pytest.raises(Exception, match="away"):
        await Runner(side([RuntimeError("away")], ["b said"]), store=store).run("go", session_id="s")
    result = await Runner(side(["a said"], []), store=store).recover("s")
    assert said(result.messages) == ["user: go", "assistant: a said", "assistant: b said"]


async def test_side_by_side_values_come_in_task_order(store: Store) -> None:  # rule R15
    @tool
    async def put(value: str) -> str:
        """Put a value."""
        set_session_value("v", value)
        return "ok"

    def putter(name: str) -> Agent:
        return chat(name, call("put", value=name), "done", tools=[put])

    runner = Runner(ParallelAgent("Side", agents=[putter("A"), putter("B")]), store=store)
    await runner.run("go", session_id="s")
    assert (await runner.state("s"))["values"] == {"v": "B"}


async def test_nested_deep_everything_keeps_its_place(store: Store) -> None:  # rule A7
    def team(x: list[Any], y: list[Any], last: list[Any]) -> Agent:
        inner = SequentialAgent(
            "Row",
            agents=[
                chat("X", *x, tools=[ask]),
                LoopAgent("Loop", agents=[chat("Y", *y, tools=[ask])], max_iterations=1),
            ],
        )
        deep = ParallelAgent("Deep", agents=[inner, chat("Z", *(["z"] if x else []))])
        return SequentialAgent(
            "Top", agents=[ParallelAgent("Side", agents=[deep, chat("W", *(["w"] if x else []))]), chat("Last", *last)]
        )

    first = await Runner(team(["x"], [call("ask", question="?")], []), store=store).run("go", session_id="s")
    assert ids(first) == ["agent:Top;agent:Side;agent:Deep;agent:Row;agent:Loop;agent:Y;tool:ask:c1"]
    assert sorted(said(first.messages)) == ["assistant: w", "assistant: x", "assistant: z", "user: go"]
    result = await Runner(team([], ["y"], ["last"]), store=store).resume("s", dict.fromkeys(ids(first), "1"))
    assert said(result.messages) == [
        "user: go",
        "assistant: x",
        "tool: 1",
        "assistant: y",
        "assistant: z",
        "assistant: w",
        "assistant: last",
    ]


async def test_an_agent_sees_its_own_words_of_an_earlier_round(store: Store) -> None:  # rule A4
    a = chat("A", "a1", "a2")
    loop = LoopAgent("Loop", agents=[ParallelAgent("Side", agents=[a, chat("B", "b1", "b2")])], max_iterations=2)
    await Runner(loop, store=store).run("go", session_id="s")
    assert seen(model_of(a).requests[1]) == ["user: go", "assistant: a1", "user: For context: B said: b1"]


async def test_a_second_turn_of_a_workflow_runs_all_again(store: Store) -> None:  # rule A7
    runner = Runner(side(["a1", "a2"], ["b1", "b2"]), store=store)
    await runner.run("one", session_id="s")
    result = await runner.run("two", session_id="s")
    assert said(result.messages) == [
        "user: one",
        "assistant: a1",
        "assistant: b1",
        "user: two",
        "assistant: a2",
        "assistant: b2",
    ]


async def test_a_hundred_rounds(store: Store) -> None:  # rule A7
    loop = LoopAgent("Loop", agents=[chat("A", *[str(n) for n in range(100)])], max_iterations=100)
    result = await Runner(loop, store=store).run("go", session_id="s")
    assert (result.output, len(result.messages), result.usage.calls) == ("99", 101, 100)


@pytest.mark.parametrize("make", [SequentialAgent, ParallelAgent, LoopAgent])
def test_a_workflow_needs_agents_of_different_names(make: Any) -> None:
    with pytest.raises(UsageError, match="agents"):
        make("W", agents=[])
    with pytest.raises(UsageError, match="called 'A'"):
        make("W", agents=[chat("A"), chat("A")])


def test_a_loop_needs_a_round() -> None:
    with pytest.raises(UsageError, match="max_iterations"):
        LoopAgent("L", agents=[chat("A")], max_iterations=0)


async def test_an_agent_below_itself_is_refused() -> None:
    class Odd(Agent):
        name = "Odd"

        @property
        def agents(self) -> Any:
            return [self]

    with pytest.raises(UsageError, match="below itself"):
        await Runner(Odd()).run("go")


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="no agent"):
        SequentialAgent("W", agents=["no agent"])  # pyright: ignore[reportArgumentType]
