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
    "demo": "see it work: an agent asks you, is killed, goes on in a new process, and travels back; no key, no network",
    "chat": "talk with an agent, a graph or a workflow, its questions and all",
    "sessions": "list the sessions of a store",
    "pending": "list the questions that wait for an answer",
    "answer": "answer a question, without the code that asked it",
    "resume": "go on with a session, answering what it asks",
    "recover": "go on after a crash, a failure or a cancel, or with answers that were recorded",
    "show": "show where a session stands and what it holds",
    "tree": "show the checkpoints of a session and their branches",
    "fork": "begin a new session as another one was at a checkpoint",
    "audit": "show who answered what, and when",
    "prune": "remove old checkpoints, or old sessions",
    "delete": "remove a session whole",
    "draw": "draw a graph, or a tree of agents, as Mermaid, SVG or text",
}
"""Each command is a module of this package with `configure` and `run`, loaded when it is asked for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the program's own, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    if any(not _is_text(word) for word in arguments):
        parser.error("an argument is no UTF-8 text")
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    _prepare_output()
    try:
        return _run(options)
    except BrokenPipeError:
        # Whoever read our output is gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _is_text(word: str) -> bool:
    # Python lets bytes that are no text through as lone surrogates, which nothing can store.
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adjourn",
        description="Agents, graphs and workflows that stop for people.",
        epilog="`adjourn COMMAND --help` says more. The store is --store URL, or $ADJOURN_STORE.",
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
    if sys.stdout is None:  # It was closed before we began.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # For terminals that do not know our arrows.


def _run(options: argparse.Namespace) -> int:
    failures = import_module("adjourn.cli._failures")
    try:
        return import_module(f"adjourn.cli.commands.{options.command}").run(options)
    except KeyboardInterrupt:
        print("\nStopped.")
        return failures.INTERRUPTED
    except failures.TOLD as error:
        return failures.tell(error, as_json=getattr(options, "json", False))
