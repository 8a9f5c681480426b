"""The log `adjourn.stores`: one line per save, load, resume, takeover and expiry, with session and checkpoint."""

from __future__ import annotations

import logging

from adjourn._text import visible_line
from adjourn.errors import CheckpointCorrupt

log = logging.getLogger("adjourn.stores")

_MANY = 10_000
_noted: set[tuple[str | None, str]] = set()


def note(level: int, what: str, session: str, checkpoint: str | None, **facts: object) -> None:
    """Write one log line; ids may hold any characters, but must not break it into two."""
    if log.isEnabledFor(level):
        more = "".join(f" {name}={visible_line(str(fact))}" for name, fact in facts.items())
        log.log(level, "%s session=%s checkpoint=%s%s", what, visible_line(session), checkpoint, more)


def note_damage(damage: CheckpointCorrupt) -> None:
    """Report what a listing leaves out, once: whoever watches a store lists it several times a second."""
    key = (damage.session_id, damage.detail)
    if key in _noted:
        return
    if len(_noted) >= _MANY:
        _noted.clear()
    _noted.add(key)
    note(logging.WARNING, "left out of a listing as damaged", damage.session_id or "?", None, error=damage.detail)
