"""Where sessions are kept: the store protocol, its types, and the stores that come with Adjourn."""

from typing import TYPE_CHECKING

from .memory import MemoryStore
from .protocol import (
    Answer,
    Answered,
    AuditEntry,
    Begun,
    CheckpointRow,
    Claimed,
    Committed,
    Due,
    EventBatch,
    Head,
    Header,
    Lease,
    Loaded,
    OpenQuestion,
    Outcome,
    Question,
    Renewed,
    SessionRef,
    Status,
    Store,
    Write,
)
from .urls import open_store, register_store

if TYPE_CHECKING:
    from .sqlite._store import SQLiteStore

__all__ = [
    "Answer",
    "Answered",
    "AuditEntry",
    "Begun",
    "CheckpointRow",
    "Claimed",
    "Committed",
    "Due",
    "EventBatch",
    "Head",
    "Header",
    "Lease",
    "Loaded",
    "MemoryStore",
    "OpenQuestion",
    "Outcome",
    "Question",
    "Renewed",
    "SQLiteStore",
    "SessionRef",
    "Status",
    "Store",
    "Write",
    "open_store",
    "register_store",
]


def __getattr__(name: str) -> object:
    # SQLite is loaded only when used: it would be a large part of the time that `import adjourn` takes.
    if name == "SQLiteStore":
        from .sqlite._store import SQLiteStore  # noqa: PLC0415

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
