"""What becomes of an attempt to send a message."""

from __future__ import annotations

import msgspec

AT_ONCE = 4
"""Messages that are on their way to one webhook at a time."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an attempt: the status that the receiver answered with, or else why there is none."""

    status: int | None = None
    reason: str = ""
    retry_after: float = 0.0

    @property
    def is_sent(self) -> bool:
        """Whether the receiver has it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants nothing more."""
        return self.status == 410

    def __str__(self) -> str:
        if self.status is None:
            return self.reason
        redirects = " (redirects are not followed: give the new URL)" if 300 <= self.status < 400 else ""
        return f"it answered {self.status}{redirects}"
