"""The to-do list of an agent, kept with the session."""

from __future__ import annotations

from typing import Any

from adjourn import Runner, interrupt, session_value, tool
from adjourn.middleware import TodoList

from .conftest import Reopen
from .scripts import call, result_of, scripted

TODOS = [{"text": "look", "status": "done"}, {"text": "book", "status": "in_progress"}, {"text": "tell"}]


@tool
async def ask() -> str:
    """Ask."""
    return str(interrupt("go on?", key="ask"))


@tool
async def peek() -> Any:
    """The list as the program sees it."""
    return session_value("~own:todos", None)


def agent(*script: Any, **options: Any) -> Any:
    return scripted(*script, tools=[ask, peek], middleware=[TodoList(**options)])[0]


async def test_the_list_survives_a_pause_and_the_process(reopen: Reopen) -> None:
    paused = await Runner(agent(call("write_todos", todos=TODOS), call("ask", "c2")), store=reopen()).run(
        "go", session_id="s1"
    )
    assert paused.status == "interrupted"
    again = Runner(agent(call("read_todos", "c3"), call("peek", "c4"), "done"), store=reopen())
    result = await again.resume("s1", {"ask": "yes"})
    assert result_of(result.messages, "c3") == "[x] look\n[>] book\n[ ] tell"
    assert '"status":"in_progress"' in result_of(result.messages, "c4")


async def test_what_is_no_list_of_to_dos_is_told_and_nothing_changes() -> None:
    result = await Runner(
        agent(
            call("write_todos", "c1", todos=[{"text": "x", "status": "maybe"}]),
            call("write_todos", "c2", todos=[{"text": ""}]),
            call("write_todos", "c3", todos=[{"text": "x"}] * 101),
            call("read_todos", "c4"),
            "done",
        )
    ).run("go")
    assert all(result_of(result.messages, each).startswith("Error: ") for each in ("c1", "c2", "c3"))
    assert result_of(result.messages, "c4") == "There are no to-dos."


async def test_agents_of_one_session_can_have_lists_of_their_own() -> None:
    result = await Runner(agent(call("write_todos", todos=TODOS), call("peek", "c2"), "done", key="plan")).run("go")
    assert result_of(result.messages, "c2") == "null"
