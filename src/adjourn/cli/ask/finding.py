"""Finding the stored question that an answer is for."""

from __future__ import annotations

from adjourn.errors import AlreadyResumed, InterruptExpired, UnknownInterrupt, UsageError
from adjourn.events import Interrupt
from adjourn.sessions import AuditEntry, Sessions


async def find_question(sessions: Sessions, session_id: str, name: str | None) -> Interrupt:
    """Return the open question of this id or key, or the only one.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired: there is none, or it is no longer open.
        UsageError: there are several to choose from.
    """
    found = await sessions.pending(session_id)
    if name is not None:
        named = [asked for asked in found if asked.id == name] or [asked for asked in found if asked.key == name]
    else:
        named = found
    if len(named) == 1:
        return named[0]
    if not named:
        raise await _not_open(sessions, session_id, name, [asked.id for asked in found])
    ids = "\n".join(f"  {asked.id}" for asked in named)
    raise UsageError(f"Session '{session_id}' asks {len(named)} questions. Choose one with --question ID:\n{ids}")


async def _not_open(sessions: Sessions, session_id: str, name: str | None, open_: list[str]) -> Exception:
    status = await sessions.status(session_id)
    ended = [entry for entry in await sessions.audit(session_id) if name is None or _has_name(entry, name)]
    if not ended:
        if name is None:
            return UsageError(f"Session '{session_id}' asks nothing now. `adjourn show {session_id}` shows its status.")
        return UnknownInterrupt(session_id, name, open_)
    last = max(ended, key=lambda entry: entry.at.timestamp() if entry.at else 0.0)
    if last.outcome in (None, "expired"):
        return InterruptExpired(session_id, last.interrupt.id)
    at = None if last.at is None else last.at.timestamp()
    return AlreadyResumed(session_id, last.interrupt.id, live=status.owner is not None, by=last.by, at=at)


def _has_name(entry: AuditEntry, name: str) -> bool:
    return name in (entry.interrupt.id, entry.interrupt.key)
