"""Where sessions are kept: the store protocol, its types, and the stores that come with Adjourn."""

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


if not TYPE_CHECKING:  # For a type checker every name would exist.

    def __getattr__(name: str) -> object:
        # Loaded only when used: SQLite would be a large part of the time that `import adjourn` takes.
        if name == "SQLiteStore":
            from .sqlite._store import SQLiteStore  # noqa: PLC0415

            return SQLiteStore
        if name == "RedisStore":
            from .redis._store import RedisStore  # noqa: PLC0415

            return RedisStore
        if name == "EncryptedStore":
            from .encrypted._store import EncryptedStore  # noqa: PLC0415

            return EncryptedStore
        if name == "PostgresStore":
            from .postgres._store import PostgresStore  # noqa: PLC0415

            return PostgresStore
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
