"""A board of tasks: ids, owners, and what blocks what."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from adjourn import ChatModelAgent, Custom, ParallelAgent, Runner, SequentialAgent, ToolCall
from adjourn.messages import Message
from adjourn.middleware import TaskBoard
from adjourn.models import ModelRequest
from adjourn.testing import ScriptedModel

from .conftest import Reopen
from .scripts import call, result_of, scripted


def by_number(name: str, call_id: str, **arguments: Any) -> Callable[[ModelRequest], ToolCall]:
    """A call that names tasks by their numbers alone, with the ids that the model has read by then."""

    def made(request: ModelRequest) -> ToolCall:
        text = "\n".join(message.text for message in request.messages)
        ids = {number: whole for whole, number in re.findall(r"((\d+)-[0-9a-f]{6})", text)}
        given = dict(arguments)
        if "id" in given:
            given["id"] = ids.get(given["id"], given["id"])
        if "blocked_by" in given:
            given["blocked_by"] = [ids.get(each, each) for each in given["blocked_by"]]
        return call(name, call_id, **given)

    return made


def told(messages: Sequence[Message], call_id: str) -> str:
    """A result with tasks by their numbers alone."""
    return re.sub(r"(\d+)-[0-9a-f]{6}", r"\1", result_of(messages, call_id))


async def ran(*calls: Any) -> Any:
    agent, _ = scripted(*calls, "done", middleware=[TaskBoard()])
    return await Runner(agent).run("go")


async def test_tasks_have_ids_owners_and_blockers(reopen: Reopen) -> None:
    script = [
        call("add_task", "c1", text="Dig", owner="ann"),
        by_number("add_task", "c2", text="Plant", blocked_by=["1"]),
        by_number("update_task", "c3", id="2", status="in_progress"),
        by_number("update_task", "c4", id="1", status="done"),
        by_number("update_task", "c5", id="2", status="in_progress", owner="bob"),
        call("list_tasks", "c6"),
        "done",
    ]
    agent, _ = scripted(*script, middleware=[TaskBoard()])
    runner = Runner(agent, store=reopen())
    events = [event async for event in runner.run("go", session_id="s")]
    messages = await runner.messages("s")
    assert told(messages, "c2") == "2. Plant (open; blocked by 1)"
    assert "Task '2' is blocked by 1." in told(messages, "c3")
    assert told(messages, "c6") == "1. Dig (done; owner ann)\n2. Plant (in_progress; owner bob)"
    emitted = [event.data["task"]["status"] for event in events if isinstance(event, Custom)]
    assert emitted == ["open", "open", "done", "in_progress"]
    again, _ = scripted(call("list_tasks", "c9"), "done", middleware=[TaskBoard()])
    later = await Runner(again, store=reopen()).run("and?", session_id="s")
    assert result_of(later.messages, "c9") == result_of(messages, "c6")


async def test_what_cannot_be_is_told_to_the_model() -> None:
    result = await ran(
        call("add_task", "c1", text="a", blocked_by=["7"]),
        call("add_task", "c2", text="a"),
        by_number("add_task", "c3", text="b", blocked_by=["1"]),
        by_number("update_task", "c4", id="1", blocked_by=["2"]),
        call("update_task", "c5", id="9", status="done"),
        by_number("update_task", "c6", id="1", blocked_by=["1"]),
        call("list_tasks", "c7"),
    )
    assert "There is no task '7'" in result_of(result.messages, "c1")
    assert "Task '1' would wait for itself" in told(result.messages, "c4")
    assert "There is no task '9'. There are: 1, 2." in told(result.messages, "c5")
    assert "Task '1' would wait for itself" in told(result.messages, "c6")
    assert told(result.messages, "c7") == "1. a (open)\n2. b (open; blocked by 1)"


async def test_calls_of_one_answer_add_a_task_each() -> None:
    adding = [call("add_task", f"c{n}", text=text) for n, text in enumerate("abc")]
    result = await ran(adding, by_number("add_task", "c4", text="d"), call("list_tasks", "c5"))
    added = [result_of(result.messages, f"c{n}") for n in range(3)]
    assert len({line.partition(".")[0] for line in added}) == 3
    *three, last = result_of(result.messages, "c5").splitlines()
    assert (sorted(three), last[0]) == (sorted(added), "2")


async def test_agents_side_by_side_add_a_task_each() -> None:
    def adder(name: str) -> ChatModelAgent:
        model = ScriptedModel([call("add_task", text=name), "ok"])
        return ChatModelAgent(name, model=model, middleware=[TaskBoard()])

    result = await Runner(ParallelAgent("P", agents=[adder("A"), adder("B")])).run("go")
    assert sorted(task["text"] for task in result.state["values"].values()) == ["A", "B"]


async def test_agents_side_by_side_change_different_tasks() -> None:
    adding = [call("add_task", f"c{text}", text=text) for text in "ab"]
    planner = ChatModelAgent("Planner", model=ScriptedModel([*adding, "ok"]), middleware=[TaskBoard()])
    team = SequentialAgent("S", agents=[planner, ParallelAgent("P", agents=[_worker("1"), _worker("2")])])
    values = (await Runner(team).run("go")).state["values"]
    assert [(each["text"], each["status"]) for each in values.values()] == [("a", "done"), ("b", "done")]


def _worker(number: str) -> Any:
    model = ScriptedModel([by_number("update_task", f"c{number}", id=number, status="done"), "ok"])
    return ChatModelAgent(f"W{number}", model=model, middleware=[TaskBoard()])
