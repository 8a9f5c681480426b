"""The words and options of commands: declared where a command is, and those that many share declared here once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adjourn._text import did_you_mean

APP = "adjourn"
"""The app of a runner that was not given another one, and of a command."""

STORE_VARIABLE = "ADJOURN_STORE"
TOKEN_VARIABLE = "ADJOURN_TOKEN"


class Argument(NamedTuple):
    """A word or an option of a command, as argparse takes it; a default that is a function is called for each use."""

    names: tuple[str, ...]
    settings: dict[str, Any]

    def add_to(self, parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]  # parsers and groups
        """Add it to a parser or a group."""
        settings = dict(self.settings)
        if callable(default := settings.get("default")):
            settings["default"] = default()
        parser.add_argument(*self.names, **settings)


def arg(*names: str, **settings: Any) -> Argument:
    """Return a word or an option; the settings are those of argparse's `add_argument`."""
    return Argument(names, settings)


class Either(NamedTuple):
    """Options of which at most one is given."""

    options: tuple[Argument, ...]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add them to a parser."""
        group = parser.add_mutually_exclusive_group()
        for each in self.options:
            each.add_to(group)


def either(*options: Argument) -> Either:
    """Return options of which at most one is given."""
    return Either(options)


class Command(NamedTuple):
    """A command: what it does with its options, which returns the exit code, and what it takes."""

    run: Callable[[argparse.Namespace], int]
    takes: tuple[Argument | Either, ...]


def takes(*arguments: Argument | Either) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a command of a function."""
    return lambda run: Command(run, arguments)


STORE = arg("--store", metavar="URL", help=f"such as sqlite:///tickets.db; by default ${STORE_VARIABLE}")
SERVER = (
    arg("--server", metavar="URL", help="ask this server, such as http://localhost:8000, and no store"),
    arg("--token", metavar="TOKEN", help=f"what lets you in there; by default ${TOKEN_VARIABLE}"),
)
JSON = arg("--json", action="store_true", help="print JSON, for programs")
OF_APP = arg("--app", metavar="NAME", default=APP, help=f"the app_name of the runner ({APP})")
USER = arg("--user", metavar="ID", help="only sessions of this user; others are not found")
WHOSE = (
    either(OF_APP, arg("--all-apps", dest="app", action="store_const", const=None, help="the sessions of all apps")),
    USER,
)
SESSION = arg("session", metavar="SESSION")
PROGRAM_NAME = "MODULE:ATTRIBUTE"
ALLOW = arg(
    "--allow",
    metavar="NAME",
    action="append",
    default=[],
    help="an installed package that files of YAML may name as python://NAME...; may be repeated",
)
DEPS = arg("--deps", metavar=PROGRAM_NAME, help="the value of current().deps; a function is called to get it")
A_PROGRAM = (
    "an agent, a compiled graph, a @workflow function or a Runner, such as tickets:agent, or agents/:NAME of YAML"
)
PROGRAM = (
    arg("program", metavar=PROGRAM_NAME, nargs="?", help=f"{A_PROGRAM}; with --server, the name of an agent there"),
    ALLOW,
    STORE,
    *SERVER,
    DEPS,
)
NO_SELF_APPROVAL = arg(
    "--no-self-approval", action="store_true", help="approvals count only by others than who asks for them"
)


def check_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End the program if one of the words is an option that the parser does not have but a similar one."""
    known = re.findall(r"--[a-z-]+", parser.format_usage())
    for word in words[: words.index("--")] if "--" in words else words:
        name = word.partition("=")[0]
        if not re.fullmatch(r"--[a-z-]+", name) or any(each.startswith(name) for each in known):
            continue  # argparse takes beginnings of options, too.
        if name in ("--server", "--token"):
            remedy = " Give --store URL." if "--store" in known else ""
            parser.error(f"{name}: the API of a server has no route for `{parser.prog}`.{remedy}")
        if meant := did_you_mean(name, known):
            parser.error(f"there is no option {name}.{meant}")
