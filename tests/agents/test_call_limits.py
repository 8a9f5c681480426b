"""What a session may use by default: so many calls in one answer, so many threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from adjourn import ChatModelAgent, Message, Runner, ToolCall, UsageError, tool
from adjourn._engine.concurrency import MAX_OF_A_SESSION
from adjourn.agents import Limits
from adjourn.errors import TooManyCalls
from adjourn.events import MessageEvent
from adjourn.graph import MessagesState, StateGraph
from adjourn.middleware import LogCalls
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.agents.calling import call, results

ran: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool
async def count(number: int) -> str:
    """Count."""
    ran.append(number)
    return str(number)


async def collected(run: Any, events: list[Any]) -> None:
    async for event in run:
        events.append(event)  # noqa: PERF401  # those before the error count, too


def calls(number: int) -> list[ToolCall]:
    return [call("count", f"c{each}", number=each) for each in range(number)]


@pytest.mark.parametrize("middleware", [[], [LogCalls()]], ids=["plain", "wrapped"])
async def test_too_many_calls_in_one_answer_do_not_run_and_the_model_is_asked_again(
    store: Store, middleware: list[Any]
) -> None:  # failures 69, attack 16
    model = ScriptedModel([calls(101), calls(100), "done"])
    runner = Runner(ChatModelAgent("A", model=model, tools=[count], middleware=middleware), store=store)
    events: list[Any] = []
    with pytest.raises(TooManyCalls, match="called 101 tools in one answer, and 100 is the most"):
        await collected(runner.run("go", session_id="s"), events)
    assert ran == []
    assert not [event for event in events if isinstance(event, MessageEvent)]
    assert (await runner.recover("s")).output == "done"
    assert sorted(ran) == list(range(100))


async def test_the_limit_of_an_answer_can_be_changed() -> None:
    def runner(limits: Limits) -> Runner:
        return Runner(ChatModelAgent("A", model=ScriptedModel([calls(150), "done"]), tools=[count], limits=limits))

    with pytest.raises(TooManyCalls, match="3 is the most"):
        await runner(Limits(calls_per_answer=3)).run("go")
    assert (await runner(Limits(calls_per_answer=None)).run("go")).status == "done"
    assert (await runner(Limits(calls_per_answer=150)).run("go")).status == "done"
    with pytest.raises(UsageError, match="calls_per_answer=0"):
        Limits(calls_per_answer=0)


def graph(number: int, **options: Any) -> Any:
    return (
        StateGraph(MessagesState)
        .add_llm_node("think", ScriptedModel([calls(number)]))
        .add_tools_node("act", [count], **options)
        .add_sequence("think", "act")
        .set_entry_point("think")
        .compile()
    )


async def test_a_tools_node_makes_so_many_calls_and_tells_about_the_others() -> None:  # failures 69, attack 16
    result = await graph(102).run({"messages": [Message.user("go")]})
    told = results(result.state["messages"])
    assert sorted(ran) == list(range(100))
    assert told[:100] == [str(each) for each in range(100)]
    assert (
        told[100:] == ["This call was not made: 100 in one answer is the most. Call again if it is still needed."] * 2
    )


async def test_the_limit_of_a_tools_node_can_be_changed() -> None:
    await graph(3, max_calls=2).run({"messages": [Message.user("go")]})
    assert sorted(ran) == [0, 1]
    await graph(120, max_calls=None).run({"messages": [Message.user("go")]})
    assert len(ran) == 122
    with pytest.raises(UsageError, match="max_calls=0"):
        graph(1, max_calls=0)


async def test_a_session_runs_so_many_sync_tools_at_once() -> None:  # attack 16
    lock, running, most = threading.Lock(), 0, 0

    @tool
    def work(number: int) -> str:
        """Work."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1
        return str(number)

    asked = [call("work", f"c{each}", number=each) for each in range(40)]
    agent = ChatModelAgent("A", model=ScriptedModel([asked, "done"]), tools=[work])
    result = await Runner(agent).run("go")
    assert results(result) == [str(each) for each in range(40)]
    assert most <= MAX_OF_A_SESSION
