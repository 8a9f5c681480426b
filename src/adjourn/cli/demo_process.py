"""A process of the demo: it runs the graph for a while and writes each event as a line of JSON.

start FOLDER                         until the graph asks; then it waits to be killed
resume FOLDER DECISION               with the answer
travel FOLDER CHECKPOINT DECISION    from that checkpoint on, with the answer
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from adjourn import Run
from adjourn.cli.demo_refund import SESSION, Bank, Decision, build
from adjourn.events import to_json


async def _tell(run: Run) -> None:
    async for event in run:
        sys.stdout.buffer.write(to_json(event) + b"\n")
        sys.stdout.buffer.flush()


async def _start(folder: Path) -> None:
    await _tell(build(folder).run({"order": "A-17"}, session_id=SESSION, deps=Bank(folder)))
    # The demo holds the other end of this pipe: should it end before it has killed this process, this is the end, too.
    sys.stdin.read()


async def _resume(folder: Path, decision: str) -> None:
    answers = {"decision": msgspec.json.decode(decision, type=Decision)}
    await _tell(build(folder).resume(SESSION, answers, by="you", deps=Bank(folder)))


async def _travel(folder: Path, checkpoint: str, decision: str) -> None:
    await _tell(build(folder).run(None, session_id=SESSION, checkpoint_id=checkpoint, deps=Bank(folder)))
    await _resume(folder, decision)


if __name__ == "__main__":
    command, place, *arguments = sys.argv[1:]
    asyncio.run({"start": _start, "resume": _resume, "travel": _travel}[command](Path(place), *arguments))
