"""URLs of servers, with the options of a store in them, and shown without user and password."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import msgspec

from adjourn.errors import UsageError

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""The schemes that are accepted, and what redis-py calls them."""

OPTIONS = ("ttl", "timeout", "accept_loss", "pool_size")
"""The options of a store that a URL may have."""

_FORMS = "Use 'redis://user:password@host:6379/0', with 'rediss' for TLS, or 'unix:///path/to/socket?db=0'."

NO_SENTINEL = (
    "RedisStore does not ask a Redis Sentinel for the primary. Give the address of the primary itself, or one that "
    "follows it, as of a proxy or a name that the failover moves: 'redis://user:password@host:6379/0'."
)

_OURS = {
    **dict.fromkeys(("protocol", "decode_responses", "encoding", "encoding_errors"), "RedisStore needs its own"),
    **dict.fromkeys(("retry", "retry_on_timeout", "retry_on_error"), "RedisStore knows itself what may be repeated"),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), "use '?timeout=5', or timeout= of RedisStore"),
    "max_connections": "use '?pool_size=50', or pool_size= of RedisStore",
}
"""Options of redis-py that a URL must not change, and why, or what to use."""


class Address(msgspec.Struct, frozen=True):
    """Where a server is, and the options that its URL or its caller has given."""

    url: str
    """As redis-py reads it, with the password."""
    shown: str
    database: str
    ttl: float | None
    accept_loss: bool
    timeout: float
    pool_size: int


def parse_address(url: str, *, ttl: float | None, accept_loss: bool, timeout: float, pool_size: int) -> Address:
    """Return the address in a URL; options in it win over those that were given.

    Raises:
        UsageError: it does not name a server, or an option is wrong.
    """
    if "sentinel" in url.partition("://")[0]:
        raise UsageError(NO_SENTINEL)
    parts, port = _split(url)
    shown = _shown(parts, port)
    if parts.scheme not in SCHEMES or not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise UsageError(f"{shown!r} does not name a Redis server. {_FORMS}")
    if parts.scheme != "unix" and not _is_number(parts.path.strip("/") or "0"):
        raise UsageError(
            f"{shown!r} names the database {parts.path.strip('/')!r}, but Redis only has numbers. {_FORMS}"
        )
    options = _options(shown, parts.query)
    if "ttl" in options:
        ttl = _seconds(shown, "ttl", options.pop("ttl"))
    if "timeout" in options:
        timeout = _seconds(shown, "timeout", options.pop("timeout"))
    if "accept_loss" in options:
        accept_loss = _flag(shown, options.pop("accept_loss"))
    if "pool_size" in options:
        pool_size = _count(shown, options.pop("pool_size"))
    for name, seconds in (("ttl", ttl), ("timeout", timeout)):
        if seconds is not None and not 0 < seconds < 1e9:
            raise UsageError(f"RedisStore({name}={seconds!r}) was given. Give {name} in seconds, more than 0.")
    address = f"{SCHEMES[parts.scheme]}://{parts.netloc}{parts.path}?{urlencode(options)}"
    database = options.get("db") or ("0" if parts.scheme == "unix" else parts.path.strip("/") or "0")
    return Address(address, shown, database, ttl, accept_loss, timeout, pool_size)


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in parts.path:
            raise ValueError  # A part of the password: one with '/' in it ends the name of the server.
        return parts, parts.port
    except ValueError:
        # The URL may hold a password, so it is not repeated.
        raise UsageError(
            f"The URL of the Redis server has a part that cannot be read, such as its port. {_FORMS}"
        ) from None


def _options(shown: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name in _OURS:
            raise UsageError(f"{shown!r} has the option {name!r}, which cannot be set: {_OURS[name]}.")
    return options


def _shown(parts: SplitResult, port: int | None) -> str:
    host = parts.hostname or ""
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{parts.path}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _seconds(shown: str, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{shown!r} has {name}={value}. Give it in seconds, such as {name}=30.") from None


def _flag(shown: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise UsageError(f"{shown!r} has accept_loss={value}. Give 0 or 1.")
    return value == "1"


def _count(shown: str, value: str) -> int:
    if not _is_number(value) or not int(value):
        raise UsageError(f"{shown!r} has pool_size={value}. Give the number of connections, 1 or more.")
    return int(value)
