"""A process whose tool dies in the middle: `python -m tests.agents.paying STORE LEDGER KIND HOW [ANSWER]`.

HOW is where it dies: "before" or "after" it has paid. With an answer it answers the one question that is open.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from adjourn import ChatModelAgent, Runner, current, interrupt, once, tool
from adjourn.stores import SQLiteStore
from adjourn.testing import ScriptedModel
from tests.agents.calling import call


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def payer(ledger: Path, how: str, *script: Any, **options: Any) -> ChatModelAgent:
    """An agent that pays, and writes into a file that it did; its model follows a script."""

    def paid(line: str) -> None:
        with ledger.open("a") as file:
            file.write(f"{line}\n")

    @once
    async def reserve() -> str:
        paid("reserved")
        return "reserved"

    @tool(**options)
    async def pay(amount: int) -> str:
        """Pay."""
        if how == "before":
            die()
        paid(f"paid {amount} {current().idempotency_key}")
        if how == "after":
            die()
        return "paid"

    @tool(**options)
    async def careful(amount: int) -> str:
        """Reserve, ask, and pay."""
        await reserve()
        interrupt("Really?")
        if how == "before":
            die()
        paid(f"paid {amount} {current().idempotency_key}")
        if how == "after":
            die()
        return "paid with care"

    @tool
    async def note(text: str) -> str:
        """Write a line."""
        paid(text)
        return text

    return ChatModelAgent("A", model=ScriptedModel([*script, "done"]), tools=[pay, careful, note])


KINDS: dict[str, dict[str, Any]] = {
    "pay": {"at_most_once": True},
    "careful": {"at_most_once": True},
    "ask": {"approval": True},
}
"""Options of the tools by the kind of work: the last kind is asked about before, and may run again."""


def work(kind: str) -> list[Any]:
    """The calls of a kind of work."""
    if kind != "ask":
        return [call(kind, amount=5)]
    return [[call("note", "n1", text="one"), call("pay", amount=5), call("note", "n2", text="two")]]


async def main(store: str, ledger: str, kind: str, how: str, answer: str | None = None) -> None:
    script = work(kind) if answer is None else []
    made = Runner(payer(Path(ledger), how, *script, **KINDS[kind]), store=SQLiteStore(store))
    if answer is None:
        await made.run("go", session_id="s")
        return
    (asked,) = await made.pending("s")
    await made.resume("s", {asked.id: answer})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
