"""Errors of a command: one message, never a traceback, and an exit code."""

from __future__ import annotations

import os
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from adjourn._screen import Screen
from adjourn._text import visible
from adjourn.errors import AdjournError, AlreadyResumed, UsageError

from .output.tables import ago

REPORTED = AdjournError
"""The errors that have a message for people."""

REFUSED, USAGE = 1, 2
"""Exit codes: the request cannot be fulfilled now; the request itself is wrong."""


INTERRUPTED = 130
"""The exit code of a program ended by Ctrl-C, as in shells."""


def report(error: AdjournError, *, as_json: bool) -> int:
    """Write the error to standard error and return the exit code."""
    if os.environ.get("ADJOURN_DEBUG"):
        traceback.print_exception(error)
    if as_json:
        print(msgspec.json.encode({"error": document(error)}).decode(), file=sys.stderr)
    else:
        screen = Screen(sys.stderr)
        screen.write(f"{screen.painted('✘', 'red')} {_indented(_message(error))}\n")
    return USAGE if isinstance(error, UsageError) else REFUSED


def _indented(text: str) -> str:
    """Return a message whose further lines cannot be taken for lines of the program: names in it may hold any text."""
    return visible(text).replace("\n", "\n  ")


def document(error: AdjournError) -> dict[str, Any]:
    """Return the error as data: a code, the message, and its attributes."""
    facts = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"code": _code(type(error).__name__), "message": str(error), **facts}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple)


def _code(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _message(error: AdjournError) -> str:
    if not isinstance(error, AlreadyResumed) or error.at is None:
        return str(error)
    # The person who came second wants to know whom to ask.
    when = ago(datetime.fromtimestamp(error.at, UTC))
    return f"{error}\nYou came second: {error.by or 'somebody'} answered it {when}."
