"""Metrics: what the processes of a server do, and what waits in their store, for Prometheus.

With PROMETHEUS_MULTIPROC_DIR in the environment, processes that serve one port keep their numbers in that folder, and
whichever of them is asked has those of all. Without it, each has its own. No label has values that clients choose.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adjourn._engine.program import Program
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import UsageError
from adjourn.messages import Usage
from adjourn.runner import Options, Runner
from adjourn.stores.types import Due

from ._drafts import Drafts
from ._errors import error_code
from ._limits import Usage as CallersUsage

log = logger("adjourn.server")

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of processes that serve together; set it before they start."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

METHODS = frozenset(("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"))

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LONG = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)

ENDINGS = {"waiting": "interrupted", "failed": "error"}
"""How an ending is called, where its event has another name."""


class Metrics:
    """The numbers of an application, in a registry of its own."""

    def __init__(self, callers: CallersUsage) -> None:
        """Count from here on; whose turns run is told to `callers`, too.

        Raises:
            UsageError: processes are to share a folder that is not there.
        """
        self.callers = callers
        self._folder = _folder()
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "adjourn_http_requests",
            "Requests that were answered; the status is none where the client left before.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "adjourn_http_request_seconds",
            "Seconds until the answer begins.",
            ["route", "method"],
            buckets=QUICK,
            registry=registry,
        )
        self._streams = _gauge("adjourn_http_streams", "Streams that are open.", ["route"], registry)
        self._runs = _gauge("adjourn_runs", "Runs that are going on.", ["agent"], registry)
        self._begun = Counter(
            "adjourn_runs_begun", "Runs that have begun: turns, resumes, recoveries.", ["agent"], registry=registry
        )
        self._ended = Counter(
            "adjourn_runs_ended",
            "Runs that have ended: done, interrupted, error, cancelled; handed_over or taken_over by another process.",
            ["agent", "outcome"],
            registry=registry,
        )
        self._lasted = Histogram(
            "adjourn_run_seconds", "Seconds that runs took.", ["agent"], buckets=LONG, registry=registry
        )
        self._calls = Counter("adjourn_model_calls", "Calls of models.", ["agent"], registry=registry)
        self._tokens = Counter(
            "adjourn_model_tokens", "Tokens that models read and wrote.", ["agent", "kind"], registry=registry
        )
        self._answers = Counter(
            "adjourn_answers",
            "Requests with answers to questions: taken, or the code of the refusal.",
            ["outcome"],
            registry=registry,
        )
        self._taken_up = Counter(
            "adjourn_sessions_taken_up",
            "Sessions that the worker went on with, by why: answer, question (expired), lease (left behind), input.",
            ["why"],
            registry=registry,
        )
        self._deliveries = Counter(
            "adjourn_webhook_deliveries",
            "Attempts to send messages to webhooks: sent, failed; and messages that were dropped or given_up.",
            ["webhook", "outcome"],
            registry=registry,
        )
        self._draining = _gauge("adjourn_draining_processes", "Processes that are about to end.", [], registry)
        self._processes = _gauge("adjourn_processes", "Processes that serve.", [], registry)

    async def text(self, *others: Collector) -> bytes:
        """Return all numbers, and those of other collectors, as Prometheus reads them."""
        whole = CollectorRegistry()
        for each in others:
            whole.register(each)
        if self._folder is None:
            whole.register(self._registry)
            return generate_latest(whole)
        return await asyncio.to_thread(_with_all, whole, self._folder)

    def serve(self) -> None:
        """Note that the process begins to serve."""
        with _unharmed():
            self._processes.set(1)
            self._draining.set(0)

    def drain(self) -> None:
        """Note that the process is about to end."""
        with _unharmed():
            self._draining.set(1)

    def stop(self) -> None:
        """Note that the process serves no more."""
        with _unharmed():
            self._processes.set(0)
            self._draining.set(0)

    def take_up(self, due: Due) -> None:
        """Note that the worker goes on with a session."""
        with _unharmed():
            self._taken_up.labels(due.why).inc()

    def deliver(self, webhook: str, outcome: str) -> None:
        """Note what became of a message to a webhook."""
        with _unharmed():
            self._deliveries.labels(webhook, outcome).inc()

    @contextlib.contextmanager
    def answering(self) -> Generator[None]:
        """Count what becomes of answers: they are taken, or refused with a code."""
        try:
            yield
        except Exception as error:
            with _unharmed():
                self._answers.labels(error_code(error)).inc()
            raise
        with _unharmed():
            self._answers.labels("taken").inc()

    def runner(self, agent: Program, /, **options: Unpack[Options]) -> Runner:
        """Make a runner whose runs are counted, whoever begins them."""
        return _MeasuredRunner(agent, self, **options)

    def measured(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> ASGIApp:
        """Return an application whose requests are counted, by the templates of these routes."""
        templates = {each.endpoint: re.sub(r":path}", "}", each.path) for each in routes if isinstance(each, Route)}

        async def measure(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request = _Request(self._requests, self._seconds, self._streams, scope, templates)
            try:
                await app(scope, receive, request.sending(send))
            finally:
                request.end()

        return measure

    # What an AgentMeter hears

    def begin_run(self, agent: str) -> None:
        """Count a run that begins."""
        with _unharmed():
            self._begun.labels(agent).inc()
            self._runs.labels(agent).inc()

    def end_run(self, agent: str, ending: str, before: Usage, after: Usage, seconds: float) -> None:
        """Count a run that has ended."""
        with _unharmed():
            self._runs.labels(agent).dec()
            self._ended.labels(agent, ENDINGS.get(ending, ending)).inc()
            self._lasted.labels(agent).observe(seconds)
            self._calls.labels(agent).inc(max(0, after.calls - before.calls))
            self._tokens.labels(agent, "input").inc(max(0, after.input_tokens - before.input_tokens))
            self._tokens.labels(agent, "output").inc(max(0, after.output_tokens - before.output_tokens))


class AgentMeter:
    """Hears of the runs of one agent."""

    def __init__(self, metrics: Metrics, agent: str) -> None:
        self._metrics = metrics
        self._agent = agent

    def began(self, user_id: str | None) -> None:
        """Note that a run begins."""
        self._metrics.callers.begin_run(user_id)
        self._metrics.begin_run(self._agent)

    def ended(self, user_id: str | None, ending: str, before: Usage, after: Usage, seconds: float) -> None:
        """Note that a run has ended."""
        self._metrics.callers.end_run(user_id)
        self._metrics.end_run(self._agent, ending, before, after, seconds)


class _MeasuredRunner(Runner):
    """A runner whose runs are counted, and what they are writing is kept for clients that come in the middle."""

    def __init__(self, agent: Program, metrics: Metrics, **options: Unpack[Options]) -> None:
        super().__init__(agent, **options)
        self._live.observer = AgentMeter(metrics, self.program.name)
        self._live.listen = Drafts


class _Request:
    """One request: its route is known when its answer begins."""

    def __init__(
        self, requests: Counter, seconds: Histogram, streams: Gauge, scope: Scope, templates: Mapping[Any, str]
    ) -> None:
        self._requests = requests
        self._seconds = seconds
        self._streams = streams
        self._scope = scope
        self._templates = templates
        self._began = time.perf_counter()
        self._status: str | None = None
        self._stream: Gauge | None = None

    def sending(self, send: Send) -> Send:
        async def noticing(message: Message) -> None:
            if self._status is None:
                with _unharmed():
                    self._answer(message)
            await send(message)

        return noticing

    def _answer(self, message: Message) -> None:
        self._status = str(message["status"])
        route, method = self._route(), self._method()
        self._requests.labels(route, method, self._status).inc()
        self._seconds.labels(route, method).observe(time.perf_counter() - self._began)
        if any(name == b"content-type" and b"event-stream" in value for name, value in message["headers"]):
            self._stream = self._streams.labels(route)
            self._stream.inc()

    def end(self) -> None:
        with _unharmed():
            if self._status is None:
                self._requests.labels(self._route(), self._method(), "none").inc()
            if self._stream is not None:
                self._stream.dec()

    def _route(self) -> str:
        return self._templates.get(self._scope.get("endpoint"), "none")

    def _method(self) -> str:
        method = self._scope["method"]
        return method if method in METHODS else "other"


# Several processes


def _gauge(name: str, text: str, labels: list[str], registry: CollectorRegistry) -> Gauge:
    """Return a gauge that is the sum of those of all processes that live."""
    return Gauge(name, text, labels, multiprocess_mode="livesum", registry=registry)


def _folder() -> Path | None:
    """Return the folder of all processes; None if this is the only one.

    Raises:
        UsageError: it is not there.
    """
    if values.ValueClass is values.MutexValue:
        return None
    folder = Path(os.environ.get(FOLDER, ""))
    if not folder.is_dir():
        raise UsageError(f"${FOLDER} is {str(folder)!r}, which is not a folder. Make an empty one before each start.")
    return folder


def _with_all(whole: CollectorRegistry, folder: Path) -> bytes:
    """Return the numbers of all processes: what has been counted stays, what is going on is that of the living."""
    for file in folder.glob("gauge_live*.db"):
        number = file.stem.rpartition("_")[2]
        if number.isdigit() and _is_gone(int(number)):
            file.unlink(missing_ok=True)
    whole.register(_OfAll(folder))
    return generate_latest(whole)


class _OfAll(Collector):
    """The numbers of all processes that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Yield the sums."""
        # A process that is just starting makes a file before it writes to it, and the library cannot read an empty one.
        files = [str(file) for file in self._folder.glob("*.db") if _size(file)]
        return MultiProcessCollector.merge(files)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _size(file: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # It was removed just now.
        return file.stat().st_size
    return 0


def _is_gone(pid: int) -> bool:
    if sys.platform == "win32":
        return False  # There, os.kill is no question: it ends the process.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextlib.contextmanager
def _unharmed() -> Generator[None]:
    """Let nothing fail because it could not be counted: the folder may be full, or gone."""
    try:
        yield
    except OSError as error:
        log.warning("metrics: %s", visible_line(str(error)))
