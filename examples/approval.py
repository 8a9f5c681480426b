"""Approval: a tool that asks before it runs.

    python examples/approval.py

The model wants to book a ticket, and the run pauses with the call for a person to see. `yes` lets it run. Anything else
refuses it, and is the reason that the model reads.
"""

from _console import main, model

from adjourn import Approve, ChatModelAgent, Interrupt, Reject, tool
from adjourn.models import DemoModel


@tool(approval=True)
async def book_ticket(location: str, passenger_name: str, phone: str) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
        phone: How to reach them.
    """
    return f"Booked: a ticket to {location} for {passenger_name}, phone {phone}."


agent = ChatModelAgent(
    name="TicketBooker",
    description="Books train tickets",
    instruction="You book train tickets with `book_ticket`. Tell the user what came of it.",
    model=model(DemoModel()),
    tools=[book_ticket],
)


def decide(typed: str, _: Interrupt) -> Approve | Reject:
    """A yes, or the reason for a no."""
    return Approve() if typed.lower() in ("y", "yes") else Reject(typed)


if __name__ == "__main__":
    main(agent, "Book a ticket for Martin to Beijing, phone 555-0100", decide)
