"""Where sessions are kept: the store protocol, its types, and the stores that come with Adjourn."""

from typing import TYPE_CHECKING

from adjourn.checkpoint.memory import MemoryStore as MemoryStore
from adjourn.checkpoint.store import Answer as Answer
from adjourn.checkpoint.store import Answered as Answered
from adjourn.checkpoint.store import Claimed as Claimed
from adjourn.checkpoint.store import Committed as Committed
from adjourn.checkpoint.store import Decision as Decision
from adjourn.checkpoint.store import Due as Due
from adjourn.checkpoint.store import Ending as Ending
from adjourn.checkpoint.store import Events as Events
from adjourn.checkpoint.store import Head as Head
from adjourn.checkpoint.store import Header as Header
from adjourn.checkpoint.store import Lease as Lease
from adjourn.checkpoint.store import Listed as Listed
from adjourn.checkpoint.store import Loaded as Loaded
from adjourn.checkpoint.store import Pending as Pending
from adjourn.checkpoint.store import Question as Question
from adjourn.checkpoint.store import Renewed as Renewed
from adjourn.checkpoint.store import Status as Status
from adjourn.checkpoint.store import Store as Store
from adjourn.checkpoint.store import Write as Write
from adjourn.checkpoint.urls import open_store as open_store

if TYPE_CHECKING:
    from adjourn.checkpoint.sqlite import SQLiteStore as SQLiteStore


def __getattr__(name: str) -> object:
    # SQLite is loaded by those who use it: it would be a good part of the time that `import adjourn` takes.
    if name == "SQLiteStore":
        from adjourn.checkpoint.sqlite import SQLiteStore  # noqa: PLC0415

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
