"""Entries in order, of which any may come or go: a change moves some hundred others at most, however many there are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound=tuple[Any, ...])

_MOST = 512
"""Entries in a piece; with more it is split."""


class Ordered(Generic[E]):
    """Tuples in the order of their first two items, a time and a number that no other one has.

    They are in pieces that are never empty. A place is such a time and number.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[list[E]] = []

    def add(self, entry: E) -> None:
        """Add an entry."""
        if not self._pieces:
            self._pieces.append([entry])
            return
        number = self._piece(entry[:2])
        piece = self._pieces[number]
        insort(piece, entry)
        if len(piece) > _MOST:
            self._pieces.insert(number + 1, piece[_MOST // 2 :])
            del piece[_MOST // 2 :]

    def remove(self, place: tuple[float, int]) -> None:
        """Remove the entry at a place."""
        number = self._piece(place)
        piece = self._pieces[number]
        del piece[bisect_left(piece, place)]
        if not piece:
            del self._pieces[number]

    def behind(self, time: float, number: int) -> Iterator[E]:
        """Yield the entries behind a place, which need not be there."""
        begin = (time, number + 1)
        for each in range(self._piece(begin), len(self._pieces)):
            piece = self._pieces[each]
            yield from islice(piece, bisect_left(piece, begin), None)

    def _piece(self, place: tuple[Any, ...]) -> int:
        """Return the number of the piece in which a place is."""
        return max(bisect_right(self._pieces, place, key=_begin) - 1, 0)


def _begin(piece: list[Any]) -> tuple[Any, ...]:
    return piece[0][:2]
