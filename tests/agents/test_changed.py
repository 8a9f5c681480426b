"""Agents that were changed since the pause: what is gone is named, and the session stays resumable."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Agent, ChatModelAgent, ParallelAgent, Runner, SequentialAgent, interrupt, tool
from adjourn.errors import ProgramChanged
from adjourn.stores import Store

from .crew import ask, call, chat, ids, note, said, transfer

PLACE = "agent:A;tool:ask:c1"


async def paused(store: Store) -> None:
    result = await Runner(chat("A", call("ask", question="?"), tools=[ask]), store=store).run("go", session_id="s")
    assert ids(result) == [PLACE]


async def resumable(store: Store, runner: Runner) -> None:
    assert [asked.id for asked in await runner.pending("s")] == [PLACE]
    result = await Runner(chat("A", "end", tools=[ask]), store=store).resume("s", {PLACE: "y"})
    assert said(result.messages) == ["user: go", "tool: y", "assistant: end"]


async def test_a_tool_that_is_gone_is_named(store: Store) -> None:  # rule R10
    await paused(store)
    runner = Runner(chat("A", "end", tools=[note]), store=store)
    with pytest.raises(ProgramChanged, match="ask"):
        await runner.resume("s", {PLACE: "y"})
    await resumable(store, runner)


async def test_arguments_that_do_not_fit_any_more_are_told(store: Store) -> None:  # rule R10
    await paused(store)

    @tool(name="ask")
    async def other(wording: str) -> str:
        """Ask."""
        return str(interrupt(wording))

    runner = Runner(chat("A", tools=[other]), store=store)
    with pytest.raises(ProgramChanged, match="no longer fit the tool"):
        await runner.resume("s", {PLACE: "y"})
    await resumable(store, runner)


async def test_more_tools_and_another_instruction_are_fine(store: Store) -> None:  # rule R10
    await paused(store)
    more = chat("A", "end", tools=[note, ask], instruction="New.", description="Other", sub_agents=[chat("B")])
    assert (await Runner(more, store=store).resume("s", {PLACE: "y"})).output == "end"


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
async def test_another_kind_of_agent_of_the_name_is_told(store: Store, kind: Any) -> None:  # rule R10
    await paused(store)
    runner = Runner(kind("A", agents=[chat("B")]), store=store)
    with pytest.raises(ProgramChanged):
        await runner.resume("s", {PLACE: "y"})
    await resumable(store, runner)


async def test_another_name_is_told(store: Store) -> None:  # rule R10
    await paused(store)
    with pytest.raises(ProgramChanged):
        await Runner(chat("Renamed", tools=[ask]), store=store).resume("s", {PLACE: "y"})
    await resumable(store, Runner(chat("A", tools=[ask]), store=store))


async def test_a_sub_agent_that_is_gone_is_named(store: Store) -> None:  # rule R10
    def team(*sub: Agent) -> ChatModelAgent:
        return chat("A", transfer("B"), sub_agents=sub)

    first = await Runner(team(chat("B", call("ask", question="?"), tools=[ask])), store=store).run("go", session_id="s")
    runner = Runner(team(chat("C")), store=store)
    with pytest.raises(ProgramChanged, match="B"):
        await runner.resume("s", dict.fromkeys(ids(first), "y"))
    mended = Runner(team(chat("B", "end", tools=[ask])), store=store)
    assert (await mended.resume("s", dict.fromkeys(ids(first), "y"))).output == "end"


async def test_a_child_that_is_gone_from_a_row_is_named(store: Store) -> None:  # rule R10
    def row(*agents: Agent) -> SequentialAgent:
        return SequentialAgent("Row", agents=agents)

    first = await Runner(row(chat("A", "a"), chat("B", call("ask", question="?"), tools=[ask])), store=store).run(
        "go", session_id="s"
    )
    with pytest.raises(ProgramChanged, match="B"):
        await Runner(row(chat("A"), chat("C")), store=store).resume("s", dict.fromkeys(ids(first), "y"))
    longer = row(chat("A"), chat("B", "b", tools=[ask]), chat("C", "c"))
    assert (await Runner(longer, store=store).resume("s", dict.fromkeys(ids(first), "y"))).output == "c"


async def test_a_child_added_side_by_side_does_not_break_the_turn(store: Store) -> None:  # rule R10
    def side(*agents: Agent) -> ParallelAgent:
        return ParallelAgent("Side", agents=agents)

    asks = call("ask", question="?")
    first = await Runner(side(chat("A", "a"), chat("B", asks, tools=[ask])), store=store).run("go", session_id="s")
    wider = side(chat("A"), chat("B", "b", tools=[ask]), chat("C"))
    result = await Runner(wider, store=store).resume("s", dict.fromkeys(ids(first), "y"))
    assert result.output == "a\n\nb"


async def test_an_inner_agent_that_is_gone_is_named(store: Store) -> None:  # rule R10
    def outer(*tools: Any, script: Any = ()) -> ChatModelAgent:
        return chat("Outer", *script, tools=tools)

    inner = chat("Inner", call("ask", question="?"), tools=[ask])
    first = await Runner(outer(inner, script=[call("Inner", "i1", request="x")]), store=store).run("go", session_id="s")
    with pytest.raises(ProgramChanged, match="Inner"):
        await Runner(outer(note), store=store).resume("s", dict.fromkeys(ids(first), "y"))
    mended = outer(chat("Inner", "in", tools=[ask]), script=["end"])
    assert (await Runner(mended, store=store).resume("s", dict.fromkeys(ids(first), "y"))).output == "end"
