"""Where sessions are kept: the store protocol, its types, and the stores that come with Adjourn."""

from typing import TYPE_CHECKING

from .memory import MemoryStore as MemoryStore
from .protocol import Answer as Answer
from .protocol import Answered as Answered
from .protocol import AuditEntry as AuditEntry
from .protocol import CheckpointRow as CheckpointRow
from .protocol import Claimed as Claimed
from .protocol import Committed as Committed
from .protocol import Due as Due
from .protocol import EventBatch as EventBatch
from .protocol import Head as Head
from .protocol import Header as Header
from .protocol import Lease as Lease
from .protocol import Loaded as Loaded
from .protocol import OpenQuestion as OpenQuestion
from .protocol import Outcome as Outcome
from .protocol import Question as Question
from .protocol import Renewed as Renewed
from .protocol import SessionRef as SessionRef
from .protocol import Status as Status
from .protocol import Store as Store
from .protocol import Write as Write
from .urls import open_store as open_store

if TYPE_CHECKING:
    from .sqlite._store import SQLiteStore as SQLiteStore


def __getattr__(name: str) -> object:
    # SQLite is loaded by those who use it: it would be a good part of the time that `import adjourn` takes.
    if name == "SQLiteStore":
        from .sqlite._store import SQLiteStore  # noqa: PLC0415

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
