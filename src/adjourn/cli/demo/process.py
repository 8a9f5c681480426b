"""A process of a demo: it runs the program for a while and writes each event as a line of JSON.

refund | tickets, then
start FOLDER INPUT                 until the program asks; then it waits to be killed
answer FOLDER NAME ANSWER          records the answer of somebody, when a line is written to it, and says how it went
resume FOLDER ANSWER               with the answer to the question that is open
recover FOLDER                     goes on with what was answered, or after a crash
crawl FOLDER                       the same, and takes a minute where others take no time
travel FOLDER CHECKPOINT ANSWER    from that checkpoint on, with the answer
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from adjourn import AlreadyResumed, Run, Runner, Sessions
from adjourn.events import to_json

from . import SESSION, Book
from . import refund as demo_refund
from . import tickets as demo_tickets

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


async def _answer(runner: Runner, folder: Path, name: str, answer: str) -> None:
    sessions = Sessions(runner.store)
    (question,) = await sessions.pending(SESSION)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        await sessions.answer(SESSION, {question: json.loads(answer)}, by=name)
    except AlreadyResumed as error:
        print(json.dumps({"first": error.by, "error": type(error).__name__}), flush=True)
    else:
        print(json.dumps({"first": name}), flush=True)


async def _recover(runner: Runner, folder: Path) -> None:
    await _print_events(runner.recover(SESSION, deps=Book(folder)))


async def _crawl(runner: Runner, folder: Path) -> None:
    await _print_events(runner.recover(SESSION, deps=Book(folder, seconds=60)))


async def _resume(runner: Runner, folder: Path, answer: str) -> None:
    (question,) = await runner.pending(SESSION)
    await _print_events(runner.resume(SESSION, {question: json.loads(answer)}, by="you", deps=Book(folder)))


async def _travel(runner: Runner, folder: Path, checkpoint: str, answer: str) -> None:
    await _print_events(runner.run(None, session_id=SESSION, checkpoint_id=checkpoint, deps=Book(folder)))
    await _resume(runner, folder, answer)


def main(program: str, command: str, place: str, *arguments: str) -> None:
    """Do one step of a demo's program, as a process of its own."""
    folder = Path(place)
    steps = {"answer": _answer, "crawl": _crawl, "recover": _recover, "resume": _resume, "start": _start}
    step = {**steps, "travel": _travel}[command]
    asyncio.run(step(_PROGRAMS[program](folder), folder, *arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
