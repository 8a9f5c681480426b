"""Progress for people: on a terminal a bar that is drawn over, elsewhere a line now and then."""

from __future__ import annotations

import time

from ._screen import Card, Screen
from ._text import visible_line
from .events import Progress

_CELLS = 20
_LINES = 10
"""How many lines a task gets on its way, where lines cannot be drawn over."""
_SECONDS = 10.0
"""How long to wait for another line otherwise."""


class Bars:
    """The progress that was shown on one file: of every task the last line, and whether a bar is there to be erased."""

    def __init__(self) -> None:
        self._is_drawn = False
        self._lines: dict[str, tuple[int, float]] = {}

    def show(self, event: Progress, card: Card, screen: Screen) -> None:
        """Show how far a task has come, as `card` says."""
        if screen.redraws:
            self.erase(screen)
            self._draw(event, card, screen)
        elif self._is_due(event):
            screen.show(card)

    def erase(self, screen: Screen) -> None:
        """Make room for something else: the next report draws the bar again."""
        if self._is_drawn:
            screen.write("\r\x1b[K")
            self._is_drawn = False

    def _draw(self, event: Progress, card: Card, screen: Screen) -> None:
        bar = "" if event.fraction is None else f"{_bar(event.fraction)} "
        screen.write(f"{screen.painted(card.sign, card.colour)} {screen.cut(bar + visible_line(card.title), 2)}")
        if event.fraction == 1:
            screen.write("\n")  # It stays as it is.
        else:
            self._is_drawn = True

    def _is_due(self, event: Progress) -> bool:
        """Return whether enough has happened since the last line of this task."""
        now, part = time.monotonic(), int((event.fraction or 0.0) * _LINES)
        last, at = self._lines.get(event.address, (None, now))
        if part == last and now - at < _SECONDS:
            return False
        self._lines[event.address] = part, now
        return True


def _bar(fraction: float) -> str:
    filled = int(fraction * _CELLS)
    return "█" * filled + "░" * (_CELLS - filled)
