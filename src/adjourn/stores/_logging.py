"""The log `adjourn.stores`: one line per save, load, resume, takeover and expiry, with session and checkpoint."""

from __future__ import annotations

import logging

from adjourn._text import visible_line

log = logging.getLogger("adjourn.stores")


def note(level: int, what: str, session: str, checkpoint: str | None, **facts: object) -> None:
    """Write one line; ids may hold any characters, and must not make two lines of it."""
    if log.isEnabledFor(level):
        more = "".join(f" {name}={visible_line(str(fact))}" for name, fact in facts.items())
        log.log(level, "%s session=%s checkpoint=%s%s", what, visible_line(session), checkpoint, more)
