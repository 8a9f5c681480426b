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
_NEXT_ROW = f"\n{' ' * (_MARGIN - 2)}│ "
_NARROWEST = 20
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Card(NamedTuple):
    """Something to show: a sign and a title on one line, then texts, each with or without a label."""

    sign: str
    colour: str
    title: str
    texts: tuple[tuple[str, str], ...] = ()
    strong: bool = False


class Cursor(NamedTuple):
    """Where text that comes in pieces continues: the column, and the word that has begun there."""

    column: int
    word: str = ""


class Screen:
    """A file to show cards on. Lines are wrapped only on terminals, so that they can be searched elsewhere."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        is_terminal = file.isatty()
        self.redraws = is_terminal and os.environ.get("TERM") != "dumb"
        """Whether a line can be erased and written anew."""
        self._colours = self.redraws and not os.environ.get("NO_COLOR")
        self._width = shutil.get_terminal_size().columns if is_terminal else None

    def write(self, text: str) -> None:
        """Write a text; characters that the file cannot encode become backslash escapes."""
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._file.flush()

    def painted(self, text: str, colour: str) -> str:
        """Return the text in a colour, if colours are on."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colours else text

    def prose(self, text: str, margin: int = 0) -> str:
        """Return lines of text wrapped between words; a command to paste, on a line of its own, stays whole."""
        lines = visible(text).split("\n")
        rows = [row for line in lines for row in ([line] if line.startswith("adjourn ") else self._rows(line, margin))]
        return f"\n{' ' * margin}".join(rows)

    def fits(self, columns: int) -> bool:
        """Return whether a line of so many columns needs no wrapping."""
        return self._width is None or columns <= self._width

    def cut(self, line: str, margin: int) -> str:
        """Return as much of a line as fits on one row, for what is drawn over soon."""
        return line if self._width is None else wrapped(line, max(self._width - margin - 1, _NARROWEST))[0].rstrip()

    def begin(self, card: Card) -> Cursor:
        """Begin a card whose text comes in pieces; return where they continue."""
        title = visible_line(card.title)
        self.write(f"{self.painted(card.sign, card.colour)} {title}  ")
        return Cursor(columns(card.sign) + columns(title) + 3)

    def extend(self, text: str, cursor: Cursor, colour: str | None = None) -> Cursor:
        """Continue with a piece of text, wrapped between words where it does not fit; return where it ends."""
        for piece in _PIECES.findall(visible(text).expandtabs(4)):
            written, cursor = self._flow(piece, cursor)
            self.write(self.painted(written, colour) if colour else written)
        return cursor

    def _flow(self, piece: str, cursor: Cursor) -> tuple[str, Cursor]:
        """Return what to write for a word, a gap or a line break, and where the next piece follows."""
        column, word = cursor
        if piece == "\n":
            return _NEXT_ROW, Cursor(_MARGIN)
        end, begun = column + columns(piece), "" if piece.isspace() else word + piece
        if self._width is None or end <= self._width:
            return piece, Cursor(end, begun)
        if not begun:
            return _NEXT_ROW, Cursor(_MARGIN)
        # The beginning of this word, if it is on the screen already, moves to the next row with the rest.
        back = columns(word) if column - columns(word) > _MARGIN else 0
        rows = wrapped(begun if back or not word else piece, max(self._width - _MARGIN, _NARROWEST))
        erased = "\b" * back + " " * back
        start = "" if column == _MARGIN else _NEXT_ROW
        return erased + start + _NEXT_ROW.join(rows), Cursor(_MARGIN + columns(rows[-1]), rows[-1])

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
        width = None if self._width is None else max(self._width - margin, _NARROWEST)
        return [row for line in text.split("\n") for row in wrapped(line, width)]


def columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def wrapped(line: str, width: int | None) -> list[str]:
    """Break a line into rows between words; only a word that is longer than a row is broken itself."""
    if width is None or len(line) * 2 <= width or columns(line) <= width:
        return [line]
    rows, row, used = list[str](), "", 0
    for piece in _PIECES.findall(line):
        size = columns(piece)
        if used + size > width and used:
            rows.append(row.rstrip())
            row, used = "", 0
            if piece.isspace():
                continue
        *whole, row_end = _chopped(piece, width) if size > width else (piece,)
        rows += whole
        row, used = row + row_end, used + columns(row_end)
    return [*rows, row]


def _chopped(word: str, width: int) -> list[str]:
    rows, row, used = list[str](), "", 0
    for char in word:
        size = columns(char)
        if used + size > width:
            rows.append(row)
            row, used = "", 0
        row, used = row + char, used + size
    return [*rows, row]
