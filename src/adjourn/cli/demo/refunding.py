"""`adjourn demo graph`: a refund that somebody must approve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adjourn._text import visible_line
from adjourn.cli.ask.asking import is_terminal, say, typed
from adjourn.events import Interrupted

from .refund import build
from .stage import SESSION, Book, DemoFailed, Stage

Decision = dict[str, Any]


def show(folder: Path) -> None:
    """Show the three parts."""
    say("A refund that somebody must approve: a small graph, and one SQLite file. No key, no network.\n")
    print(build(folder).draw("text"))
    stage = Stage("refund", folder, parts=3)
    asked = _pause(stage)
    decision = _decide(stage, asked)
    _resume(stage, decision)
    _travel(stage, asked.checkpoint_id, decision)
    say("\nThat was it. The temporary folder with the file is removed.")


def _pause(stage: Stage) -> Interrupted:
    stage.title(1, "A process runs the graph until it asks, and is killed")
    asked = stage.run_until(lambda event: isinstance(event, Interrupted), "start", json.dumps({"order": "A-17"}))
    if not isinstance(asked, Interrupted):
        raise DemoFailed("the graph ended without asking")
    status = stage.look(lambda sessions: sessions.status(SESSION))
    say(f"All that is left is the file demo.db. It says: {status.status}, for {status.interrupts[0].id}")
    return asked


def _decide(stage: Stage, asked: Interrupted) -> Decision:
    stage.title(2, "The answer comes, and a new process goes on from there")
    question = asked.interrupts[0].prompt or ""
    if not is_terminal():
        reason = "within the 30 days"
        say(f"{question} There is no terminal to ask in, so the demo answers by itself: yes, {reason}.")
        return {"ok": True, "reason": reason}
    while (answer := typed(f"{question} [y/n] ").lower()) not in ("y", "yes", "n", "no"):
        print("Please type y or n, then Enter.")
    return {"ok": answer.startswith("y"), "reason": typed("Why? (a few words, or just Enter) ")}


def _resume(stage: Stage, decision: Decision) -> None:
    stage.run_through("resume", json.dumps(decision))
    _print_outcome(stage)
    say("`approve` ran again from its top, and yet the money was reserved one time. The bank's book:")
    Book(stage.folder).show()


def _travel(stage: Stage, checkpoint: str, decision: Decision) -> None:
    other = {"ok": not decision["ok"], "reason": "on second thoughts"}
    word = "yes" if other["ok"] else "no"
    stage.title(3, f"Back to checkpoint {checkpoint}, before the decision: what if it had been {word}?")
    stage.run_through("travel", checkpoint, json.dumps(other))
    _print_outcome(stage)
    say("\nBoth branches are there, and what the first one stored is as it was:")
    print(stage.look(lambda sessions: sessions.tree(SESSION)))
    say("Going back undoes nothing in the world, of course. The bank's book:")
    Book(stage.folder).show()


def _print_outcome(stage: Stage) -> None:
    state = stage.look(lambda sessions: sessions.state(SESSION))
    say(f"The outcome: {visible_line(state.get('receipt') or state['letter'])}")
