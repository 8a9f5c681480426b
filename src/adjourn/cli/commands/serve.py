"""`adjourn serve`: serves programs over HTTP, until it is told to stop."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from adjourn._checks import is_number
from adjourn._engine.program import Program
from adjourn._text import visible_line
from adjourn.cli._programs import METAVAR, deps_of, program_of
from adjourn.cli._stores import add_store_option, store_url
from adjourn.cli.commands.check import add_allow_option
from adjourn.errors import UsageError
from adjourn.runner import Runner
from adjourn.spec import Loaded, load
from adjourn.stores import MemoryStore

LAST_PORT = 65_535

RELOAD = 1.0
"""Seconds between looks at the folders."""

TOKENS = "ADJOURN_TOKENS"
"""The environment variable that names the file of tokens."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the programs, the store, and where to listen."""
    help_ = "folders of YAML agents; agents, compiled graphs, @workflow functions or Runners, such as tickets:agent"
    parser.add_argument("programs", metavar=f"FOLDER or {METAVAR}", nargs="+", help=help_)
    add_allow_option(parser)
    parser.add_argument("--reload", action="store_true", help="serve files of folders as they are when they change")
    add_store_option(parser)
    parser.add_argument("--deps", metavar=METAVAR, help="the value of current().deps; a function is called to get it")
    add_tokens_option(parser)
    parser.add_argument(
        "--no-self-approval", action="store_true", help="approvals count only from others than who asked for them"
    )
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[], help="a name of this server")
    parser.add_argument(
        "--allow-origin", metavar="ORIGIN", action="append", default=[], help="an origin whose pages may use it"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on (8000); 0 for a free one")
    parser.add_argument(
        "--grace", metavar="SECONDS", type=float, default=10.0, help="time for steps to end when it is stopped (10)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, and return 0."""
    if not is_number(options.grace) or options.grace < 0:
        raise UsageError(f"--grace {options.grace}: give a number of seconds, 0 or more.")
    if not 0 <= options.port <= LAST_PORT:
        raise UsageError(f"--port {options.port}: give a number from 0 to {LAST_PORT:,}.")
    if (tokens := tokens_path(options)) is not None and not Path(tokens).is_file():
        hint = f"Make a token with `adjourn token create NAME --tokens {tokens}`, or name another file."
        raise UsageError(f"--tokens {tokens}: there is no such file, so nobody could make a request. {hint}")
    programs = [_program(name, options) for name in dict.fromkeys(options.programs)]
    try:
        # Only this command needs the extra.
        from adjourn.server import App  # noqa: PLC0415
        from adjourn.server.serve import Server  # noqa: PLC0415
    except ImportError as missing:
        raise UsageError('`adjourn serve` needs Starlette and uvicorn: pip install "adjourn[server]".') from missing
    app = App(
        programs,
        store=store_url(options),
        deps=deps_of(options),
        reload=RELOAD if options.reload else None,
        grace=options.grace,
        tokens=tokens,
        self_approval=not options.no_self_approval,
        hosts=options.allow_host,
        origins=options.allow_origin,
    )
    served = [agent.name for agent in app.agents]

    def tell(url: str) -> None:
        where = "memory, until it stops" if isinstance(app.store, MemoryStore) else visible_line(repr(app.store))
        print(f"Serving {visible_line(', '.join(served))} in {where}")
        print(f"Listening on {url}. Ctrl-C stops it.", flush=True)

    Server(app, host=options.host, port=options.port, tell=tell).run()
    return 0


def _program(name: str, options: argparse.Namespace) -> Loaded | Program | Runner:
    """Return the agents of a folder, or the program that a module has.

    Raises:
        UsageError: it is neither; what is wrong is said.
    """
    if Path(name).is_dir():
        return load(name, allow=options.allow)
    if ":" not in name:
        raise UsageError(f"There is no folder '{name}'. Name a folder of YAML agents, or MODULE:ATTRIBUTE.")
    return program_of(name)


def add_tokens_option(parser: argparse.ArgumentParser) -> None:
    """Add the file of tokens."""
    parser.add_argument("--tokens", metavar="FILE", help=f"the file of who may make requests (${TOKENS})")


def tokens_path(options: argparse.Namespace) -> str | None:
    """Return the file of tokens, if one is named."""
    return options.tokens or os.environ.get(TOKENS) or None
