"""`adjourn serve`: serves programs over HTTP, until it is told to stop."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adjourn._checks import is_number
from adjourn._engine.program import Program
from adjourn._text import visible_line
from adjourn.cli._fleet import MOST, Fleet, Member
from adjourn.cli._listening import bound, url_of
from adjourn.cli._programs import METAVAR, add_allow_option, deps_of, named
from adjourn.cli._stores import add_store_option, store_url
from adjourn.errors import UsageError
from adjourn.runner import Runner
from adjourn.spec import Loaded, Served, load
from adjourn.stores import EncryptedStore, MemoryStore
from adjourn.webhooks import Webhooks, load_webhooks

if TYPE_CHECKING:
    from adjourn.server import App

LAST_PORT = 65_535

RELOAD = 1.0
"""Seconds between looks at the folders."""

METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which processes count together."""

TOKENS = "ADJOURN_TOKENS"
"""The environment variable that names the file of tokens."""


WEBHOOKS = "ADJOURN_WEBHOOKS"
"""The environment variable that names the file of webhooks."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the programs, the store, and where to listen."""
    help_ = "folders of YAML agents; agents, compiled graphs, @workflow functions or Runners, such as tickets:agent"
    parser.add_argument("programs", metavar=f"FOLDER or {METAVAR}", nargs="+", help=help_)
    add_allow_option(parser)
    parser.add_argument("--reload", action="store_true", help="serve files of folders as they are when they change")
    add_store_option(parser)
    parser.add_argument("--deps", metavar=METAVAR, help="the value of current().deps; a function is called to get it")
    add_tokens_option(parser)
    add_self_approval_option(parser)
    parser.add_argument("--open-metrics", action="store_true", help="let anybody read GET /metrics, without a token")
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[], help="a name of this server")
    parser.add_argument(
        "--allow-origin", metavar="ORIGIN", action="append", default=[], help="an origin whose pages may use it"
    )
    parser.add_argument(
        "--allow-media-host", metavar="HOST", action="append", default=[], help="a host of images that callers may name"
    )
    add_webhooks_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on (8000); 0 for a free one")
    parser.add_argument(
        "--grace", metavar="SECONDS", type=float, default=10.0, help="time for steps to end when it is stopped (10)"
    )
    parser.add_argument(
        "--workers", metavar="N", type=int, default=1, help="processes that serve together, on one store (1)"
    )
    parser.add_argument("--member", help=argparse.SUPPRESS)  # how a parent starts its workers


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, and return 0."""
    _check(options)
    if options.workers > 1 and options.member is None:
        return _lead(options)
    try:
        # Only this command needs the extra.
        from adjourn.server.serve import Server  # noqa: PLC0415
    except ImportError as missing:
        raise UsageError('`adjourn serve` needs the extra of the server: pip install "adjourn[server]".') from missing
    member = None if options.member is None else Member(options.member)
    app = _app(options)
    about = _about(app)
    if member is None:
        server = Server(app, host=options.host, port=options.port, tell=partial(_tell, about))
        server.run(sockets=bound(options.host, options.port))
    else:
        _check_shared(app, options)
        server = Server(app, host=options.host, port=options.port, tell=lambda _: member.ready(server, about))
        server.run(sockets=member.sockets)
    return 0


def _check(options: argparse.Namespace) -> None:
    if not is_number(options.grace) or options.grace < 0:
        raise UsageError(f"--grace {options.grace}: give a number of seconds, 0 or more.")
    if not 0 <= options.port <= LAST_PORT:
        raise UsageError(f"--port {options.port}: give a number from 0 to {LAST_PORT:,}.")
    if not 1 <= options.workers <= MOST:
        raise UsageError(f"--workers {options.workers}: give a number from 1 to {MOST}, such as the cores you have.")
    if (tokens := tokens_path(options)) is not None and not Path(tokens).is_file():
        hint = f"Make a token with `adjourn token create NAME --tokens {tokens}`, or name another file."
        raise UsageError(f"--tokens {tokens}: there is no such file, so nobody could make a request. {hint}")


def _app(options: argparse.Namespace) -> App:
    from adjourn.server import App  # noqa: PLC0415

    return App(
        [_program(name, options) for name in dict.fromkeys(options.programs)],
        store=store_url(options),
        deps=deps_of(options),
        reload=RELOAD if options.reload else None,
        grace=options.grace,
        tokens=tokens_path(options),
        self_approval=not options.no_self_approval,
        open_metrics=options.open_metrics,
        hosts=options.allow_host,
        origins=options.allow_origin,
        media_hosts=options.allow_media_host,
        webhooks=webhooks_of(options),
    )


def _about(app: App) -> str:
    where = "memory, until it stops" if isinstance(app.store, MemoryStore) else visible_line(repr(app.store))
    return f"Serving {visible_line(', '.join(agent.name for agent in app.agents))} in {where}"


def _tell(about: str, url: str) -> None:
    print(about)
    print(f"Listening on {url}. Ctrl-C stops it.", flush=True)


# Several processes


def _lead(options: argparse.Namespace) -> int:
    """Serve with several processes, and be their parent."""
    if sys.platform == "win32":
        raise UsageError("--workers needs Unix. Start several servers on ports of their own, behind a proxy.")
    sockets = bound(options.host, options.port)
    url = url_of(options.host, sockets)

    def tell(about: str) -> None:
        print(about)
        print(f"Listening on {url}. {options.workers} processes, Ctrl-C stops them.", flush=True)

    def command(given: str) -> list[str]:
        return [*_this_command(options.words), "serve", "--member", given, *options.words[1:]]

    def warn(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="adjourn-metrics-", ignore_cleanup_errors=True) as folder:
        # What they count is kept here, so that whichever of them is asked has the numbers of all.
        os.environ.setdefault(METRICS, folder)
        return Fleet(command, sockets, workers=options.workers, grace=options.grace, tell=tell, warn=warn).run()


def _this_command(words: list[str]) -> list[str]:
    """Return how this process was started, with the options of Python, but without its words."""
    begun = sys.orig_argv[1:]
    if len(begun) > len(words) and begun[-len(words) :] == words:
        return [sys.executable, *begun[: -len(words)]]
    return [sys.executable, "-m", "adjourn"]


def _check_shared(app: App, options: argparse.Namespace) -> None:
    """Refuse a store that processes cannot share."""
    store = app.store.inner if isinstance(app.store, EncryptedStore) else app.store
    if isinstance(store, MemoryStore):
        raise UsageError(
            f"--workers {options.workers}: sessions would be in the memory of one process, and others would not find "
            "them. Give --store URL, such as --store sqlite:///tickets.db, postgresql://... or redis://..."
        )


def _program(name: str, options: argparse.Namespace) -> Loaded | Served | Program | Runner:
    """Return the agents of a folder, one of them, or the program that a module has.

    Raises:
        UsageError: it is neither; what is wrong is said.
    """
    if Path(name).is_dir():
        return load(name, allow=options.allow)
    if Path(name).is_file():
        raise UsageError(f"'{name}' is a file. Name the folder that it is in: {Path(name).parent}.")
    if ":" not in name:
        raise UsageError(f"There is no folder '{name}'. Name a folder of YAML agents, or MODULE:ATTRIBUTE.")
    found = named(name, options.allow)
    return found.served or found.program


def add_self_approval_option(parser: argparse.ArgumentParser) -> None:
    """Add the option by which nobody approves a request of their own."""
    parser.add_argument(
        "--no-self-approval", action="store_true", help="approvals count only by others than who asks for them"
    )


def add_webhooks_options(parser: argparse.ArgumentParser) -> None:
    """Add the file of webhooks."""
    parser.add_argument("--webhooks", metavar="FILE", help=f"a file of whom to tell of pauses and ends (${WEBHOOKS})")
    parser.add_argument("--public-url", metavar="URL", help="where clients reach the server, for the links in webhooks")


def webhooks_of(options: argparse.Namespace) -> Webhooks | None:
    """Return the webhooks of the file that is named, if one is.

    Raises:
        UsageError: it cannot be used.
    """
    path = options.webhooks or os.environ.get(WEBHOOKS)
    if path:
        return load_webhooks(path, public_url=options.public_url)
    if options.public_url is not None:
        raise UsageError("--public-url is for the links in webhooks, and there are none. Give --webhooks FILE.")
    return None


def add_tokens_option(parser: argparse.ArgumentParser) -> None:
    """Add the file of tokens."""
    parser.add_argument("--tokens", metavar="FILE", help=f"the file of who may make requests (${TOKENS})")


def tokens_path(options: argparse.Namespace) -> str | None:
    """Return the file of tokens, if one is named."""
    return options.tokens or os.environ.get(TOKENS) or None
