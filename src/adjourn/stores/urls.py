"""Stores by URL."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from adjourn.errors import UsageError

from .memory import MemoryStore
from .protocol import Store

if TYPE_CHECKING:
    from .sqlite._schema import Synchronous
    from .sqlite._store import SQLiteStore

Opener = Callable[[str], Store]
"""Makes a store of a whole URL."""

_GROUP = "adjourn.stores"  # of entry points, each named after a scheme and leading to an Opener

_lock = threading.Lock()
_named: dict[str, MemoryStore] = {}
_files: weakref.WeakValueDictionary[tuple[Path, float, str], SQLiteStore] = weakref.WeakValueDictionary()

_FORMS = "Use 'memory://', 'memory://name', 'sqlite:///relative.db' or 'sqlite:////absolute/path.db'."


def open_store(store: str | Store) -> Store:
    """Return the store that a URL names; a store object is given back as it is.

    `memory://` is a new one each time, `memory://name` the same in the whole process. `sqlite:///file.db` is relative
    to the current folder, `sqlite:////srv/file.db` absolute; `?timeout=5&synchronous=NORMAL` may follow. While one is
    in use, the same file with the same options is the same object, so that a file has one writing thread. Other schemes
    come from `register_store`, or from packages that have an entry point in the group `adjourn.stores`.

    Raises:
        UsageError: the URL does not name a store.
    """
    if not isinstance(store, str):
        if not hasattr(store, "commit"):
            raise UsageError(f"{store!r} is neither a store nor the URL of one. {_FORMS}")
        return store
    scheme, separator, _ = store.partition("://")
    if not separator:
        raise UsageError(f"{store!r} is not the URL of a store. For a file, write 'sqlite:///{store}'.")
    opener = _openers.get(scheme) or _installed(scheme)
    if opener is None:
        raise UsageError(_unknown(scheme))
    return opener(store)


def register_store(scheme: str, opener: Opener) -> None:
    """Let `open_store` open URLs of a scheme; `opener` is given the whole URL.

    Raises:
        UsageError: the scheme is not valid, or already has another opener.
    """
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise UsageError(
            f"register_store({scheme!r}): a scheme consists of lower-case letters, digits, '+', '-' and '.'."
        )
    with _lock:
        if _openers.setdefault(scheme, opener) is not opener:
            raise UsageError(f"register_store({scheme!r}): '{scheme}://' already has an opener. Choose another scheme.")


def _installed(scheme: str) -> Opener | None:
    """Return the opener that an installed package has for a scheme."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - expensive, and needed only for unknown schemes

    for found in entry_points(group=_GROUP, name=scheme):
        return found.load()
    return None


def _unknown(scheme: str) -> str:
    known = ", ".join(f"'{each}://'" for each in sorted(_openers))
    adding = "A custom store can be added with `register_store`."
    is_planned = scheme in ("redis", "rediss", "valkey", "postgres", "postgresql")
    what = f"There is no store for '{scheme}://' yet" if is_planned else f"No store is known for '{scheme}://'"
    return f"{what}. Known: {known}. {_FORMS} {adding}"


def _memory(url: str) -> MemoryStore:
    _, _, name = url.partition("://")
    if not name:
        return MemoryStore()
    with _lock:
        return _named.setdefault(name, MemoryStore())


def _sqlite(url: str) -> SQLiteStore:
    from .sqlite._store import SQLiteStore  # noqa: PLC0415 - loads SQLite, which not everybody needs

    _, _, rest = url.partition("://")
    path, _, query = rest.partition("?")
    if not path.startswith("/") or path == "/":
        raise UsageError(f"{url!r} does not name a file. {_FORMS}")
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
            raise UsageError(f"{url!r} has the unknown option '{name}'. Use timeout or synchronous.")
    try:
        return float(timeout), synchronous
    except ValueError:
        raise UsageError(f"{url!r} has timeout={timeout}. Give it in seconds, such as timeout=30.") from None


_openers: dict[str, Opener] = {"memory": _memory, "sqlite": _sqlite}
