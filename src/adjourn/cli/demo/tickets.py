"""The agent of the demo: it books tickets, and asks before it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adjourn import ChatModelAgent, RunContext, Runner, current, once, tool
from adjourn.models import DemoModel
from adjourn.stores import SQLiteStore

from . import Book


@once
async def pay(passenger_name: str, location: str) -> str:
    """Pay for the ticket, once, however often the code around it runs again."""
    current().deps.enter(f"paid: 42 EUR for {passenger_name} to {location}")
    return f"receipt-{current().idempotency_key[:6]}"


@tool(approval=True)
async def book_ticket(location: str, passenger_name: str, phone: str, ctx: RunContext[Book]) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
        phone: How to reach them.
        ctx: The run.
    """
    receipt = await pay(passenger_name, location)
    ctx.emit(f"paid, {receipt}; now the ticket is printed…")
    await asyncio.sleep(ctx.deps.seconds)
    ctx.deps.enter(f"printed: the ticket of {passenger_name} to {location}")
    return f"Booked: {passenger_name} to {location}, seat 7A. Phone: {phone}."


agent: ChatModelAgent = ChatModelAgent(
    name="TicketBooker",
    description="Books tickets",
    instruction="You book tickets. Use `book_ticket`.",
    model=DemoModel(),
    tools=[book_ticket],
)


runner: Runner[Book] = Runner(agent, deps=Book(Path()))
"""The agent, with the book in the current folder: what `adjourn chat` takes."""


def build(folder: Path) -> Runner:
    """Return a runner for the agent, with its sessions in a SQLite file in `folder`."""
    return Runner(agent, store=SQLiteStore(folder / "demo.db"))
