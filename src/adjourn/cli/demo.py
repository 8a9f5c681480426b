"""`adjourn demo`: a graph asks, its process is killed, a new one goes on with the answer, and then back in time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from adjourn.cli.demo_refund import SESSION, Bank, Decision, build
from adjourn.core.errors import AdjournError
from adjourn.core.events import Interrupted
from adjourn.core.visible import visible_line
from adjourn.events import from_json
from adjourn.printing import print_event
from adjourn.screen import Screen

Process = subprocess.Popen[bytes]


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


def run() -> int:
    """Show it, and return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="adjourn-demo-", ignore_cleanup_errors=True) as folder:
            _show(Path(folder))
    except EOFError:
        print("\nNo answer came, so this is the end of it. Nothing is left behind.")
        return 1
    except BrokenPipeError:
        raise  # Nobody is there to read more.
    except (DemoFailed, AdjournError, OSError) as error:
        print(f"The demo cannot go on: {error}", file=sys.stderr)
        return 1
    return 0


def _show(folder: Path) -> None:
    print("A refund that somebody must approve: a small graph, and one SQLite file. No key, no network.\n")
    print(build(folder).draw("text"))
    asked = _pause(folder)
    decision = _decide(asked)
    _resume(folder, decision)
    _travel(folder, asked.checkpoint_id, decision)
    print("\nThat was it. The temporary folder with the file is removed.")


# The four parts


def _pause(folder: Path) -> Interrupted:
    _title(1, "A process runs the graph until it asks")
    with _process("start", folder) as process:
        print(f"Process {process.pid}:")
        asked = _print_events(process, until_asked=True)
        if asked is None:
            raise DemoFailed(f"process {process.pid} ended without asking")
        _title(2, "The process is killed")
        process.kill()
        process.wait()
        print(f"kill -9 {process.pid}: {_ending(process)}. {_whether_gone(process.pid)}")
    status = asyncio.run(build(folder).status(SESSION))
    print(f"All that is left is the file demo.db. It says: {status.status}, for {status.interrupts[0].id}")
    return asked


def _decide(asked: Interrupted) -> Decision:
    _title(3, "The answer comes, and a new process goes on from there")
    question = asked.interrupts[0].prompt or ""
    if not _is_terminal():
        decision = Decision(ok=True, reason="within the 30 days")
        print(f"{question} There is no terminal to ask in, so the demo answers by itself: yes, {decision.reason}.")
        return decision
    while (answer := _typed(f"{question} [y/n] ").lower()) not in ("y", "yes", "n", "no"):
        print("Please type y or n, then Enter.")
    return Decision(ok=answer.startswith("y"), reason=_typed("Why? (a few words, or just Enter) "))


def _resume(folder: Path, decision: Decision) -> None:
    _run_through("resume", folder, _json(decision))
    _print_outcome(folder)
    print("`approve` ran again from its top, and yet the money was reserved one time. The bank's book:")
    _print_book(folder)


def _travel(folder: Path, checkpoint: str, decision: Decision) -> None:
    other = Decision(ok=not decision.ok, reason="on second thoughts")
    _title(4, f"Back to checkpoint {checkpoint}, before the decision: what if it had been {_word(other)}?")
    _run_through("travel", folder, checkpoint, _json(other))
    _print_outcome(folder)
    print("\nBoth branches are there, and what the first one stored is as it was:")
    print(asyncio.run(build(folder).tree(SESSION)))
    print("Going back undoes nothing in the world, of course. The bank's book:")
    _print_book(folder)


def _print_outcome(folder: Path) -> None:
    state = asyncio.run(build(folder).state(SESSION))
    print(f"The outcome: {visible_line(state.get('receipt') or state['letter'])}")


def _print_book(folder: Path) -> None:
    for line in Bank(folder).lines():
        print(f"  {line}")


def _word(decision: Decision) -> str:
    return "yes" if decision.ok else "no"


def _json(decision: Decision) -> str:
    return msgspec.json.encode(decision).decode()


# Processes


@contextmanager
def _process(command: str, *arguments: object) -> Generator[Process]:
    # In a session of its own, so that Ctrl-C reaches the demo alone and the demo decides what ends.
    line = [sys.executable, "-P", "-m", "adjourn.cli.demo_process", command, *map(str, arguments)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _run_through(command: str, *arguments: object) -> None:
    with _process(command, *arguments) as process:
        print(f"Process {process.pid}:")
        _print_events(process)
        if process.wait() != 0:
            raise DemoFailed(f"process {process.pid} {_ending(process)}")


def _print_events(process: Process, *, until_asked: bool = False) -> Interrupted | None:
    """Print what a process tells, to its end or until it asks; gives the last question."""
    asked: Interrupted | None = None
    for line in process.stdout or ():
        event = from_json(line)
        print_event(event)
        if isinstance(event, Interrupted):
            asked = event
            if until_asked:
                break
    return asked


def _ending(process: Process) -> str:
    code = process.returncode
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _whether_gone(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except OSError:
        return f"There is no process {pid} any more."
    return f"Process {pid} is still there!"


# The terminal


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _typed(prompt: str) -> str:
    """A line that the person types.

    Raises:
        EOFError: there is no more to come.
    """
    # Not `input`: a Ctrl-C between its prompt and its reading would wait for the next key.
    print(prompt, end="", flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""  # What is no text is no answer.
    if not line:
        raise EOFError
    return line.strip().encode("utf-8", "replace").decode()


def _title(number: int, text: str) -> None:
    print(f"\n{Screen(sys.stdout).painted(f'{number} of 4  {text}', 'bold')}")
