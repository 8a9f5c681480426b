"""The log `adjourn.checkpoint`: one line per save, load, resume, takeover and expiry, with session and checkpoint."""

from __future__ import annotations

import logging

from adjourn.core.visible import visible_line

log = logging.getLogger("adjourn.checkpoint")


def note(level: int, what: str, session: str, checkpoint: str | None, **facts: object) -> None:
    """Write one line; ids may hold any characters, and must not make two lines of it."""
    if log.isEnabledFor(level):
        more = "".join(f" {name}={visible_line(str(fact))}" for name, fact in facts.items())
        log.log(level, "%s session=%s checkpoint=%s%s", what, visible_line(session), checkpoint, more)
