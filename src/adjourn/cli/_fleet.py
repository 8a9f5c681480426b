"""Several processes that serve on the same sockets: a parent that keeps them up, restarts and stops them.

The parent runs no program and holds no session, so it has nothing to lose. It is connected with each of its workers:
what a worker reads there are single letters, and that there is nothing more to read means that the parent is gone.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

MOST = 128
"""Workers that one parent may have."""

STOP, RETIRE, AT_ONCE, PING = b"s", b"r", b"n", b"p"
"""What a parent says: stop in order; the same, while others listen; stop now; are you there?"""

EVERY = 5.0
"""Seconds between two questions whether a worker is there."""

HUNG = 12
"""Questions that a worker may leave without an answer; then it is killed, and another one takes up what it did."""

WAIT = (0.5, 30.0)
"""Seconds before a worker takes the place of one that died, if others died shortly before: at first, and at most."""

STEADY = 60.0
"""Seconds after which a worker has lived long enough for its end to be an accident."""

TRIES = 5
"""Workers in a row that may fail to start while nobody serves; then the program cannot start."""

NET = 20.0
"""Seconds that a worker has, after its grace, to end what it began; then it is killed."""

SOON = 3.0
"""The same for one that is to end at once."""


class Stopping(Protocol):
    """A server that can be stopped."""

    def stop(self) -> None:
        """Stop in order."""
        ...

    def retire(self) -> None:
        """Stop in order, while others listen on the same sockets."""
        ...

    def end(self) -> None:
        """Stop at once."""
        ...


class Member:
    """The side of a worker: it says when it is ready, and does what its parent says."""

    def __init__(self, given: str) -> None:
        """Take over what the parent has opened, as `--member` names it: the connection, then the sockets."""
        connection, *listening = [int(each) for each in given.split(",")]
        for each in (connection, *listening):
            os.set_inheritable(each, False)  # What the programs start does not get them.
        self._parent = socket.socket(fileno=connection)
        self._parent.setblocking(False)
        self.sockets: list[socket.socket] = [socket.socket(fileno=each) for each in listening]

    def ready(self, server: Stopping, about: str) -> None:
        """Say that it serves, and listen to the parent from now on; on the event loop of the server."""
        self._parent.send(about.encode() + b"\n")
        asyncio.get_running_loop().add_reader(self._parent, self._hear, server)

    def _hear(self, server: Stopping) -> None:
        try:
            said = self._parent.recv(100)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self._parent)
            server.stop()  # The parent is gone, and nobody would ever stop it.
        for letter in said:
            match bytes([letter]):
                case b"s":
                    server.stop()
                case b"r":
                    server.retire()
                case b"n":
                    server.end()
                case _:
                    self._answer()

    def _answer(self) -> None:
        try:
            self._parent.send(PING)
        except OSError:
            return  # Whoever asked is gone, or has not read what was said before.


class _Worker:
    """A process, as its parent knows it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.process = process
        self.connection = connection
        self.born: float = time.monotonic()
        self.heard: bytes = b""
        self.is_ready: bool = False
        self.is_leaving: bool = False
        self.has_hung_up: bool = False
        self.unanswered: int = 0
        self.ends: float | None = None
        """When it is killed."""

    def say(self, letter: bytes) -> None:
        """Say something, unless it does not listen any more."""
        try:
            self.connection.send(letter)
        except OSError:
            return

    def hear(self) -> None:
        """Read what it says: first, when it is ready, about itself; then answers."""
        try:
            said = self.connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.has_hung_up = not said
        if said:
            self.unanswered = 0
        if not self.is_ready:
            self.heard += said
            self.is_ready = self.heard.endswith(b"\n")

    @property
    def ending(self) -> str:
        """How it has ended, for people."""
        code = self.process.returncode
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Fleet:
    """Keeps a number of workers up.

    Between two rounds of its loop: as many workers as wanted serve or are about to, except while it waits before it
    tries again; and while they are replaced, there is one more.
    """

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        sockets: Sequence[socket.socket],
        *,
        workers: int,
        grace: float,
        tell: Callable[[str], None],
        warn: Callable[[str], None],
        every: float = EVERY,
        pauses: tuple[float, float] = WAIT,
    ) -> None:
        """Prepare to serve on sockets.

        command: returns what to start, for what `Member` is to be given.
        grace: seconds that a worker has to end its steps.
        tell: gets, once all serve, what one of them says about itself.
        warn: gets a line for each thing that happens.
        every: seconds between two questions whether a worker is there.
        pauses: seconds before a worker takes the place of one that died young: at first, and at most.
        """
        self._command = command
        self._sockets = list(sockets)
        self._wanted = workers
        self._grace = grace
        self._tell = tell
        self._warn = warn
        self._every = every
        self._pauses = pauses
        self._workers: list[_Worker] = []
        self._old: list[_Worker] = []  # those to be replaced
        self._new: _Worker | None = None  # the one that is to take the place of the first of them
        self._signals: list[int] = []
        self._had_terminal = _has_terminal()
        self._has_served = False
        self._has_told = False
        self._is_stopping = False
        self._failed = 0  # workers in a row that died before they were ready
        self._died = 0  # workers in a row that died young
        self._not_before = 0.0
        self._asks = 0.0
        self._code = 0

    def run(self) -> int:
        """Serve until it is told to stop, and return the exit code."""
        with self._listening() as heard:
            self._start()
            while self._workers or not self._is_stopping:
                self._wait(heard)
                self._obey()
                self._bury()
                self._note_ready()
                self._keep_up()
                self._kill_late()
        return self._code

    # Processes

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [theirs.fileno(), *(each.fileno() for each in self._sockets)]
            process = subprocess.Popen(
                self._command(",".join(map(str, passed))), stdin=subprocess.DEVNULL, pass_fds=passed
            )
        ours.setblocking(False)
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _bury(self) -> None:
        """Notice who has ended."""
        for worker in [each for each in self._workers if each.process.poll() is not None]:
            worker.hear()  # It may have said that it is ready, and ended right after it.
            self._note_ready()
            worker.connection.close()
            self._workers.remove(worker)
            self._old = [each for each in self._old if each is not worker]
            if not worker.is_leaving:
                self._mourn(worker)

    def _mourn(self, worker: _Worker) -> None:
        """Decide what follows from an end that nobody wanted."""
        code = worker.process.returncode
        self._failed = 0 if worker.is_ready else self._failed + 1
        lived = time.monotonic() - worker.born
        self._died = self._died + 1 if lived < STEADY or not worker.is_ready else 0
        is_serving = any(each.is_ready for each in self._workers)
        if not self._has_served or (self._failed >= TRIES and not is_serving):
            # It has said why, on the standard error that we share.
            self._stop(AT_ONCE)
            self._code = 128 - code if code < 0 else code or 1
        elif worker is self._new:
            self._new, self._old = None, []
            self._warn(f"Worker {worker.process.pid} {worker.ending} before it served, so the others stay as they are.")
        elif not self._is_stopping:
            shortest, longest = self._pauses
            wait = min(shortest * 2 ** (self._died - 2), longest) if self._died > 1 else 0.0
            self._not_before = time.monotonic() + wait
            when = f"in {wait:g} s" if wait else "now"
            self._warn(f"Worker {worker.process.pid} {worker.ending}. Another one starts {when}.")

    def _note_ready(self) -> None:
        ready = [each for each in self._workers if each.is_ready]
        self._has_served = self._has_served or bool(ready)
        if not self._has_told and ready and (len(ready) == self._wanted or self._died):
            self._has_told = True
            self._tell(ready[0].heard.decode().rstrip("\n"))
        if self._new is not None and self._new.is_ready:
            self._new = None
            if self._old:
                self._leave(self._old.pop(0), RETIRE)

    def _keep_up(self) -> None:
        """Start who is missing: the first one alone, as it may be that none can start."""
        if self._is_stopping or time.monotonic() < self._not_before:
            return
        staying = [each for each in self._workers if not each.is_leaving]
        missing = self._wanted + bool(self._new and self._old) - len(staying) if self._has_served else 0
        for _ in range(missing):
            self._start()
        is_calm = len(self._workers) == self._wanted and all(each.is_ready for each in self._workers)
        if self._old and self._new is None and is_calm:
            self._new = self._start()

    # Telling them what to do

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGHUP and not (self._had_terminal and not _has_terminal()):
                self._renew()
            elif not self._is_stopping:
                self._stop(STOP)
            else:
                self._stop(AT_ONCE)

    def _renew(self) -> None:
        """Replace all workers, one by one: each stops when another one serves in its place."""
        if not self._is_stopping and self._has_served:
            # One that is just starting may have read what has changed since: it comes last.
            staying = [each for each in self._workers if not each.is_leaving]
            self._old = sorted(staying, key=lambda each: each is self._new)
            self._warn(f"Restarting {len(self._old)} workers, one after the other.")

    def _stop(self, how: bytes) -> None:
        self._is_stopping = True
        self._old, self._new = [], None
        for each in self._sockets:
            each.close()
        for worker in self._workers:
            self._leave(worker, how)

    def _leave(self, worker: _Worker, how: bytes) -> None:
        worker.is_leaving = True
        worker.ends = time.monotonic() + (SOON if how == AT_ONCE else self._grace + NET)
        if worker.is_ready:
            worker.say(how)
        else:
            worker.process.terminate()  # It has not begun anything.

    def _kill_late(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.unanswered >= HUNG and not worker.is_leaving:
                self._warn(f"Worker {worker.process.pid} does not answer, and is killed.")
                worker.unanswered = 0
                worker.process.kill()
            elif worker.ends is not None and now >= worker.ends:
                self._warn(f"Worker {worker.process.pid} does not end, and is killed.")
                worker.ends, self._code = now + SOON, 1
                worker.process.kill()

    # Waiting

    def _wait(self, heard: socket.socket) -> None:
        """Wait until there is something to do."""
        with selectors.DefaultSelector() as selector:
            selector.register(heard, selectors.EVENT_READ)
            for worker in [each for each in self._workers if not each.has_hung_up]:
                selector.register(worker.connection, selectors.EVENT_READ, worker)
            for key, _ in selector.select(self._patience()):
                if isinstance(key.data, _Worker):
                    key.data.hear()
        _empty(heard)
        if time.monotonic() >= self._asks:
            self._asks = time.monotonic() + self._every
            for worker in self._workers:
                if worker.is_ready and not worker.is_leaving:
                    worker.unanswered += 1
                    worker.say(PING)

    def _patience(self) -> float:
        now = time.monotonic()
        times = [self._asks, *(each.ends for each in self._workers if each.ends is not None)]
        if self._not_before > now:
            times.append(self._not_before)
        return max(0.01, min(times) - now)

    @contextmanager
    def _listening(self) -> Generator[socket.socket]:
        """Gather signals, and yield what can be read when there are any."""
        heard, hears = socket.socketpair()
        with ExitStack() as stack, heard, hears:
            for each in (heard, hears):
                each.setblocking(False)
            before = signal.set_wakeup_fd(hears.fileno(), warn_on_full_buffer=False)
            stack.callback(signal.set_wakeup_fd, before)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            # That it has a handler is what wakes us.
            stack.callback(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, _ignore))
            yield heard

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)


def _ignore(_number: int, _frame: object) -> None:
    return


def _empty(heard: socket.socket) -> None:
    try:
        while heard.recv(4096):
            pass
    except BlockingIOError:
        return


def _has_terminal() -> bool:
    """Return whether there is a terminal: one that was closed is none, and closing it is a signal to end."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
