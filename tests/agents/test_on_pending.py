"""A new message on a session whose last turn waits, failed or was cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import (
    ChatModelAgent,
    ParallelAgent,
    PendingInterrupts,
    Runner,
    SequentialAgent,
    StaleCheckpoint,
    UnfinishedRun,
)
from adjourn.messages import Message
from adjourn.stores import Store

from .crew import ask, call, chat, ids, model_of, note, said, seen, transfer


def well_formed(messages: list[Message]) -> bool:
    """Whether every call is answered, once, right after the message that made it: providers refuse all else."""
    place = 0
    while place < len(messages):
        wanted = [call.id for call in messages[place].tool_calls]
        got = [message.tool_call_id for message in messages[place + 1 : place + 1 + len(wanted)]]
        if sorted(wanted) != sorted(str(each) for each in got):
            return False
        place += 1 + len(wanted)
    return True


def asker(*script: Any) -> ChatModelAgent:
    return chat("A", *script, tools=[ask, note])


async def test_open_questions_refuse_a_message(store: Store) -> None:  # rule R12
    runner = Runner(asker(call("ask", question="?"), "end"), store=store)
    paused = await runner.run("go", session_id="s")
    with pytest.raises(PendingInterrupts, match="ask:c1"):
        await runner.run("more", session_id="s")
    with pytest.raises(PendingInterrupts):
        await runner.run("more", session_id="s", on_pending="finish")
    assert (await runner.resume("s", dict.fromkeys(ids(paused), "y"))).output == "end"


async def test_abandon_puts_placeholders_in_the_place_of_results(store: Store) -> None:  # rule R12
    first = asker([call("note", "c1", text="x"), call("ask", "c2", question="?"), call("ask", "c3", question="?")])
    paused = await Runner(first, store=store).run("go", session_id="s")
    again = asker("fresh")
    runner = Runner(again, store=store)
    result = await runner.run("more", session_id="s", on_pending="abandon")
    assert result.output == "fresh"
    shown = seen(model_of(again).requests[0])
    assert shown[2] == "tool: noted x"  # what had finished, and was told, stays
    assert all("given up" in line for line in shown[3:5])
    assert well_formed(list(result.messages))
    with pytest.raises(StaleCheckpoint):
        await runner.resume("s", dict.fromkeys(ids(paused), "late"))
    assert await runner.pending("s") == []


async def test_abandon_in_a_sub_agent(store: Store) -> None:  # rule R12
    def team(*script: Any) -> ChatModelAgent:
        return chat("A", transfer("B"), sub_agents=[chat("B", *script, tools=[ask])])

    await Runner(team(call("ask", question="?")), store=store).run("go", session_id="s")
    again = team("fresh")
    result = await Runner(again, store=store).run("more", session_id="s", on_pending="abandon")
    assert (result.output, result.state["active"]) == ("fresh", ["B"])
    assert well_formed(list(result.messages))


async def test_abandon_side_by_side_keeps_what_was_said(store: Store) -> None:  # rule R12
    def side(a: list[Any], b: list[Any], c: list[Any]) -> ParallelAgent:
        return ParallelAgent("Side", agents=[chat(n, *s, tools=[ask]) for n, s in zip("ABC", (a, b, c), strict=True)])

    asks = [call("ask", question="?")]
    await Runner(side(asks, ["b said"], asks), store=store).run("go", session_id="s")
    again = side(["a"], ["b"], ["c"])
    result = await Runner(again, store=store).run("more", session_id="s", on_pending="abandon")
    assert result.output == "a\n\nb\n\nc"
    assert "assistant: b said" in said(result.messages)
    assert well_formed(list(result.messages))
    for agent in again.agents:
        assert isinstance(agent, ChatModelAgent)
        assert well_formed(list(model_of(agent).requests[0].messages))


async def test_abandon_inside_an_agent_tool(store: Store) -> None:  # rule R12
    def outer(*script: Any, inner: Any = ()) -> ChatModelAgent:
        return chat("Outer", *script, tools=[chat("Inner", *inner, tools=[ask])])

    first = outer(call("Inner", request="x"), inner=[call("ask", "q", question="?")])
    await Runner(first, store=store).run("go", session_id="s")
    result = await Runner(outer("fresh"), store=store).run("more", session_id="s", on_pending="abandon")
    assert result.output == "fresh"
    assert well_formed(list(result.messages))


async def test_abandon_after_a_failure(store: Store) -> None:  # rule R12
    broken = asker(call("note", text="x"), RuntimeError("away"))
    with pytest.raises(Exception, match="away"):
        await Runner(broken, store=store).run("go", session_id="s")
    again = asker("fresh")
    result = await Runner(again, store=store).run("more", session_id="s", on_pending="abandon")
    assert said(result.messages) == ["user: go", "tool: noted x", "user: more", "assistant: fresh"]


async def test_finish_ends_the_last_turn_first(store: Store) -> None:  # rule R12
    broken = asker(call("note", text="x"), RuntimeError("away"))
    with pytest.raises(Exception, match="away"):
        await Runner(broken, store=store).run("go", session_id="s")
    again = Runner(asker("first end", "second end"), store=store)
    with pytest.raises(UnfinishedRun):
        await again.run("more", session_id="s")
    result = await again.run("more", session_id="s", on_pending="finish")
    assert said(result.messages)[-3:] == ["assistant: first end", "user: more", "assistant: second end"]


async def test_abandon_in_the_middle_of_a_row(store: Store) -> None:  # rule R12
    def row(a: list[Any], b: list[Any]) -> SequentialAgent:
        return SequentialAgent("Row", agents=[chat("A", *a), chat("B", *b, tools=[ask])])

    await Runner(row(["a1"], [call("ask", question="?")]), store=store).run("go", session_id="s")
    result = await Runner(row(["a2"], ["b2"]), store=store).run("more", session_id="s", on_pending="abandon")
    assert said(result.messages)[-3:] == ["user: more", "assistant: a2", "assistant: b2"]
    assert said(result.messages)[1] == "assistant: a1"
