"""The table that people read."""

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator

from bench.peers import peer_version
from bench.runner import Measured, Measurement
from bench.workloads import AtMost, Row, Side, TimesLess, Workload

_TITLES: dict[Side, str] = {"floor": "floor", "ours": "Adjourn", "langgraph": "LangGraph"}
_WIDTHS = (14, 31, 11, 11, 11, 9, 11)
_RULE = "─" * (sum(_WIDTHS) + 3)


def head() -> Iterator[str]:
    """What was measured where, and the columns' names."""
    versions = f"LangGraph {peer_version()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield f"{versions}, {os.cpu_count()} cores"
    yield "Medians; on SQLite every side has WAL and synchronous=FULL. The ratio is LangGraph's figure by ours."
    busy = os.getloadavg()[0]
    if busy > 0.7:
        yield f"This machine has other work (load {busy:.1f}): take the figures with care."
    yield ""
    yield _line("workload", "what", *_TITLES.values(), "ratio", "target", "")
    yield _RULE


def lines(workload: Workload, sides: Measurement) -> Iterator[str]:
    """The rows of one workload, and under them who failed and why."""
    for number, row in enumerate(workload.rows):
        yield _row("" if number else workload.name, row, sides)
    for side, measured in sides.items():
        if measured.failure:
            yield f"{'':{_WIDTHS[0]}}{_TITLES[side]} failed: {measured.failure}"
        elif measured.note:
            yield _cut(f"{'':{_WIDTHS[0]}}{_TITLES[side]}: {measured.note}")


def foot(seconds: float) -> Iterator[str]:
    """The end of the table."""
    yield _RULE
    yield f"✓ reached, ✗ missed, ? not measured. Took {seconds:.0f} s."


def _row(name: str, row: Row, sides: Measurement) -> str:
    ours, peer = figures(row, sides)
    ratio = f"{peer / ours:.3g}×" if ours and peer and row.unit not in ("×", "") else ""
    cells = (_cell(row, side, sides.get(side)) for side in _TITLES)
    return _line(name, row.label, *cells, ratio, _target(row), mark(row, sides))


def figures(row: Row, sides: Measurement) -> tuple[float | None, float | None]:
    """Ours and the peer's."""
    ours, peer = sides.get("ours"), sides.get("langgraph")
    return (
        ours.figure(row.figure_of("ours")) if ours else None,
        peer.figure(row.figure_of("langgraph")) if peer else None,
    )


def is_reached(row: Row, sides: Measurement) -> bool | None:
    """Whether the row's target is reached; `None` if there is none, or nothing to hold against it."""
    ours, peer = figures(row, sides)
    return None if row.target is None or ours is None else row.target.is_reached(ours, peer)


def mark(row: Row, sides: Measurement) -> str:
    """A tick, a cross, or nothing."""
    marks = {True: _coloured("✓", 32), False: _coloured("✗", 31), None: "?" if row.target else ""}
    return marks[is_reached(row, sides)]


def _cell(row: Row, side: Side, measured: Measured | None) -> str:
    if measured is None:
        return "–"
    if measured.failure:
        return "failed"
    figure = measured.figure(row.figure_of(side))
    return "–" if figure is None else _with_unit(_digits(figure), row.unit)


def _with_unit(number: str, unit: str) -> str:
    return f"{number}{unit}" if unit == "×" else f"{number} {unit}".rstrip()


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 or figure == int(figure) else f"{figure:.3g}"


def _target(row: Row) -> str:
    match row.target:
        case AtMost(limit):
            return "≤ " + _with_unit(f"{limit:g}", row.unit)
        case TimesLess(factor):
            return f"≥ {factor:g}×"
        case None:
            return ""


def _line(*cells: str) -> str:
    name, what, *rest = cells
    right = (f"{cell:>{width}}" for cell, width in zip(rest[:-1], _WIDTHS[2:], strict=True))
    return f"{name:<{_WIDTHS[0]}}{what:<{_WIDTHS[1]}}{''.join(right)}  {rest[-1]}".rstrip()


def _cut(text: str) -> str:
    return text if len(text) <= len(_RULE) else text[: len(_RULE) - 2] + " …"


def _coloured(text: str, colour: int) -> str:
    return f"\033[{colour}m{text}\033[0m" if sys.stdout.isatty() else text
