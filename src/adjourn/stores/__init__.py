"""Where sessions are kept: the store protocol, its types, and the stores that come with Adjourn."""

from importlib import import_module
from typing import TYPE_CHECKING

from .memory import MemoryStore
from .protocol import Hints, InTransaction, KeepsSummaries, Repairs, SeesCancels, Store
from .types import (
    ALL_QUESTIONS,
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
    Input,
    Lease,
    Loaded,
    Notice,
    OpenQuestion,
    Outcome,
    Question,
    QuestionFilter,
    QueuedInput,
    Renewed,
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
    Write,
)
from .urls import open_store, register_store

if TYPE_CHECKING:
    from .encrypted._store import EncryptedStore
    from .postgres._store import PostgresStore
    from .redis._store import RedisStore
    from .sqlite._store import SQLiteStore

__all__ = [
    "ALL_QUESTIONS",
    "Answer",
    "Answered",
    "AuditEntry",
    "Begun",
    "CheckpointRow",
    "Claimed",
    "Committed",
    "Due",
    "EncryptedStore",
    "EventBatch",
    "Head",
    "Header",
    "Hints",
    "InTransaction",
    "Input",
    "KeepsSummaries",
    "Lease",
    "Loaded",
    "MemoryStore",
    "Notice",
    "OpenQuestion",
    "Outcome",
    "PostgresStore",
    "Question",
    "QuestionFilter",
    "QueuedInput",
    "RedisStore",
    "Renewed",
    "Repairs",
    "SQLiteStore",
    "SeesCancels",
    "SessionRef",
    "Status",
    "Store",
    "StoredRecord",
    "TakenNotice",
    "Write",
    "open_store",
    "register_store",
]

# Loaded only when used: SQLite would be a large part of the time that `import adjourn` takes.
_HOMES = {
    "EncryptedStore": "encrypted._store",
    "PostgresStore": "postgres._store",
    "RedisStore": "redis._store",
    "SQLiteStore": "sqlite._store",
}


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
