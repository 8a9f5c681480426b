import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjourn import __version__
from adjourn.cli import main

DEMO = [sys.executable, "-m", "adjourn", "demo"]


def environment_in(folder: Path) -> dict[str, str]:
    """An environment with a temporary folder of its own."""
    return {**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "TERM": "xterm"}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_in(tmp_path)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo says without a terminal."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment_in(folder), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(folder.iterdir()) == []
    return done.stdout


def test_without_a_terminal_it_answers_by_itself_and_says_so(out: str) -> None:
    assert re.findall(r"^\d of 4", out, re.MULTILINE) == ["1 of 4", "2 of 4", "3 of 4", "4 of 4"]
    assert "There is no terminal to ask in" in out
    assert "\x1b" not in out


def test_the_process_that_asked_is_killed_and_others_go_on(out: str) -> None:
    first, second, third = re.findall(r"^Process (\d+):$", out, re.MULTILINE)
    assert len({first, second, third}) == 3
    assert f"kill -9 {first}: ended by signal 9. There is no process {first} any more." in out
    assert f"  reserved 120.00 EUR, by process {first}\n  paid 120.00 EUR to Ada, by process {second}\n" in out
    assert out.count("▶ look_up\n") == 1


def test_the_tree_has_both_branches(out: str) -> None:
    tree = out.partition("session refund-17\n")[2]
    ends = [line for line in tree.splitlines() if "  end 3" in line]
    assert [line.startswith("│  ●") for line in ends] == [True, False]


def test_no_input_at_all_is_no_terminal(environment: dict[str, str]) -> None:
    line = f'exec "{sys.executable}" -m adjourn demo <&-'
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "There is no terminal to ask in" in done.stdout


def test_a_reader_who_leaves_is_no_crash(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        DEMO, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


# At a terminal


class Terminal:
    """The demo at a terminal, and the person in front of it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(DEMO, stdin=inside, stdout=inside, stderr=inside, env=environment)
        os.close(inside)
        self.seen = ""
        self._read_to = 0

    def wait_for(self, text: str) -> None:
        """Read until a text comes, after the one that was waited for before."""
        while text not in self.seen[self._read_to :]:
            piece = self._read()
            assert piece, f"It ended before {text!r} came:\n{self.seen}"
            self.seen += piece
        self._read_to = self.seen.index(text, self._read_to) + len(text)

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def end(self) -> int:
        """Read what is left, and give the exit code."""
        while piece := self._read():
            self.seen += piece
        return self.process.wait()

    def _read(self) -> str:
        try:
            return os.read(self._screen, 4096).decode(errors="replace")
        except OSError:
            return ""  # How Linux says that nobody is at the other end.

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(environment)
    yield terminal
    terminal.close()


def test_a_person_is_asked_until_the_answer_is_one(terminal: Terminal) -> None:
    terminal.wait_for("[y/n] ")
    terminal.type("perhaps\n")
    terminal.wait_for("Please type y or n")
    terminal.wait_for("[y/n] ")
    terminal.type("No\n")
    terminal.wait_for("Why?")
    terminal.type("too late\n")
    assert terminal.end() == 0
    assert "Dear Ada, no refund for A-17. too late" in terminal.seen
    assert "what if it had been yes?" in terminal.seen
    assert "\x1b[1m1 of 4" in terminal.seen


def test_ctrl_c_ends_it_politely(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("[y/n] ")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.seen.endswith("Stopped. Nothing is left behind.\r\n")
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_input_ends_it_politely(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("[y/n] ")
    terminal.type("\x04")
    assert terminal.end() == 1
    assert "No answer came" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert list(tmp_path.iterdir()) == []


# The command


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--version"])
    assert ending.value.code == 0
    assert capsys.readouterr().out == f"adjourn {__version__}\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["dance"])
    assert ending.value.code == 2
    assert "invalid choice: 'dance'" in capsys.readouterr().err
