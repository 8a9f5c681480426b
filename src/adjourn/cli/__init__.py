"""The `adjourn` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adjourn import __version__

if TYPE_CHECKING:
    from ._options import Command

COMMANDS = {
    "demo": ("demo", "see it work: an agent asks, two people answer, it is killed and goes on; no key, no network"),
    "chat": ("_running", "talk to an agent, a graph or a workflow, and answer its questions"),
    "sessions": ("_sessions", "list the sessions in a store"),
    "pending": ("_questions", "list the questions that are waiting for an answer"),
    "answer": ("_questions", "answer a question, without the code that asked it"),
    "resume": ("_running", "continue a session, and answer what it asks"),
    "recover": ("_running", "continue after a crash, a failure or a cancel, or with answers that were recorded"),
    "serve": ("_serving", "serve agents, graphs and workflows over HTTP"),
    "token": ("_access", "create, list or revoke the tokens that let people use a server"),
    "webhook": ("_access", "make a secret for webhooks, or try them out"),
    "worker": (
        "_worker",
        "go on with the sessions that are due: answered, expired, submitted, or left behind by others",
    ),
    "show": ("_sessions", "show the status and content of a session"),
    "tree": ("_sessions", "show the checkpoints of a session and their branches"),
    "fork": ("_changing", "start a new session as a copy of another one at a checkpoint"),
    "cancel": ("_changing", "stop a session that runs, wherever it does"),
    "edit": ("_running", "change the state of a session at a checkpoint, on a new branch"),
    "approvals": ("_questions", "list what somebody has approved for always, or revoke it"),
    "audit": ("_sessions", "show who answered what, and when"),
    "repair": ("_changing", "make the indexes of a store on Redis again from its sessions"),
    "keys": ("_access", "list the keys of an encrypted store, and how much is encrypted with each"),
    "prune": ("_changing", "remove old checkpoints, or old sessions"),
    "delete": ("_changing", "remove a session completely"),
    "check": ("_files", "find every mistake in a folder of YAML agents"),
    "schema": ("_files", "print the JSON Schema of YAML agents, for editors"),
    "draw": ("_files", "draw a graph, or a tree of agents, as Mermaid, SVG or text"),
}
"""Each command has its name in a module of this package, loaded when it is used; and what it does."""

_CALLED: dict[str, str] = {
    **dict.fromkeys(("run", "start", "ask", "invoke"), "chat"),
    **dict.fromkeys(("ls", "list", "ps"), "sessions"),
    **dict.fromkeys(("status", "get", "log", "logs", "messages"), "show"),
    **dict.fromkeys(("questions", "inbox", "interrupts"), "pending"),
    **dict.fromkeys(("approve", "reject"), "answer"),
    **dict.fromkeys(("history", "checkpoints"), "tree"),
    **dict.fromkeys(("server", "api"), "serve"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("stop", "kill"), "cancel"),
    **dict.fromkeys(("rebuild", "reindex", "fix"), "repair"),
    "verify": "audit",
}
"""What other programs call a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments and arguments[0] in COMMANDS else None
    parser = _parser() if name is None else _command_parser(name)
    if any(not _is_text(word) for word in arguments):
        parser.error("an argument is not UTF-8 text")
    if name is None:
        _check_command(parser, arguments)
        parser.parse_args(arguments)  # Ends here, except if there are none.
        parser.print_help()
        return 0
    import_module("adjourn.cli._options").check_options(parser, arguments[1:])
    # Options may stand anywhere, also between the words that a command takes.
    options = parser.parse_intermixed_args(arguments[1:], argparse.Namespace(command=name, words=arguments))
    _prepare_output()
    try:
        return _run(options)
    except BrokenPipeError:
        # The reader of our output is gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _check_command(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "--version"):
        return
    if arguments[0].startswith("-"):
        if name := next((word for word in arguments if word in COMMANDS), None):
            parser.error(f"options come after the command: adjourn {name} {arguments[0].partition('=')[0]} …")
    else:
        called = _CALLED.get(arguments[0])
        nearest = import_module("adjourn._text").did_you_mean
        meant = nearest(arguments[0], COMMANDS) if called is None else f" Did you mean {called!r}?"
        parser.error(f"there is no command {arguments[0]!r}.{meant} `adjourn --help` lists them.")


class _Parser(argparse.ArgumentParser):
    """A parser that does not repeat the password of a URL that was given in the wrong place."""

    def error(self, message: str) -> NoReturn:
        super().error(import_module("adjourn.stores.urls").without_passwords(message))


def _is_text(word: str) -> bool:
    # Python passes bytes that are not UTF-8 as lone surrogates, which cannot be stored.
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="adjourn",
        description="Agents, graphs and workflows that stop for people.",
        epilog="`adjourn COMMAND --help` lists the options of a command. The store is --store URL, or $ADJOURN_STORE.",
    )
    parser.add_argument("--version", action="version", version=f"adjourn {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, (_, help_) in COMMANDS.items():
        commands.add_parser(name, help=help_)
    return parser


def _command_parser(name: str) -> argparse.ArgumentParser:
    help_ = COMMANDS[name][1]
    parser = _Parser(prog=f"adjourn {name}", description=f"{help_[0].upper()}{help_[1:]}.")
    for argument in _command(name).takes:
        argument.add_to(parser)
    return parser


def _command(name: str) -> Command:
    return getattr(import_module(f"adjourn.cli.{COMMANDS[name][0]}"), name)


def _prepare_output() -> None:
    if sys.stdout is None:  # It was closed before we started.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # for as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # For terminals that cannot show our arrows.


def _run(options: argparse.Namespace) -> int:
    errors = import_module("adjourn.cli._errors")
    try:
        return _command(options.command).run(options)
    except KeyboardInterrupt:
        print("\nStopped.")
        return errors.INTERRUPTED
    except errors.REPORTED as error:
        return errors.report(error, options)
