"""Agents in graph nodes, and graphs in the tools of agents."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest

from adjourn import ChatModelAgent, MessageEvent, Runner, current, interrupt, tool
from adjourn.errors import InterruptsDisabled, StoreUnavailable
from adjourn.graph import START, StateGraph, append
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import FakeClock, FaultStore, FunctionModel

from .crew import ask, call, chat, events_of, ids, note, said


class Log(TypedDict):
    log: Annotated[list[Any], append]


def graph(*script: Any, others: Any = ()) -> Any:
    agent = chat("Helper", *script, tools=[ask])

    async def work(state: Any) -> dict[str, Any]:
        return {"log": [await current().run(agent, "help")]}

    async def beside(state: Any) -> dict[str, Any]:
        return {"log": ["beside"]}

    built = StateGraph(Log, name="g").add_node("work", work).add_node("beside", beside)
    return built.add_edge(START, "work").add_edge(START, "beside").compile()


async def test_an_agent_in_a_node_asks_at_its_own_place(store: Store) -> None:  # rule I6
    paused = await Runner(graph(call("ask", question="?")), store=store).run({"log": []}, session_id="s")
    assert ids(paused) == ["runnable:g;node:work;agent:Helper;tool:ask:c1"]
    result = await Runner(graph("helped"), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.state["log"] == ["helped", "beside"]


async def test_the_events_of_an_agent_in_a_node_are_told(store: Store) -> None:  # rule A11
    events = await events_of(Runner(graph("helped"), store=store).run({"log": []}, session_id="s"))
    message = next(event for event in events if isinstance(event, MessageEvent))
    assert (message.agent, message.address) == ("Helper", "runnable:g;node:work;agent:Helper")


async def test_usage_of_agents_in_nodes_counts(store: Store) -> None:  # rule A13
    assert (await Runner(graph("helped"), store=store).run({"log": []}, session_id="s")).usage.calls == 1


def grapher(*script: Any) -> ChatModelAgent:
    def confirm(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("sure?")]}

    inner = StateGraph(Log, name="inner").add_node("confirm", confirm).add_edge(START, "confirm").compile()

    @tool
    async def run_graph() -> str:
        """Run a graph."""
        state = await current().run(inner, {"log": ["start"]})
        return ",".join(state["log"])

    return chat("A", *script, tools=[run_graph])


async def test_a_graph_in_a_tool_asks_at_its_own_place(store: Store) -> None:  # rule I6
    paused = await Runner(grapher(call("run_graph")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:run_graph:c1;runnable:inner;node:confirm"]
    result = await Runner(grapher("end"), store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert said(result.messages) == ["user: go", "tool: start,yes", "assistant: end"]


async def test_a_node_of_a_graph_in_a_tool_may_end_the_agent(store: Store) -> None:  # rule T8
    async def leave(state: Any) -> None:
        current().exit("out of the graph")

    inner = StateGraph(Log, name="inner").add_node("leave", leave).add_edge(START, "leave").compile()

    @tool
    async def run_graph() -> str:
        """Run a graph."""
        await current().run(inner, {"log": []})
        return "ok"

    result = await Runner(chat("A", call("run_graph"), tools=[run_graph]), store=store).run("go", session_id="s")
    assert result.output == "out of the graph"


async def test_an_agent_for_which_nobody_answers_fails_when_it_asks(store: Store) -> None:
    runner = Runner(
        chat("A", call("ask", question="?"), tools=[ask], on_tool_error="raise"), store=store, interrupts=False
    )
    with pytest.raises(InterruptsDisabled):
        await runner.run("go", session_id="s")


def counted(ran: list[str]) -> ChatModelAgent:
    @tool
    async def effect(n: int) -> str:
        """Have an effect."""
        ran.append(f"tool {n}")
        return str(n)

    def answer(request: Any) -> Any:
        ran.append("model")
        done = sum(message.role == "tool" for message in request.messages)
        if done == 0:
            return [call("effect", "e1", n=1), call("effect", "e2", n=2)]
        return call("ask", "a1", question="?") if done == 2 else "end"

    return ChatModelAgent("A", model=FunctionModel(answer), tools=[effect, ask])


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_store_that_fails_anywhere_leaves_an_agent_that_recovers(mode: Any) -> None:  # rule C11
    for fail_at in range(1, 40):
        clock = FakeClock()
        inner = MemoryStore(clock=clock)
        store = FaultStore(inner, fail_at, mode)
        ran: list[str] = []
        runner = Runner(counted(ran), store=store, store_timeout=1e-9)
        for _ in range(6):
            try:
                status = (await runner.status("s")).status if await inner.read(GetHead(SessionRef("s"))) else None
                if status is None:
                    await runner.run("go", session_id="s")
                elif status == "waiting":
                    await runner.resume("s", {"agent:A;tool:ask:a1": "y"})
                elif status == "done":
                    break
                else:
                    await runner.recover("s")
            except StoreUnavailable:
                clock.advance(60.0)  # The lease that could not be given back runs out.
        assert said(await Runner(counted([]), store=inner).messages("s")) == [
            *("user: go", "tool: 1", "tool: 2", "tool: y", "assistant: end"),
        ]
        if not store.fired:
            assert ran == ["model", "tool 1", "tool 2", "model", "model"]
            return
    raise AssertionError("the store never stopped failing")


async def test_a_note_beside_a_question_survives_the_process(store: Store) -> None:  # rule R9
    calls = [call("note", "n1", text="x"), call("ask", "a1", question="?")]
    await Runner(chat("A", calls, tools=[note, ask]), store=store).run("go", session_id="s")
    runner = Runner(chat("A", "end", tools=[note, ask]), store=store)
    assert [asked.prompt or asked.info for asked in await runner.pending("s")] == ["?"]
    result = await runner.resume("s", {"agent:A;tool:ask:a1": "y"})
    assert said(result.messages) == ["user: go", "tool: noted x", "tool: y", "assistant: end"]
