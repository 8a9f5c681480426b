"""What the servers of `fleet.py` serve: an agent that pays twice, if somebody approves, and notes it in a ledger."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from adjourn import ChatModelAgent, Runner, ToolCall, current, tool
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel

from .ledger import Ledger

FOLDER = "ADJOURN_FLEET"
"""The environment variable that names the folder of the ledgers."""

LEASE = 2.0
TIMES = 2


def ledger_of(folder: Path, session: str) -> Ledger:
    """Return the ledger of a session."""
    return Ledger(folder / session)


@tool(approval=True)
async def pay(what: str) -> str:
    """Pay for something."""
    here = current()
    ledger = ledger_of(Path(os.environ[FOLDER]), here.session_id)
    ledger.write("effect", what, key=here.idempotency_key)
    await asyncio.sleep(0.05)  # So that it happens that a process dies in the middle.
    return f"paid {what}"


def _say(request: ModelRequest) -> str | Sequence[ToolCall]:
    number = sum(message.role == "tool" for message in request.messages)
    if number == TIMES:
        return "Everything is paid."
    return [ToolCall(id=f"c{number}", name="pay", arguments={"what": f"bill {number}"})]


PAYER = Runner(ChatModelAgent("payer", model=FunctionModel(_say), tools=[pay]), lease_ttl=LEASE)
