"""Programs that the command runs in tests, named as `desk:review` and so on from a folder that has this file."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from adjourn import Agent, ChatModelAgent, RunContext, Runner, current, interrupt, once, tool, workflow
from adjourn.agents import AgentInput, Yielded
from adjourn.graph import END, START, Command, MessagesState, StateGraph, append
from adjourn.models import DemoModel


@tool(approval=True)
async def book_ticket(location: str, passenger_name: str, phone: str) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
        phone: How to reach them.
    """
    print_to_ledger(f"booked {location} for {passenger_name}")
    return f"Booked a seat to {location}, phone {phone}"


agent = ChatModelAgent(
    name="TicketBooker",
    instruction="You book tickets for {user}. Use `book_ticket`.",
    model=DemoModel(delay=0),
    tools=[book_ticket],
)

strict = Runner(agent, self_approval=False)

TICKET = {"location": "Beijing", "passenger_name": "Martin", "seats": 2}
ARGUMENTS = {
    "type": "object",
    "properties": {
        "location": {"type": "string"},
        "passenger_name": {"type": "string"},
        "seats": {"type": "integer"},
    },
    "required": ["location", "passenger_name", "seats"],
    "additionalProperties": False,
}


class Review(MessagesState):
    drafts: Annotated[list[str], append]
    approved: bool


async def write(state: Review) -> dict[str, Any]:
    draft = f"draft {len(state['drafts']) + 1} of {state['user_input']}"
    print_to_ledger(draft)
    return {"drafts": [draft]}


def approve(state: Review) -> Command:
    ok = interrupt(
        {"draft": state["drafts"][-1]}, key="approval", schema=bool, prompt="Publish it?", reason="need_approval"
    )
    return Command(update={"approved": ok}, goto=END if ok else "write")


review = (
    StateGraph(Review, name="review")
    .add_node("write", write)
    .add_node("approve", approve, destinations=["write", END])
    .add_edge(START, "write")
    .add_edge("write", "approve")
    .compile()
)
draft = StateGraph(Review, name="draft").add_node("write", write)


def print_to_ledger(line: str) -> None:
    """What happened outside of the sessions: a line in a file for each time."""
    with Path("ledger.txt").open("a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


class Terms(msgspec.Struct, frozen=True):
    ok: bool
    class_: Literal["first", "second"] = "second"
    note: str = ""


@workflow
async def trip(input: str) -> str:
    """Ask for a name, for terms, and for a colour."""
    name = interrupt("What is your name?", key="name")
    terms = interrupt({"who": name, "where": input}, key="terms", prompt="On these terms?", schema=Terms)
    colour = interrupt("Which colour?", key="colour", schema=Literal["blue", "red"])
    return f"{name}: {terms.ok}, {terms.class_}, {terms.note!r}, {colour}"


@workflow
async def when(input: str) -> str:
    """Ask for a day."""
    return f"on {interrupt('Which day?', key='day', schema=date)}"


@once
async def book(arguments: dict[str, Any]) -> str:
    """Book, one time."""
    print_to_ledger(f"booked {arguments['location']}")
    return f"booked {arguments['seats']} to {arguments['location']} for {arguments['passenger_name']}"


@workflow
async def ticket(input: str) -> str:
    """Ask about a tool call, as an agent does."""
    call: dict[str, Any] = {"tool": "book_ticket", "arguments": {**TICKET, "location": input}, "call_id": "call_1"}
    answer = interrupt(call, key="call", reason="need_approval", prompt="Run book_ticket?", schema=approval())
    match answer:
        case True | {"decision": "approve"}:
            return await book(call["arguments"])
        case {"decision": "edit", "arguments": arguments}:
            return await book(arguments)
        case {"decision": "respond", "text": text}:
            return f"answered {text}"
        case _:
            return f"refused {answer['reason'] if isinstance(answer, dict) else ''}".strip()


def approval() -> dict[str, Any]:
    forms = {"approve": {}, "reject": {"reason": {"type": "string"}}, "edit": {"arguments": ARGUMENTS}}
    forms["respond"] = {"text": {"type": "string"}}
    objects = [
        {
            "type": "object",
            "properties": {"decision": {"const": name}, **fields},
            "required": ["decision", *fields],
            "additionalProperties": False,
        }
        for name, fields in forms.items()
    ]
    return {"anyOf": [{"type": "boolean"}, *objects]}


@workflow
async def pair(input: str) -> str:
    """Ask two people at once."""
    both = await current().run_all([(manager, input), (director, input)])
    return " and ".join(both)


@workflow
async def manager(input: str) -> str:
    """Ask the manager."""
    return f"manager {interrupt('Manager: ok?', key='manager', schema=bool)}"


@workflow
async def director(input: str) -> str:
    """Ask the director."""
    return f"director {interrupt('Director: ok?', key='director', schema=bool)}"


def exists(name: str) -> bool:
    """Whether there is a file of that name here."""
    return Path(name).exists()


@workflow
async def falls(input: str) -> str:
    """Fail until there is a file called `mended`."""
    if not exists("mended"):
        raise ValueError(f"cannot go {input}")
    return "mended"


@workflow
async def waits(input: str) -> str:
    """Say that it runs, then wait for a file, or for Ctrl-C."""
    current().emit("it runs")
    for _ in range(60_000):
        if exists("go"):
            return "went"
        await asyncio.sleep(0.01)
    return "gave up"


@once
async def pack(what: str) -> str:
    """Pack, one time."""
    print_to_ledger(f"packed {what}")
    return what


@once
async def load_up(what: str) -> str:
    """Begin to load, and wait for a file before that is done."""
    print_to_ledger(f"loading {what} {current().idempotency_key}")
    for _ in range(60_000):
        if exists("go"):
            print_to_ledger(f"loaded {what}")
            return what
        await asyncio.sleep(0.01)
    return "gave up"


@workflow
async def shipping(input: str) -> str:
    """Ask, then do two things."""
    interrupt("Ship it?", key="ship", schema=bool)
    return await load_up(await pack(input))


ships = Runner(shipping, lease_ttl=600)


@workflow
async def deaf(input: str) -> str:
    """Ask, then wait for ever, whoever cancels it."""
    interrupt("Begin?", key="begin", schema=bool)
    print_to_ledger("it has begun")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@workflow
async def threaded(input: str) -> str:
    """Ask, then wait for a thread that nobody can stop."""
    interrupt("Begin?", key="begin", schema=bool)
    print_to_ledger("it has begun")
    await asyncio.to_thread(threading.Event().wait)
    return "never"


class Tells(Agent):
    """Begin to tell something, then wait as `waits` does."""

    name = "Tells"

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Yielded]:
        yield self._story()

    async def _story(self) -> AsyncIterator[str]:
        yield "once upon "
        for _ in range(60_000):
            if exists("go"):
                break
            await asyncio.sleep(0.01)
        yield "a time"


tells = Tells()


class Desk:
    """What `--deps` makes."""


@workflow
async def deps(input: str) -> str:
    """Say what it depends on, and what the session values are."""
    return f"{type(current().deps).__name__}, {current().values.get('user')}"


def plain(input: str) -> str:
    """A function that is no workflow."""
    return input


titled = (
    StateGraph(Review, name="titled")
    .add_node("sign", approve, title="Sign it off", destinations=["sign", END])
    .add_edge(START, "sign")
    .compile()
)


class Tally(TypedDict):
    count: int


tally = (
    StateGraph(Tally, name="tally")
    .add_node("add", lambda state: {"count": state["count"] + 1})
    .add_edge(START, "add")
    .compile()
)
