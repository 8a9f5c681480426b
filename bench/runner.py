"""Runs the sides of a workload, turn about, each repetition in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import ROOT, peer_python
from bench.workloads import Side, Size, Workload

_TIMEOUT = 240.0


class SideFailed(Exception):
    """A side could not do the work, or came to another result than the floor."""


@dataclass(kw_only=True)
class Measured:
    """What one side showed in all its repetitions of a workload; with a `failure`, its figures do not count."""

    runs: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])
    result: object = None
    note: str = ""
    failure: str = ""

    def figure(self, name: str) -> float | None:
        """The median over the repetitions."""
        values = [run[name] for run in self.runs if name in run]
        return median(values) if values and not self.failure else None


Measurement = dict[Side, Measured]
Progress = Callable[[str], None]


def measure(workload: Workload, *, repeats: int, folder: Path, progress: Progress) -> Measurement:
    """Let each side repeat the workload; a side that fails stays in the table with its reason."""
    sides: Measurement = {side: Measured() for side in workload.sides}
    for repeat in range(repeats):
        for side, measured in sides.items():
            if not measured.failure:
                progress(f"{workload.name}: {side}, {repeat + 1} of {repeats}")
                _repeat(measured, side, workload, folder)
    for measured in sides.values():
        _check_result(measured, sides["floor"])
    return sides


def _repeat(measured: Measured, side: Side, workload: Workload, folder: Path) -> None:
    try:
        outcome = run_side(side, workload.name, workload.size, folder)
    except SideFailed as failed:
        measured.failure = str(failed)
        return
    measured.runs.append(outcome["figures"])
    measured.result, measured.note = outcome["result"], outcome["note"]


def _check_result(measured: Measured, floor: Measured) -> None:
    if not measured.failure and not floor.failure and measured.result != floor.result:
        measured.failure = f"came to {measured.result!r:.60}, the floor to {floor.result!r:.60}"


def run_side(side: Side, name: str, size: Size, folder: Path) -> dict[str, Any]:
    """One repetition: the side's last line, a JSON object.

    Raises:
        SideFailed: it ended badly or took too long; the reason is the last line of what it had to say.
    """
    command = [_python(side), "-m", f"bench.sides.{side}", name, json.dumps(dict(size))]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=_environment(folder),
            timeout=_TIMEOUT,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise SideFailed(f"took longer than {_TIMEOUT:.0f} s") from None
    if done.returncode:
        raise SideFailed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _python(side: Side) -> str:
    try:
        return str(peer_python()) if side == "langgraph" else sys.executable
    except RuntimeError as error:
        raise SideFailed(str(error)) from error


def _environment(folder: Path) -> dict[str, str]:
    # LangGraph's tracing would be work that nobody asked for.
    return os.environ | {"TMPDIR": str(folder), "LANGSMITH_TRACING": "false"}
