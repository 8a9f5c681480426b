"""One server: its connections, its scripts, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import re
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from adjourn._clients import LoopClients
from adjourn._text import did_you_mean, undotted
from adjourn.errors import CheckpointCorrupt, NotStorable, StoreUnavailable, UsageError

from ._keys import SERIAL
from ._members import REPAIR
from ._urls import OPTIONS

T = TypeVar("T")
Reply: TypeAlias = Any
"""What a command replies: bytes, numbers, None and lists of these."""

Command: TypeAlias = tuple[str | bytes | int | float, ...]

_RESERVED = 2
_USE = f"Use {', '.join(OPTIONS)}, or what redis-py takes."
_HEALTH = 15.0
"""Seconds of silence after which a listener asks whether its connection is still there."""


class Script:
    """A script, from one file or several, and its digest, by which a server that has it runs it."""

    def __init__(self, *names: str) -> None:
        folder = files(__package__ or "")
        self.source: str = "\n".join(folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names)
        self.digest: str = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


WRITE = Script("common", "write")
READ = Script("common", "read")
FORGET = Script("forget")
NOW = Script("common", "now")
REMOVE = Script("common", "remove")
RIGHTS = Script("rights")
OUTBOX = Script("common", "outbox")
_WRITING = (WRITE, REMOVE, OUTBOX)


class Pipeline(Protocol):
    """What is used of redis-py's pipelines; that of a `Client` has its replies to be awaited."""

    def execute_command(self, *command: Any) -> object: ...

    def execute(self, raise_on_error: bool) -> Any: ...


class PubSub(Protocol):
    """What is used of redis-py's subscriptions."""

    async def subscribe(self, *channels: str) -> None: ...

    async def get_message(self, ignore: bool, seconds: float, /) -> dict[str, Any] | None: ...

    async def aclose(self) -> None: ...


class Client(Protocol):
    """What is used of redis-py's clients."""

    async def execute_command(self, *command: Any) -> Reply: ...

    def pipeline(self, transaction: bool) -> Pipeline: ...

    def pubsub(self) -> PubSub: ...

    async def aclose(self) -> None: ...


class SyncClient(Protocol):
    """What is used of redis-py's clients for code without an event loop."""

    def pipeline(self, transaction: bool) -> Pipeline: ...

    def close(self) -> None: ...


class Server:
    """Runs commands and scripts, from whichever event loop; every failure is one of Adjourn's errors."""

    def __init__(self, url: str, shown: str, *, timeout: float, pool_size: int) -> None:
        _check_options(url, shown)
        self._shown = shown
        self._listener: Callable[[], Client] = partial(_client, url, timeout, 1, health_check_interval=_HEALTH)
        connect: Callable[[], Client] = partial(_client, url, timeout, pool_size)
        self._clients = LoopClients(connect, lambda client: client.aclose())
        # Leases must not run out because many calls wait for a connection, or their event loop is blocked: renewals
        # have connections of their own, which belong to no loop.
        self._reserved: SyncClient = _client(url, timeout, _RESERVED, is_async=False)
        weakref.finalize(self, self._reserved.close).atexit = False

    async def run(self, *command: str | bytes | float, session: str | None = None) -> Reply:
        """Run one command, in one trip; damage is that of `session`."""
        (reply,) = await self._replies([command], reserved=False, reads=True)
        return self._checked(reply, session)

    async def script(self, script: Script, keys: Sequence[str], *arguments: bytes, session: str | None = None) -> Reply:
        """Run a script, in one trip unless the server has forgotten it; damage is that of `session`."""
        (reply,) = await self._run_scripts(script, [(len(keys), *keys, *arguments)], reserved=False)
        return self._checked(reply, session)

    async def scripts(
        self,
        script: Script,
        calls: Sequence[tuple[Sequence[str], bytes]],
        sessions: Sequence[str],
        *,
        reserved: bool = False,
    ) -> list[Reply]:
        """Run a script for several sessions, in one trip; the reply for one that is damaged is the error.

        If `reserved`, it runs on a connection that other calls cannot use up.
        """
        commands: list[Command] = [(len(keys), *keys, given) for keys, given in calls]
        replies = await self._run_scripts(script, commands, reserved=reserved)
        return self._each_checked(replies, sessions)

    async def gather(self, commands: Sequence[Command], *, reserved: bool = False) -> list[Reply]:
        """Run several commands in one trip, not as one transaction."""
        replies = await self._replies(commands, reserved=reserved, reads=True)
        return [self._checked(reply, None) for reply in replies]

    async def gather_rows(
        self, commands: Sequence[Command], sessions: Sequence[str], *, reserved: bool = False
    ) -> list[Reply]:
        """Run a command for each of several sessions, in one trip; the reply for one that is damaged is the error."""
        return self._each_checked(await self._replies(commands, reserved=reserved, reads=True), sessions)

    async def listen(self, channel: str) -> AsyncGenerator[bytes | None]:
        """Yield what is published on a channel, on a connection of its own; first None, as soon as it is heard.

        Raises:
            StoreUnavailable: the connection was lost.
        """
        client = self._listener()
        heard = client.pubsub()
        try:
            await _cancellable(heard.subscribe(channel))
            while True:
                message = await _cancellable(heard.get_message(False, _HEALTH))
                if message is not None:
                    yield message["data"] if message["type"] == "message" else None
        except Exception as error:
            raise self._explained(error) from error
        finally:
            await heard.aclose()
            await client.aclose()

    async def close(self) -> None:
        """Close the connections of the running event loop, and those of no loop; the next call opens new ones."""
        await self._clients.close()
        await asyncio.to_thread(self._reserved.close)

    async def _run_scripts(self, script: Script, calls: Sequence[Command], *, reserved: bool) -> list[Reply]:
        commands: list[Command] = [("EVALSHA", script.digest, *call) for call in calls]
        replies = await self._replies(commands, reserved=reserved, reads=script not in _WRITING)
        unknown = [number for number, reply in enumerate(replies) if _is_unknown_script(reply)]
        if unknown:
            # The server was restarted, or its scripts were flushed. EVAL also makes it remember this one.
            again: list[Command] = [("EVAL", script.source, *commands[number][2:]) for number in unknown]
            replies_again = await self._replies(again, reserved=reserved, reads=script not in _WRITING)
            for number, reply in zip(unknown, replies_again, strict=True):
                replies[number] = reply
        return replies

    def _checked(self, reply: Reply, session: str | None) -> Reply:
        if isinstance(reply, Exception):
            raise self._explained(reply, session) from reply
        return reply

    def _each_checked(self, replies: Sequence[Reply], sessions: Sequence[str]) -> list[Reply]:
        """Return the replies; damage of one session must not hide the others."""
        checked: list[Reply] = []
        for reply, session in zip(replies, sessions, strict=True):
            try:
                checked.append(self._checked(reply, session))
            except CheckpointCorrupt as damage:
                checked.append(damage)
        return checked

    async def _replies(self, commands: Sequence[Command], *, reserved: bool, reads: bool) -> list[Reply]:
        """Return the reply to each command; a command that was refused has the error in its place.

        What only reads is sent again if the connection was lost: the server may have been restarted long before.
        """
        for is_last in (not reads, True):
            try:
                if reserved:
                    return await asyncio.to_thread(_pipeline(self._reserved, commands).execute, raise_on_error=False)
                return await _cancellable(_sent(await self._clients.here(), commands))
            except Exception as error:
                if is_last or not _is_lost_connection(error):
                    raise self._explained(error) from error
        raise AssertionError("the last try returns or raises")

    def _explained(self, error: Exception, session: str | None = None) -> Exception:
        return explained(error, self._shown, session)


async def _cancellable(call: Awaitable[T]) -> T:
    """Await a call of redis-py, and heed a cancel that it has not passed on."""
    # It sends with `asyncio.wait_for`, which before Python 3.12 forgets a cancel that comes together with the result.
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    result = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def _sent(client: Client, commands: Sequence[Command]) -> list[Reply]:
    if len(commands) == 1:
        return [await _outcome(client, commands[0])]
    return await _pipeline(client, commands).execute(raise_on_error=False)


def _pipeline(client: Client | SyncClient, commands: Sequence[Command]) -> Pipeline:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline


async def _outcome(client: Client, command: Command) -> Reply:
    from redis.exceptions import ResponseError  # noqa: PLC0415 - an extra

    try:
        return await client.execute_command(*command)
    except ResponseError as error:
        return error


def _is_unknown_script(reply: object) -> bool:
    return type(reply).__name__ == "NoScriptError"


def _is_lost_connection(error: Exception) -> bool:
    from redis.exceptions import AuthenticationError, ConnectionError  # noqa: A004, PLC0415 - an extra

    return isinstance(error, ConnectionError) and not isinstance(error, AuthenticationError)


def check_installed() -> None:
    """Refuse to go on without redis-py.

    Raises:
        UsageError: it is not installed.
    """
    if find_spec("redis") is None:
        raise UsageError("RedisStore needs redis-py, which is not installed. Run: pip install 'adjourn[redis]'.")


def _check_options(url: str, shown: str) -> None:
    """Refuse options that redis-py does not know, which it would find only when it connects.

    Raises:
        UsageError: there is one.
    """
    from redis.asyncio import ConnectionPool  # noqa: PLC0415 - an extra

    try:
        pool = cast("Any", ConnectionPool).from_url(url)
        pool.connection_class(**pool.connection_kwargs)
    except (AttributeError, TypeError, ValueError) as error:
        what = undotted(error).rpartition("() ")[2]
        if unknown := re.search("unexpected keyword argument '(.*)'", what):
            meant = did_you_mean(unknown[1], OPTIONS, likeness=0.6)  # short names
            raise UsageError(f"{shown!r} has the unknown option '{unknown[1]}'.{meant} {_USE}") from None
        raise UsageError(f"{shown!r} has an option that redis-py does not accept: {what}.") from None


def _client(url: str, timeout: float, size: int, *, is_async: bool = True, health_check_interval: float = 0) -> Any:
    import redis.asyncio  # noqa: PLC0415 - an extra
    from redis.backoff import NoBackoff  # noqa: PLC0415

    package = cast("Any", redis.asyncio if is_async else redis)  # both have the same names
    # No `retry`: a command is never sent twice behind our back, since only the caller knows what may be repeated. No
    # `response_callbacks`: replies stay as they are, since what redis-py makes of them differs between versions.
    options: dict[str, Any] = {
        "max_connections": size,
        "timeout": timeout,
        "socket_timeout": timeout,
        "health_check_interval": health_check_interval,
        "retry": package.retry.Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
        **({} if url.startswith("unix:") else {"socket_connect_timeout": min(timeout, 5.0), "socket_keepalive": True}),
    }
    made = package.Redis.from_pool(package.BlockingConnectionPool.from_url(url, **options))
    made.response_callbacks.clear()
    return made


NOT_ALLOWED = "this user may not do that. Grant it what docs/redis.md lists"
"""What an error says of a right that a user lacks, however the server puts it."""
_REMEDIES = {
    "READONLY": "it is a replica, which cannot be written to. Name the primary; after a failover, wait for the new one",
    "OOM": "its memory is full. Raise maxmemory, or delete sessions",
    "MISCONF": "it cannot write to its disk. Free some space there",
    "NOREPLICAS": "too few replicas are connected to it. Start them, or lower min-replicas-to-write",
    "LOADING": "it is still loading its data",
    "NOAUTH": "it wants a password. Put it into the URL, as in 'redis://user:password@host'",
    "WRONGPASS": "it does not accept this user and password. Correct the URL",
    "NOPERM": NOT_ALLOWED,
    "NODB": "it has no database of this number. Use a smaller one",
    "BADNAME": "it does not accept the client_name in the URL. Choose one without blanks",
    "NOSELECT": "it has no databases. A Redis Sentinel is one such server: name the primary instead",
}
_TLS = ("rediss://", "valkeys://")
_LASTING = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "NODB", "BADNAME", "NOSELECT"})
_SAID = {
    "Authentication required": "NOAUTH",
    "The user executing the script can't": "NOPERM",
    "ACL failure in script": "NOPERM",
    "DB index is out of range": "NODB",
    "Client names cannot contain": "BADNAME",
    "unknown command 'SELECT'": "NOSELECT",
    "unknown command `SELECT`": "NOSELECT",
}
"""The codes of errors that servers only put into words."""
_CODES = {
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
}
"""The codes of errors that have classes of their own: redis-py leaves them out of the text."""


def not_text(error: UnicodeEncodeError) -> NotStorable:
    """Return the error for an id or name with half a surrogate pair."""
    return NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.")


def explained(error: Exception, store: str, session: str | None = None) -> Exception:
    """Return the error that says what is wrong with the server at `store`, or with a session, and what to do."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - an extra
    from redis.exceptions import TimeoutError as TookTooLong  # noqa: PLC0415

    if isinstance(error, UnicodeEncodeError):
        return not_text(error)
    if not isinstance(error, RedisError | OSError):
        return error
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    code = _code(error, text)
    if code in ("WRONGTYPE", "DAMAGED"):
        is_index = code == "DAMAGED" and "adj:{" not in text
        what = f"a key of Adjourn in {store} holds something else ({text})"
        if session is not None and not is_index:
            return CheckpointCorrupt(what, session)
        return CheckpointCorrupt(what) if SERIAL in text else CheckpointCorrupt(what, remedy=REPAIR)
    if code in _REMEDIES:
        return StoreUnavailable(store, f"{_REMEDIES[code]} ({text})", is_lasting=code in _LASTING)
    if isinstance(error, TookTooLong):
        # A server without TLS waits for the rest of what it takes for a command.
        tls = "; use 'redis://' if it does not have TLS on this port" if store.startswith(_TLS) else ""
        return StoreUnavailable(store, f"it takes too long ({text}){tls}")
    return StoreUnavailable(store, text)


def _code(error: Exception, text: str) -> str:
    for said, code in _SAID.items():
        if said in text:
            return code
    if (code := _CODES.get(type(error).__name__)) is not None:
        return code
    # Older servers wrap the error of a script's command.
    return next((known for known in _REMEDIES if f"-{known} " in text), text.partition(" ")[0])
