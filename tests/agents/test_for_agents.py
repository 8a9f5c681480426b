"""Model options and limits for single agents of a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Any, cast

import pytest

from adjourn import Agent, ChatModelAgent, Message, MessageEvent, RunContext, Runner, SequentialAgent, UsageError
from adjourn.agents import AgentInput, AgentOptions, DeepAgent, GraphAgent, Limits
from adjourn.errors import LimitExceeded, TooManyCalls
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import Store

from .crew import ask, call, chat, ids, model_of, note


def options_of(*agents: ChatModelAgent) -> list[dict[str, Any]]:
    return [dict(request.options) for agent in agents for request in model_of(agent).requests]


async def test_an_agent_has_options_of_its_own_which_a_resume_keeps(store: Store) -> None:  # rule A13
    def row(a: list[Any], b: list[Any]) -> tuple[SequentialAgent, ChatModelAgent, ChatModelAgent]:
        first, second = chat("A", *a, tools=[ask]), chat("B", *b)
        return SequentialAgent("Row", agents=[first, second]), first, second

    program, first, _ = row([call("ask", question="?")], [])
    own = {"A": AgentOptions(model_options={"temperature": 0})}
    run = Runner(program, store=store).run("go", session_id="s", model_options={"seed": 1}, for_agents=own)
    paused = await run
    assert options_of(first) == [{"seed": 1, "temperature": 0}]
    program, first, second = row(["a"], ["b"])
    await Runner(program, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert options_of(first, second) == [{"seed": 1, "temperature": 0}, {"seed": 1}]
    program, first, second = row(["a"], ["b"])
    await Runner(program, store=store).run("more", session_id="s")
    assert options_of(first, second) == [{}, {}]  # They were those of a turn.


async def test_limits_of_a_turn_take_the_place_of_the_agents_own(store: Store) -> None:  # rule A1
    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[note, ask], limits=Limits(model_calls=1))

    more = {"A": AgentOptions(limits=Limits(model_calls=2, calls_per_answer=1))}
    first = agent(call("note", text="1"), call("ask", "c2", question="?"))
    await Runner(first, store=store).run("go", session_id="s", for_agents=more)
    with pytest.raises(LimitExceeded, match="model_calls"):
        await Runner(agent("never"), store=store).resume("s", {"agent:A;tool:ask:c2": "y"})
    two = [call("note", text="1"), call("note", "c2", text="2")]
    with pytest.raises(TooManyCalls):
        await Runner(agent(two)).run("go", for_agents=more)


@pytest.mark.parametrize("is_same_runner", [True, False])
async def test_a_turn_at_its_limit_goes_on_with_a_larger_one(store: Store, is_same_runner: bool) -> None:  # rule A1
    script = [call("note", text="1"), call("note", "c2", text="2"), call("ask", "c3", question="?"), "end"]
    one = Runner(chat("A", *script, tools=[note, ask]), store=store)

    def runner(left: int) -> Runner[Any, Any]:
        return one if is_same_runner else Runner(chat("A", *script[-left:], tools=[note, ask]), store=store)

    def at_most(calls: int) -> dict[str, AgentOptions]:
        return {"A": AgentOptions(limits=Limits(model_calls=calls), model_options={"seed": calls})}

    with pytest.raises(LimitExceeded, match=r"in recover\(\.\.\., for_agents=\.\.\.\)"):
        await runner(4).run("go", session_id="s", for_agents=at_most(1), model_options={"top_p": 1})
    with pytest.raises(LimitExceeded, match="model_calls"):
        await runner(3).recover("s", for_agents=at_most(2))
    paused = await runner(2).recover("s", for_agents=at_most(3))
    assert ids(paused) == ["agent:A;tool:ask:c3"]
    with pytest.raises(LimitExceeded, match="model_calls"):
        await runner(1).resume("s", {"agent:A;tool:ask:c3": "y"})  # the limit is stored with the turn
    last = runner(1)
    assert (await last.recover("s", for_agents=at_most(4))).output == "end"
    assert dict(model_of(cast("ChatModelAgent", last.program)).requests[-1].options) == {"top_p": 1, "seed": 4}


@pytest.mark.parametrize("is_same_runner", [True, False])
async def test_a_resume_can_change_them(store: Store, is_same_runner: bool) -> None:  # rule A13
    one = Runner(chat("A", call("ask", question="?"), "end", tools=[ask]), store=store)
    own = {"A": AgentOptions(model_options={"seed": 1}, limits=Limits(model_calls=1))}
    await one.run("go", session_id="s", for_agents=own)
    with pytest.raises(UsageError, match="'B', which is not a chat-model agent"):
        one.resume("s", {"agent:A;tool:ask:c1": "y"}, for_agents={"B": AgentOptions()})
    other = one if is_same_runner else Runner(chat("A", "end", tools=[ask]), store=store)
    changed = {"A": AgentOptions(model_options={"seed": 2})}
    assert (await other.resume("s", {"agent:A;tool:ask:c1": "y"}, for_agents=changed)).output == "end"
    assert dict(model_of(cast("ChatModelAgent", other.program)).requests[-1].options) == {"seed": 2}


async def test_a_fork_keeps_them(store: Store) -> None:  # rule C4
    first = chat("A", call("ask", question="?"), tools=[ask])
    own = {"A": AgentOptions(model_options={"top_p": 0.5})}
    paused = await Runner(first, store=store).run("go", session_id="s", for_agents=own)
    await Runner(first, store=store).fork("s", to="t")
    last = chat("A", "end", tools=[ask])
    await Runner(last, store=store).resume("t", dict.fromkeys(ids(paused), "y"))
    assert options_of(last) == [{"top_p": 0.5}]


async def test_agents_that_are_tools_and_nodes_have_options_too() -> None:
    inner = chat("Inner", "in")
    outer = chat("Outer", call("Inner", request="x"), "out", tools=[inner])
    await Runner(outer).run("go", for_agents={"Inner": AgentOptions(model_options={"n": 1})})
    assert options_of(outer, inner) == [{}, {}, {"n": 1}]
    node = chat("Node", "said")
    graph = StateGraph(MessagesState, name="g").add_agent_node("ask", node).add_edge(START, "ask").compile()
    await graph.run({"user_input": "hi"}, for_agents={"Node": AgentOptions(model_options={"n": 2})})
    assert options_of(node) == [{"n": 2}]
    deep = DeepAgent("Deep", model=model_of(chat("x", "ok")))
    await Runner(deep).run("go", for_agents={"general_purpose": AgentOptions(limits=Limits(tokens=5))})


async def test_an_agent_that_there_is_not_is_refused_before_anything_is_stored(store: Store) -> None:
    runner = Runner(chat("A", "a"), store=store)
    with pytest.raises(UsageError, match=r"not a chat-model agent of this program\. There are: A"):
        await runner.run("go", session_id="s", for_agents={"a": AgentOptions()})
    wrong: Any = {"A": {"limits": 3}}
    with pytest.raises(UsageError, match="Give AgentOptions"):
        await runner.run("go", session_id="s", for_agents=wrong)
    with pytest.raises(UsageError, match="'api_key'"):
        await runner.run("go", session_id="s", for_agents={"A": AgentOptions(model_options={"api_key": "x"})})
    listed: Any = ["A"]
    with pytest.raises(UsageError, match="give a mapping"):
        await runner.run("go", session_id="s", for_agents=listed)
    assert list(await runner.sessions()) == []


async def test_a_renamed_agent_goes_by_both_names() -> None:
    inner = chat("A", "a", "a", "a")
    runner = Runner(inner.renamed("B").renamed("C"))
    for name in "ABC":
        await runner.run("go", for_agents={name: AgentOptions(model_options={"of": name})})
    assert options_of(inner) == [{"of": "A"}, {"of": "B"}, {"of": "C"}]
    with pytest.raises(UsageError, match="'A' under two names"):
        await runner.run("go", for_agents={"A": AgentOptions(), "B": AgentOptions()})


async def test_agents_without_a_model_of_their_own_are_refused() -> None:
    class Mine(Agent):
        name = "Mine"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[MessageEvent]:
            yield MessageEvent(message=Message.assistant("x"))

    node = chat("Node", "said")
    graph = StateGraph(MessagesState, name="g").add_agent_node("ask", node).add_edge(START, "ask").compile()
    in_graph = GraphAgent("Graph", graph=graph)
    program = SequentialAgent("Row", agents=[Mine().renamed("Other"), in_graph])
    for name in ("Mine", "Other", "Graph", "Row"):
        with pytest.raises(UsageError, match=r"not a chat-model agent of this program\. There are: Node\."):
            await Runner(program).run("go", for_agents={name: AgentOptions()})
    await Runner(in_graph).run("go", for_agents={"Node": AgentOptions(model_options={"n": 1})})
    assert options_of(node) == [{"n": 1}]


@pytest.mark.parametrize(
    "wrong", [{"limits": 5}, {"limits": {"tokens": 3}}, {"model_options": "abc"}, {"model_options": {"f": object()}}]
)
def test_what_are_not_options_is_refused_where_they_are_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give"):
        AgentOptions(**wrong)
    with pytest.raises(UsageError, match="whole number"):
        Limits(model_calls=cast("Any", 1.5))


async def test_options_are_stored_as_they_are_read(store: Store) -> None:
    odd: Any = MappingProxyType({1: 2})
    agent = chat("A", call("ask", question="?"), "end", tools=[ask])
    runner = Runner(agent, store=store)
    paused = await runner.run("go", session_id="s", for_agents=MappingProxyType({"A": AgentOptions(model_options=odd)}))
    await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    assert options_of(agent) == [{"1": 2}, {"1": 2}]
