"""How large a session has become, and when its next record should be a full one."""

from __future__ import annotations

from adjourn._engine.record import GraphImage, Record

SMALL = 8 * 1024
ROW = 1_100
"""The cost of reading a row, in bytes."""


class Size:
    """Decides when a full record is due: when folding the partial ones would cost more than twice reading a full one.

    Additions to a list are content, not waste; the cost is the row, and values that were replaced.
    """

    __slots__ = ("_since_full", "_state", "stored")

    def __init__(self, state: int | None = None, since_full: int = 0, stored: int = 0) -> None:
        self._state = state
        self._since_full = since_full
        self.stored: int = stored
        """The bytes of the records that the session is loaded from."""

    def full_is_due(self) -> bool:
        if self._state is None:
            return True
        return self._since_full > SMALL and self._since_full > 2 * self._state

    def count(self, size: int, record: Record) -> None:
        """Take note of a record of `size` bytes."""
        self.stored = size if record.full else self.stored + size
        if record.full or self._state is None:
            self._state, self._since_full = size, 0
            return
        self._since_full += size + ROW
        for image in record.frames.values():
            if type(image) is GraphImage and image.add:
                self._state += size
                return
