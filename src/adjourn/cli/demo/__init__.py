"""`adjourn demo`: a program asks, two people answer at once, processes are killed and others go on."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from adjourn import Sessions
from adjourn._screen import Screen
from adjourn._text import visible_line
from adjourn.cli._asking import LATER, ask, choose, is_terminal, typed
from adjourn.cli._errors import INTERRUPTED
from adjourn.cli._options import arg, takes
from adjourn.cli._printing import print_question, say
from adjourn.cli._running import print_talk
from adjourn.errors import AdjournError
from adjourn.events import Custom, Event, Interrupt, Interrupted, from_json
from adjourn.printing import print_event
from adjourn.stores import SQLiteStore

from .refund import build

Process = subprocess.Popen[bytes]

SESSION = "demo"

T = TypeVar("T")


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


class Book:
    """What was done in the outside world: a file with a line for each action; some take `seconds`."""

    def __init__(self, folder: Path, *, seconds: float = 0) -> None:
        self._file = folder / "book.txt"
        self.seconds = seconds

    def enter(self, what: str) -> None:
        """Add a line, and flush it to disk."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{what}, by process {os.getpid()}\n")
            file.flush()
            os.fsync(file.fileno())

    def show(self) -> None:
        """Print all lines."""
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else ["(nothing)"]
        for line in lines:
            print(f"  {line}")


class Stage:
    """The processes of one demo, in one folder."""

    def __init__(self, program: str, folder: Path, *, parts: int, show: Callable[[Event], None] = print_event) -> None:
        self.folder = folder
        self._parts = parts
        self._program = program
        self._show = show

    def title(self, number: int, text: str) -> None:
        """Begin a part."""
        screen = Screen(sys.stdout)
        screen.write(f"\n{screen.painted(screen.prose(f'{number} of {self._parts}  {text}'), 'bold')}\n")

    def run_until(self, reached: Callable[[Event], bool], command: str, *arguments: str) -> Event | None:
        """Let a process run until one of its events is reached, and kill it; None if it ended before."""
        with self._process(command, *arguments) as process:
            last = self._print_events(process, reached)
            if last is None:
                self._check(process)
                return None
            process.kill()
            process.wait()
            say(f"Killed: process {process.pid} {_ending(process)}, and is gone.")
            self.wait_until_free()
        return last

    def look(self, question: Callable[[Sessions], Awaitable[T]]) -> T:
        """Look at what is stored, and let go of the file: Windows removes none that is open."""

        async def looked() -> T:
            sessions = Sessions(SQLiteStore(self.folder / "demo.db"))
            try:
                return await question(sessions)
            finally:
                await sessions.close()

        return asyncio.run(looked())

    def wait_until_free(self) -> None:
        """Wait until another process can go on: at once where the system tells which processes live."""
        is_told = False
        while self.look(lambda sessions: sessions.status(SESSION)).owner_id is not None:
            if not is_told:
                say("This system does not tell that it is gone, so its lease has to end: up to half a minute…", "dim")
                is_told = True
            time.sleep(0.1)

    def run_through(self, command: str, *arguments: str) -> None:
        """Let a process run to its end."""
        with self._process(command, *arguments) as process:
            self._print_events(process, lambda _: False)
            self._check(process)

    def race(self, command: str, *runners: Sequence[str]) -> list[str]:
        """Start a process for each of the arguments, let all go at once, and return the line that each wrote."""
        with ExitStack() as stack:
            processes = [stack.enter_context(self._process(command, *each)) for each in runners]
            for process in processes:
                _line_of(process)  # It is ready.
            for process in processes:
                assert process.stdin
                process.stdin.write(b"go\n")
                process.stdin.flush()
            return [_line_of(process) for process in processes]

    @contextmanager
    def _process(self, command: str, *arguments: str) -> Generator[Process]:
        # In a session or group of its own, so that Ctrl-C reaches the demo alone and the demo decides what ends.
        words = ["adjourn.cli.demo.process", self._program, command, str(self.folder), *arguments]
        line = [sys.executable, "-P", "-m", *words]
        group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
        with subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, creationflags=group
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _print_events(self, process: Process, reached: Callable[[Event], bool]) -> Event | None:
        """Print the events of a process, to its end or until one is reached; return that one."""
        print(f"Process {process.pid}:")
        for line in process.stdout or ():
            event = from_json(line)
            self._show(event)
            if reached(event):
                return event
        return None

    def _check(self, process: Process) -> None:
        if process.wait() != 0:
            raise DemoFailed(f"process {process.pid} {_ending(process)}")


def _line_of(process: Process) -> str:
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise DemoFailed(f"process {process.pid} said nothing")
    return line.decode().rstrip()


def _ending(process: Process) -> str:
    code = process.returncode
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


# Tickets


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


def _show_booking(folder: Path) -> None:
    """Show the four parts, and what to try next."""
    say("A ticket agent that asks before it books: one tool, one SQLite file. No key, no network.")
    stage = Stage("tickets", folder, parts=4, show=print_talk)
    asked = _pause_booking(stage)
    answer = _decide_booking(stage, asked.interrupts[0])
    if answer is LATER:
        say("\nIt would stay open for as long as you like. Here it ends with the demo; nothing is left behind.")
        return
    _race(stage, answer)
    _continue_booking(stage)
    _travel_booking(stage, asked.checkpoint_id, answer)
    say("\nThat was it. The temporary folder with the file is removed. What to try next:")
    print(NEXT)


def _pause_booking(stage: Stage) -> Interrupted:
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


def _decide_booking(stage: Stage, asked: Interrupt) -> Any:  # Any: one of the forms that an approval takes
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


def _continue_booking(stage: Stage) -> None:
    stage.title(3, "A new process goes on, and is killed in the middle: paid, and no ticket yet")
    if stage.run_until(lambda event: isinstance(event, Custom), "crawl") is None:
        say("There was nothing to book, so there was nothing to interrupt.")
        return
    stage.run_through("recover")
    say(
        "`book_ticket` ran again from its top, and yet it was paid for once: `pay` is marked @once. The railway's book:"
    )
    Book(stage.folder).show()


def _travel_booking(stage: Stage, checkpoint: str, answer: Any) -> None:
    was_booked = answer is True or (isinstance(answer, dict) and "arguments" in answer)
    other = {"decision": "reject", "reason": "on second thoughts, no"} if was_booked else True
    word = "no" if was_booked else "yes"
    stage.title(4, f"Back to checkpoint {checkpoint}, before your decision: what if it had been {word}?")
    stage.run_through("travel", checkpoint, json.dumps(other))
    say("\nBoth branches are there, and what the first one stored is as it was:")
    print(stage.look(lambda sessions: sessions.tree(SESSION)))
    say("Going back undoes nothing in the world, of course. The railway's book:")
    Book(stage.folder).show()


# A refund


Decision = dict[str, Any]


def _show_refund(folder: Path) -> None:
    """Show the three parts."""
    say("A refund that somebody must approve: a small graph, and one SQLite file. No key, no network.\n")
    print(build(folder).draw("text"))
    stage = Stage("refund", folder, parts=3)
    asked = _pause_refund(stage)
    decision = _decide_refund(stage, asked)
    _resume_refund(stage, decision)
    _travel_refund(stage, asked.checkpoint_id, decision)
    say("\nThat was it. The temporary folder with the file is removed.")


def _pause_refund(stage: Stage) -> Interrupted:
    stage.title(1, "A process runs the graph until it asks, and is killed")
    asked = stage.run_until(lambda event: isinstance(event, Interrupted), "start", json.dumps({"order": "A-17"}))
    if not isinstance(asked, Interrupted):
        raise DemoFailed("the graph ended without asking")
    status = stage.look(lambda sessions: sessions.status(SESSION))
    say(f"All that is left is the file demo.db. It says: {status.status}, for {status.interrupts[0].id}")
    return asked


def _decide_refund(stage: Stage, asked: Interrupted) -> Decision:
    stage.title(2, "The answer comes, and a new process goes on from there")
    question = asked.interrupts[0].prompt or ""
    if not is_terminal():
        reason = "within the 30 days"
        say(f"{question} There is no terminal to ask in, so the demo answers by itself: yes, {reason}.")
        return {"ok": True, "reason": reason}
    while (answer := typed(f"{question} [y/n] ").lower()) not in ("y", "yes", "n", "no"):
        print("Please type y or n, then Enter.")
    return {"ok": answer.startswith("y"), "reason": typed("Why? (a few words, or just Enter) ")}


def _resume_refund(stage: Stage, decision: Decision) -> None:
    stage.run_through("resume", json.dumps(decision))
    _print_outcome(stage)
    say("`approve` ran again from its top, and yet the money was reserved one time. The bank's book:")
    Book(stage.folder).show()


def _travel_refund(stage: Stage, checkpoint: str, decision: Decision) -> None:
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


# The command


_SHOWS = {"agent": _show_booking, "graph": _show_refund}


@takes(
    arg(
        "what",
        nargs="?",
        choices=list(_SHOWS),
        default="agent",
        help="the ticket agent, or a refund as a graph (agent)",
    )
)
def demo(options: argparse.Namespace) -> int:
    """Show the demo and return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="adjourn-demo-", ignore_cleanup_errors=True) as folder:
            _SHOWS[options.what](Path(folder))
    except EOFError:
        print("\nNo answer came, so this is the end of it. Nothing is left behind.")
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing is left behind.")
        return INTERRUPTED
    except BrokenPipeError:
        raise  # Nobody is there to read more.
    except (DemoFailed, AdjournError, OSError) as error:
        print(f"The demo cannot continue: {error}", file=sys.stderr)
        return 1
    return 0
