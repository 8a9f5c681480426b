"""Runs the sides of a workload, turn about, each repetition in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import ROOT, NotInstalled, peer_python
from bench.workloads import PEERS, Family, Server, Side, Workload
from tests.servers import MissingServer, Postgres, Redis

_SCRIPTS: Mapping[Family, str] = {
    "graphs": "bench.sides",
    "agents": "bench.sides.agents",
    "servers": "bench.sides.servers",
    "service": "bench.sides.service",
}
# Both keep what they have said is kept, also when the power fails.
_SERVERS: Mapping[Server, Callable[[], Postgres | Redis]] = {
    "postgres": lambda: Postgres(durable=True, settings={"shared_buffers": "128MB"}),
    "redis": lambda: Redis(appendfsync="always"),
}


class SideFailed(Exception):
    """A side could not do the work, or came to another result than the floor."""


@dataclass(kw_only=True)
class Measured:
    """What one side showed in all its repetitions of a workload; with a `failure`, its figures do not count.

    `missing` says what a side lacks that could not be measured at all.
    """

    runs: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])
    result: object = None
    note: str = ""
    failure: str = ""
    missing: str = ""

    def figure(self, name: str) -> float | None:
        """The median over the repetitions."""
        values = [run[name] for run in self.runs if name in run]
        return median(values) if values and not self.failure else None


Measurement = dict[Side, Measured]
Servers = Mapping[Server, Postgres | Redis]
Progress = Callable[[str], None]


def measure(workload: Workload, *, repeats: int, folder: Path, progress: Progress) -> Measurement:
    """Let each side repeat the workload; a side that fails stays in the table with its reason."""
    sides: Measurement = {side: Measured() for side in workload.sides}
    with ExitStack() as stack:
        try:
            servers: Servers = {kind: stack.enter_context(_SERVERS[kind]()) for kind in workload.servers}
        except MissingServer as missing:
            return {side: Measured(missing=str(missing)) for side in sides}
        _measure(workload, sides, servers, repeats=repeats, folder=folder, progress=progress)
    if "floor" in sides:
        for measured in sides.values():
            _check_result(measured, sides["floor"])
    return sides


def _measure(
    workload: Workload, sides: Measurement, servers: Servers, *, repeats: int, folder: Path, progress: Progress
) -> None:
    for repeat in range(repeats):
        for side, measured in sides.items():
            if not measured.failure and not measured.missing:
                progress(f"{workload.name}: {side}, {repeat + 1} of {repeats}")
                _repeat(measured, side, workload, folder, servers)


def _repeat(measured: Measured, side: Side, workload: Workload, folder: Path, servers: Servers) -> None:
    places = {f"BENCH_{kind.upper()}": server.fresh() for kind, server in servers.items()}
    try:
        outcome = run_side(side, workload, folder, places)
    except NotInstalled as error:
        measured.missing = str(error)
        return
    except SideFailed as failed:
        measured.failure = str(failed)
        return
    measured.runs.append(outcome["figures"])
    measured.result, measured.note = outcome["result"], outcome["note"]


def _check_result(measured: Measured, floor: Measured) -> None:
    is_done = not measured.failure and not measured.missing
    if is_done and not floor.failure and measured.result != floor.result:
        measured.failure = f"came to {measured.result!r:.60}, the floor to {floor.result!r:.60}"


def run_side(side: Side, workload: Workload, folder: Path, places: Mapping[str, str]) -> dict[str, Any]:
    """One repetition: the side's last line, a JSON object. `places` are variables that say where its servers are.

    Raises:
        NotInstalled: the side is a peer that could not be installed.
        SideFailed: it ended badly or took too long; the reason is the last line of what it had to say.
    """
    script = f"{_SCRIPTS[workload.family]}.{side}"
    command = [_python(side), "-m", script, workload.name, json.dumps(dict(workload.size))]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**_environment(folder), **places},
            timeout=workload.timeout,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise SideFailed(f"took longer than {workload.timeout:.0f} s") from None
    if done.returncode:
        raise SideFailed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _python(side: Side) -> str:
    return str(peer_python(side)) if side in PEERS else sys.executable


def _environment(folder: Path) -> dict[str, str]:
    # The peers' tracing would be work that nobody asked for.
    quiet = {
        "LANGSMITH_TRACING": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "OTEL_SDK_DISABLED": "true",
        "LOG_LEVEL": "ERROR",
    }
    return os.environ | {"TMPDIR": str(folder)} | quiet
