"""`adjourn demo`: a ticket agent that asks before it books."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from adjourn.cli.ask.asking import LATER, ask, choose, is_terminal, say
from adjourn.cli.output.following import print_talk
from adjourn.cli.output.questions import print_question
from adjourn.events import Custom, Event, Interrupt, Interrupted

from .stage import SESSION, Book, DemoFailed, Stage

WISH = "Book a ticket for Martin to Beijing"
TURNS = 10
"""How often the person may say something before there is anything to book."""

SET_STORE = (
    '$env:ADJOURN_STORE = "sqlite:///trips.db"'
    if sys.platform == "win32"
    else "export ADJOURN_STORE=sqlite:///trips.db"
)
NEXT = f"""\
  {SET_STORE}
  adjourn chat adjourn.cli.demo.tickets:runner  # leave its question for later
  adjourn pending                               # what waits, and for whom
  adjourn answer SESSION                        # from any process
  adjourn resume adjourn.cli.demo.tickets:runner SESSION
  adjourn demo graph                            # a refund, as a graph"""


def show(folder: Path) -> None:
    """Show the four parts, and what to try next."""
    say("A ticket agent that asks before it books: one tool, one SQLite file. No key, no network.")
    stage = Stage("tickets", folder, parts=4, show=print_talk)
    asked = _pause(stage)
    answer = _decide(stage, asked.interrupts[0])
    if answer is LATER:
        say("\nIt would stay open for as long as you like. Here it ends with the demo; nothing is left behind.")
        return
    _race(stage, answer)
    _go_on(stage)
    _travel(stage, asked.checkpoint_id, answer)
    say("\nThat was it. The temporary folder with the file is removed. What to try next:")
    print(NEXT)


def _pause(stage: Stage) -> Interrupted:
    stage.title(1, "You say what you want; a process runs the agent until it asks, and is killed")
    for _ in range(TURNS):
        asked = stage.run_until(_asks, "start", json.dumps(_wish()))
        if isinstance(asked, Interrupted):
            status = stage.look(lambda sessions: sessions.status(SESSION))
            say(f"All that is left is the file demo.db. It says: {status.status}, for {status.interrupts[0].id}")
            return asked
    raise DemoFailed(f"after {TURNS} turns there is nothing to book")


def _asks(event: Event) -> bool:
    return isinstance(event, Interrupted)


def _wish() -> str:
    if not is_terminal():
        print(f"› {WISH}")
        return WISH
    say(f"Just Enter says: {WISH}", "dim")
    return choose("›") or WISH


def _decide(stage: Stage, asked: Interrupt) -> Any:  # Any: one of the forms that an approval takes
    stage.title(2, "You and Bob decide at the same moment: one answer counts, the other is told")
    if is_terminal():
        return ask(asked)
    print_question(asked)
    say("There is no terminal to ask in, so the demo answers by itself: approve.")
    return True


def _race(stage: Stage, answer: Any) -> None:
    """Let two processes answer at the same moment; they say the same, so that it does not matter who is first."""
    words = json.dumps(answer)
    yours, bobs = map(json.loads, stage.race("answer", ("you", words), ("bob", words)))
    for name, outcome in (("you", yours), ("bob", bobs)):
        if "error" in outcome:
            say(f"✘ {name} came second: {outcome['error']}, answered by {outcome['first']}.", "yellow")
        else:
            say(f"✔ {name} answered: it is recorded.", "green")
    say("No process runs the agent meanwhile; the answer waits in the file.")


def _go_on(stage: Stage) -> None:
    stage.title(3, "A new process goes on, and is killed in the middle: paid, and no ticket yet")
    if stage.run_until(lambda event: isinstance(event, Custom), "crawl") is None:
        say("There was nothing to book, so there was nothing to interrupt.")
        return
    stage.run_through("recover")
    say(
        "`book_ticket` ran again from its top, and yet it was paid for once: `pay` is marked @once. The railway's book:"
    )
    Book(stage.folder).show()


def _travel(stage: Stage, checkpoint: str, answer: Any) -> None:
    was_booked = answer is True or (isinstance(answer, dict) and "arguments" in answer)
    other = {"decision": "reject", "reason": "on second thoughts, no"} if was_booked else True
    word = "no" if was_booked else "yes"
    stage.title(4, f"Back to checkpoint {checkpoint}, before your decision: what if it had been {word}?")
    stage.run_through("travel", checkpoint, json.dumps(other))
    say("\nBoth branches are there, and what the first one stored is as it was:")
    print(stage.look(lambda sessions: sessions.tree(SESSION)))
    say("Going back undoes nothing in the world, of course. The railway's book:")
    Book(stage.folder).show()
