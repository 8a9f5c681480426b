"""The values that a session begins with, who may write which, and the library's own among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import pytest

from adjourn import (
    ChatModelAgent,
    Runner,
    ToolCall,
    UsageError,
    current,
    interrupt,
    session_value,
    set_session_value,
    tool,
    workflow,
)
from adjourn.errors import LimitExceeded, NotStorable
from adjourn.graph import END, START, StateGraph
from adjourn.middleware import CallLimits, FileTools, MemoryBackend, TaskBoard, TodoList
from adjourn.runner import Worker
from adjourn.stores import MemoryStore
from adjourn.testing import ScriptedModel


@workflow
async def limit(to: int | None) -> Any:
    """Set the limit if one is given, and return what it was."""
    before = session_value("limit", None)
    if to is not None:
        set_session_value("limit", to)
    if to == 0:
        interrupt("go on?", key="ask")
    return before


class State(TypedDict):
    log: Any


def graph() -> Any:
    def step(state: State) -> Any:
        return {"log": session_value("limit", None)}

    builder = StateGraph(State, name="limits")
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile()


def agent(*script: Any, **options: Any) -> ChatModelAgent:
    return ChatModelAgent("A", model=ScriptedModel(script or ["hi"]), **options)


@pytest.mark.parametrize("first", [100, {"of": [1, 2]}, None])
async def test_a_session_begins_with_the_operators_values(first: Any) -> None:  # rule V15
    assert (await Runner(limit, values={"limit": first}).run(None)).value == first
    assert (await Runner(graph(), values={"limit": first}).run({"log": 0})).state["log"] == first
    result = await Runner(agent(), values={"limit": 7}).run("hello")
    assert result.state["values"] == {"limit": 7}


async def test_what_is_set_later_stays_and_so_does_what_the_session_began_with() -> None:  # rule V15
    store = MemoryStore()

    async def turn(session_id: str, to: int | None = None, *, operator: int) -> Any:
        return (await Runner(limit, store=store, values={"limit": operator}).run(to, session_id=session_id)).value

    assert await turn("a", 5, operator=100) == 100
    assert await turn("a", operator=200) == 5
    assert await turn("b", operator=100) == 100
    assert await turn("b", operator=200) == 100
    assert await turn("c", operator=200) == 200


async def test_what_a_call_gives_lies_over_them() -> None:
    runner = Runner(limit, values={"limit": 100, "other": 1})
    assert (await runner.run(None, session_id="s", values={"limit": 7})).value == 7
    assert (await runner.run(None, session_id="s")).value == 7


async def test_a_worker_begins_a_session_with_them_too() -> None:  # rule V15
    runner = Runner(limit, store=MemoryStore(), values={"limit": 100})
    await runner.submit(None, session_id="s")
    async with Worker([runner]):
        run = runner.attach("s")
        assert (await run).value == 100


async def test_resume_recover_and_forks_have_those_of_their_session() -> None:  # rules V15 and R9
    store = MemoryStore()
    paused = await Runner(limit, store=store, values={"limit": 100}).run(0, session_id="s")
    assert paused.status == "interrupted"
    later = Runner(limit, store=store, values={"limit": 200, "other": 1})
    fork = await later.fork("s")
    assert (await later.resume("s", {"ask": True})).value == 100
    assert (await later.resume(fork, {"ask": True})).value == 100


async def test_values_that_cannot_be_are_refused_where_the_runner_is_made() -> None:
    bad: list[tuple[Any, type[Exception]]] = [
        ({"~own:calls:A": {}}, UsageError),
        ({"~session:approved:x": {}}, UsageError),
        ({1: 2}, UsageError),
        ("limit", UsageError),
        ({"limit": object()}, NotStorable),
    ]
    for values, error in bad:
        with pytest.raises(error):
            Runner(limit, values=values)
    begun_with = {"limit": [1]}
    runner = Runner(limit, values=begun_with)
    begun_with["limit"].append(2)
    assert (await runner.run(None)).value == [1]


RESERVED = ("~own:calls:A", "~own:files:a", "~own:todos", "~session:approved:x", "~action", "~")


def writes(name: str) -> list[Callable[[], object]]:
    """What a program might try to write the library's own values with."""
    return [
        lambda: set_session_value(name, 1),
        lambda: current().values.update({name: 1}),
        lambda: current().values.setdefault(name, 1),
        lambda: current().values.__delitem__(name),
    ]


@pytest.mark.parametrize("name", RESERVED)
async def test_no_program_writes_the_librarys_own_values(name: str) -> None:  # rule V15
    @workflow
    async def forging(_: Any) -> int:
        refused = 0
        for write in writes(name):
            with pytest.raises(UsageError, match="library's own"):
                write()
            refused += 1
        return refused

    assert (await Runner(forging).run()).value == len(writes(name))
    with pytest.raises(UsageError, match="library's own"):
        agent(output_key=name)
    runner = Runner(agent("hi", "again"), store=MemoryStore(), values={"limit": 1})
    for call in (runner.run("x", values={name: 1}), runner.run("x", session_id="s", values={name: 1})):
        with pytest.raises(UsageError, match="library's own"):
            await call
    with pytest.raises(UsageError, match="library's own"):
        await runner.submit("x", session_id="s", values={name: 1})
    await runner.run("x", session_id="s")
    with pytest.raises(UsageError, match="library's own"):
        await runner.edit("s", {"values": {name: 1}})
    with pytest.raises(UsageError, match="library's own"):
        await runner.resume("s", values={name: 1})


async def test_counts_and_files_are_under_names_that_only_middleware_writes() -> None:  # rule V15
    @tool
    async def reset() -> str:
        """Try to forget everything."""
        current().values.clear()
        set_session_value("calls:A", {})
        set_session_value("files:a", "forged")
        set_session_value("todos", [])
        return await MemoryBackend().read("a")

    wanted = [
        [
            ToolCall(id="c1", name="write_file", arguments={"path": "a", "text": "true"}),
            ToolCall(id="c2", name="write_todos", arguments={"todos": [{"text": "pay"}]}),
            ToolCall(id="c3", name="add_task", arguments={"text": "pay"}),
        ],
        [ToolCall(id="c4", name="reset", arguments={})],
        "done",
    ]
    limits = CallLimits(model_calls=3, on_limit="raise")
    middleware = [limits, FileTools(), TodoList(), TaskBoard()]
    runner = Runner(agent(*wanted, tools=[reset], middleware=middleware), values={"limit": 1})
    result = await runner.run("go", session_id="s")
    assert [each.text for each in result.messages if each.tool_call_id == "c4"] == ["true"]
    kept = result.state["values"]
    assert (kept["~own:files:a"], kept["~own:todos"][0]["text"]) == ("true", "pay")
    assert kept["~own:calls:A"]["model_calls"] == 3
    with pytest.raises(LimitExceeded):
        await runner.run("more", session_id="s", values={"calls:A": {}})
