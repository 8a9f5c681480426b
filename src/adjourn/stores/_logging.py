"""The log `adjourn.stores`: one line per save, load, resume, takeover and expiry, with session and checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import CheckpointCorrupt, MissingKey

log = logger("adjourn.stores")

_MANY = 10_000
_noted: set[tuple[str | None, str]] = set()
_left_out: ContextVar[list[CheckpointCorrupt] | None] = ContextVar("_left_out", default=None)


def note(level: int, what: str, session: str, checkpoint: str | None, **facts: object) -> None:
    """Write one log line; ids may hold any characters, but must not break it into two."""
    if log.isEnabledFor(level):
        more = "".join(f" {name}={visible_line(str(fact))}" for name, fact in facts.items())
        log.log(level, "%s session=%s checkpoint=%s%s", what, visible_line(session), checkpoint, more)


def note_damage(damage: CheckpointCorrupt) -> None:
    """Report what a listing leaves out, once: whoever watches a store lists it several times a second."""
    if (left_out := _left_out.get()) is not None:
        left_out.append(damage)
    _note_once("left out of a listing as damaged", damage.session_id, f"{damage.detail}. {damage.remedy}.")


@contextmanager
def what_is_left_out() -> Generator[list[CheckpointCorrupt]]:
    """Collect the damage that listings report meanwhile."""
    left_out: list[CheckpointCorrupt] = []
    token = _left_out.set(left_out)
    try:
        yield left_out
    finally:
        _left_out.reset(token)


def note_missing_key(session: str, missing: MissingKey) -> None:
    """Report what a listing leaves out because its key is not here, once."""
    _note_once("left out of a listing", session, str(missing))


def _note_once(what: str, session: str | None, error: str) -> None:
    if (session, error) in _noted:
        return
    if len(_noted) >= _MANY:
        _noted.clear()
    _noted.add((session, error))
    note(logging.WARNING, what, session or "?", None, error=error)
