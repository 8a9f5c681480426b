"""The `adjourn` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from adjourn import __version__

_COMMANDS = {"demo": "adjourn.cli.demo"}
"""Each command is a module with a function `run`, loaded when it is asked for: `--version` needs none of them."""

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the program's own, and return its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    _prepare_output()
    try:
        return import_module(_COMMANDS[options.command]).run()
    except KeyboardInterrupt:
        print("\nStopped. Nothing is left behind.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _prepare_output() -> None:
    if sys.stdout is None:  # It was closed before we began.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the program runs
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # For terminals that do not know our arrows.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="adjourn", description="Graphs and workflows that stop for people.")
    parser.add_argument("--version", action="version", version=f"adjourn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser(
        "demo", help="a graph that asks you, is killed, goes on in a new process, and travels back: no key, no network"
    )
    return parser
