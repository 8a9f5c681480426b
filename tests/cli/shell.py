"""The command: called in this process, in processes of its own, and at a terminal with a person in front of it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from codecs import getincrementaldecoder
from pathlib import Path
from typing import Any

from adjourn.cli import main
from tests.in_process import run_here

COMMAND = [sys.executable, "-m", "adjourn"]


class Done:
    """What a command came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """The document that was printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents that were printed, one on each line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The error that was told as JSON."""
        return json.loads(self.err)["error"]


class Shell:
    """A folder to run commands in, with a store in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        unset = ("NO_COLOR", "EDITOR", "ADJOURN_USER", "ADJOURN_DEBUG", "COLUMNS")
        self.environment = {name: value for name, value in os.environ.items() if name not in unset}
        self.environment |= {
            "ADJOURN_STORE": "sqlite:///sessions.db",
            "PYTHONIOENCODING": "utf-8",
            "TERM": "xterm",
            "TMPDIR": str(folder),
        }

    def run(self, *words: str, input: str = "", **environment: str) -> Done:
        """Run a command to its end in this process, with what it sees of the world as if it had one of its own."""
        found = run_here(main, ["adjourn", *words], self.folder, {**self.environment, **environment}, input)
        return _done(*found, environment)

    def run_process(self, *words: str, input: str = "", **environment: str) -> Done:
        """Run a command to its end in a process of its own, with pipes."""
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            input=input,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return _done(done.returncode, done.stdout, done.stderr, environment)

    def ok(self, *words: str, input: str = "", **environment: str) -> Done:
        """Run a command that succeeds."""
        done = self.run(*words, input=input, **environment)
        assert done.code == 0, done.err
        return done

    def shown(self, session: str, *options: str) -> tuple[str, str]:
        """Return the words that name the one open question of a session as it is shown."""
        (asked,) = self.ok("pending", session, *options, "--json").json
        return ("--question", asked["token"])

    def answer(self, session: str, *words: str, **environment: str) -> Done:
        """Answer the one open question of a session as it is shown."""
        return self.ok("answer", session, *words, *self.shown(session), **environment)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command with pipes, and let it run."""
        return subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def terminal(self, *words: str, **environment: str) -> Terminal:
        """Run a command at a terminal."""
        return Terminal([*COMMAND, *words], self.folder, {**self.environment, **environment})

    @property
    def ledger(self) -> list[str]:
        """What happened outside of the sessions."""
        path = self.folder / "ledger.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _done(code: int, out: str, err: str, environment: dict[str, str]) -> Done:
    assert environment.get("ADJOURN_DEBUG") or "Traceback" not in err, err
    return Done(code, out, err)


class Terminal:
    """A command at a terminal, and the person in front of it."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True
        )
        os.close(inside)
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self.seen = ""
        self._read_to = 0

    @property
    def text(self) -> str:
        """What was seen, without its colours."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.seen)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def wait_for(self, text: str) -> None:
        """Read until a text comes, after the one that was waited for before."""
        while text not in self.text[self._read_to :]:
            assert self._read(), f"It ended before {text!r} came:\n{self.seen}"
        self._read_to = self.text.index(text, self._read_to) + len(text)

    def answer(self, prompt: str, keys: str) -> None:
        """Type a line once the prompt is there."""
        self.wait_for(prompt)
        self.type(keys + "\n")

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def end(self) -> int:
        """Read what is left, and give the exit code."""
        while self._read():
            pass
        assert "Traceback" not in self.seen, self.seen
        return self.process.wait()

    def _read(self) -> bool:
        """Read on; False when there is no more to come."""
        try:
            piece = os.read(self._screen, 4096)
        except OSError:
            return False  # How Linux says that nobody is at the other end.
        self.seen += self._decoder.decode(piece)
        return bool(piece)
