"""Tables for people: aligned columns, as wide as their content."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adjourn._screen import Screen, columns
from adjourn._text import visible_line

_COLOURS = {"waiting": "yellow", "answered": "yellow", "failed": "red", "done": "green", "running": "blue"}


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles. Nothing is truncated: a terminal wraps what does not fit."""
    screen = Screen(sys.stdout)
    shown = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(map(columns, cells)) for cells in zip(titles, *shown, strict=True)]
    print(screen.painted(_line(titles, widths), "dim"))
    for row in shown:
        print(_line([_painted(screen, cell, width) for cell, width in zip(row, widths, strict=True)], None))


def _line(cells: Sequence[str], widths: Sequence[int] | None) -> str:
    if widths is not None:
        cells = [_padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - columns(cell))


def _painted(screen: Screen, cell: str, width: int) -> str:
    colour = _COLOURS.get(cell.partition(" ")[0])
    return screen.painted(cell, colour) + " " * (width - columns(cell)) if colour else _padded(cell, width)
