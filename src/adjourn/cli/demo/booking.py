"""`adjourn demo`: a ticket agent that asks before it books."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from adjourn.cli.ask.asking import LATER, ask, choose, is_terminal, say
from adjourn.cli.output.following import print_talk
from adjourn.cli.output.questions import print_question
from adjourn.events import Interrupt, Interrupted

from .process import SESSION
from .stage import Book, DemoFailed, Stage
from .tickets import build

WISH = "Book a ticket for Martin to Beijing"
TURNS = 10
"""How often the person may say something before there is anything to book."""


def show(folder: Path) -> None:
    """Show the four parts."""
    print("A ticket agent that asks before it books: one tool, one SQLite file. No key, no network.")
    stage = Stage("tickets", folder, print_talk)
    asked = _pause(stage)
    answer = _decide(stage, asked.interrupts[0])
    if answer is LATER:
        print("\nIt would stay open for as long as you like. Here it ends with the demo; nothing is left behind.")
        return
    _resume(stage, answer)
    _travel(stage, asked.checkpoint_id, answer)
    print("\nThat was it. The temporary folder with the file is removed.")


def _pause(stage: Stage) -> Interrupted:
    stage.title(1, "You say what you want, and a process runs the agent until it asks")
    for _ in range(TURNS):
        asked = stage.run_to_question(json.dumps(_wish()))
        if asked is not None:
            status = asyncio.run(build(stage.folder).status(SESSION))
            print(f"All that is left is the file demo.db. It says: {status.status}, for {status.interrupts[0].id}")
            return asked
    raise DemoFailed(f"after {TURNS} turns there is nothing to book")


def _wish() -> str:
    if not is_terminal():
        print(f"› {WISH}")
        return WISH
    say(f"Just Enter says: {WISH}", "dim")
    return choose("›") or WISH


def _decide(stage: Stage, asked: Interrupt) -> Any:  # Any: one of the forms that an approval takes
    stage.title(3, "You decide, and a new process goes on from there")
    if is_terminal():
        return ask(asked)
    print_question(asked)
    print("There is no terminal to ask in, so the demo answers by itself: approve.")
    return True


def _resume(stage: Stage, answer: Any) -> None:
    stage.run_through("resume", json.dumps(answer))
    print("The model was not asked again for what it had said. The railway's book:")
    Book(stage.folder).show()


def _travel(stage: Stage, checkpoint: str, answer: Any) -> None:
    was_booked = answer is True or (isinstance(answer, dict) and "arguments" in answer)
    other = {"decision": "reject", "reason": "on second thoughts, no"} if was_booked else True
    word = "no" if was_booked else "yes"
    stage.title(4, f"Back to checkpoint {checkpoint}, before your decision: what if it had been {word}?")
    stage.run_through("travel", checkpoint, json.dumps(other))
    print("\nBoth branches are there, and what the first one stored is as it was:")
    print(asyncio.run(build(stage.folder).tree(SESSION)))
    print("Going back undoes nothing in the world, of course. The railway's book:")
    Book(stage.folder).show()
