"""What the command says when something is refused: one message, never a traceback, and an exit code."""

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

from .output.times import ago

TOLD = AdjournError
"""The errors that have a message for people."""

REFUSED, USAGE = 1, 2
"""Exit codes: what was asked for cannot be done now; it was asked for in a way that cannot be."""


INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def tell(error: AdjournError, *, as_json: bool) -> int:
    """Write the error to the standard error output, and give the exit code."""
    if os.environ.get("ADJOURN_DEBUG"):
        traceback.print_exception(error)
    if as_json:
        print(msgspec.json.encode({"error": document(error)}).decode(), file=sys.stderr)
    else:
        screen = Screen(sys.stderr)
        screen.write(f"{screen.painted('✘', 'red')} {visible(_message(error))}\n")
    return USAGE if isinstance(error, UsageError) else REFUSED


def document(error: AdjournError) -> dict[str, Any]:
    """The error as data: a code, the message, and the facts it carries."""
    facts = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"code": _code(type(error).__name__), "message": str(error), **facts}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple)


def _code(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _message(error: AdjournError) -> str:
    if not isinstance(error, AlreadyResumed) or error.at is None:
        return str(error)
    # Whoever came second wants to know whom to ask.
    when = ago(datetime.fromtimestamp(error.at, UTC))
    return f"{error}\nYou came second: {error.by or 'somebody'} answered it {when}."
