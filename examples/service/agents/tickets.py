"""What the ticket booker can do."""

import re

from offline import Offline, Reply, call

from adjourn import current, interrupt
from adjourn.models import ModelRequest

QUESTIONS = {"location": "Where to?", "passenger_name": "Who is travelling?"}
_PATTERNS = {"location": r"\b[Tt]o ([A-Z]\w+)", "passenger_name": r"\b[Ff]or ([A-Z]\w+)"}


def ask_for_clarification(question: str) -> str:
    """Ask the user for details that are missing.

    Args:
        question: What to ask.
    """
    return interrupt(question, prompt=question, schema=str)


def book_ticket(location: str, passenger_name: str) -> str:
    """Book a train ticket.

    Args:
        location: Where to.
        passenger_name: Who travels.
    """
    return f"Booked: {passenger_name} to {location}, number {current().idempotency_key[:6]}."


def _details(request: ModelRequest) -> dict[str, str]:
    """What the user has said since the last ticket, also in answers to questions."""
    known: dict[str, str] = {}
    asked = ""
    for message in request.messages:
        for each in message.tool_calls:
            asked = str(each.arguments.get("question", ""))
        if message.role == "user":
            known |= {name: found[1] for name, each in _PATTERNS.items() if (found := re.search(each, message.text))}
        elif message.name == "ask_for_clarification":
            known |= {name: message.text.strip(" .!") for name, question in QUESTIONS.items() if question == asked}
        elif message.name == "book_ticket":
            known = {}
    return known


def _reply(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    if last.name == "book_ticket":
        return f"{last.text} Have a good trip!" if "Booked" in last.text else f"No ticket then: {last.text}"
    known = _details(request)
    for name, question in QUESTIONS.items():
        if name not in known:
            return call(request, "ask_for_clarification", question=question)
    return call(request, "book_ticket", **known)


model = Offline(_reply)
