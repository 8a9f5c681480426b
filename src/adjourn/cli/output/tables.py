"""Tables and times in a form for people."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from adjourn._screen import Card, Screen, columns
from adjourn._text import visible_line
from adjourn.errors import UsageError

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def at(seconds: float) -> datetime:
    """Return the moment of a store's timestamp."""
    return datetime.fromtimestamp(seconds, UTC)


def clock(moment: datetime) -> str:
    """Return a moment in local time."""
    return moment.astimezone().isoformat(" ", "seconds")


def ago(moment: datetime) -> str:
    """Return how long ago a moment was, or how long until it comes."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float, units: int = 2) -> str:
    """Return a length of time in its largest unit and the next smaller one, or in so many."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{int(count)} {unit}" if count else "")
    return " ".join(filter(None, parts[:units])) or "less than a second"


def duration(text: str) -> timedelta:
    """Parse a length of time: `90s`, `15m`, `12h`, `30d`, `2w`.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise UsageError(f"{text!r} is not a length of time. Write a number and a unit: 90s, 15m, 12h, 30d or 2w.")
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise UsageError(f"{text!r} is too long.") from None


_COLOURS = {
    "waiting": "yellow",
    "answered": "yellow",
    "expired": "yellow",
    "failed": "red",
    "done": "green",
    "running": "blue",
}


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles; where a terminal is too narrow for that, a line for each cell. Nothing is cut."""
    screen = Screen(sys.stdout)
    shown = [[visible_line(cell) for cell in row] for row in rows]
    widths = [max(map(columns, cells)) for cells in zip(titles, *shown, strict=True)]
    if not screen.fits(sum(widths) + 2 * (len(widths) - 1)):
        for name, *cells in rows:
            lines = [f"{title.lower()}: {cell}" for title, cell in zip(titles[1:], cells, strict=True) if cell]
            screen.show(Card("●", _COLOURS.get(cells[0].partition(" ")[0], "blue"), name, (("", "\n".join(lines)),)))
        return
    print(screen.painted(_line(titles, widths), "dim"))
    for row in shown:
        print(_line([_painted(screen, cell, width) for cell, width in zip(row, widths, strict=True)], None))


def _line(cells: Sequence[str], widths: Sequence[int] | None) -> str:
    if widths is not None:
        cells = [padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(cells).rstrip()


def padded(cell: str, width: int) -> str:
    """Return a cell as wide as its column."""
    return cell + " " * (width - columns(cell))


def _painted(screen: Screen, cell: str, width: int) -> str:
    colour = _COLOURS.get(cell.partition(" ")[0])
    return screen.painted(cell, colour) + " " * (width - columns(cell)) if colour else padded(cell, width)
