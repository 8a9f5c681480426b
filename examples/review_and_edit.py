"""Review and edit: a person accepts a tool call, refuses it, or changes its arguments before it runs.

    python examples/review_and_edit.py

`yes` accepts the call. `passenger_name=Ann Lee, phone=555-0199` changes these arguments: the new ones are validated,
are what runs, and are told to the model. Anything else refuses the call, and is the reason that the model reads.
"""

from _console import main, model

from adjourn import Approve, ChatModelAgent, Edit, Interrupt, Reject, ToolCall, ToolCallInfo
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel
from adjourn.tools import reviewed


async def book_ticket(location: str, passenger_name: str, phone: str) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
        phone: How to reach them.
    """
    return f"Booked: a ticket to {location} for {passenger_name}, phone {phone}."


def book(request: ModelRequest) -> str | ToolCall:
    """Stands in for a model: wants to book, and passes on what came of it."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"This is what came of it. {last.text}"
    arguments = {"location": "Beijing", "passenger_name": "Martin", "phone": "555-0100"}
    return ToolCall(id="call_1", name="book_ticket", arguments=arguments)


agent = ChatModelAgent(
    name="TicketBooker",
    description="Books train tickets",
    instruction="You book train tickets with `book_ticket`. Tell the user what came of it.",
    model=model(FunctionModel(book)),
    tools=[reviewed(book_ticket)],
)


def review(typed: str, asked: Interrupt) -> Approve | Edit | Reject:
    """A yes, arguments to change, or the reason for a no."""
    assert isinstance(asked.info, ToolCallInfo)
    if typed.lower() in ("y", "yes"):
        return Approve()
    if "=" not in typed:
        return Reject(typed)
    changes = dict(change.strip().split("=", 1) for change in typed.split(","))
    return Edit({**asked.info.arguments, **changes})  # An edit has all of the arguments.


if __name__ == "__main__":
    main(agent, "Book a ticket for Martin to Beijing, phone 555-0100", review)
