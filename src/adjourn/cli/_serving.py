"""`adjourn serve`: serves programs over HTTP, until it is told to stop."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adjourn._checks import is_number
from adjourn._engine.program import Program
from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.runner import Runner
from adjourn.spec import Loaded, Served, load
from adjourn.stores import EncryptedStore, MemoryStore

from ._access import TOKENS_FILE, WEBHOOKS_FILE, tokens_path, webhooks_of
from ._fleet import MOST, Fleet, Member
from ._options import ALLOW, DEPS, NO_SELF_APPROVAL, PROGRAM_NAME, STORE, arg, takes
from ._programs import check_no_path, deps_of, named
from ._stores import store_url

if TYPE_CHECKING:
    from adjourn.server import App


def bound(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address that a host name has, all bound to one port; nobody can connect yet.

    Raises:
        UsageError: this machine, or this user, cannot listen there.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            # With port 0, the first one chooses.
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_bound(family, (address[0], chosen, *address[2:])))
    except OSError as error:
        for each in sockets:
            each.close()
        raise UsageError(_refusal(error, host, port)) from error
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int, *tuple[int, ...]]]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"--host {host}: there is no such address. Use 127.0.0.1, or one of this machine.") from error
    known = {(family, address[0]): address for family, _, _, _, address in found if _exists(family)}
    return [(family, address) for (family, _), address in known.items()]  # pyright: ignore[reportReturnType]  # addresses of hosts


def _exists(family: socket.AddressFamily) -> bool:
    return family != socket.AF_INET6 or socket.has_dualstack_ipv6() or socket.has_ipv6


def _bound(family: socket.AddressFamily, address: tuple[str, int, *tuple[int, ...]]) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
    except BaseException:
        found.close()
        raise
    return found


def _refusal(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port {port}: somebody listens there already. Stop that one, or choose another port; 0 is a free one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port {port}: this user may not listen there. Choose a port from 1024 on, with a proxy before it."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: this machine does not have that address. Use 127.0.0.1, or 0.0.0.0 for all it has."
    return f"--host {host} --port {port}: nobody can listen there: {error.strerror or error}."


def url_of(host: str, sockets: list[socket.socket]) -> str:
    """Return where to find who listens."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"


LAST_PORT = 65_535

RELOAD = 1.0
"""Seconds between looks at the folders."""

METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which processes count together."""


@takes(
    arg(
        "programs",
        metavar=f"FOLDER or {PROGRAM_NAME}",
        nargs="+",
        help="folders of YAML agents; agents, compiled graphs, @workflow functions or Runners, such as tickets:agent",
    ),
    ALLOW,
    arg("--reload", action="store_true", help="serve files of folders as they are when they change"),
    STORE,
    DEPS,
    TOKENS_FILE,
    NO_SELF_APPROVAL,
    arg("--open-metrics", action="store_true", help="let anybody read GET /metrics, without a token"),
    arg("--allow-host", metavar="NAME", action="append", default=[], help="a name of this server"),
    arg("--allow-origin", metavar="ORIGIN", action="append", default=[], help="an origin whose pages may use it"),
    arg(
        "--allow-media-host", metavar="HOST", action="append", default=[], help="a host of images that callers may name"
    ),
    *WEBHOOKS_FILE,
    arg("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)"),
    arg("--port", type=int, default=8000, help="the port to listen on (8000); 0 for a free one"),
    arg("--grace", metavar="SECONDS", type=float, default=10.0, help="time for steps to end when it is stopped (10)"),
    arg("--workers", metavar="N", type=int, default=1, help="processes that serve together, on one store (1)"),
    arg("--member", help=argparse.SUPPRESS),
)
def serve(options: argparse.Namespace) -> int:
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
    check_no_path(name)
    found = named(name, options.allow)
    return found.served or found.program
