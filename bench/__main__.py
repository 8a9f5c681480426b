"""`python -m bench`: measure, print the table, and keep the figures."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import table
from bench.peers import ROOT, peer_versions
from bench.runner import Measurement, measure
from bench.workloads import SIDES, WORKLOADS, Workload


def main() -> None:
    """Measure what the command line names. Slowness is shown, never an exit code."""
    asked = _arguments()
    began = time.monotonic()
    print(*table.head(), sep="\n", flush=True)
    report: dict[str, object] = {}
    for family in SIDES:
        workloads = [each for each in _chosen(asked.workloads) if each.family == family]
        if workloads:
            print(*table.columns(family), sep="\n", flush=True)
        report |= {workload.name: _measured(workload, asked) for workload in workloads}
    print(*table.foot(time.monotonic() - began), sep="\n")
    if asked.json:
        asked.json.write_text(json.dumps({"peers": peer_versions(), "workloads": report}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Adjourn beside others and a hand-written loop."
    )
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"default all: {', '.join(names)}")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="one repetition, smaller sizes: a look, not a measurement")
    length.add_argument("--full", action="store_true", help="the largest sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every repetition's figures there")
    asked = parser.parse_args()
    if unknown := set(asked.workloads) - set(names):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return asked


def _chosen(names: Sequence[str]) -> list[Workload]:
    return [workload for workload in WORKLOADS if not names or workload.name in names]


def _measured(workload: Workload, asked: argparse.Namespace) -> dict[str, object]:
    workload = workload.resized(workload.quick if asked.quick else workload.full if asked.full else {})
    repeats = 1 if asked.quick else workload.repeats
    # On the project's disk, since /tmp may be memory.
    with TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        sides = measure(workload, repeats=repeats, folder=Path(folder), progress=_progress)
    _progress("")
    print(*table.lines(workload, sides), sep="\n", flush=True)
    return _report(workload, sides)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _report(workload: Workload, sides: Measurement) -> dict[str, object]:
    rows = [
        {
            "what": row.label,
            "unit": row.unit,
            "target": row.target and asdict(row.target),
            "reached": table.is_reached(row, sides),
            **{side: measured.figure(row.figure_of(side)) for side, measured in sides.items()},
        }
        for row in workload.rows
    ]
    return {"rows": rows, "sides": {side: asdict(measured) for side, measured in sides.items()}}


if __name__ == "__main__":
    main()
