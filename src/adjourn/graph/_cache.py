"""The results of cached nodes, which a compiled graph keeps in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict

from msgspec import Raw, Struct

LIMIT = 1_000
"""The number of results cached for one graph."""


class CachedResult(Struct, frozen=True, kw_only=True):
    """A node's result, encoded, until it expires."""

    expires: float
    writes: list[tuple[str, Raw]]
    goto: list[str] | None
    sends: list[tuple[str, dict[str, Raw]]] | None
    values: dict[str, list[Raw]]
    added: frozenset[str] = frozenset()
    """The ids of messages that this result added, which are other messages when it is used again."""


class CacheKey(Struct, frozen=True):
    """What a result is cached under: the node, and a fingerprint of its input."""

    node: str
    input: str


class ResultCache:
    """Results by node and input; runs on several event loops and threads may share it."""

    def __init__(self) -> None:
        self._results: OrderedDict[CacheKey, CachedResult] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: CacheKey, now: float) -> CachedResult | None:
        """Return the result cached under `key`, unless it has expired."""
        with self._lock:
            found = self._results.get(key)
            if found is None or found.expires <= now:
                self._results.pop(key, None)
                return None
            self._results.move_to_end(key)
            return found

    def put(self, key: CacheKey, result: CachedResult) -> None:
        """Cache a result, dropping the least recently used one if there are too many."""
        with self._lock:
            self._results[key] = result
            if len(self._results) > LIMIT:
                self._results.popitem(last=False)

    def clear(self, node: str | None = None) -> None:
        """Forget the results of a node, or of all nodes."""
        with self._lock:
            for key in [key for key in self._results if node is None or key.node == node]:
                del self._results[key]
