"""The person at the terminal: whether there is one, and what they type."""

from __future__ import annotations

import getpass
import os
import sys

from adjourn._screen import Screen
from adjourn._text import visible


class _Later:
    pass


LATER = _Later()
"""The answer of a person who leaves a question open."""


def is_terminal() -> bool:
    """Return whether there is a person to ask."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def typed(prompt: str) -> str:
    """Read a line that the person types.

    Raises:
        EOFError: the input has ended.
    """
    # Not `input`: a Ctrl-C between its prompt and its reading would wait for the next key.
    print(prompt, end="", flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""  # What is not text is not an answer.
    if not line:
        print()
        raise EOFError
    return line.strip().encode("utf-8", "replace").decode()


def choose(prompt: str) -> str:
    """Read a line that the person types at a highlighted prompt.

    Raises:
        EOFError: there is no more to come.
    """
    return typed(Screen(sys.stdout).painted(prompt, "bold") + " ")


def say(text: str, colour: str | None = None) -> None:
    """Print a line for the person."""
    screen = Screen(sys.stdout)
    screen.write((screen.painted(text, colour) if colour else text) + "\n")


def hint(text: str) -> None:
    """Print what can be done next to standard error, apart from the output."""
    screen = Screen(sys.stderr)
    screen.write(screen.painted(visible(text), "dim") + "\n")


def person() -> str | None:
    """Return the name that answers are signed with by default."""
    try:
        return os.environ.get("ADJOURN_USER") or getpass.getuser()
    except (KeyError, OSError):
        return None
