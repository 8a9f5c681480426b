"""A desk at which processes die: a store, and a ledger of what was done."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from adjourn import Runner, RunResult
from adjourn.stores import SQLiteStore
from tests.agents.paying import KINDS, payer, work

ROOT = Path(__file__).parents[2]


class Desk:
    """Work of one kind: begun here or by a process that is killed in the middle of it, and gone on with here."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.options = dict(KINDS[kind])
        self.store = SQLiteStore(folder / "s.db")
        self._files = [folder / "s.db", folder / "ledger"]

    @property
    def ledger(self) -> list[str]:
        """What was done, line by line."""
        return self._files[1].read_text().splitlines() if self._files[1].exists() else []

    async def dies(self, how: str, *answer: str) -> None:
        """Begin, or answer the open question, in a process that is killed."""
        command = [sys.executable, "-m", "tests.agents.paying", *self._files, self.kind, how, *answer]
        ended = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, check=False, capture_output=True, timeout=600
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()

    def runner(self, *script: Any) -> Runner:
        """A runner in this process, whose tools do not die."""
        return Runner(payer(self._files[1], "well", *script, **self.options), store=self.store)

    async def begin(self) -> RunResult:
        """Begin in this process."""
        return await self.runner(*work(self.kind)).run("go", session_id="s")

    async def recover(self) -> RunResult:
        """Go on in this process."""
        return await self.runner().recover("s")
