"""Agents in odd company: hooks that run agents, one task at a time, deep nests, names full of separators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import (
    Agent,
    ChatModelAgent,
    Delta,
    Limits,
    LoopAgent,
    Message,
    MessageEvent,
    Middleware,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    UsageError,
    current,
    interrupt,
)
from adjourn.agents import AgentInput
from adjourn.errors import LimitExceeded
from adjourn.events import Event
from adjourn.middleware import ModelState, Setup, ToolRequest
from adjourn.models import ModelRequest
from adjourn.stores import Store

from .crew import ask, call, chat, events_of, ids, model_of, note, said, seen, transfer


class Judged(Middleware):
    """Has another agent look at things, in the hook that a test names."""

    def __init__(self, hook: str, judge: Agent) -> None:
        self.hook = hook
        self.judge = judge

    async def at(self, hook: str) -> None:
        if hook == self.hook:
            assert await current().run(self.judge, "is it fine?") == "fine"

    async def before_agent(self, setup: Setup) -> Setup:
        await self.at("before_agent")
        return setup

    async def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        await self.at("before_model")
        return state

    async def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        await self.at("after_model")
        return state

    async def wrap_model(self, call: Any, request: ModelRequest) -> Message:
        message = await call(request)
        await self.at("wrap_model")
        return message

    async def wrap_tool(self, call: Any, request: ToolRequest) -> Any:
        await self.at("wrap_tool")
        return await call(request)

    async def after_agent(self, end: Any) -> None:
        await self.at("after_agent")


HOOKS = ["before_agent", "before_model", "after_model", "wrap_model", "wrap_tool", "after_agent"]


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_may_run_an_agent_that_asks(store: Store, hook: str) -> None:  # rule A9
    def agent(judge: list[Any], *script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[note], middleware=[Judged(hook, chat("Judge", *judge, tools=[ask]))])

    asks = call("ask", question="fine?")
    whole: list[Any] = [call("note", text="x"), "end"]
    runner = Runner(agent([asks, "fine"] * 3, *whole), store=store)
    result = await runner.run("go", session_id="s")
    for _ in range(4):
        if result.status == "done":
            break
        assert all(";agent:Judge;tool:ask:c1" in each for each in ids(result))
        assert all(";middleware:Judged;" in each for each in ids(result))
        result = await runner.resume("s", dict.fromkeys(ids(result), "y"))
    assert said(result.messages) == ["user: go", "tool: noted x", "assistant: end"]


async def test_an_agent_run_by_before_agent_stands_below_the_middleware(store: Store) -> None:  # rule I6
    judge = chat("Judge", call("ask", question="?"), tools=[ask])
    paused = await Runner(chat("A", middleware=[Judged("before_agent", judge)]), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:A;middleware:Judged;agent:Judge;tool:ask:c1"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_one_task_at_a_time_does_not_lock_up(store: Store, limit: int) -> None:  # rule G14
    def team() -> Agent:
        inner = chat("Inner", [call("note", "n1", text="x"), call("note", "n2", text="y")], "in", tools=[note])
        outer = chat(
            "Outer",
            call("Inner", request="x"),
            "out",
            tools=[inner],
            middleware=[Judged("wrap_tool", chat("J", "fine"))],
        )
        side = ParallelAgent("Side", agents=[outer, Parent(chat("Child", "c")), chat("Z", "z")])
        return LoopAgent("Loop", agents=[side], max_iterations=1)

    result = await Runner(team(), store=store, max_concurrency=limit).run("go", session_id="s")
    assert result.output == "out\n\nc\n\nz"


class Parent(Agent):
    def __init__(self, child: Agent, name: str = "Parent") -> None:
        self.child = child
        self.name = name

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield MessageEvent(message=Message.assistant(await ctx.run(self.child, "x")))


async def test_a_nest_of_twenty(store: Store) -> None:  # rule A7
    def nest(depth: int, *script: Any) -> ChatModelAgent:
        agent = chat("D0", *script, tools=[ask])
        for level in range(1, depth):
            first = [call(f"D{level - 1}", request="x")] if script != ("end",) else ["end"]
            agent = chat(f"D{level}", *first, tools=[agent])
        return agent

    paused = await Runner(nest(20, call("ask", question="?")), store=store).run("go", session_id="s")
    assert len(ids(paused)) == 1
    result = await Runner(nest(20, "end"), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "end"


async def test_ids_and_names_full_of_separators(store: Store) -> None:  # rule I3
    odd = "c;1:2#3%4~"

    def agent(*script: Any) -> ChatModelAgent:
        return chat("a;b:c#d%", *script, tools=[ask])

    paused = await Runner(agent(call("ask", odd, question="?")), store=store).run("go", session_id="s")
    result = await Runner(agent("end"), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "end"
    assert [message.tool_call_id for message in result.messages if message.role == "tool"] == [odd]


async def test_whether_it_streams_the_resumer_decides(store: Store) -> None:  # rule R9
    first = Runner(chat("A", call("ask", question="?"), tools=[ask]), store=store, streaming=False)
    await first.run("go", session_id="s")
    second = Runner(chat("A", "one two", tools=[ask]), store=store, streaming=True)
    events = await events_of(second.resume("s", {"agent:A;tool:ask:c1": "y"}))
    assert [event.text for event in events if isinstance(event, Delta)] == ["one", " two"]


async def test_seconds_are_limited_and_count_running_only(store: Store) -> None:  # rule A1
    tight = Runner(chat("A", "never", limits=Limits(seconds=1e-9)), store=store)
    with pytest.raises(LimitExceeded, match="seconds"):
        await tight.run("go", session_id="s")
    wide = Runner(chat("A", "end", limits=Limits(seconds=1000)), store=store)
    assert (await wide.recover("s")).output == "end"


async def test_values_of_the_engines_own_names_are_refused() -> None:
    with pytest.raises(UsageError, match="~"):
        await Runner(chat("A", "x")).run("go", values={"~action": {"action": "exit"}})


class Once(Agent):
    """Says something in the first round only."""

    name = "Once"

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        if not ctx.values.get("said"):
            ctx.values["said"] = True
            yield MessageEvent(message=Message.assistant("first"))


async def test_what_was_said_in_an_earlier_round_is_no_result_of_this_one(store: Store) -> None:  # rule A7
    result = await Runner(LoopAgent("Loop", agents=[Once()], max_iterations=2), store=store).run("go", session_id="s")
    assert (result.output, said(result.messages)) == ("", ["user: go", "assistant: first"])


async def test_a_transfer_inside_one_of_several_side_by_side(store: Store) -> None:  # rule A5
    def side(a: list[Any], c: list[Any], b: list[Any]) -> ParallelAgent:
        first = chat("A", *a, sub_agents=[chat("C", *c, tools=[ask])])
        return ParallelAgent("Side", agents=[first, chat("B", *b)])

    paused = await Runner(side([transfer("C")], [call("ask", question="?")], ["b"]), store=store).run(
        "go", session_id="s"
    )
    assert ids(paused) == ["agent:Side;agent:A;agent:C;tool:ask:c1"]
    runner = Runner(side(["a again"], ["c"], ["b again"]), store=store)
    result = await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    assert (result.output, result.state["active"]) == ("c\n\nb", [])
    assert (await runner.run("more", session_id="s")).output == "a again\n\nb again"


async def test_handing_over_to_agents_side_by_side(store: Store) -> None:  # rule A5
    side = ParallelAgent("Side", agents=[chat("B", "b"), chat("C", "c")])
    result = await Runner(chat("A", transfer("Side"), sub_agents=[side]), store=store).run("go", session_id="s")
    assert (result.output, result.state["active"]) == ("b\n\nc", ["Side"])


async def test_a_turn_without_input_goes_on_from_the_conversation(store: Store) -> None:
    agent = chat("A", "one", "two")
    runner = Runner(agent, store=store)
    await runner.run("go", session_id="s")
    await runner.edit("s", {"messages": [Message.user("and?")]})
    assert (await runner.run(session_id="s")).output == "two"
    assert seen(model_of(agent).requests[1]) == ["user: go", "assistant: one", "user: and?"]


async def test_a_question_of_a_hook_in_an_agent_tool_side_by_side(store: Store) -> None:  # rule I6
    class Asks(Middleware):
        def before_agent(self, setup: Setup) -> Setup:
            if setup.agent == "Inner":
                interrupt(f"may {setup.agent} start?", key="start")
            return setup

    def team(*script: Any) -> Agent:
        inner = chat("Inner", *(["in"] if not script else []))
        outer = chat("Outer", *(script or ["out"]), tools=[inner])
        return ParallelAgent("Side", agents=[outer, chat("B", *(["b"] if script else []))])

    paused = await Runner(team(call("Inner", request="x")), store=store, middleware=[Asks()]).run("go", session_id="s")
    assert ids(paused) == ["agent:Side;agent:Outer;tool:Inner:c1;agent:Inner;middleware:Asks"]
    result = await Runner(team(), store=store, middleware=[Asks()]).resume("s", {"start": "yes"})
    assert result.output == "out\n\nb"


async def test_abandon_keeps_what_a_child_of_code_has_said(store: Store) -> None:  # rule R12
    class Two(Parent):
        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            await ctx.run(chat("First", *(["first said"] if input.text == "go" else ["x"])), "x")
            yield MessageEvent(message=Message.assistant(await ctx.run(self.child, "x")))

    await Runner(Two(chat("Child", call("ask", question="?"), tools=[ask])), store=store).run("go", session_id="s")
    runner = Runner(Two(chat("Child", "fresh", tools=[ask])), store=store)
    assert "assistant: first said" in said(await runner.messages("s"))
    result = await runner.run("more", session_id="s", on_pending="abandon")
    assert result.output == "fresh"
    assert "assistant: first said" in said(result.messages)


async def test_a_row_in_which_everybody_asks(store: Store) -> None:  # rule R7
    names = "ABCD"

    def row(*, asking: str = "", ending: str = "") -> SequentialAgent:
        def script(name: str) -> list[Any]:
            return ([f"{name} end"] if name == ending else []) + (
                [call("ask", f"c{name}", question=name)] if name == asking else []
            )

        return SequentialAgent("Row", agents=[chat(name, *script(name), tools=[ask]) for name in names])

    result = await Runner(row(asking="A"), store=store).run("go", session_id="s")
    for name, following in zip(names, [*names[1:], ""], strict=True):
        assert ids(result) == [f"agent:Row;agent:{name};tool:ask:c{name}"]
        result = await Runner(row(ending=name, asking=following), store=store).resume(
            "s", dict.fromkeys(ids(result), name)
        )
    assert said(result.messages)[1:] == [line for name in names for line in (f"tool: {name}", f"assistant: {name} end")]


async def test_what_a_waiting_child_of_code_said_is_shown_in_another_process(store: Store) -> None:  # rule A4
    first = Parent(chat("Child", Message.assistant("let me ask", tool_calls=[call("ask", question="?")]), tools=[ask]))
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert "assistant: let me ask" in said(paused.messages)
    runner = Runner(Parent(chat("Child", "end", tools=[ask])), store=store)
    assert "assistant: let me ask" in said(await runner.messages("s"))
    result = await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    lines = ["user: x", "assistant: let me ask", "tool: y", "assistant: end"]
    assert said(result.messages)[1:5] == lines


async def test_what_sleeping_children_of_code_said_is_kept_when_they_are_given_up(store: Store) -> None:  # rules A4, S8
    def nest(*script: Any) -> Parent:
        inner = chat("Inner", *script, tools=[ask, note])
        return Parent(Parent(SequentialAgent("Row", agents=[inner]), name="Middle"))

    calls = [call("note", "n1", text="done"), call("ask", question="?")]
    await Runner(nest(Message.assistant("two things", tool_calls=calls)), store=store).run("go", session_id="s")
    runner = Runner(nest("next"), store=store)
    before = ["user: go", "user: x", "user: x", "assistant: two things", "tool: noted done"]
    assert said(await runner.messages("s")) == before
    result = await runner.run("more", session_id="s", on_pending="abandon")
    assert said(result.messages)[:6] == [*before, "tool: This call was given up before it had a result."]


async def test_the_questions_of_one_session_may_be_answered_by_their_keys(store: Store) -> None:  # rule R1
    class Asks(Agent):
        name = "Asks"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            first = interrupt("one?", key="one")
            second = interrupt("two?", key="two")
            yield MessageEvent(message=Message.assistant(f"{first}{second}"))

    runner = Runner(Asks(), store=store)
    await runner.run("go", session_id="s")
    paused = await runner.resume("s", {"one": 1})
    assert [asked.key for asked in paused.interrupts] == ["two"]
    assert (await runner.resume("s", {"two": 2})).output == "12"
