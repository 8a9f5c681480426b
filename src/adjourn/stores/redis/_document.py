"""The document of a session, for people: `GET checkpoint:<session_id>` shows it as indented JSON."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from adjourn.stores.kit.effects import Effects
from adjourn.stores.kit.tables import RECORDS

_PAUSES_AND_ENDS = frozenset({"waiting", "done", "failed", "cancelled"})
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys, or what turns text around: in the document it stands as a number."""

_TIME = "the time of writing"


def document(effects: Effects) -> tuple[bytes, bytes] | None:
    """Return the document that a write leaves, as the text before and after the time; None if it leaves none.

    Without a summary, as of a session that is encrypted, it has only what the store itself knows.
    """
    row = effects.after
    if row is None or not (effects.summary or row.status in _PAUSES_AND_ENDS):
        return None
    if all(each.table is not RECORDS for each in effects.inserts):
        return None
    fields: dict[str, Any] = {  # Any: JSON
        "session": row.session,
        "app": row.app,
        "status": row.status,
        "updated": _TIME,
        "checkpoint": row.checkpoint,
        "records": row.pos + 1,
        "events": row.seq,
    }
    if effects.summary:
        fields |= msgspec.json.decode(effects.summary)
    text = msgspec.json.format(msgspec.json.encode(fields), indent=2)
    text = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text.decode()).encode()
    before, _, after = text.partition(f'"updated": "{_TIME}"'.encode())
    return before + b'"updated": "', b'"' + after
