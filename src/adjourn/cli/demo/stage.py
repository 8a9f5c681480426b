"""What every demo needs: processes that are started, followed and killed, and a book of what they did."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from adjourn import Sessions
from adjourn._screen import Screen
from adjourn.cli.ask.asking import say
from adjourn.events import Event, from_json
from adjourn.printing import print_event
from adjourn.stores import SQLiteStore

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
