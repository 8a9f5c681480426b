"""The agent of the demo: it books tickets, and asks before it does."""

from __future__ import annotations

from pathlib import Path

from adjourn import ChatModelAgent, RunContext, Runner, tool
from adjourn.models import DemoModel
from adjourn.stores import SQLiteStore

from .stage import Book


@tool(approval=True)
async def book_ticket(location: str, passenger_name: str, phone: str, ctx: RunContext[Book]) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
        phone: How to reach them.
        ctx: The run.
    """
    ctx.deps.enter(f"booked: {passenger_name} to {location}")
    return f"Booked: {passenger_name} to {location}, seat 7A. Phone: {phone}."


agent = ChatModelAgent(
    name="TicketBooker",
    description="Books tickets",
    instruction="You book tickets. Use `book_ticket`.",
    model=DemoModel(),
    tools=[book_ticket],
)


def build(folder: Path) -> Runner:
    """Return a runner for the agent, with its sessions in a SQLite file in `folder`."""
    return Runner(agent, store=SQLiteStore(folder / "demo.db"))
