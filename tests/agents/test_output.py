"""Output: the final text as a session value, and typed values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from adjourn import Agent, MessageEvent, RunContext, Runner, SequentialAgent, session_value, tool
from adjourn.agents import AgentInput
from adjourn.errors import ModelError
from adjourn.events import Event
from adjourn.messages import Message
from adjourn.stores import Store

from .crew import ask, call, chat, ids, model_of, seen, transfer


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    name: str
    points: list[Point]


@tool
async def read(key: str) -> str:
    """Read a session value."""
    return str(session_value(key, "nothing"))


async def test_the_final_text_becomes_a_session_value(store: Store) -> None:  # rule A3
    runner = Runner(chat("A", "first", call("read", key="out"), "second", tools=[read], output_key="out"), store=store)
    await runner.run("go", session_id="s")
    result = await runner.run("more", session_id="s")
    assert "tool: first" in [f"{m.role}: {m.text}" for m in result.messages]
    assert (await runner.state("s"))["values"] == {"out": "second"}


async def test_agent_tools_share_the_session_values(store: Store) -> None:  # rule A3
    inner = chat("Inner", "found it", output_key="found")
    outer = chat("Outer", call("Inner", request="look"), call("read", "c2", key="found"), "end", tools=[inner, read])
    result = await Runner(outer, store=store).run("go", session_id="s")
    assert [m.text for m in result.messages if m.role == "tool"] == ["found it", "found it"]


async def test_a_typed_output_is_the_runs_value(store: Store) -> None:  # rule A3
    agent = chat("A", '{"x": 1, "y": 2}', output_type=Point)
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.value == Point(1, 2)
    assert model_of(agent).requests[0].output is not None
    assert (await Runner(agent, store=store).recover("s")).value == Point(1, 2)


@pytest.mark.parametrize(
    ("type_", "answer", "value"),
    [
        (Box, '{"name": "b", "points": [{"x": 3}]}', Box("b", [Point(3)])),
        (dict[str, int], '```json\n{"a": 1}\n```', {"a": 1}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int, '{"value": 0}', 0),
        (bool, '{"value": false}', False),
        (int | None, '{"value": null}', None),
    ],
)
async def test_values_have_the_type_that_was_named(type_: Any, answer: str, value: Any) -> None:  # rule A3
    result = await Runner(chat("A", answer, output_type=type_)).run("go")
    assert result.value == value


async def test_a_misfit_is_told_to_the_model(store: Store) -> None:  # rule A3
    agent = chat("A", "not json", '{"x": "one"}', '{"x": 1}', output_type=Point)
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.value == Point(1)
    assert "does not fit" in seen(model_of(agent).requests[1])[-1]


async def test_misfits_are_bounded() -> None:  # rule A3
    agent = chat("A", *["no"] * 10, output_type=Point)
    with pytest.raises(ModelError, match="do not fit"):
        await Runner(agent).run("go")
    assert len(model_of(agent).requests) < 10


async def test_a_typed_answer_after_a_pause(store: Store) -> None:  # rule R9
    await Runner(chat("A", call("ask", question="?"), tools=[ask], output_type=Point), store=store).run(
        "go", session_id="s"
    )
    again = chat("A", '{"x": 5}', tools=[ask], output_type=Point)
    result = await Runner(again, store=store).resume("s", {"agent:A;tool:ask:c1": "y"})
    assert result.value == Point(5)


async def test_the_value_of_the_last_agent_in_a_row_keeps_its_type(store: Store) -> None:  # rule A3
    row = SequentialAgent("Row", agents=[chat("A", "one"), chat("B", '{"x": 1}', output_type=Point)])
    runner = Runner(row, store=store)
    assert (await runner.run("go", session_id="s")).value == Point(1)
    assert (await runner.recover("s")).value == Point(1)


async def test_the_value_of_an_agent_that_took_over_keeps_its_type(store: Store) -> None:  # rule A3
    b = chat("B", '{"x": 1}', output_type=Point)
    root = chat("A", transfer("B"), sub_agents=[b])
    result = await Runner(root, store=store).run("go", session_id="s")
    assert result.value == Point(1)


async def test_the_type_of_the_root_is_not_forced_on_who_took_over(store: Store) -> None:  # rule A3
    root = chat(
        "A", transfer("B"), sub_agents=[chat("B", '{"name": "n", "points": []}', output_type=Box)], output_type=Point
    )
    result = await Runner(root, store=store).run("go", session_id="s")
    assert result.value == Box("n", [])


async def test_an_agent_tool_with_a_typed_output_gives_its_text(store: Store) -> None:  # rule A6
    inner = chat("Inner", '{"x": 1}', output_type=Point)
    outer = chat("Outer", call("Inner", request="go"), "end", tools=[inner])
    result = await Runner(outer, store=store).run("go", session_id="s")
    assert [m.text for m in result.messages if m.role == "tool"] == ['{"x": 1}']


class Parent(Agent):
    name = "Parent"

    def __init__(self, child: Agent) -> None:
        self.child = child
        self.got: list[Any] = []

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        value = await ctx.run(self.child, "x")
        self.got.append(value)
        yield MessageEvent(message=Message.assistant(f"x is {value.x}"))


async def test_a_child_run_by_code_gives_its_typed_value(store: Store) -> None:  # rule A15
    child = chat("Child", '{"x": 7}', output_type=Point)
    parent = Parent(child)
    result = await Runner(parent, store=store).run("go", session_id="s")
    assert result.output == "x is 7"
    assert parent.got == [Point(7)]


class AskingParent(Parent):
    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        value = await ctx.run(self.child, "x")
        self.got.append(value)
        answer = await ctx.run(chat("Asker", call("ask", question="?"), "asked", tools=[ask]), "ask")
        yield MessageEvent(message=Message.assistant(f"x is {value.x}, {answer}"))


async def test_a_typed_value_is_the_same_when_it_is_given_back(store: Store) -> None:  # rule A15
    runner = Runner(AskingParent(chat("Child", '{"x": 7}', output_type=Point)), store=store)
    paused = await runner.run("go", session_id="s")

    class Second(AskingParent):
        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            self.got.append(await ctx.run(self.child, "x"))
            answer = await ctx.run(chat("Asker", "asked", tools=[ask]), "ask")
            yield MessageEvent(message=Message.assistant(f"{self.got[-1]!r} {answer}"))

    second = Second(chat("Child", output_type=Point))
    result = await Runner(second, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "Point(x=7, y=0) asked"
