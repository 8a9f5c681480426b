"""Stores by URL."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from adjourn._text import did_you_mean
from adjourn.errors import UsageError

from .memory import MemoryStore
from .protocol import Store

if TYPE_CHECKING:
    from .encrypted._store import EncryptedStore
    from .postgres._store import PostgresStore
    from .redis._store import RedisStore
    from .sqlite._schema import Synchronous
    from .sqlite._store import SQLiteStore

S = TypeVar("S", "RedisStore", "PostgresStore")

Opener = Callable[[str], Store]
"""Makes a store of a whole URL."""

_ENCRYPTED = "encrypted+"
_GROUP = "adjourn.stores"  # of entry points, each named after a scheme and leading to an Opener

_lock = threading.Lock()
_named: dict[str, MemoryStore] = {}
_servers: weakref.WeakValueDictionary[str, RedisStore | PostgresStore] = weakref.WeakValueDictionary()
_files: weakref.WeakValueDictionary[tuple[Path, float, str], SQLiteStore] = weakref.WeakValueDictionary()

_wrapped: weakref.WeakValueDictionary[tuple[int, bytes], EncryptedStore] = weakref.WeakValueDictionary()

_FORMS = (
    "Use 'memory://', 'memory://name', 'sqlite:///relative.db', 'sqlite:////absolute/path.db', 'sqlite:///~/home.db', "
    "'postgresql://user:password@host/database' or 'redis://user:password@host:6379/0', with 'encrypted+' in front to "
    "encrypt what is kept there."
)
_SCHEME = r"[a-z][a-z0-9+.-]*"

_PASSWORD = re.compile(r"(://[^/?#@:]*):.*@", re.DOTALL)
"""Up to the last '@', since a password may have one in it that should be '%40'."""

_SECRETS = re.compile(r"pas|pw|secret|token|key|auth|cred|url")
"""What is in the name of an option whose value is not for everybody's eyes; `listen_url` is a URL again."""


def open_store(store: str | Store) -> Store:
    """Return the store that a URL names; a store object is given back as it is.

    `memory://` is a new one each time, `memory://name` the same in the whole process. `sqlite:///file.db` is relative
    to the current folder, `sqlite:////srv/file.db` absolute, and `sqlite:///~/file.db` in the home folder;
    `?timeout=5&synchronous=NORMAL` may follow. While one is in use, the same file with the same options is the same
    object, so that a file has one writing thread.
    `postgresql://user:password@host/database` is a database; `?schema=adjourn&pool_size=10&timeout=30` may follow.
    `redis://host:6379/0`, with `rediss`, `valkey` or `valkeys` as well, or `unix:///socket`, is a server;
    `?ttl=3600&timeout=5&accept_loss=1` may follow, and the same URL is the same object. With `encrypted+` in front of
    a URL, what is kept there is encrypted with the keys in $ADJOURN_KEYS. Other schemes come from `register_store`, or
    from packages that have an entry point in the group `adjourn.stores`.

    Raises:
        UsageError: the URL does not name a store.
    """
    if not isinstance(store, str):
        if not hasattr(store, "renew"):
            raise UsageError(f"{shown_url(repr(store))} is neither a store nor the URL of one. {_FORMS}")
        return store
    scheme, separator, _ = store.partition("://")
    if not separator or not re.fullmatch(_SCHEME, scheme):
        raise UsageError(_no_url(store))
    if scheme.startswith(_ENCRYPTED):
        return _encrypted(open_store(store.removeprefix(_ENCRYPTED)))
    opener = _openers.get(scheme) or _installed(scheme)
    if opener is None and "sentinel" in scheme:
        opener = _redis  # it says why not
    if opener is None:
        raise UsageError(_unknown(scheme))
    return opener(store)


def register_store(scheme: str, opener: Opener) -> None:
    """Let `open_store` open URLs of a scheme; `opener` is given the whole URL.

    Raises:
        UsageError: the scheme is not valid, or already has another opener.
    """
    if not re.fullmatch(_SCHEME, scheme):
        raise UsageError(
            f"register_store({scheme!r}): a scheme consists of lower-case letters, digits, '+', '-' and '.'."
        )
    with _lock:
        if _openers.setdefault(scheme, opener) is not opener:
            raise UsageError(f"register_store({scheme!r}): '{scheme}://' already has an opener. Choose another scheme.")


_IN_TEXT = re.compile(r"(//[^\s/?#@:'\"]*):[^\s'\"]*@")
_OPTION_IN_TEXT = re.compile(rf"([?&][^\s=&]*(?:{_SECRETS.pattern})[^\s=&]*=)[^\s&'\"]+", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """Return a text with '…' in place of the passwords in URLs, as far as these can be told apart from the rest."""
    return _OPTION_IN_TEXT.sub(r"\1…", _IN_TEXT.sub(r"\1:…@", text))


def shown_url(url: str) -> str:
    """Return a URL with '…' in place of its password and of options that may be secret; the same if it has none."""
    base, mark, query = url.partition("?")
    if not re.match(r"(encrypted\+)?sqlite:///", base):  # a file may have any name
        base = _PASSWORD.sub(r"\1:…@", base)
    return base + mark + "&".join(map(_shown_option, query.split("&")))


def _shown_option(option: str) -> str:
    name, _, value = option.partition("=")
    if "@" in name:
        return "…"
    return f"{name}=…" if value and (_SECRETS.search(name.lower()) or "@" in value) else option


def _installed(scheme: str) -> Opener | None:
    """Return the opener that an installed package has for a scheme."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - expensive, and needed only for unknown schemes

    for found in entry_points(group=_GROUP, name=scheme):
        return found.load()
    return None


def _no_url(text: str) -> str:
    schemes = "|".join(map(re.escape, _openers))
    meant = re.match(rf"((?:{re.escape(_ENCRYPTED)})?(?:{schemes}))[:/]", text)
    if meant:
        return f"What was given as a store is not a URL: write '://' after '{meant[1]}'. {_FORMS}"
    if "@" in text or "=" in text:  # There may be a password in it, so it is not repeated.
        return f"What was given as a store is not a URL, which begins with its scheme and '://'. {_FORMS}"
    return f"{text!r} is not the URL of a store. For a file, write 'sqlite:///{text}'."


def _unknown(scheme: str) -> str:
    known = ", ".join(f"'{each}://'" for each in sorted(_openers))
    adding = "A custom store can be added with `register_store`."
    meant = did_you_mean(scheme, _openers)
    return f"No store is known for '{scheme}://'.{meant} Known: {known}. {_FORMS} {adding}"


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
        raise UsageError(f"{shown_url(url)!r} does not name a file. {_FORMS}")
    timeout, synchronous = _options(url, query)
    store = SQLiteStore(_file(path[1:]), timeout, cast("Synchronous", synchronous))
    with _lock:
        return _files.setdefault((store.path, timeout, synchronous), store)


def _file(path: str) -> Path:
    """Return the path in a URL; a shell expands `~` only at the beginning of a word, so it is done here."""
    if not path.startswith("~/"):
        return Path(path)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"'sqlite:///{path}' is in the home folder, and this user has none. Set $HOME.") from error


def _postgres(url: str) -> PostgresStore:
    from .postgres._store import PostgresStore  # noqa: PLC0415 - an extra, which not everybody needs

    return _server(url, PostgresStore)


def _server(url: str, make: Callable[[str], S]) -> S:
    with _lock:
        return cast("S | None", _servers.get(url)) or cast("S", _servers.setdefault(url, make(url)))


def _encrypted(inner: Store) -> EncryptedStore:
    """Return a store's encrypted form, the same object for the same keys: runs on one store share its heartbeat."""
    from .encrypted._store import EncryptedStore  # noqa: PLC0415 - not everybody needs it

    store = EncryptedStore.from_env(inner)
    with _lock:
        # Whoever has it keeps `inner` alive, so that its id is not given to another store.
        return _wrapped.setdefault((id(inner), store.keys_fingerprint), store)


def _options(url: str, query: str) -> tuple[float, str]:
    timeout, synchronous = "30", "FULL"
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name == "timeout":
            timeout = value
        elif name == "synchronous":
            synchronous = value
        else:
            raise UsageError(f"{shown_url(url)!r} has the unknown option '{name}'. Use timeout or synchronous.")
    try:
        return float(timeout), synchronous
    except ValueError:
        raise UsageError(f"{shown_url(url)!r} has timeout={timeout}. Give it in seconds, such as timeout=30.") from None


def _redis(url: str) -> RedisStore:
    from .redis._store import RedisStore  # noqa: PLC0415 - loads redis-py, which not everybody needs

    return _server(url, RedisStore)


_openers: dict[str, Opener] = {
    "memory": _memory,
    "sqlite": _sqlite,
    **dict.fromkeys(("postgres", "postgresql"), _postgres),
    **dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "unix"), _redis),
}
