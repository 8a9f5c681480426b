"""Server-sent events as they come in: bytes to frames, however they are cut into pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class Frame(NamedTuple):
    """One frame of a stream; a comment, which only shows that the connection lives, is one without anything."""

    id: str | None = None
    event: str | None = None
    data: bytes | None = None


class FrameTooLarge(Exception):
    """A frame does not end where any frame of ours would have."""


class Frames:
    """Puts the pieces of a stream together to frames.

    Lines end with LF, CR LF or CR. What has no end yet when the stream breaks off is not a frame.
    """

    def __init__(self, limit: int) -> None:
        """Read a stream whose frames have at most `limit` bytes."""
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0
        self._ends_with_cr = False
        self._is_first_line = True
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that end in this piece of the stream.

        Raises:
            FrameTooLarge: one is longer than the limit.
        """
        if self._ends_with_cr and piece.startswith(b"\n"):
            piece = piece[1:]  # The other half of a CR LF.
            self._ends_with_cr = False
        if not piece:
            return
        self._ends_with_cr = piece.endswith(b"\r")
        *ended, rest = _LINE_END.split(piece)
        for line in ended:
            yield from self._end_line(line)
        self._begun.append(rest)
        self._count(len(rest))

    def _end_line(self, rest: bytes) -> Iterator[Frame]:
        self._count(len(rest))
        line = b"".join([*self._begun, rest])
        self._begun.clear()
        if self._is_first_line:
            line, self._is_first_line = line.removeprefix(_BOM), False
        if line:
            self._lines.append(line)
        else:
            lines, self._lines, self._size = self._lines, [], 0
            if lines:
                yield _frame(lines)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise FrameTooLarge


def _frame(lines: list[bytes]) -> Frame:
    number: str | None = None
    event: str | None = None
    data: list[bytes] = []
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"id" and b"\0" not in value:
            number = value.decode("utf-8", "replace")
        elif field == b"event":
            event = value.decode("utf-8", "replace")
    return Frame(number, event, b"\n".join(data) if data else None)
