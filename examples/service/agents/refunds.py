"""What the refund desk can do: functions of the state of its graph."""

import re
from typing import Any

from offline import Offline

from adjourn import current, session_value
from adjourn.models import ModelRequest

ORDERS = {"A-17": 40.0, "B-42": 250.0}


def look_up(state: dict[str, Any]) -> dict[str, Any]:
    """Find the order that the customer has answered, or that the model has read out of the message."""
    order = _order_in(state.get("order") or state["last_response"])
    return {"order": order, "amount": ORDERS.get(order, 0.0)}


def how(state: dict[str, Any]) -> str:
    """Decide which way to go. The limit is a session value: it stands in the YAML file."""
    if not state["amount"]:
        return "unknown"
    return "large" if state["amount"] > session_value("limit") else "small"


def pay(state: dict[str, Any]) -> dict[str, Any]:
    """Send the money. The key is the same in every attempt, so that a bank can tell."""
    receipt = current().idempotency_key[:6]
    return _ended(f"{state['amount']:.2f} EUR for {state['order']} are on their way, receipt {receipt}.")


def refuse(state: dict[str, Any]) -> dict[str, Any]:
    """Say no."""
    return _ended(f"We are sorry: order {state['order']} is not refunded.")


def _ended(text: str) -> dict[str, Any]:
    # The state stays for the session's next message, which may be about another order.
    return {"order": "", "last_response": text}


def _order_in(text: str) -> str:
    found = re.search(r"\b[A-Z]-\d+\b", text)
    return found[0] if found else ""


def _read(request: ModelRequest) -> str:
    order = _order_in(request.messages[-1].text)
    return f"It is about order {order}." if order else "No order is named."


model = Offline(_read)
