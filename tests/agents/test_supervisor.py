"""Supervisor: members hand back by themselves, and what becomes of those that ask, exit or fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import (
    Agent,
    ChatModelAgent,
    GraphAgent,
    LoopAgent,
    Message,
    MessageEvent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    Supervisor,
    Transfer,
    UsageError,
    interrupt,
    tool,
)
from adjourn.agents import AgentInput
from adjourn.errors import MaxIterationsExceeded, ModelError, ProgramChanged
from adjourn.events import Event
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel
from adjourn.tools import ExitTool

from .crew import ask, call, chat, events_of, ids, kinds, model_of, note, said, seen, transfer


def boss(*script: Any, members: list[Agent], name: str = "Boss", **options: Any) -> Supervisor:
    """A supervisor whose model follows a script."""
    return Supervisor(name, model=ScriptedModel(script), agents=members, **options)


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_a_member_hands_back_by_itself(store: Store) -> None:  # rule L9
    team = boss(transfer("M"), "all done", members=[chat("M", "member's work")])
    events = await events_of(Runner(team, store=store).run("go", session_id="s"))
    shown = [(e.agent, e.path, e.address) for e in events if isinstance(e, MessageEvent)]
    assert shown == [
        ("Boss", ("Boss",), "agent:Boss"),
        ("M", ("Boss", "M"), "agent:Boss;agent:M"),
        ("Boss", ("Boss", "M", "Boss"), "agent:Boss"),
    ]
    assert sum(isinstance(event, Transfer) for event in events) == 1
    assert kinds(events)[-1] == "done"


async def test_the_model_sees_what_the_member_said(store: Store) -> None:  # rules L9, A4
    team = boss(transfer("M"), "all done", members=[chat("M", "member's work")])
    result = await Runner(team, store=store).run("go", session_id="s")
    assert result.output == "all done"
    assert seen(model_of(team).requests[1])[-1] == "user: For context: M said: member's work"


async def test_members_are_told_with_their_descriptions() -> None:  # rule A5
    team = boss("hi", members=[chat("M", description="Knows trains"), chat("N")])
    await Runner(team).run("go")
    told = seen(model_of(team).requests[0])[0]
    assert told.startswith("system: You supervise")
    assert "M: Knows trains" in told
    assert "- N" in told


async def test_members_may_have_the_turn_again_and_again(store: Store) -> None:  # rule L9
    rounds = 5
    m = chat("M", *[f"m{n}" for n in range(rounds)])
    n = chat("N", *[f"n{n}" for n in range(rounds)])
    script = [transfer(name, f"{name}{number}") for number in range(rounds) for name in "MN"]
    result = await Runner(boss(*script, "end", members=[m, n]), store=store).run("go", session_id="s")
    assert [line for line in said(result.messages) if line.startswith("assistant")] == [
        *[f"assistant: {name}{number}" for number in range(rounds) for name in "mn"],
        "assistant: end",
    ]


async def test_a_supervisor_that_never_stops_ends_at_its_limit() -> None:  # rule A1
    m = ChatModelAgent("M", model=FunctionModel(lambda _: "work"))
    team = Supervisor("Boss", model=FunctionModel(lambda _: transfer("M")), agents=[m], max_iterations=4)
    with pytest.raises(MaxIterationsExceeded, match="'Boss'"):
        await Runner(team).run("go")


async def test_an_unknown_member_is_told_to_the_model() -> None:  # rule A5
    result = await Runner(boss(transfer("Nobody"), "sorry", members=[chat("M")])).run("go")
    assert result.output == "sorry"
    assert "There is no agent 'Nobody'" in said(result.messages)[1]
    assert "M" in said(result.messages)[1]


async def test_exit_of_a_member_ends_the_run(store: Store) -> None:  # rule L9
    m = chat("M", call("exit", final_result="over"), tools=[ExitTool()])
    team = boss(transfer("M"), "next turn", members=[m])
    runner = Runner(team, store=store)
    assert (await runner.run("go", session_id="s")).output == "over"
    assert len(model_of(team).requests) == 1
    assert (await runner.run("more", session_id="s")).output == "next turn"


async def test_a_member_leaves_a_loop_around_the_supervisor(store: Store) -> None:  # rule A7
    class Leaves(Agent):
        name = "Leaves"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            yield MessageEvent(message=Message.assistant("enough"))
            ctx.break_loop()

    team = boss(transfer("Leaves"), members=[Leaves()])
    row = SequentialAgent("Row", agents=[LoopAgent("Loop", agents=[team], max_iterations=9), chat("Last", "last")])
    assert (await Runner(row, store=store).run("go", session_id="s")).output == "last"


async def test_a_member_may_hand_back_by_hand_too(store: Store) -> None:  # rule A5
    team = boss(transfer("M"), "end", members=[chat("M", transfer("Boss", "t2"))])
    assert (await Runner(team, store=store).run("go", session_id="s")).output == "end"


async def test_a_failed_member_is_told_to_the_model(store: Store) -> None:  # rule L9
    m = chat("M", ModelError("no answer", retryable=False), "better")
    team = boss(transfer("M"), transfer("M", "t2"), "end", members=[m])
    result = await Runner(team, store=store).run("go", session_id="s")
    assert (result.status, result.output) == ("done", "end")
    assert seen(model_of(team).requests[1])[-1] == "user: For context: M failed: ModelError: no answer"
    assert seen(model_of(team).requests[2])[-1] == "user: For context: M said: better"


async def test_calls_of_a_member_that_failed_have_results(store: Store) -> None:  # rules L9, R7
    @tool
    async def breaks() -> str:
        """Break."""
        raise RuntimeError("broken")

    calls = [call("note", "n1", text="x"), call("breaks", "b1")]
    m = chat("M", calls, "again", tools=[breaks, note], on_tool_error="raise")
    team = boss(transfer("M"), transfer("M", "t2"), "end", members=[m])
    await Runner(team, store=store).run("go", session_id="s")
    results = [each for each in model_of(m).requests[1].messages if each.role == "tool"]
    assert [each.tool_call_id for each in results] == ["n1", "b1"]
    assert results[0].text == "noted x"
    assert "given up" in results[1].text


async def test_what_others_said_beside_a_failed_one_is_kept(store: Store) -> None:  # rule L9
    side = ParallelAgent("Side", agents=[chat("X", "from x"), chat("Y", ModelError("y fails", retryable=False))])
    team = boss(transfer("Side"), "end", members=[side])
    await Runner(team, store=store).run("go", session_id="s")
    told = seen(model_of(team).requests[1])
    assert "user: For context: X said: from x" in told
    assert told[-1].startswith("user: For context: Side failed: ModelError: y fails")


async def test_what_waits_beside_a_failed_one_is_given_up(store: Store) -> None:  # rule L9
    side = ParallelAgent(
        "Side",
        agents=[chat("X", call("ask", question="?"), tools=[ask]), chat("Y", ModelError("fails", retryable=False))],
    )
    runner = Runner(boss(transfer("Side"), "end", members=[side]), store=store)
    result = await runner.run("go", session_id="s")
    assert (result.output, await runner.pending("s")) == ("end", [])
    assert "tool: This call was given up before it had a result." in said(result.messages)


async def test_a_failure_two_levels_down_is_told_to_the_nearest_supervisor(store: Store) -> None:  # rule L9
    m = chat("M", ModelError("no answer", retryable=False))
    inner = boss(transfer("M"), "inner copes", members=[m], name="Inner")
    outer = boss(transfer("Inner", "t9"), "end", members=[inner], name="Outer")
    assert (await Runner(outer, store=store).run("go", session_id="s")).output == "end"
    assert "M failed" in seen(model_of(inner).requests[1])[-1]
    assert seen(model_of(outer).requests[1])[-1] == "user: For context: Inner said: inner copes"


async def test_a_failure_of_the_supervisors_own_model_fails_the_run(store: Store) -> None:  # rule A7
    def team(*script: Any) -> Supervisor:
        return boss(*script, members=[chat("M", "work")])

    with pytest.raises(ModelError, match="down"):
        await Runner(team(transfer("M"), ModelError("down", retryable=False)), store=store).run("go", session_id="s")
    again = team("end")
    assert (await Runner(again, store=store).recover("s")).output == "end"
    assert seen(model_of(again).requests[0])[-1] == "user: For context: M said: work"


async def test_a_paused_member_is_gone_on_with_before_it_hands_back(store: Store) -> None:  # rules L9, R7
    def team(member: list[Any], *script: Any) -> Supervisor:
        return boss(*script, members=[chat("M", *member, tools=[pay])])

    first = team([call("pay", amount=5)], transfer("M"))
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Boss;agent:M;tool:pay:c1"]
    assert len(model_of(first).requests) == 1
    again = team(["the member is done"], "end")
    result = await Runner(again, store=store).resume("s", dict.fromkeys(ids(paused), True))
    assert result.output == "end"
    assert said(result.messages)[2:] == ["tool: paid 5", "assistant: the member is done", "assistant: end"]
    assert seen(model_of(again).requests[0])[-1] == "user: For context: M said: the member is done"


async def test_a_rejected_call_of_a_member_is_told_to_the_member(store: Store) -> None:  # rule L9
    runner = Runner(
        boss(transfer("M"), "end", members=[chat("M", call("pay", amount=5), "I could not", tools=[pay])]), store=store
    )
    paused = await runner.run("go", session_id="s")
    result = await runner.resume("s", dict.fromkeys(ids(paused), False))
    assert said(result.messages)[-2:] == ["assistant: I could not", "assistant: end"]


async def test_members_that_ask_one_after_another(store: Store) -> None:  # rules L9, R7
    def team(*script: Any, m: tuple[Any, ...] = (), n: tuple[Any, ...] = ()) -> Runner:
        members: list[Agent] = [chat("M", *m, tools=[ask]), chat("N", *n, tools=[ask])]
        return Runner(boss(*script, members=members), store=store)

    paused = await team(transfer("M"), m=(call("ask", question="m?"),)).run("go", session_id="s")
    assert ids(paused) == ["agent:Boss;agent:M;tool:ask:c1"]
    second = team(transfer("N", "t2"), m=("m done",), n=(call("ask", "c2", question="n?"),))
    paused = await second.resume("s", dict.fromkeys(ids(paused), "a"))
    assert ids(paused) == ["agent:Boss;agent:N;tool:ask:c2"]
    result = await team("end", n=("n done",)).resume("s", dict.fromkeys(ids(paused), "b"))
    assert [line for line in said(result.messages) if "Handed" not in line] == [
        "user: go",
        "tool: a",
        "assistant: m done",
        "tool: b",
        "assistant: n done",
        "assistant: end",
    ]


async def test_the_next_turn_starts_at_the_supervisor(store: Store) -> None:  # rules L9, A5
    team = boss(transfer("M"), "one", "two", members=[chat("M", "work")])
    runner = Runner(team, store=store)
    assert (await runner.run("go", session_id="s")).state["active"] == []
    assert (await runner.run("more", session_id="s")).output == "two"


async def test_a_turn_given_up_in_a_member_is_followed_by_one_at_the_supervisor(store: Store) -> None:  # rule A5
    team = boss(transfer("M"), "two", members=[chat("M", call("ask", question="?"), tools=[ask])])
    runner = Runner(team, store=store)
    await runner.run("go", session_id="s")
    result = await runner.run("more", session_id="s", on_pending="abandon")
    assert (result.output, result.state["active"]) == ("two", [])


async def test_below_another_agent_the_next_turn_starts_at_the_supervisor(store: Store) -> None:  # rule A5
    team = boss(transfer("M", "t2"), "one", "two", members=[chat("M", "work")])
    runner = Runner(chat("Root", transfer("Boss"), sub_agents=[team]), store=store)
    assert (await runner.run("go", session_id="s")).state["active"] == ["Boss"]
    assert (await runner.run("more", session_id="s")).output == "two"


async def test_nested_supervisors(store: Store) -> None:  # rules L9, I6
    def company(*, worker: tuple[Any, ...] = (), inner: tuple[Any, ...] = (), outer: tuple[Any, ...] = ()) -> Runner:
        team = boss(*inner, members=[chat("W", *worker, tools=[pay])], name="Inner")
        return Runner(boss(*outer, members=[team, chat("Z", "z says")], name="Outer"), store=store)

    first = company(outer=(transfer("Inner"),), inner=(transfer("W", "t2"),), worker=(call("pay", amount=1),))
    paused = await first.run("go", session_id="s")
    assert ids(paused) == ["agent:Outer;agent:Inner;agent:W;tool:pay:c1"]
    second = company(outer=(transfer("Z", "t3"), "end"), inner=("inner done",), worker=("w done",))
    result = await second.resume("s", dict.fromkeys(ids(paused), True))
    assert [line for line in said(result.messages) if line.startswith("assistant")] == [
        "assistant: w done",
        "assistant: inner done",
        "assistant: z says",
        "assistant: end",
    ]
    assert result.state["active"] == []


def shouting() -> GraphAgent:
    """A graph that asks, and gives back what it was told in capitals."""

    async def shout(state: Any) -> dict[str, str]:
        text = state["user_input"]
        return {"last_response": f"{text.upper()} {interrupt(text)}"}

    built = StateGraph(MessagesState, name="g").add_node("shout", shout).add_edge(START, "shout")
    return GraphAgent("Graph", built.compile())


async def test_members_that_are_workflows_and_graphs(store: Store) -> None:  # rules L9, I6
    def team(*script: Any) -> Runner:
        row = SequentialAgent("Row", agents=[chat("R1", "r1"), chat("R2", "r2")])
        side = ParallelAgent("Side", agents=[chat("S1", "s1"), chat("S2", "s2")])
        return Runner(boss(*script, members=[row, side, shouting()]), store=store)

    paused = await team(transfer("Row"), transfer("Side", "t2"), transfer("Graph", "t3")).run("hello", session_id="s")
    assert ids(paused) == ["agent:Boss;agent:Graph;node:shout"]
    assert paused.interrupts[0].info == "hello"
    result = await team("end").resume("s", dict.fromkeys(ids(paused), "y"))
    assert [line for line in said(result.messages) if line.startswith("assistant")] == [
        "assistant: r1",
        "assistant: r2",
        "assistant: s1",
        "assistant: s2",
        "assistant: HELLO y",
        "assistant: end",
    ]


async def test_a_member_of_ones_own_knows_what_the_user_said() -> None:  # rule A4
    class Echo(Agent):
        name = "Echo"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            yield MessageEvent(message=Message.assistant(f"heard {input.text}"))

    m = chat("M", ModelError("fails", retryable=False))
    result = await Runner(boss(transfer("M"), transfer("Echo", "t2"), "end", members=[m, Echo()])).run("hello")
    assert "assistant: heard hello" in said(result.messages)


async def test_as_a_tool_of_another_agent(store: Store) -> None:  # rule A6
    def agent(*script: Any, inner: tuple[Any, ...], worker: tuple[Any, ...]) -> Runner:
        team = boss(*inner, members=[chat("W", *worker, tools=[pay])])
        return Runner(chat("A", *script, tools=[team]), store=store)

    first = agent(call("Boss", "b1", request="x"), inner=(transfer("W"),), worker=(call("pay", amount=1),))
    paused = await first.run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:Boss:b1;agent:Boss;agent:W;tool:pay:c1"]
    result = await agent("end", inner=("inner end",), worker=("w",)).resume("s", dict.fromkeys(ids(paused), True))
    assert said(result.messages) == ["user: go", "tool: inner end", "assistant: end"]


async def test_changed_code_is_no_failure_of_a_member(store: Store) -> None:  # rules R10, L9
    deep = SequentialAgent("Row", agents=[chat("R1", call("ask", question="?"), tools=[ask])])
    paused = await Runner(boss(transfer("Row"), members=[deep]), store=store).run("go", session_id="s")
    other = SequentialAgent("Row", agents=[chat("R9")])
    with pytest.raises(ProgramChanged):
        await Runner(boss("end", members=[other]), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    mended = SequentialAgent("Row", agents=[chat("R1", "r1", tools=[ask])])
    runner = Runner(boss("end", members=[mended]), store=store)
    assert (await runner.resume("s", dict.fromkeys(ids(paused), "y"))).output == "end"


def test_a_supervisor_needs_members() -> None:
    with pytest.raises(UsageError, match="nobody to supervise"):
        Supervisor("Boss", model=ScriptedModel([]), agents=[])
    with pytest.raises(UsageError, match="called 'M'"):
        boss(members=[chat("M"), chat("M")])
