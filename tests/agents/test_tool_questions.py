"""Questions that tools ask by themselves: from async code and threads, several at once, kept calls in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from msgspec import Struct

from adjourn import (
    AgentTool,
    AlreadyResumed,
    ChatModelAgent,
    InvalidAnswer,
    Middleware,
    Runner,
    address_segment,
    current,
    interrupt,
    once,
    raise_interrupt,
    tool,
)
from adjourn.errors import AmbiguousInterrupt
from adjourn.stores import MemoryStore, Store
from adjourn.testing import FakeClock, ScriptedModel
from tests.agents.calling import agent, call, lone, results, runner

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def in_thread() -> str:
    """Ask."""
    ran.append(threading.current_thread() is threading.main_thread())
    return f"got {interrupt('What?')}"


async def in_async() -> str:
    """Ask."""
    return f"got {interrupt('What?')}"


async def in_task() -> str:
    """Ask."""

    async def ask() -> Any:
        return interrupt("What?")

    return f"got {await asyncio.create_task(ask())}"


async def in_group() -> str:
    """Ask."""

    async def ask() -> Any:
        return interrupt("What?")

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ask())
    return f"got {asked.result()}"


async def in_gather() -> str:
    """Ask."""

    async def ask() -> Any:
        return interrupt("What?")

    (found,) = await asyncio.gather(ask(), return_exceptions=True)
    return f"got {found}"


async def in_to_thread() -> str:
    """Ask."""
    return f"got {await asyncio.to_thread(interrupt, 'What?')}"


def in_pool() -> str:
    """Ask."""
    with ThreadPoolExecutor(1) as pool:
        return f"got {pool.submit(copy_context().run, interrupt, 'What?').result()}"


def swallowing() -> str:
    """Ask, and swallow the pause."""
    answer = None
    with contextlib.suppress(BaseException):
        answer = interrupt("What?")
    return f"got {answer}"


def returning() -> str:
    """Ask, and return all the same."""
    answer = None
    try:
        answer = interrupt("What?")
    finally:
        return f"got {answer}"  # noqa: B012  # as careless code does


class Around(Middleware):
    async def wrap_tool(self, call: Any, request: Any) -> Any:
        return await call(request)


PLACES = [in_thread, in_async, in_task, in_group, in_gather, in_to_thread, in_pool, swallowing, returning]
OPTIONS: dict[str, dict[str, Any]] = {"plain": {}, "timed": {"timeout": 20}, "inline": {"thread": False}}
# A pool's thread asks on the event loop, where an inline tool would wait for it.
WAYS = [(place, way) for place in PLACES for way in OPTIONS if (place, way) != (in_pool, "inline")]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(("place", "options"), WAYS, ids=lambda each: getattr(each, "__name__", each))
async def test_a_tool_may_ask_from_anywhere(store: Store, place: Any, wrapped: bool, options: str) -> None:  # rule I1
    asking = tool(place, name="asking", **OPTIONS[options])
    middleware = [Around()] if wrapped else []
    first = Runner(agent([asking], call("asking"), middleware=middleware), store=store)
    asked = await asyncio.wait_for(first.run("go", session_id="s"), 120)
    assert lone(asked) == "agent:A;tool:asking:c1"
    second = Runner(agent([asking], middleware=middleware), store=store)
    assert results(await second.resume("s", {lone(asked): "it"})) == ["got it"]


class Seat(Struct):
    row: int
    letter: str


async def test_several_questions_in_one_tool_each_with_its_type(store: Store) -> None:  # rules R5, R6
    @once
    def now() -> str:
        ran.append("now")
        return "noon"

    @tool
    def book() -> str:
        """Ask for all that is needed."""
        ran.append("in")
        time = now()
        seat = interrupt("Which seat?", key="seat", schema=Seat)
        ok = interrupt("Sure?", schema=bool)
        assert isinstance(seat, Seat)
        return f"{seat.row}{seat.letter} {ok} {time}"

    made = runner([book], call("book"), store=store)
    asked = await made.run("go", session_id="s")
    with pytest.raises(InvalidAnswer):
        await made.resume("s", {"seat": {"row": "1", "letter": "A"}})
    asked = await runner([book], store=store).resume("s", {"seat": {"row": 1, "letter": "A"}})
    with pytest.raises(AlreadyResumed):
        await made.resume("s", {"agent:A;tool:book:c1": {"row": 2, "letter": "B"}})
    assert results(await runner([book], store=store).resume("s", {lone(asked): True})) == ["1A True noon"]
    assert (ran.count("in"), ran.count("now")) == (3, 1)


async def test_several_questions_at_once_need_keys(store: Store) -> None:  # rule I1
    @tool
    async def both(keyed: bool) -> str:
        """Ask twice at once."""

        async def ask(key: str) -> Any:
            return interrupt(key, key=key if keyed else None)

        found = await asyncio.gather(ask("a"), ask("b"), return_exceptions=True)
        return f"{found}"

    made = runner([both], call("both", keyed=True), store=store)
    asked = await made.run("go", session_id="s")
    assert [each.key for each in asked.interrupts] == ["a", "b"]
    again = await made.resume("s", {"b": 2})
    assert [each.key for each in again.interrupts] == ["a"]
    assert results(await made.resume("s", {"a": 1})) == ["[1, 2]"]
    with pytest.raises(AmbiguousInterrupt):
        await runner([both], call("both", keyed=False), store=store).run("go", session_id="t")


async def test_a_question_in_a_loop_is_asked_anew_each_time(store: Store) -> None:  # rules I3, R8
    @tool
    def collect() -> str:
        """Ask until it is enough."""
        found: list[str] = []
        for _ in range(10):
            answer = interrupt("More?")
            if answer == "enough":
                break
            found.append(answer)
        return ",".join(found)

    made = runner([collect], call("collect"), store=store)
    asked = await made.run("go", session_id="s")
    seen = [lone(asked)]
    for answer in ("a", "b"):
        asked = await runner([collect], store=store).resume("s", {lone(asked): answer})
        seen.append(lone(asked))
    assert seen == [f"agent:A;tool:collect:c1{number}" for number in ("", "#2", "#3")]
    assert results(await made.resume("s", {lone(asked): "enough"})) == ["a,b"]


async def test_segments_of_its_own_are_in_the_address(store: Store) -> None:  # rule I6
    @tool
    async def ask() -> str:
        """Ask from a part of its own."""
        with address_segment("part", "one"):
            return f"got {interrupt('What?')}"

    made = runner([ask], call("ask"), store=store)
    asked = await made.run("go", session_id="s")
    assert lone(asked) == "agent:A;tool:ask:c1;part:one"
    assert results(await made.resume("s", {lone(asked): "it"})) == ["got it"]


async def test_a_tool_of_an_agent_tool_asks_at_its_place_in_the_tree(store: Store) -> None:  # rules I2, I6
    asking = tool(in_async, name="asking")

    def outer(*script: Any) -> Runner:
        inner = ChatModelAgent("Inner", model=ScriptedModel([call("asking", "c2"), "inside"]), tools=[asking])
        return Runner(agent([AgentTool(inner)], *script, name="Outer"), store=store)

    asked = await outer(call("Inner", request="x")).run("go", session_id="s")
    assert lone(asked) == "agent:Outer;tool:Inner:c1;agent:Inner;tool:asking:c2"
    parent = asked.interrupts[0].parent
    assert parent is not None
    assert (parent.id, parent.is_root_cause) == ("agent:Outer;tool:Inner:c1;agent:Inner", False)
    second = ChatModelAgent("Inner", model=ScriptedModel(["inside"]), tools=[asking])
    result = await Runner(agent([AgentTool(second)], name="Outer"), store=store).resume("s", {lone(asked): "it"})
    assert results(result) == ["inside"]


async def test_a_tool_may_steer_its_resume_by_hand(store: Store) -> None:  # rule R8
    @tool
    def steer() -> str:
        """Steer by hand."""
        context = current()
        if not context.was_interrupted:
            raise_interrupt("What?", state={"step": 1})
        assert context.is_resume_target
        return f"{context.interrupt_state} {context.resume_data}"

    made = runner([steer], call("steer"), store=store)
    asked = await made.run("go", session_id="s")
    result = await runner([steer], store=store).resume("s", {lone(asked): "it"})
    assert results(result) == ["{'step': 1} it"]


async def test_answers_of_several_people_reach_their_own_calls(store: Store) -> None:  # rule R3
    asking = tool(in_thread, name="asking")
    calls = [call("asking", f"c{number}") for number in range(6)]
    asked = await runner([asking], calls, store=store).run("go", session_id="s")
    runners = [runner([asking], store=store) for _ in calls]
    found = await asyncio.gather(
        *(
            each.resume("s", {question.id: number})
            for number, (each, question) in enumerate(zip(runners, asked.interrupts, strict=True))
        ),
        return_exceptions=True,
    )
    assert not [each for each in found if isinstance(each, BaseException)]
    assert results(await runners[0].messages("s")) == [f"got {number}" for number in range(6)]


async def test_an_expired_question_is_told_to_the_model() -> None:  # rule R11
    @tool
    async def ask() -> str:
        """Ask for a moment."""
        return f"got {interrupt('What?', expires_in=10)}"

    clock = FakeClock()
    made = Runner(agent([ask], call("ask")), store=MemoryStore(clock=clock), clock=clock)
    await made.run("go", session_id="s")
    clock.advance(11)
    result = await made.recover("s")
    assert result.status == "done"
    assert "InterruptExpired" in results(result)[0]
