"""Errors of a command: one message, never a traceback, and an exit code."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from typing import Any

import msgspec

from adjourn._hiding import known
from adjourn._screen import Screen
from adjourn.errors import AdjournError, UsageError
from adjourn.stores.urls import without_passwords

from ._advice import advice

REPORTED = AdjournError
"""The errors that have a message for people."""

REFUSED, USAGE = 1, 2
"""Exit codes: the request cannot be fulfilled now; the request itself is wrong."""


INTERRUPTED = 130
"""The exit code of a program ended by Ctrl-C, as in shells."""


def report(error: AdjournError, options: argparse.Namespace) -> int:
    """Write the error to standard error and return the exit code."""
    if os.environ.get("ADJOURN_DEBUG"):
        print(without_passwords("".join(traceback.format_exception(error))), file=sys.stderr)
    if getattr(options, "json", False):
        body = known.hide_in_json(msgspec.json.encode({"error": document(error)}))
        print(without_passwords(body.decode()), file=sys.stderr)
    else:
        screen, message = Screen(sys.stderr), known.hide(without_passwords(advice(error, options)))
        # Names in it may hold any text: its further lines cannot be taken for lines of the program.
        screen.write(f"{screen.painted('✘', 'red')} {screen.prose(message, 2)}\n")
    return USAGE if isinstance(error, UsageError) else REFUSED


def document(error: AdjournError) -> dict[str, Any]:
    """Return the error as data: a code, the message, and its attributes."""
    facts = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"code": _code(type(error).__name__), "message": str(error), **facts}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple)


def _code(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
