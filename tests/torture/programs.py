"""The programs of the soak: each leaves a line in the ledger of its session whenever it does something outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from adjourn import (
    AnswerWith,
    ChatModelAgent,
    Runner,
    ToolCall,
    current,
    interrupt,
    once,
    tool,
    workflow,
)
from adjourn.graph import START, CompiledGraph, StateGraph, append, merge
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel
from tests.proof.ledger import Ledger

PACE = 0.05
"""Seconds that a step takes, so that much happens in the middle of one."""


def ledger_of(folder: Path, session: str) -> Ledger:
    """Return the ledger of a session."""
    return Ledger(folder / "ledgers" / session)


def _here() -> Ledger:
    return ledger_of(Path(os.environ["ADJOURN_TORTURE"]), current().session_id)


def _do(what: str, *arguments: Any) -> None:
    here = current()
    key, address = here.idempotency_key, str(here.address)
    _here().write("effect", what, key=key, address=address, arguments=list(arguments))


def _note_kept(what: str, *arguments: Any) -> None:
    _here().write("kept", what, address=str(current().address), arguments=list(arguments))


@once
async def charge(order: str) -> str:
    _do("charge", order)
    await asyncio.sleep(PACE)
    return f"charged {order}"


@once
def print_label(order: str) -> str:
    _do("label", order)
    return f"label of {order}"


@workflow
async def refund(order: str) -> list[Any]:
    """Plain code: two kept calls, and a question between them."""
    receipt = await charge(order)
    _note_kept("charge", order)
    said = interrupt("refund?", key="manager", schema=str)
    _do("decided", "manager", said)
    label = await asyncio.to_thread(print_label, order)
    _note_kept("label", order)
    return [receipt, said, label]


@workflow
async def deadline(order: str) -> list[Any]:
    """A question that takes its default soon, unless somebody is quicker."""
    receipt = await charge(order)
    _note_kept("charge", order)
    expires = timedelta(seconds=1.5)
    said = interrupt("quick?", key="quick", schema=str, expires_in=expires, on_expire=AnswerWith("nobody"))
    _do("decided", "quick", said)
    return [receipt, said]


@workflow
async def errand(what: str) -> str:
    """A turn of a session that has several, which were all submitted before the first began."""
    _do("turn", what)
    receipt = await charge(what)
    _note_kept("charge", what)
    return receipt


class Notes(TypedDict):
    """The state of the desk."""

    order: str
    notes: Annotated[list[str], append]
    said: Annotated[dict[str, str], merge]


def _noting(name: str) -> Callable[[Notes], Any]:
    async def node(state: Notes) -> dict[str, Any]:
        _do(name, state["order"])
        await asyncio.sleep(PACE)
        return {"notes": [name]}

    return node


def _asking(name: str) -> Callable[[Notes], Any]:
    def node(state: Notes) -> dict[str, Any]:
        label = print_label(name)
        _note_kept("label", name)
        said = interrupt(f"{name}?", key=name, schema=str)
        _do("decided", name, said)
        return {"said": {name: said}, "notes": [label]}

    return node


def desk() -> CompiledGraph:
    """Two people are asked while a third node works; two steps follow."""
    graph = StateGraph(Notes, name="desk").add_node("open", _noting("open")).add_node("work", _noting("work"))
    graph.add_node("ann", _asking("ann")).add_node("ben", _asking("ben"))
    graph.add_node("pack", _noting("pack")).add_node("ship", _noting("ship")).add_edge(START, "open")
    for name in ("ann", "ben", "work"):
        graph.add_edge("open", name)
    return graph.add_edge(["ann", "ben", "work"], "pack").add_edge("pack", "ship").compile()


@tool(approval=True)
async def pay(what: str, cents: int) -> str:
    """Pay for something, if somebody approves."""
    receipt = await charge(what)
    _note_kept("charge", what)
    _do("pay", what, cents)
    return f"{receipt} {cents}"


@tool(at_most_once=True)
async def wire(what: str) -> str:
    """Move money in a system that knows no idempotency keys."""
    _do("wire", what)
    await asyncio.sleep(PACE)
    return f"wired {what}"


def payer() -> ChatModelAgent:
    """An agent with a tool that needs approval, and one that runs at most once."""

    def say(request: ModelRequest) -> str | Sequence[ToolCall]:
        number = sum(message.role == "assistant" for message in request.messages)
        if number == 0:
            return [ToolCall(id="p1", name="pay", arguments={"what": "book", "cents": 100})]
        if number == 1:
            return [ToolCall(id="w1", name="wire", arguments={"what": "rent"})]
        return "paid"

    return ChatModelAgent("Payer", model=FunctionModel(say), tools=[pay, wire])


PROGRAMS: dict[str, Callable[[], Any]] = {
    "refund": lambda: refund,
    "desk": desk,
    "payer": payer,
    "deadline": lambda: deadline,
    "errand": lambda: errand,
}
"""Each program by the app that its sessions are kept under."""


def runners(store: Any, **options: Any) -> dict[str, Runner]:
    """Return a runner for each program, newly built."""
    return {name: Runner(build(), store=store, app_name=name, **options) for name, build in PROGRAMS.items()}


def input_of(program: str, session: str) -> Any:
    """Return what a session begins with."""
    return {"order": session} if program == "desk" else session
