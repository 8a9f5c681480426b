"""Stores by URL."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, cast

from adjourn.errors import UsageError

from .memory import MemoryStore
from .protocol import Store

if TYPE_CHECKING:
    from .sqlite._schema import Synchronous
    from .sqlite._store import SQLiteStore

_lock = threading.Lock()
_named: dict[str, MemoryStore] = {}
_files: weakref.WeakValueDictionary[tuple[Path, float, str], SQLiteStore] = weakref.WeakValueDictionary()

_FORMS = "Use 'memory://', 'memory://name', 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'."


def open_store(store: str | Store) -> Store:
    """The store that a URL names; a store object is given back as it is.

    `memory://` is a new one each time, `memory://name` the same in the whole process. `sqlite:///file.db` is relative
    to the current folder, `sqlite:////srv/file.db` absolute; `?timeout=5&synchronous=NORMAL` may follow. While one is
    in use, the same file with the same options is the same object, so that a file has one writing thread.

    Raises:
        UsageError: the URL names no store of this version.
    """
    if not isinstance(store, str):
        if not hasattr(store, "commit"):
            raise UsageError(f"{store!r} is neither a store nor the URL of one. {_FORMS}")
        return store
    scheme, separator, rest = store.partition("://")
    if not separator:
        raise UsageError(f"{store!r} is no URL of a store. For a file, write 'sqlite:///{store}'.")
    if scheme == "memory":
        return _memory(rest)
    if scheme == "sqlite":
        return _sqlite(store, rest)
    raise UsageError(_unknown(scheme))


def _unknown(scheme: str) -> str:
    if scheme in ("redis", "rediss", "postgres", "postgresql"):
        return f"This version of Adjourn has no store for '{scheme}://' yet. {_FORMS}"
    return f"No store is known for '{scheme}://'. {_FORMS}"


def _memory(name: str) -> MemoryStore:
    if not name:
        return MemoryStore()
    with _lock:
        return _named.setdefault(name, MemoryStore())


def _sqlite(url: str, rest: str) -> SQLiteStore:
    from .sqlite._store import SQLiteStore  # noqa: PLC0415 - loads SQLite, which not everybody needs

    path, _, query = rest.partition("?")
    if not path.startswith("/") or path == "/":
        raise UsageError(f"{url!r} names no file. {_FORMS}")
    timeout, synchronous = _options(url, query)
    store = SQLiteStore(path[1:], timeout, cast("Synchronous", synchronous))
    with _lock:
        return _files.setdefault((store.path, timeout, synchronous), store)


def _options(url: str, query: str) -> tuple[float, str]:
    timeout, synchronous = "30", "FULL"
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name == "timeout":
            timeout = value
        elif name == "synchronous":
            synchronous = value
        else:
            raise UsageError(f"{url!r} has the unknown option '{name}'. Known are timeout and synchronous.")
    try:
        return float(timeout), synchronous
    except ValueError:
        raise UsageError(f"{url!r} has timeout={timeout}. Give it in seconds, such as timeout=30.") from None
