"""Events name the agent, the path and the place that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from adjourn import (
    Cancelled,
    ChatModelAgent,
    Custom,
    Delta,
    Done,
    Failed,
    Interrupted,
    Middleware,
    NodeEnd,
    ParallelAgent,
    Runner,
    SequentialAgent,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.agents import GraphAgent
from adjourn.events import Event
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.messages import ImagePart, TextPart
from adjourn.middleware.hooks import ToolCallable, ToolRequest
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .crew import ask, call, chat, events_of, failing_events, transfer


def name_of(event: Event) -> tuple[str, tuple[str, ...], str]:
    return event.agent, event.path, event.address


async def test_a_pause_and_an_end_name_their_agent(store: Store) -> None:  # rule A11
    team = chat("A", transfer("B"), sub_agents=[chat("B", call("ask", question="?"), "b", tools=[ask])])
    runner = Runner(team, store=store)
    *_, paused = await events_of(runner.run("go", session_id="s"))
    assert isinstance(paused, Interrupted)
    assert name_of(paused) == ("B", ("A", "B"), "agent:A")
    *_, logged = await events_of(runner.attach("s"))
    assert name_of(logged) == name_of(paused)
    *_, again = await events_of(runner.recover("s"))
    assert name_of(again) == name_of(paused)
    *_, done = await events_of(runner.resume("s", {paused.interrupts[0].id: "y"}))
    assert isinstance(done, Done)
    assert name_of(done) == ("A", ("A",), "agent:A")


async def test_of_several_questions_the_first_names_the_agent(store: Store) -> None:  # rule I4
    asks = call("ask", question="?")
    team = ParallelAgent("P", agents=[chat("A", asks, "a", tools=[ask]), chat("B", asks, "b", tools=[ask])])
    *_, paused = await events_of(Runner(team, store=store).run("go", session_id="s"))
    assert (paused.agent, paused.path) == ("A", ("P", "A"))


async def test_custom_data_names_the_agent_whose_code_emitted_it(store: Store) -> None:
    @tool
    async def note() -> str:
        """Note."""
        current().emit({"n": 1})
        return "noted"

    team = SequentialAgent("S", agents=[chat("A", call("note"), "a", tools=[note])])
    runner = Runner(team, store=store)
    live = [event for event in await events_of(runner.run("go", session_id="s")) if isinstance(event, Custom)]
    logged = [event for event in await events_of(runner.attach("s")) if isinstance(event, Custom)]
    assert [name_of(event) for event in live] == [("A", ("S", "A"), "agent:S;agent:A;tool:note:c1")]
    assert live == logged


async def test_a_failure_says_which_tool_it_was(store: Store) -> None:  # rule A11
    @tool
    async def pay() -> str:
        """Pay."""
        raise ValueError("no money")

    team = SequentialAgent("S", agents=[chat("A", call("pay"), tools=[pay], on_tool_error="raise")])
    events, error = await failing_events(Runner(team, store=store).run("go", session_id="s"))
    assert isinstance(error, ValueError)
    assert name_of(events[-1]) == ("A", ("S", "A"), "agent:S;agent:A;tool:pay:c1")


async def test_a_failed_node_ends_and_says_why(store: Store) -> None:  # rule A11
    def fine(state: MessagesState) -> None:
        return None

    def breaks(state: MessagesState) -> None:
        raise ValueError("no paper")

    builder = StateGraph(MessagesState, name="press").add_node("fine", fine).add_node("print", breaks)
    graph = builder.add_edge(START, "fine").add_edge("fine", "print").compile(store=store)
    events, _ = await failing_events(graph.run({}, session_id="s"))
    ends = [(event.node, event.error) for event in events if isinstance(event, NodeEnd)]
    assert ends == [("fine", None), ("print", "ValueError: no paper")]
    assert name_of(events[-1]) == ("", (), "runnable:press;node:print")
    agent = GraphAgent("G", builder.compile())
    events, _ = await failing_events(Runner(agent, store=store).run("go", session_id="t"))
    assert name_of(events[-1]) == ("G", ("G",), "agent:G;node:print")
    assert isinstance(events[-1], Failed)


async def test_an_end_says_how_many_steps_it_took_and_how_long(store: Store) -> None:
    def step(state: MessagesState) -> None:
        return None

    builder = StateGraph(MessagesState, name="g").add_node("a", step).add_node("b", step)
    graph = builder.add_edge(START, "a").add_edge("a", "b").compile(store=store)
    for _ in range(2):
        *_, done = await events_of(graph.run({}, session_id="s"))
        assert isinstance(done, Done)
        assert done.steps == 2
        assert done.seconds > 0

    @workflow
    async def flow(given: str) -> str:
        return given

    *_, done = await events_of(Runner(flow, store=store).run("x", session_id="t"))
    assert isinstance(done, Done)
    assert done.steps == 0


async def test_a_cancelled_run_names_its_agent() -> None:
    agent = chat("A", call("ask", question="?"), tools=[ask])
    run = Runner(agent).run("go")
    await run.cancel()
    *_, last = await events_of(run)
    assert isinstance(last, Cancelled)
    assert name_of(last) == ("A", ("A",), "agent:A")


# What tools give


IMAGE = ImagePart(data=b"\x89PNG", media_type="image/png")


async def test_a_streaming_tool_may_yield_parts(store: Store) -> None:  # rule T7
    @tool
    async def draw():
        """Draw."""
        yield "Here "
        yield "it is:"
        yield IMAGE
        yield "Nice?"

    model = ScriptedModel([call("draw"), "yes"])
    agent = ChatModelAgent("A", model=model, tools=[draw])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    texts = [event.text for event in events if isinstance(event, Delta) and event.call_id]
    assert texts == ["Here ", "it is:", "Nice?"]
    parts = (TextPart(text="Here it is:"), IMAGE, TextPart(text="Nice?"))
    assert model.requests[1].messages[-1].parts == parts


@dataclass
class Price:
    cents: int
    tags: tuple[str, ...] = ("a",)


@pytest.mark.parametrize(
    ("result", "seen", "read"),
    [
        ({"a": 1}, {"a": 1}, '{"a":1}'),
        (Price(5), {"cents": 5, "tags": ["a"]}, '{"cents":5,"tags":["a"]}'),
        ([1, None], [1, None], "[1,null]"),
        (None, None, "null"),
        ("text", "text", "text"),
        ('{"a":1}', '{"a":1}', '{"a":1}'),
        ([IMAGE], [IMAGE], ""),
    ],
)
async def test_a_hook_gets_what_the_tool_returned(store: Store, result: Any, seen: Any, read: str) -> None:  # rule A9
    got: list[Any] = []

    class Sees(Middleware):
        async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
            got.append(await call(request))
            interrupt("fine?", key="fine")
            return got[-1]

    class Outer(Sees):
        async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
            got.append(await call(request))
            return got[-1]

    @tool
    async def give() -> Any:
        """Give."""
        return result

    def runner() -> tuple[Runner, ScriptedModel]:
        model = ScriptedModel([call("give"), "end"])
        return Runner(ChatModelAgent("A", model=model, tools=[give], middleware=[Outer(), Sees()]), store=store), model

    first, _ = runner()
    await first.run("go", session_id="s")
    second, model = runner()
    model.script = ("end",)
    result = await second.resume("s", {"fine": True})
    assert got == [seen] * 3
    assert result.messages[-2].text == read
