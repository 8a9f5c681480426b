"""The table that people read."""

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator

from bench.peers import peer_versions
from bench.runner import Measured, Measurement
from bench.workloads import SIDES, AtMost, Family, Row, Side, TimesLess, Workload

_TITLES: dict[Side, str] = {
    "floor": "floor",
    "ours": "Adjourn",
    "langgraph": "LangGraph",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI",
    "google_adk": "Google ADK",
    "langgraph_api": "LG's server",
}
_NAME, _WHAT, _FIGURE, _RATIO, _TARGET = 16, 31, 12, 9, 11


def head() -> Iterator[str]:
    """What was measured where, and the columns' names."""
    yield f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores"
    yield ", ".join(f"{_TITLES[peer]} {version}" for peer, version in peer_versions().items())
    yield "Medians; on SQLite every side has WAL and synchronous=FULL, and servers flush every commit to the disk."
    yield "The ratio is the best peer's figure by ours, or that of the peer which the line names."
    busy = os.getloadavg()[0]
    if busy > 0.7:
        yield f"This machine has other work (load {busy:.1f}): take the figures with care."


def columns(family: Family) -> Iterator[str]:
    """The head of the table of a family of workloads."""
    yield ""
    yield _line("workload", "what", *(_TITLES[side] for side in SIDES[family]), "ratio", "target", "")
    yield _rule(family)


def lines(workload: Workload, sides: Measurement) -> Iterator[str]:
    """The rows of one workload, and under them who failed and why."""
    for number, row in enumerate(workload.rows):
        yield _row("" if number else workload.name, row, workload.family, sides)
    for side, measured in sides.items():
        if measured.missing:
            yield f"{'':{_NAME}}{_TITLES[side]} was not measured: {measured.missing}"
        elif measured.failure:
            yield f"{'':{_NAME}}{_TITLES[side]} failed: {measured.failure}"
        elif measured.note:
            yield _cut(f"{'':{_NAME}}{_TITLES[side]}: {measured.note}", len(_rule(workload.family)))


def foot(seconds: float) -> Iterator[str]:
    """The end of the table."""
    yield ""
    yield f"✓ reached, ✗ missed, ? not measured. Took {seconds:.0f} s."


def _row(name: str, row: Row, family: Family, sides: Measurement) -> str:
    ours, peer = figures(row, sides)
    ratio = f"{peer / ours:.3g}×" if ours and peer and row.unit not in ("×", "", "/s") else ""
    cells = (_cell(row, side, sides.get(side)) for side in SIDES[family])
    return _line(name, row.label, *cells, ratio, _target(row), mark(row, sides))


def figures(row: Row, sides: Measurement) -> tuple[float | None, float | None]:
    """Ours, and that of the best rival."""
    found = {side: measured.figure(row.figure_of(side)) for side, measured in sides.items()}
    peers = [figure for side in row.rivals if (figure := found.get(side)) is not None]
    return found.get("ours"), min(peers, default=None)


def is_reached(row: Row, sides: Measurement) -> bool | None:
    """Whether the row's target is reached; `None` if there is none, or nothing to hold against it."""
    ours, peer = figures(row, sides)
    return None if row.target is None or ours is None else row.target.is_reached(ours, peer)


def mark(row: Row, sides: Measurement) -> str:
    """A tick, a cross, or nothing."""
    marks = {True: _coloured("✓", 32), False: _coloured("✗", 31), None: "?" if row.target else ""}
    return marks[is_reached(row, sides)]


def _cell(row: Row, side: Side, measured: Measured | None) -> str:
    if measured is None or measured.missing:
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
    name, what, *figures, ratio, target, last = cells
    middle = "".join(f"{figure:>{_FIGURE}}" for figure in figures)
    return f"{name:<{_NAME}}{what:<{_WHAT}}{middle}{ratio:>{_RATIO}}{target:>{_TARGET}}  {last}".rstrip()


def _rule(family: Family) -> str:
    return "─" * (_NAME + _WHAT + _FIGURE * len(SIDES[family]) + _RATIO + _TARGET + 3)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 2] + " …"


def _coloured(text: str, colour: int) -> str:
    return f"\033[{colour}m{text}\033[0m" if sys.stdout.isatty() else text
