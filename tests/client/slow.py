"""An agent that writes half of its answer, and the rest when a file is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from adjourn import ChatModelAgent
from adjourn.models import Chunk, ModelRequest


class Halves:
    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Chunk(text="one ")
        for _ in range(30_000):
            if await asyncio.to_thread(Path(os.environ["ADJOURN_TEST_GO"]).exists):
                break
            await asyncio.sleep(0.01)
        yield Chunk(text="two")


AGENT = ChatModelAgent("slow", model=Halves())
