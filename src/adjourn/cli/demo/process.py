"""A process of a demo: it runs the program for a while and writes each event as a line of JSON.

refund | tickets, then
start FOLDER INPUT                 until the program asks; then it waits to be killed
resume FOLDER ANSWER               with the answer to the question that is open
travel FOLDER CHECKPOINT ANSWER    from that checkpoint on, with the answer
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from adjourn import Run, Runner
from adjourn.events import to_json

from . import refund as demo_refund
from . import tickets as demo_tickets
from .stage import Book

SESSION = "demo"
_PROGRAMS = {"refund": demo_refund.build, "tickets": demo_tickets.build}


async def _print_events(run: Run) -> bool:
    """Write the events, and return whether the last one asks."""
    last = ""
    async for event in run:
        last = type(event).__name__
        sys.stdout.buffer.write(to_json(event) + b"\n")
        sys.stdout.buffer.flush()
    return last == "Interrupted"


async def _start(runner: Runner, folder: Path, input: str) -> None:
    if await _print_events(runner.run(json.loads(input), session_id=SESSION, deps=Book(folder))):
        # The demo holds the other end of this pipe: if it exits before killing this process, the read ends.
        sys.stdin.read()


async def _resume(runner: Runner, folder: Path, answer: str) -> None:
    (question,) = await runner.pending(SESSION)
    await _print_events(runner.resume(SESSION, {question: json.loads(answer)}, by="you", deps=Book(folder)))


async def _travel(runner: Runner, folder: Path, checkpoint: str, answer: str) -> None:
    await _print_events(runner.run(None, session_id=SESSION, checkpoint_id=checkpoint, deps=Book(folder)))
    await _resume(runner, folder, answer)


if __name__ == "__main__":
    program, command, place, *arguments = sys.argv[1:]
    folder = Path(place)
    step = {"start": _start, "resume": _resume, "travel": _travel}[command]
    asyncio.run(step(_PROGRAMS[program](folder), folder, *arguments))
