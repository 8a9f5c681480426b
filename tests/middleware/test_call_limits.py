"""Call limits over the turns of a session."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, Retrying, Runner, Usage, UsageError, tool
from adjourn.agents import Limits
from adjourn.errors import LimitExceeded
from adjourn.middleware import CallLimits
from adjourn.testing import ScriptedModel

from .conftest import Reopen
from .scripts import call, result_of, scripted


@tool
async def search(query: str) -> str:
    """Search."""
    return f"found {query}"


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(*script: Any, **limits: Any) -> Any:
    return scripted(*script, tools=[search, pay], middleware=[CallLimits(**limits)])[0]


async def test_an_agent_ends_with_a_message_at_its_limit_of_model_calls(reopen: Reopen) -> None:
    assert (await Runner(agent("1", model_calls=2), store=reopen()).run("a", session_id="s1")).output == "1"
    runner = Runner(agent("2", model_calls=2), store=reopen())
    assert (await runner.run("b", session_id="s1")).output == "2"
    told = "I have reached the limit of 2 model calls in this session."
    assert (await runner.run("c", session_id="s1")).output == told
    assert (await runner.run("d", session_id="s1")).output == told


async def test_tokens_are_counted() -> None:
    answer = Message.assistant("1", usage=Usage(input_tokens=60, output_tokens=40))
    runner = Runner(agent(answer, tokens=100))
    await runner.run("a", session_id="s1")
    assert "limit of 100 tokens" in (await runner.run("b", session_id="s1")).output
    assert (await Runner(agent("1", tokens=100)).run("a", session_id="s2")).output == "1"


async def test_calls_of_a_tool_too_many_are_told_to_the_model_in_order(reopen: Reopen) -> None:
    calls = [call("search", f"c{n}", query=str(n)) for n in range(3)]
    runner = Runner(agent(calls, "done", [call("search", query="x")], "done", tools={"search": 2}), store=reopen())
    result = await runner.run("a", session_id="s1")
    assert [result_of(result.messages, f"c{n}") for n in range(2)] == ["found 0", "found 1"]
    assert "The calls of 'search' in this session are used up" in result_of(result.messages, "c2")
    result = await runner.run("b", session_id="s1")
    assert "used up" in result_of(result.messages, "c1")


async def test_a_limit_can_fail_the_run_which_is_recovered_with_a_larger_one(reopen: Reopen) -> None:
    script = [call("search", query="1"), [call("search", "c2", query="2")]]
    with pytest.raises(LimitExceeded, match=r"1 calls of tool search in this session.*CallLimits") as caught:
        await Runner(agent(*script, tools={"search": 1}, on_limit="raise"), store=reopen()).run("a", session_id="s1")
    assert (caught.value.agent, caught.value.within) == ("A", "session")
    larger = Runner(agent("done", tools={"search": 2}, on_limit="raise"), store=reopen())
    result = await larger.recover("s1")
    assert result_of(result.messages, "c2") == "found 2"
    with pytest.raises(LimitExceeded, match="limit of 1 model calls in this session"):
        await Runner(agent(call("search", query="1"), model_calls=1, on_limit="raise")).run("a")


async def test_a_call_that_waits_for_approval_is_counted_once(reopen: Reopen) -> None:
    limits = {"tool_calls": 2}
    paused = await Runner(agent(call("pay", amount=1), **limits), store=reopen()).run("a", session_id="s1")
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:pay:c1"]
    more = [call("search", "c2", query="2"), call("search", "c3", query="3")]
    runner = Runner(agent(more, "done", **limits), store=reopen())
    result = await runner.resume("s1", {paused.interrupts[0].id: True})
    assert result_of(result.messages, "c1") == "paid 1"
    assert result_of(result.messages, "c2") == "found 2"
    assert "used up" in result_of(result.messages, "c3")


async def test_nobody_is_asked_about_a_call_too_many() -> None:
    runner = Runner(agent([call("pay", amount=1), call("pay", "c2", amount=2)], "done", tools={"pay": 1}))
    paused = await runner.run("a", session_id="s1")
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:pay:c1"]
    result = await runner.resume("s1", {paused.interrupts[0].id: True})
    assert result_of(result.messages, "c1") == "paid 1"
    assert "used up" in result_of(result.messages, "c2")


def test_limits_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="search=-1"):
        CallLimits(tools={"search": -1})
    with pytest.raises(UsageError, match="on_limit"):
        CallLimits(on_limit="stop")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("streaming", [True, False])
async def test_tokens_that_nobody_reports_are_estimated_and_that_is_said_once(
    streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    who = f"Counted{streaming}"
    model = ScriptedModel([f"word {number} " * 20 for number in range(4)])
    limited = ChatModelAgent(who, model=model, middleware=[CallLimits(tokens=120, on_limit="raise")])
    runner = Runner(limited, streaming=streaming)
    async for event in runner.run("a", session_id="s1"):
        assert not isinstance(event, Retrying)
    first = await runner.run("b", session_id="s1")
    assert 0 < first.usage.total_tokens == first.usage.estimated_tokens
    with pytest.raises(LimitExceeded):
        await runner.run("c", session_id="s1")
    assert [record.levelno for record in caplog.records if who in record.getMessage()] == [logging.WARNING]


async def test_an_agents_own_limit_of_tokens_rests_on_the_estimate_too() -> None:
    loops = [call("search", f"c{number}", query="x" * 100) for number in range(9)]
    looping = scripted(*loops, tools=[search], limits=Limits(tokens=200))[0]
    with pytest.raises(LimitExceeded, match="200 tokens"):
        await Runner(looping).run("a")


async def test_nothing_is_estimated_where_nobody_counts_or_a_server_reports() -> None:
    plain = await Runner(scripted("1")[0]).run("a")
    assert plain.usage == Usage(calls=1)
    reported = Message.assistant("1", usage=Usage(calls=1, input_tokens=5, output_tokens=1))
    counted = await Runner(scripted(reported, limits=Limits(tokens=200))[0]).run("a")
    assert (counted.usage.total_tokens, counted.usage.estimated_tokens) == (6, 0)
