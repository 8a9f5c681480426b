"""Text output for people, usually on a terminal: colours, width, and a margin that text stays behind.

Text from a user or a model cannot pass for anything else here: invisible characters are spelled out, text stays behind
the margin on every line, and nothing is truncated, since a person may be about to decide based on what is printed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import NamedTuple, TextIO
from unicodedata import combining, east_asian_width

from ._text import visible, visible_line

_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
_LABELS = 8
_MARGIN = 4
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Card(NamedTuple):
    """Something to show: a sign and a title on one line, then texts, each with or without a label."""

    sign: str
    colour: str
    title: str
    texts: tuple[tuple[str, str], ...] = ()
    strong: bool = False


class Screen:
    """A file to show cards on. Lines are wrapped only on terminals, so that they can be searched elsewhere."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        is_terminal = file.isatty()
        self._colours = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._width = shutil.get_terminal_size().columns if is_terminal else None

    def write(self, text: str) -> None:
        """Write a text; characters that the file cannot encode become backslash escapes."""
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._file.flush()

    def painted(self, text: str, colour: str) -> str:
        """Return the text in a colour, if colours are on."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colours else text

    def begin(self, card: Card) -> int:
        """Begin a card whose text comes in pieces; return the column where they continue."""
        title = visible_line(card.title)
        self.write(f"{self.painted(card.sign, card.colour)} {title}  ")
        return columns(card.sign) + columns(title) + 3

    def extend(self, text: str, column: int, colour: str | None = None) -> int:
        """Continue at a column with a piece of text, wrapped where it does not fit; return the column after it."""
        flowing: list[str] = []
        for piece in _PIECES.findall(visible(text).expandtabs(4)):
            rows = self._flow(piece, column)
            column = (column if len(rows) == 1 else _MARGIN) + columns(rows[-1])
            flowing.append(f"\n{' ' * (_MARGIN - 2)}│ ".join(rows))
        self.write(self.painted("".join(flowing), colour) if colour else "".join(flowing))
        return column

    def _flow(self, piece: str, column: int) -> list[str]:
        """Split a word, a gap or a line break into rows; the first continues the current row."""
        if piece == "\n":
            return ["", ""]
        if self._width is None or column + columns(piece) <= self._width:
            return [piece]
        rows = _broken(piece.lstrip(), max(self._width - _MARGIN, 20))
        return rows if column == _MARGIN else ["", *rows]

    def show(self, card: Card) -> None:
        """Show a card, on one line if it fits."""
        title = visible_line(card.title)
        texts = [(label, visible(text).expandtabs(4)) for label, text in card.texts]
        if len(texts) == 1 and not texts[0][0] and self._fits(f"{title}  {texts[0][1]}"):
            title, texts = f"{title}  {texts[0][1]}", []
        first, *rest = self._rows(title, 4)
        sign = self.painted(card.sign, card.colour)
        lines = [f"{sign} {self._titled(first, card)}"]
        lines += [self.painted("  │ ", "dim") + row for row in rest]
        for label, text in texts:
            lines += self._labelled(label, text)
        self.write("\n".join(lines) + "\n")

    def _titled(self, title: str, card: Card) -> str:
        return self.painted(title, "bold" if card.strong else "dim") if card.strong or card.colour == "dim" else title

    def _fits(self, line: str) -> bool:
        return "\n" not in line and len(self._rows(line, 4)) == 1

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        margin = f"{'':{_LABELS if label else 2}}│ "
        for number, row in enumerate(self._rows(text, len(margin))):
            start = f"  {label:{_LABELS}}" if label and number == 0 else margin
            yield self.painted(start, "dim") + row

    def _rows(self, text: str, margin: int) -> list[str]:
        # A terminal would wrap to its left edge, outside the margin, where text could pass for something else.
        width = None if self._width is None else max(self._width - margin, 20)
        return [row for line in text.split("\n") for row in _broken(line, width)]


def columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _broken(line: str, width: int | None) -> list[str]:
    if width is None or len(line) * 2 <= width:
        return [line]
    rows, row, used = list[str](), list[str](), 0
    for char in line:
        size = columns(char)
        if used + size > width:
            rows.append("".join(row))
            row, used = [], 0
        row.append(char)
        used += size
    return [*rows, "".join(row)]
