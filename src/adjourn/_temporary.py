"""Ids of temporary sessions: begun without a store and without an id, and forgotten when they are done.

They can be told from all other ids, so that whoever comes back to one learns why it is gone.
"""

from __future__ import annotations

import os

_MARK = os.urandom(8).hex()
"""How the ids of this process begin."""


def temporary_id() -> str:
    """Return a new id for a session that is forgotten when it is done."""
    return _MARK + os.urandom(8).hex()


def is_temporary(session_id: str) -> bool:
    """Return whether this process has made an id with `temporary_id`."""
    return session_id.startswith(_MARK)
