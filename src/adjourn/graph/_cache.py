"""Kept results: the cache of one graph, in memory beside it, encoded, bounded, and forgotten after their time."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Raw, Struct

LIMIT = 1_000
"""Results kept for one graph."""


class Kept(Struct, frozen=True, kw_only=True):
    """A node's result, encoded, until it expires."""

    expires: float
    writes: list[tuple[str, Raw]]
    goto: list[str] | None
    sends: list[tuple[str, dict[str, Raw]]] | None
    values: dict[str, list[Raw]]


class ResultCache:
    """Results by node and input."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def get(self, key: str, now: float) -> Kept | None:
        """What is kept under `key` and has not passed its time."""
        kept = self._kept.get(key)
        if kept is None or kept.expires <= now:
            self._kept.pop(key, None)
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: str, kept: Kept) -> None:
        """Keep a result, dropping the one that was used longest ago when there are too many."""
        self._kept[key] = kept
        if len(self._kept) > LIMIT:
            self._kept.popitem(last=False)
