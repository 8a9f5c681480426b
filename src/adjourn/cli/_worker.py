"""`adjourn worker`: goes on with the sessions of some programs that are due, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress

import msgspec

from adjourn._engine.address import segment_text
from adjourn._screen import Screen
from adjourn._text import counted, visible_line
from adjourn.runner import Worker, WorkerCounts
from adjourn.runner._due import check_store
from adjourn.webhooks import Webhooks

from ._access import WEBHOOKS_FILE, webhooks_of
from ._options import ALLOW, DEPS, NO_SELF_APPROVAL, PROGRAM_NAME, STORE, arg, either, takes
from ._programs import runners_of, with_options

_ENDING = 3.0  # seconds for what the programs have left running


@takes(
    arg(
        "programs",
        metavar=f"FOLDER or {PROGRAM_NAME}",
        nargs="+",
        help="folders of YAML agents, or agents/:NAME for one of them; agents, compiled graphs, @workflow functions or "
        "Runners, such as tickets:agent",
    ),
    ALLOW,
    STORE,
    DEPS,
    arg("--concurrency", metavar="N", type=int, default=10, help="how many sessions run at once (10)"),
    arg("--per-user", metavar="N", type=int, help="how many of them may be of one user (no limit)"),
    arg("--poll", metavar="SECONDS", type=float, default=1.0, help="how often to look for work (1)"),
    arg("--grace", metavar="SECONDS", type=float, default=30.0, help="time for steps to end when it is stopped (30)"),
    NO_SELF_APPROVAL,
    *WEBHOOKS_FILE,
    either(
        arg("--quiet", "-q", action="store_true", help="only show what went wrong"),
        arg("--verbose", "-v", action="store_true", help="also show takeovers, expiries and other details"),
    ),
)
def worker(options: argparse.Namespace) -> int:
    """Work until SIGTERM or Ctrl-C, and return 0."""
    # Nothing is taken up before the worker has its own handlers, so there is nothing to hand over.
    signal.signal(signal.SIGTERM, _end)
    webhooks = webhooks_of(options)
    runners = runners_of(options)
    if webhooks is not None:
        runners = [with_options(runner, {"notify": webhooks}) for runner in runners]
    if options.no_self_approval:
        runners = [with_options(runner, {"self_approval": False}) for runner in runners]
    worker = Worker(
        runners, concurrency=options.concurrency, per_user=options.per_user, poll=options.poll, grace=options.grace
    )
    with _shown(options):
        asyncio.run(_work(worker, webhooks, is_quiet=options.quiet))
    return 0


def _end(_signal: int, _frame: object) -> None:
    sys.exit(0)


async def _work(worker: Worker, webhooks: Webhooks | None, *, is_quiet: bool) -> None:
    stores = {id(runner.store): runner.store for runner in worker.runners}.values()
    try:
        for store in stores:
            await check_store(store)
        if not is_quiet:
            _print_start(worker)
        async with AsyncExitStack() as sending:
            if webhooks is not None:
                for store, app in {(runner.store, runner.app_name) for runner in worker.runners}:
                    await sending.enter_async_context(webhooks.delivering(store, app_name=app))
            counts = await worker.run()
        if not is_quiet:
            print(f"Stopped. {_summary(counts)}", flush=True)
        # A store that does not close, code that ignores its cancellation, or a thread that does not end, would keep the
        # process for ever. All sessions are released by now.
        ending = threading.Timer(_ENDING, os._exit, [0])
        ending.daemon = True
        ending.start()
    finally:
        for store in stores:
            await store.close()


def _print_start(worker: Worker) -> None:
    for runner in worker.runners:
        address = segment_text(runner.program.kind, runner.program.name)
        app = "" if runner.app_name == "adjourn" else f", app {runner.app_name}"
        print(f"Serving {visible_line(address)} in {visible_line(repr(runner.store))}{visible_line(app)}")
    limit = "" if worker.per_user is None else f", {worker.per_user} of one user"
    print(
        f"Process {os.getpid()}, up to {counted(worker.concurrency, 'session')} at once{limit}. Ctrl-C stops it.",
        flush=True,
    )


def _summary(counts: WorkerCounts) -> str:
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in msgspec.structs.asdict(counts).items() if count]
    return f"Sessions: {', '.join(parts)}." if parts else "No session was due."


@contextmanager
def _shown(options: argparse.Namespace) -> Generator[None]:
    """Show the worker's log, one line for each thing that happens, instead of passing it on."""
    handler = _Lines()
    level = logging.WARNING if options.quiet else logging.INFO
    logs = [logging.getLogger("adjourn.worker"), logging.getLogger("adjourn.webhooks")]
    if options.verbose:
        logs.append(logging.getLogger("adjourn.stores"))
    before = [(log, log.level, log.propagate) for log in logs]
    for log in logs:
        log.addHandler(handler)
        log.setLevel(level)
        log.propagate = False
    try:
        yield
    finally:
        for log, level, propagates in before:
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagates


class _Lines(logging.Handler):
    """Prints log records with their time of day; what went wrong is coloured."""

    def __init__(self) -> None:
        super().__init__()
        self._screen = Screen(sys.stdout)
        self._times = logging.Formatter(datefmt="%H:%M:%S")

    def emit(self, record: logging.LogRecord) -> None:
        time = self._screen.painted(self._times.formatTime(record, "%H:%M:%S"), "dim")
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = self._screen.painted(text, "red")
        # Nobody may read it any more, and the one who logs has other things to do: to stop, for example.
        with suppress(OSError):
            self._screen.write(f"{time}  {text}\n")
