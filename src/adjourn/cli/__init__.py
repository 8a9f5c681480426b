"""The `adjourn` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from adjourn import __version__

COMMANDS = {
    "demo": "see it work: an agent asks you, is killed, continues in a new process, and goes back; no key, no network",
    "chat": "talk to an agent, a graph or a workflow, and answer its questions",
    "sessions": "list the sessions in a store",
    "pending": "list the questions that are waiting for an answer",
    "answer": "answer a question, without the code that asked it",
    "resume": "continue a session, and answer what it asks",
    "recover": "continue after a crash, a failure or a cancel, or with answers that were recorded",
    "show": "show the status and content of a session",
    "tree": "show the checkpoints of a session and their branches",
    "fork": "start a new session as a copy of another one at a checkpoint",
    "audit": "show who answered what, and when",
    "prune": "remove old checkpoints, or old sessions",
    "delete": "remove a session completely",
    "draw": "draw a graph, or a tree of agents, as Mermaid, SVG or text",
}
"""Each command is a module of `adjourn.cli.commands` with `configure` and `run`, loaded when it is used."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    if any(not _is_text(word) for word in arguments):
        parser.error("an argument is not UTF-8 text")
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    _prepare_output()
    try:
        return _run(options)
    except BrokenPipeError:
        # The reader of our output is gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _is_text(word: str) -> bool:
    # Python passes bytes that are not UTF-8 as lone surrogates, which cannot be stored.
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adjourn",
        description="Agents, graphs and workflows that stop for people.",
        epilog="`adjourn COMMAND --help` lists the options of a command. The store is --store URL, or $ADJOURN_STORE.",
    )
    parser.add_argument("--version", action="version", version=f"adjourn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, help_ in COMMANDS.items():
        command = commands.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
        if name == named:
            import_module(f"adjourn.cli.commands.{name}").configure(command)
    return parser


def _prepare_output() -> None:
    if sys.stdout is None:  # It was closed before we started.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # For terminals that cannot show our arrows.


def _run(options: argparse.Namespace) -> int:
    failures = import_module("adjourn.cli._failures")
    try:
        return import_module(f"adjourn.cli.commands.{options.command}").run(options)
    except KeyboardInterrupt:
        print("\nStopped.")
        return failures.INTERRUPTED
    except failures.REPORTED as error:
        return failures.report(error, as_json=getattr(options, "json", False))
