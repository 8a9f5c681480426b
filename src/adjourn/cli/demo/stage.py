"""What every demo needs: processes that are started, followed and killed, and a book of what they did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from adjourn._screen import Screen
from adjourn.events import Event, Interrupted, from_json
from adjourn.printing import print_event

Process = subprocess.Popen[bytes]


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


class Book:
    """What was done in the outside world: a file with a line for each action."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "book.txt"

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

    def __init__(self, program: str, folder: Path, show: Callable[[Event], None] = print_event) -> None:
        self.folder = folder
        self._program = program
        self._show = show

    def title(self, number: int, text: str) -> None:
        """Begin one of the four parts."""
        print(f"\n{Screen(sys.stdout).painted(f'{number} of 4  {text}', 'bold')}")

    def run_to_question(self, *arguments: str) -> Interrupted | None:
        """Let a process run until it asks, and kill it; None if it ended without a question."""
        with self._process("start", *arguments) as process:
            asked = self._print_events(process, until_asked=True)
            if asked is None:
                self._check(process)
                return None
            self.title(2, "The process is killed")
            process.kill()
            process.wait()
            print(f"kill -9 {process.pid}: {_ending(process)}. {_whether_gone(process.pid)}")
        return asked

    def run_through(self, command: str, *arguments: str) -> None:
        """Let a process run to its end."""
        with self._process(command, *arguments) as process:
            self._print_events(process)
            self._check(process)

    @contextmanager
    def _process(self, command: str, *arguments: str) -> Generator[Process]:
        # In a session of its own, so that Ctrl-C reaches the demo alone and the demo decides what ends.
        words = ["adjourn.cli.demo.process", self._program, command, str(self.folder), *arguments]
        line = [sys.executable, "-P", "-m", *words]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
            print(f"Process {process.pid}:")
            try:
                yield process
            finally:
                process.kill()

    def _print_events(self, process: Process, *, until_asked: bool = False) -> Interrupted | None:
        """Print the events of a process, to its end or until it asks; return the last question."""
        asked: Interrupted | None = None
        for line in process.stdout or ():
            event = from_json(line)
            self._show(event)
            if isinstance(event, Interrupted):
                asked = event
                if until_asked:
                    break
        return asked

    def _check(self, process: Process) -> None:
        if process.wait() != 0:
            raise DemoFailed(f"process {process.pid} {_ending(process)}")


def _ending(process: Process) -> str:
    code = process.returncode
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _whether_gone(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except OSError:
        return f"There is no process {pid} any more."
    return f"Process {pid} is still there!"
