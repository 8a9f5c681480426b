"""What can be written can be read: a run that would store too much fails before anything of it is reported."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import pytest

from adjourn import (
    AdjournError,
    ChatModelAgent,
    Message,
    Runner,
    ToolCall,
    interrupt,
    once,
    set_session_value,
    workflow,
)
from adjourn._values.codec import MAX_VALUE
from adjourn.errors import NotStorable
from adjourn.events import Event, Failed, ToolResult
from adjourn.graph import END, START, StateGraph, append
from adjourn.middleware import FileTools
from adjourn.models import ModelRequest
from adjourn.sessions._questions import MAX_ANSWER
from adjourn.stores import MemoryStore, Store
from adjourn.testing import FunctionModel

LIMIT = 50_000
PIECE = "x" * 10_000


class Pieces(TypedDict):
    pieces: Annotated[list[str], append]
    last: str


def growing(times: int) -> Any:
    """A graph that keeps one more piece with each superstep."""

    def grow(state: Pieces) -> dict[str, Any]:
        return {"pieces": [PIECE]}

    def more(state: Pieces) -> str:
        return "grow" if len(state["pieces"]) < times else END

    graph = StateGraph(Pieces, name="growing").add_node("grow", grow).add_edge(START, "grow")
    return graph.add_conditional_edges("grow", more).compile()


@pytest.mark.parametrize(("durability", "kept"), [("step", 4), ("async", 4), ("pause", 0)])
async def test_a_session_that_could_not_be_loaded_again_fails_and_loads(
    store: Store, durability: Literal["step", "async", "pause"], kept: int
):  # rule C15
    runner = Runner(growing(20), store=store, durability=durability, max_session_bytes=LIMIT)
    with pytest.raises(NotStorable, match=f"{LIMIT} is the limit"):
        await runner.run({}, session_id="s")
    fresh = Runner(growing(20), store=store, durability=durability, max_session_bytes=LIMIT)
    assert (await fresh.status("s")).status == "failed"
    assert len((await fresh.state("s"))["pieces"]) == kept
    with pytest.raises(NotStorable):
        await fresh.recover("s")
    assert len((await fresh.state("s"))["pieces"]) == kept
    # With more room it goes on where it stood.
    assert len((await Runner(growing(20), store=store).recover("s")).state["pieces"]) == 20


async def test_what_was_replaced_does_not_count(store: Store):  # rule C15
    def change(state: Pieces) -> dict[str, Any]:
        return {"last": PIECE + str(len(state["pieces"])), "pieces": ["."]}

    def more(state: Pieces) -> str:
        return "change" if len(state["pieces"]) < 30 else END

    graph = StateGraph(Pieces, name="changing").add_node("change", change).add_edge(START, "change")
    program = graph.add_conditional_edges("change", more).compile()
    result = await Runner(program, store=store, max_session_bytes=LIMIT).run({}, session_id="s")
    assert result.state["last"] == PIECE + "29"
    assert (await Runner(program, store=store).state("s"))["last"] == PIECE + "29"


def _writes_files(request: ModelRequest) -> Any:
    number = sum(message.role == "tool" for message in request.messages)
    call = ToolCall(id=f"c{number}", name="write_file", arguments={"path": f"{number}.txt", "text": PIECE})
    return call if number < 15 else "done"


async def test_an_agent_that_fills_its_files_fails_in_time(store: Store):  # rule C15
    agent = ChatModelAgent(name="hoarder", model=FunctionModel(_writes_files), middleware=[FileTools()])
    runner = Runner(agent, store=store, max_session_bytes=10 * len(PIECE))
    seen: list[Event] = []
    try:
        async for event in runner.run("Write them all", session_id="s"):
            seen.append(event)  # noqa: PERF401  # those before the error count, too
    except NotStorable:
        pass
    last = seen[-1]
    assert isinstance(last, Failed)
    assert last.error == "NotStorable"
    # Nothing was reported that is not stored, and everything that is stored can be read.
    fresh = Runner(agent, store=store)
    results = [event.call_id for event in seen if isinstance(event, ToolResult)]
    answered = [message.tool_call_id for message in await fresh.messages("s") if message.role == "tool"]
    assert results == answered
    assert 2 < len(answered) < 10
    assert (await fresh.status("s")).status == "failed"
    assert (await fresh.recover("s")).output == "done"


async def test_an_input_that_is_too_large_changes_nothing(store: Store):  # rule C15
    agent = ChatModelAgent(name="listener", model=FunctionModel(lambda request: "yes"))
    runner = Runner(agent, store=store, max_session_bytes=LIMIT)
    await runner.run("hello", session_id="s")
    for session in ("s", "new"):
        with pytest.raises(NotStorable):
            await runner.run(Message.user("x" * LIMIT), session_id=session)
    assert [each.session_id for each in await runner.sessions()] == ["s"]
    assert len(await Runner(agent, store=store).messages("s")) == 2
    assert (await runner.run("and now?", session_id="s")).output == "yes"


async def test_code_that_swallows_the_refusal_does_not_end_well(store: Store):  # rule C15
    @once
    async def keep(number: int) -> str:
        return PIECE + str(number)

    @workflow
    async def hoard() -> str:
        for number in range(10):
            try:
                await keep(number)
            except AdjournError:
                set_session_value("swallowed", number)
        return "fine"

    with pytest.raises(NotStorable):
        await Runner(hoard, store=store, max_session_bytes=LIMIT).run(session_id="s")
    assert (await Runner(hoard, store=store).recover("s")).value == "fine"


async def test_answers_have_a_limit_of_their_own():  # rule C15
    @workflow
    async def ask() -> int:
        return len(interrupt("Tell me everything"))

    runner = Runner(ask, store=MemoryStore())
    (asked,) = (await runner.run(session_id="s")).interrupts
    for call in (runner.answer("s", {asked.id: "x" * MAX_ANSWER}), runner.resume("s", {asked.id: "x" * MAX_ANSWER})):
        with pytest.raises(NotStorable, match=r"the answer.*the limit"):
            await call
    assert (await runner.resume("s", {asked.id: "x" * 1000})).value == 1000


async def test_values_have_a_limit_of_their_own():  # rules C15, failures 62
    @workflow
    async def keep() -> None:
        set_session_value("big", "x" * MAX_VALUE)

    with pytest.raises(NotStorable):
        await Runner(keep, store=MemoryStore()).run(session_id="s")
