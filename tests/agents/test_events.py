"""The events of a run of agents: in order, ending in one, stored before they are seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adjourn import (
    Agent,
    ChatModelAgent,
    Delta,
    Done,
    Failed,
    Interrupted,
    LoopAgent,
    Message,
    MessageEvent,
    ParallelAgent,
    RunContext,
    RunError,
    Runner,
    SequentialAgent,
    SessionBusy,
    Usage,
    current,
    interrupt,
    tool,
)
from adjourn.events import Event, from_json, to_json
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import FunctionModel
from tests.conftest import Buffer

from .crew import LIVE, ask, call, chat, events_of, failing_events, ids, kind, note, said, transfer

FINAL = {"interrupt", "done", "error", "cancelled"}


def teams() -> list[tuple[str, Agent]]:
    asks = call("ask", question="?")
    return [
        ("plain", chat("A", "one two")),
        ("tools", chat("A", [call("note", "n", text="x"), asks], "end", tools=[note, ask])),
        ("row", SequentialAgent("R", agents=[chat("A", "a"), chat("B", asks, "b", tools=[ask])])),
        ("side", ParallelAgent("P", agents=[chat("A", asks, "a", tools=[ask]), chat("B", asks, "b", tools=[ask])])),
        ("loop", LoopAgent("L", agents=[chat("A", asks, "a", asks, "b", tools=[ask])], max_iterations=2)),
        ("transfer", chat("A", transfer("B"), sub_agents=[chat("B", asks, "b", tools=[ask])])),
        ("tool", chat("A", call("B", "i", request="x"), "end", tools=[chat("B", asks, "b", tools=[ask])])),
        ("failing", chat("A", call("note", text="x"), RuntimeError("away"), "end", tools=[note])),
    ]


@pytest.mark.parametrize("name", [name for name, _ in teams()])
@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_every_run_ends_in_exactly_one_final_event(store: Store, name: str, durability: Any) -> None:  # rule A11
    runner = Runner(dict(teams())[name], store=store, durability=durability)
    numbers: list[int] = []
    run = runner.run("go", session_id="s")
    for _ in range(6):
        events, error = await failing_events(run)
        assert [kind(event) in FINAL for event in events] == [False] * (len(events) - 1) + [True]
        assert (error is not None) == isinstance(events[-1], Failed)
        assert all((event.seq is None) == (kind(event) in LIVE) for event in events)
        numbers += [event.seq for event in events if event.seq is not None]
        last = events[-1]
        if isinstance(last, Done):
            break
        waiting = {asked.id: "y" for asked in last.interrupts} if isinstance(last, Interrupted) else None
        run = runner.recover("s") if waiting is None else runner.resume("s", waiting)
    assert isinstance((await runner.recover("s")).output, str)
    assert numbers == sorted(set(numbers))
    stored = await events_of(runner.attach("s"))
    assert [event.seq for event in stored] == numbers
    assert [from_json(to_json(event)) for event in stored] == stored


async def test_a_durable_event_was_stored_before_it_was_seen(store: Store) -> None:  # rule A11
    runner = Runner(
        chat("A", [call("note", "c1", text="x"), call("note", "c2", text="y")], "end", tools=[note]), store=store
    )
    async for event in runner.run("go", session_id="s"):
        if event.seq is not None:
            head = await store.read(GetHead(SessionRef("s")))
            assert head is not None
            assert head.seq >= event.seq


async def test_a_slow_reader_gets_every_durable_event(store: Store, buffer: Buffer) -> None:  # rule A11
    turns = 30
    agent = LoopAgent("L", agents=[chat("A", *[f"text {n} " * 10 for n in range(turns)])], max_iterations=turns)
    buffer(4)
    run = Runner(agent, store=store).run("go", session_id="s")
    texts: list[str] = []
    async for event in run:
        await asyncio.sleep(0)
        if isinstance(event, MessageEvent):
            texts.append(event.message.text)
    assert texts == [f"text {n} " * 10 for n in range(turns)]


async def test_a_reader_that_never_reads_blocks_nothing(store: Store, buffer: Buffer) -> None:  # rule A11
    buffer(1)
    runner = Runner(chat("A", call("note", text="x"), "end", tools=[note]), store=store)
    run = runner.run("go", session_id="s")
    run.detach()
    events = aiter(run)
    await anext(events)
    await run.settled()
    assert (await runner.status("s")).status == "done"
    rest = [event async for event in events]
    assert isinstance(rest[-1], Done)


async def test_attach_follows_a_run_that_others_drive(store: Store) -> None:  # rule A11
    opened = asyncio.Event()

    async def answer(_: Any) -> str:
        await opened.wait()
        return "late"

    runner = Runner(ChatModelAgent("A", model=FunctionModel(answer)), store=store)
    run = runner.run("go", session_id="s")
    driving = asyncio.ensure_future(events_of(run))
    while await store.read(GetHead(SessionRef("s"))) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.raises(SessionBusy):
        await runner.run("me, too", session_id="s")
    following = asyncio.ensure_future(events_of(Runner(chat("A"), store=store).attach("s")))
    await asyncio.sleep(0)
    opened.set()
    mine, theirs = await driving, await following
    assert [event.seq for event in theirs] == [event.seq for event in mine if event.seq is not None]


async def test_attach_after_a_number_gives_the_rest(store: Store) -> None:  # rule A11
    runner = Runner(chat("A", call("note", text="x"), "end", tools=[note]), store=store)
    events = await events_of(runner.run("go", session_id="s"))
    numbers = [event.seq for event in events if event.seq is not None]
    rest = await events_of(runner.attach("s", after=numbers[1]))
    assert [event.seq for event in rest] == numbers[2:]


async def test_usage_is_summed_over_agents_and_resumes(store: Store) -> None:  # rule A13
    def used(text: str = "", **options: Any) -> Message:
        return Message.assistant(text, usage=Usage(input_tokens=10, output_tokens=1), **options)

    def team(a: list[Any], b: list[Any]) -> Agent:
        return SequentialAgent("R", agents=[chat("A", *a), chat("B", *b, tools=[ask])])

    first = team([used("a")], [used(tool_calls=[call("ask", question="?")])])
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert (paused.usage.input_tokens, paused.usage.calls) == (20, 2)
    runner = Runner(team([used("a2")], [used("end"), used("b2")]), store=store)
    result = await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.calls) == (30, 3, 3)
    second = await runner.run("more", session_id="s")
    assert second.usage.calls == 2
    done = [event for event in await events_of(runner.attach("s")) if isinstance(event, Done)]
    assert [event.usage.calls for event in done if event.usage] == [3, 2]


async def test_deps_are_given_again_and_never_stored(store: Store) -> None:  # rule A13
    @tool
    async def peek(ctx: RunContext[Any]) -> str:
        """Look at what was brought along."""
        return str(ctx.deps)

    class Unstorable:
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return self.name

    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[peek, ask])

    first = agent(call("peek", "p1"), call("ask", "c1", question="?"))
    await Runner(first, store=store).run("go", session_id="s", deps=Unstorable("one"))
    last = agent(call("peek", "p2"), "end")
    result = await Runner(last, store=store).resume("s", {"agent:A;tool:ask:c1": "y"}, deps=Unstorable("two"))
    assert said(result.messages) == ["user: go", "tool: one", "tool: y", "tool: two", "assistant: end"]


async def test_values_of_a_run_and_a_resume_lie_over_those_saved(store: Store) -> None:  # rule R9
    @tool
    async def look() -> str:
        """Look at the values."""
        return ",".join(f"{key}={value}" for key, value in sorted(current().values.items()))

    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[look, ask])

    await Runner(agent(call("ask", question="?")), store=store).run("go", session_id="s", values={"a": 1, "b": 1})
    last = agent(call("look", "l1"), "end", call("look", "l2"), "end")
    runner = Runner(last, store=store)
    result = await runner.resume("s", {"agent:A;tool:ask:c1": "y"}, values={"b": 2})
    assert "tool: a=1,b=2" in said(result.messages)
    result = await runner.run("more", session_id="s", values={"c": 3})
    assert "tool: a=1,b=2,c=3" in said(result.messages)


async def test_values_of_a_failed_tool_are_dropped(store: Store) -> None:  # rule R15
    @tool
    async def half() -> str:
        """Write and fail."""
        current().values["x"] = 1
        raise ValueError("no")

    runner = Runner(chat("A", call("half"), "end", tools=[half]), store=store)
    await runner.run("go", session_id="s")
    assert (await runner.state("s"))["values"] == {}


async def test_what_a_failed_tool_wanted_of_its_agent_is_dropped(store: Store) -> None:  # rule T8
    @tool
    async def half(ctx: RunContext) -> str:
        """Exit and fail."""
        ctx.exit("never")
        raise ValueError("no")

    assert (
        await Runner(chat("A", call("half"), "end", tools=[half]), store=store).run("go", session_id="s")
    ).output == "end"


async def test_a_paused_tools_values_wait_for_its_result(store: Store) -> None:  # rule R15
    @tool
    async def later() -> str:
        """Write, then ask."""
        current().values["x"] = [1]
        return str(interrupt("?"))

    runner = Runner(chat("A", call("later"), "end", tools=[later]), store=store)
    await runner.run("go", session_id="s")
    assert (await runner.state("s"))["values"] == {}
    await runner.resume("s", {"agent:A;tool:later:c1": "y"})
    assert (await runner.state("s"))["values"] == {"x": [1]}


async def test_a_failing_run_tells_its_error_once(store: Store) -> None:  # rule A11
    runner = Runner(chat("A", RuntimeError("away")), store=store)
    run = runner.run("go", session_id="s")
    events, error = await failing_events(run)
    assert [kind(event) for event in events if kind(event) in FINAL] == ["error"]
    assert "away" in str(error)
    with pytest.raises(RunError, match="away"):
        await run
    assert "".join(event.text for event in events if isinstance(event, Delta)) == ""


async def test_events_of_nested_agents_name_agent_path_and_address(store: Store) -> None:  # rule I6
    team = SequentialAgent("R", agents=[ParallelAgent("P", agents=[chat("A", "a"), chat("B", "b")]), chat("C", "c")])
    events: list[Event] = await events_of(Runner(team, store=store).run("go", session_id="s"))
    places = [(event.agent, event.path, event.address) for event in events if isinstance(event, MessageEvent)]
    assert sorted(places) == [
        ("A", ("R", "P", "A"), "agent:R;agent:P;agent:A"),
        ("B", ("R", "P", "B"), "agent:R;agent:P;agent:B"),
        ("C", ("R", "C"), "agent:R;agent:C"),
    ]
