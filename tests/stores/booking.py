"""A booking on a store, by an agent that asks first: `python -m tests.stores.booking <url> <session> [yes]`."""

import asyncio
import sys

from adjourn import Approve, ChatModelAgent, Runner, RunResult, tool
from adjourn.models import DemoModel


@tool(approval=True)
def book_ticket(location: str, passenger_name: str, phone: str) -> str:
    """Book a train ticket."""
    return f"Booked: a ticket to {location} for {passenger_name}, phone {phone}."


def booker(url: str) -> Runner:
    return Runner(ChatModelAgent("TicketBooker", model=DemoModel(), tools=[book_ticket]), store=url)


async def main(url: str, session: str, *given: str) -> None:
    runner = booker(url)
    result: RunResult
    if given:
        result = await runner.resume(session, {"approval": Approve()})
    else:
        result = await runner.run("Book a ticket for Martin to Beijing, phone 555-0100", session_id=session)
    sys.stdout.write(f"{result.status}: {result.output}\n")
    await runner.store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
