"""Tool search: a model is told of the tools that it has found."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Runner, UsageError, tool
from adjourn.middleware import ToolSearch
from adjourn.tools import Tool

from .conftest import Reopen
from .scripts import call, result_of, scripted

booked: list[str] = []


def plain(number: int) -> Tool:
    async def nothing() -> str:
        return "nothing"

    return tool(nothing, name=f"plain_{number}", description="It does nothing of use.")


@tool(approval=True)
async def book_flight(to: str) -> str:
    """Book a seat on an aeroplane."""
    booked.append(to)
    return f"booked to {to}"


@tool
async def weather(city: str) -> str:
    """Tell the weather, for flights and walks."""
    return f"sun in {city}"


MANY = [*map(plain, range(100)), book_flight, weather]


def names(request: Any) -> list[str]:
    return [spec.name for spec in request.tools]


async def test_a_model_is_told_of_what_it_has_found_over_pauses_and_turns(reopen: Reopen) -> None:
    booked.clear()

    def agent(*script: Any) -> Any:
        return scripted(*script, tools=[plain(500)], middleware=[ToolSearch(MANY)])

    first, model = agent(call("search_tools", query="book a flight"), call("book_flight", "c2", to="Rome"))
    paused = await Runner(first, store=reopen()).run("go", session_id="s1")
    assert names(model.requests[0]) == ["plain_500", "search_tools"]
    assert names(model.requests[1]) == ["plain_500", "search_tools", "book_flight", "weather"]
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:book_flight:c2"]
    second, model = agent("done", "done")
    runner = Runner(second, store=reopen())
    result = await runner.resume("s1", {paused.interrupts[0].id: True})
    assert (result_of(result.messages, "c2"), booked) == ("booked to Rome", ["Rome"])
    await runner.run("again", session_id="s1")
    assert names(model.requests[1])[2:] == ["book_flight", "weather"]
    await runner.store.close()


async def test_the_best_come_first_and_their_number_is_bounded() -> None:
    agent, model = scripted(call("search_tools", query="flights"), "done", middleware=[ToolSearch(MANY, limit=1)])
    result = await Runner(agent).run("go")
    assert result_of(result.messages) == "You can call these now:\n- book_flight: Book a seat on an aeroplane."
    assert names(model.requests[1]) == ["search_tools", "book_flight"]


async def test_searches_of_one_answer_add_up() -> None:
    calls = [call("search_tools", query="book"), call("search_tools", "c2", query="weather")]
    agent, model = scripted(calls, "done", middleware=[ToolSearch(MANY)])
    await Runner(agent).run("go")
    assert names(model.requests[1])[1:] == ["book_flight", "weather"]


async def test_nothing_found_is_told() -> None:
    agent, model = scripted(call("search_tools", query="violin"), "done", middleware=[ToolSearch(MANY)])
    result = await Runner(agent).run("go")
    assert result_of(result.messages) == "No tool was found. Try other words."
    assert names(model.requests[1]) == ["search_tools"]


async def test_a_score_of_ones_own_decides() -> None:
    search = ToolSearch(MANY, score=lambda query, each: float(each.name == f"plain_{query}"))
    agent, model = scripted(call("search_tools", query="7"), "done", middleware=[search])
    await Runner(agent).run("go")
    assert names(model.requests[1]) == ["search_tools", "plain_7"]


def test_mistakes_are_told_where_they_are_made() -> None:
    with pytest.raises(UsageError, match="two tools"):
        ToolSearch([plain(1), plain(1)])
    with pytest.raises(UsageError, match="limit=0"):
        ToolSearch(MANY, limit=0)


async def test_the_model_may_ask_for_more_or_fewer_tools() -> None:
    tools = [tool(lambda: "x", name=f"pay_{n}", description="Pay.") for n in range(30)]
    search = ToolSearch(tools, limit=2, most=4)
    calls = [
        call("search_tools", f"c{n}", query="pay", **more) for n, more in enumerate([{}, {"limit": 1}, {"limit": 99}])
    ]
    agent, _ = scripted(calls, "done", middleware=[search])
    result = await Runner(agent).run("go")
    assert [result_of(result.messages, f"c{n}").count("- pay_") for n in range(3)] == [2, 1, 4]
    with pytest.raises(UsageError, match="at most `most`"):
        ToolSearch(tools, limit=5, most=4)
