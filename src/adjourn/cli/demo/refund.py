"""The graph of the demo: a refund that somebody must approve."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from adjourn import current, interrupt, once
from adjourn.graph import START, Command, CompiledGraph, StateGraph
from adjourn.stores import SQLiteStore


class Refund(TypedDict):
    """The state of the graph."""

    order: str
    customer: str
    amount: Decimal
    reason: str
    receipt: str
    letter: str


class Decision(msgspec.Struct, frozen=True):
    """The answer that the graph waits for."""

    ok: bool
    reason: str = ""


@once
def reserve(amount: Decimal) -> str:
    """Set money aside, once, however often the code around it runs again."""
    current().deps.enter(f"reserved {amount} EUR")
    return f"hold-{current().idempotency_key[:6]}"


@once
def transfer(amount: Decimal, customer: str) -> str:
    """Send the money, once."""
    current().deps.enter(f"paid {amount} EUR to {customer}")
    return f"receipt-{current().idempotency_key[:6]}"


async def look_up(state: Refund) -> dict[str, Any]:
    """Find the order."""
    return {"customer": "Ada", "amount": Decimal("120.00")}


def approve(state: Refund) -> Command:
    """Reserve the money, then ask. When the answer comes this function runs again, and `reserve` does not."""
    amount, customer = state["amount"], state["customer"]
    hold = reserve(amount)
    decision = interrupt(
        {"order": state["order"], "customer": customer, "amount": amount, "reserved as": hold},
        key="decision",
        reason="need_approval",
        prompt=f"Refund {amount} EUR to {customer} for order {state['order']}?",
        schema=Decision,
    )
    return Command(update={"reason": decision.reason}, goto="pay" if decision.ok else "decline")


def pay(state: Refund) -> dict[str, Any]:
    """Send the money."""
    return {"receipt": transfer(state["amount"], state["customer"])}


def decline(state: Refund) -> dict[str, Any]:
    """Write a letter."""
    return {"letter": f"Dear {state['customer']}, no refund for {state['order']}. {state['reason']}".strip()}


def build(folder: Path) -> CompiledGraph:
    """Return the graph, with its sessions in a SQLite file in `folder`."""
    return (
        StateGraph(Refund, name="refund")
        .add_node("look_up", look_up)
        .add_node("approve", approve, destinations=["pay", "decline"])
        .add_node("pay", pay)
        .add_node("decline", decline)
        .add_edge(START, "look_up")
        .add_edge("look_up", "approve")
        .compile(store=SQLiteStore(folder / "demo.db"))
    )
