"""The graph of the demo: a refund that somebody must approve."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from adjourn import current, interrupt, once
from adjourn.checkpoint import SQLiteStore
from adjourn.graph import START, Command, CompiledGraph, StateGraph

SESSION = "refund-17"


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


class Bank:
    """A bank as the demo needs one: a book, in which every movement of money is a line."""

    def __init__(self, folder: Path) -> None:
        self._book = folder / "bank.txt"

    def move(self, what: str) -> None:
        """Make an entry, and have it on the disk."""
        with self._book.open("a", encoding="utf-8") as book:
            book.write(f"{what}, by process {os.getpid()}\n")
            book.flush()
            os.fsync(book.fileno())

    def lines(self) -> list[str]:
        """All entries."""
        return self._book.read_text(encoding="utf-8").splitlines() if self._book.exists() else []


@once
def reserve(amount: Decimal) -> str:
    """Set money aside: one time, however often the code around it runs again."""
    current().deps.move(f"reserved {amount} EUR")
    return f"hold-{current().idempotency_key[:6]}"


@once
def transfer(amount: Decimal, customer: str) -> str:
    """Send the money: one time."""
    current().deps.move(f"paid {amount} EUR to {customer}")
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
    """The graph, with its sessions in a SQLite file in `folder`."""
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
