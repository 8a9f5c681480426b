"""Agents to serve: what they do is decided by the last message, so that tests can share them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, TypedDict

from adjourn import ChatModelAgent, Message, ToolCall, interrupt, tool
from adjourn.graph import StateGraph
from adjourn.models import Chunk, ModelRequest
from adjourn.testing import FunctionModel

WORDS = ["one ", "two ", "three ", "four ", "five "]


class Gates:
    """Where a model waits until a test, in another thread, lets it go on; by name."""

    def __init__(self) -> None:
        self._reached: dict[str, threading.Event] = defaultdict(threading.Event)
        self._passed: dict[str, threading.Event] = defaultdict(threading.Event)

    async def wait(self, name: str) -> None:
        self._reached[name].set()
        await asyncio.to_thread(self._passed[name].wait, 30)

    def reached(self, name: str) -> None:
        assert self._reached[name].wait(30)

    def open(self, name: str) -> None:
        self._passed[name].set()


GATES = Gates()


FLOOD = [f"{number:04} " * 100 for number in range(4000)]


class Counter:
    """A model that counts to five, and waits after three if it is told `count GATE`; or writes very much."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        gate = request.messages[-1].text.partition(" ")[2]
        if request.messages[-1].text == "flood":
            for piece in FLOOD:
                yield Chunk(text=piece)
            return
        for word in WORDS:
            if word == "four " and gate:
                await GATES.wait(gate)
            yield Chunk(text=word)


@tool(approval=True)
async def book_ticket(place: str) -> str:
    """Book a ticket."""
    return f"booked: {place}"


@tool
async def ask_name() -> str:
    """Ask for a name."""
    return interrupt("Which name?", schema=str, reason="need_name", prompt="Which name?")


@tool
async def fail() -> str:
    """Fail."""
    raise RuntimeError("/etc/secret-path is broken")


def decide(request: ModelRequest) -> Message | str | list[ToolCall]:
    last = request.messages[-1]
    if last.role == "tool":
        return f"Result: {last.text}"
    word, _, rest = last.text.partition(" ")
    calls = {
        "book": lambda: [ToolCall(id="c1", name="book_ticket", arguments={"place": rest})],
        "two": lambda: [
            ToolCall(id=f"c{number}", name="book_ticket", arguments={"place": place})
            for number, place in enumerate(["Rome", "Oslo"])
        ],
        "name": lambda: [ToolCall(id="c1", name="ask_name", arguments={})],
        "fail": lambda: [ToolCall(id="c1", name="fail", arguments={})],
    }
    return calls[word]() if word in calls else f"You said: {last.text}"


def booker(name: str = "booker") -> ChatModelAgent:
    return ChatModelAgent(
        name,
        model=FunctionModel(decide),
        tools=[book_ticket, ask_name, fail],
        description="Books tickets.",
        on_tool_error="raise",
    )


def counter() -> ChatModelAgent:
    return ChatModelAgent("counter", model=Counter())


class State(TypedDict, total=False):
    cents: int
    paid: bool


def refunds() -> Any:
    def pay(state: State) -> State:
        return {"paid": interrupt({"cents": state.get("cents", 0)}, schema=bool, prompt="Pay it?")}

    builder = StateGraph(State, name="refunds")
    builder.add_node("pay", pay)
    builder.set_entry_point("pay")
    builder.set_finish_point("pay")
    return builder.compile()


class Waiting:
    """A model that begins to answer and never ends."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Chunk(text="Well, ")
        await asyncio.Event().wait()


@tool
async def die() -> str:
    """End the process, if it is told to."""
    if os.environ.get("ADJOURN_TEST_DIES"):
        os._exit(9)
    return "alive"


def call_die(request: ModelRequest) -> str | ToolCall:
    is_done = request.messages[-1].role == "tool"
    return "Still here." if is_done else ToolCall(id="c1", name="die", arguments={})


@tool(approval=True)
async def die_if_told(place: str) -> str:
    """Book a ticket, or end the process, if it is told to."""
    if os.environ.get("ADJOURN_TEST_DIES"):
        os._exit(9)
    return f"booked: {place}"


def call_twice(request: ModelRequest) -> str | ToolCall:
    calls = sum(message.role == "tool" for message in request.messages)
    if calls == 2:
        return "Both are booked."
    return ToolCall(id=f"c{calls}", name="die_if_told", arguments={"place": ["Rome", "Oslo"][calls]})


ASKER = ChatModelAgent("asker", model=FunctionModel(call_twice), tools=[die_if_told])
DIER = ChatModelAgent("dier", model=FunctionModel(call_die), tools=[die])
WAITER = ChatModelAgent("waiter", model=Waiting())
BOOKER = booker()
BENCH = counter()
