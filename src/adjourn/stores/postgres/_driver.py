"""psycopg: where to connect, and what its errors mean. No message ever has a password in it."""

from __future__ import annotations

import re
import select
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import msgspec

from adjourn._text import did_you_mean, visible_line, with_article
from adjourn.errors import AdjournError, CheckpointCorrupt, NotStorable, StoreUnavailable, UsageError, full_name

from ._connection import OwnConnection, connection_class
from ._text import escaped, unescaped

if TYPE_CHECKING:
    import psycopg
    from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor

    AnyConnection: TypeAlias = Connection[Any] | AsyncConnection[Any]

_OURS = ("schema", "pool_size", "timeout", "listen_url")
_FORM = "Write 'postgresql://user:password@host:5432/database'"
_ENCODED = (
    "characters such as '@', '/', ':', '%' and '=' in a user name, a password or an option are written as '%40', "
    "'%2F', '%3A', '%25' and '%3D'"
)


class Address(msgspec.Struct, frozen=True):
    """A database, and how to reach it. Its `str` is safe to show."""

    parameters: dict[str, Any]
    schema: str

    def __str__(self) -> str:
        given = self.parameters
        user = f"{given['user']}@" if "user" in given else ""
        port = f":{given['port']}" if "port" in given else ""
        return f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"

    def __repr__(self) -> str:
        return f"Address('{self}', {self.schema!r})"  # what a Struct shows would have the password

    @property
    def role(self) -> str:
        """The role that connects, as far as it is known."""
        return str(self.parameters.get("user", "…"))

    async def connect(self, patience: float) -> OwnConnection:
        """Open a connection whose statements may take so many seconds each.

        Raises:
            psycopg.Error: it cannot be opened.
        """
        connection = await self.connect_plainly()
        connection.patience = patience
        try:
            await _allow_preparing(connection)
        except BaseException:
            connection.end()
            raise
        return connection

    async def connect_plainly(self) -> OwnConnection:
        """Open a connection that never prepares a statement.

        Raises:
            psycopg.Error: it cannot be opened.
        """
        return await connection_class().connect(**self.parameters, **_OPTIONS)

    def connect_sync(self) -> Connection[Any]:
        """Open a connection without an event loop.

        Raises:
            psycopg.Error: it cannot be opened.
        """
        import psycopg  # noqa: PLC0415 - an extra

        return psycopg.Connection.connect(**self.parameters, **_OPTIONS)


_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}
_OFTEN = 5  # how often a statement is sent before it is prepared


async def _allow_preparing(connection: AsyncConnection[Any]) -> None:
    """Let statements be prepared, unless a pooler is in between: in transaction mode, each may meet another server.

    To parse and plan a statement takes the server longer than to execute it. A pooler makes up the number of the
    process that it announces.
    """
    cursor = await connection.execute("SELECT pg_backend_pid()")
    if await cursor.fetchone() == (connection.pgconn.backend_pid,):
        connection.prepare_threshold = _OFTEN


def address_of(url: str, schema: str, timeout: float, name: str = "url") -> Address:
    """Read a URL, which is the store's parameter of this name.

    Raises:
        UsageError: it is not one, or psycopg is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"Postgres stores need psycopg, which cannot be imported ({error}). Run: pip install 'adjourn[postgres]'."
        ) from error
    if not str(url).startswith(("postgresql://", "postgres://")):
        raise UsageError(f"PostgresStore({name}=…) was given something that is not a URL of Postgres. {_FORM}.")
    _check_encoding(url)
    _check_options(url)
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # its message may have a part of the password
        raise UsageError(f"The URL of Postgres cannot be read: {_ENCODED}. {_FORM}.") from None
    defaults = {
        "connect_timeout": max(2, round(min(timeout, 10))),
        "application_name": "adjourn",
        "target_session_attrs": "read-write",
        # A server that has vanished without a word is noticed after a minute, not after two hours.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    return Address(defaults | given | {"client_encoding": "utf8"}, schema)


def check_schema(name: object) -> None:
    """Refuse what cannot name a schema; Postgres would cut a long name off.

    Raises:
        UsageError: it cannot.
    """
    size = len(name.encode(errors="surrogatepass")) if isinstance(name, str) else 0
    if not isinstance(name, str) or not 0 < size < 64 or name.startswith("pg_") or not name.isprintable():
        raise UsageError(
            f"PostgresStore(schema={name!r}): name the schema that has the tables, such as 'adjourn', in 63 bytes at "
            "most. Names that begin with 'pg_' are Postgres's own."
        )


def _check_encoding(url: str) -> None:
    """Refuse a password that ends the part it is in: what libpq makes of that would appear in its errors."""
    rest = url.partition("://")[2].partition("?")[0]
    authority, _, path = rest.partition("/")
    if authority.count("@") > 1 or "@" in path or "#" in rest:
        raise UsageError(f"The URL of Postgres cannot be read: {_ENCODED}. {_FORM}.")


def _check_options(url: str) -> None:
    """Refuse options that libpq does not know: its error may have a part of the password."""
    from psycopg.pq import Conninfo  # noqa: PLC0415 - an extra

    known = {each.keyword.decode() for each in Conninfo.get_defaults()} | {"ssl", "requiressl"}
    for part in filter(None, url.partition("?")[2].split("&")):
        name = part.partition("=")[0]
        if name in _OURS:
            raise UsageError(f"PostgresStore(listen_url=…) has the option '{name}', which is one of the store itself.")
        if re.fullmatch("[a-z_]+", name) and name not in known:
            raise UsageError(
                f"The URL of Postgres has the unknown option '{name}'.{did_you_mean(name, {*known, *_OURS})} "
                f"Use {', '.join(_OURS)}, or what libpq takes, such as sslmode."
            )


def split_options(url: str) -> tuple[str, dict[str, str]]:
    """Split a store's URL into that of the database and the options of the store, which stand after the `?`."""
    base, _, query = str(url).partition("?")  # Whoever gives something else is told what is wrong by `address_of`.
    ours: dict[str, str] = {}
    rest: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in _OURS:
            ours[name] = unquote(value)
        else:
            rest.append(part)
    return f"{base}?{'&'.join(rest)}" if rest else base, ours


_AGAIN = frozenset({"40001", "40P01"})
_NO_TABLES = "its tables are gone; the next call creates them anew"
_PLAIN = {
    "53100": "its disk is full; free some space",
    "53300": "it has no connection left; raise its max_connections, or put PgBouncer in front of it",
    "25006": "it cannot be written to, as a standby cannot",
    "55P03": "another connection has a lock on its tables, or is creating them; look into pg_locks for it",
    "57014": "the statement was cancelled",
    "57P01": "it shuts down, or an administrator cut the connection",
    "57P03": "it is starting or shutting down",
    "42P01": _NO_TABLES,
    "42883": _NO_TABLES,
    "3F000": _NO_TABLES,
}
# Something of this name is there already, or is not what it should be.
_NOT_OURS = frozenset({"42P07", "42723", "42710", "42703", "42804"})
_AT_THE_DOOR = {
    "password authentication failed": "check the user name and the password in the URL",
    "no password supplied": "give the password in the URL, in PGPASSWORD or in ~/.pgpass",
    "no pg_hba.conf entry": "add a line for this user and address to the server's pg_hba.conf",
    "pg_hba.conf rejects": "let this user and address in with the server's pg_hba.conf",
    "is not permitted to log in": "run `ALTER ROLE {role} LOGIN`, or use another role",
    "not currently accepting connections": "run `ALTER DATABASE {database} ALLOW_CONNECTIONS true`, or correct the URL",
    "unrecognized configuration parameter": "correct the options in the URL",
    "permission denied for database": "run `GRANT CONNECT ON DATABASE {database} TO {role}`",
    "does not exist": "create it, or correct the URL",
    "invalid connection option": "correct the URL",
    "invalid port number": "correct the URL",
    "invalid integer value": "correct the URL",
    "server does not support SSL": "let the server use TLS, or leave sslmode out of the URL",
    "invalid sslmode value": "correct the URL",
}


# These pass when a standby takes over, or when others hang up.
_FOR_NOW = {
    "session is read-only": "let this role write (default_transaction_read_only = off), or name the primary in the URL",
    "server is in hot standby mode": "name the primary in the URL, too, as in 'postgresql://one,two/database'",
    "too many connections for": "raise its limit (`CONNECTION LIMIT`), or lower pool_size",
    "too many clients already": "raise its max_connections, lower pool_size, or put PgBouncer in front of it",
    "connection slots are reserved": "raise its max_connections, lower pool_size, or put PgBouncer in front of it",
}


class ExceedsIndex(NotStorable):
    """A name is too long for an index, of the table that is its path if that is known; who wrote it knows the name."""


class PoolTimeout(Exception):
    """All connections were in use for too long."""


class Explaining:
    """Turns whatever goes wrong inside into the error that says what to do, about the session that it concerns."""

    def __init__(self, at: Address, session: str | None, timeout: float = 0.0) -> None:
        self._at = at
        self._session = session
        self._timeout = timeout

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, AdjournError):
            return
        import psycopg  # noqa: PLC0415 - an extra

        if isinstance(error, psycopg.Error):
            explained = _explained(error, self._at, self._session)
            _forget_secrets(error, self._at)
            raise explained from error
        if isinstance(error, UnicodeEncodeError):
            raise NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.") from error
        if isinstance(error, PoolTimeout):
            detail = f"all connections were in use for {self._timeout:g} s; raise pool_size"
            raise StoreUnavailable(str(self._at), detail) from error
        if isinstance(error, TimeoutError):
            raise StoreUnavailable(str(self._at), f"no reply within {self._timeout:g} s") from error


async def run(
    connection: AnyConnection, statement: bytes, values: Mapping[str, Any], *, prepare: bool | None = None
) -> list[tuple[Any, ...]]:
    """Run a statement on a connection, sync or async, and return its rows.

    `prepare` False never prepares it; by default, it is when the connection has run it often enough.

    Raises:
        psycopg.Error: it failed.
    """
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg.rows import tuple_row  # noqa: PLC0415

    given = {name: escaped(value) for name, value in values.items()}
    # With cursors of our own: those of a user's connection may return rows of another kind.
    if isinstance(connection, psycopg.Connection):
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        cursor.execute(statement, given, prepare=prepare, binary=True)
        rows = cursor.fetchall() if _has_rows(cursor) else []
    else:
        running = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        await running.execute(statement, given, prepare=prepare, binary=True)
        rows = await running.fetchall() if _has_rows(running) else []
    return [tuple([unescaped(value) for value in row]) for row in rows]


async def run_unprepared(
    connection: AnyConnection, statement: bytes, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Run a statement as `run` does, planned for these values."""
    return await run(connection, statement, values, prepare=False)


def _has_rows(cursor: Cursor[Any] | AsyncCursor[Any]) -> bool:
    # Its `description` would say the same, but makes an object of every column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def check_is_connection(given: object) -> None:
    """Refuse what is no connection of psycopg.

    Raises:
        UsageError: it is not one.
    """
    import psycopg  # noqa: PLC0415 - an extra

    if not isinstance(given, psycopg.Connection | psycopg.AsyncConnection):
        raise UsageError(
            f"PostgresStore.on was given {with_article(full_name(type(given)))}. Give a connection of psycopg: a "
            "`psycopg.Connection` or a `psycopg.AsyncConnection`."
        )


def ready(files: Sequence[int], seconds: float | None) -> set[int]:
    """Wait for so many seconds, None for as long as it takes, until something can be read; return where."""
    if not hasattr(select, "poll"):
        return set(select.select(files, [], [], seconds)[0])
    poll = select.poll()  # `select` cannot wait for files with high numbers
    for each in files:
        poll.register(each, select.POLLIN)
    return {each for each, _ in poll.poll(None if seconds is None else 1000 * seconds)}


def was_passing_conflict(error: StoreUnavailable) -> bool:
    """Return whether another transaction was in the way, so that the same thing can be decided again at once."""
    return getattr(error.__cause__, "sqlstate", None) in _AGAIN


def was_cut(error: StoreUnavailable) -> bool:
    """Return whether the connection was of no use any more, and nothing was done on it."""
    return getattr(error.__cause__, "sqlstate", None) == "57P01" or has_lost_statements(error.__cause__)


def has_lost_statements(error: BaseException | None) -> bool:
    """Return whether a prepared statement is gone, or no longer fits the tables."""
    state = getattr(error, "sqlstate", None)
    return state == "26000" or (state == "0A000" and "cached plan" in str(error))


def cannot_write(error: StoreUnavailable) -> bool:
    """Return whether the connection leads to a server that only reads, as one does that was replaced."""
    return getattr(error.__cause__, "sqlstate", None) == "25006"


def lacks_tables(error: StoreUnavailable) -> bool:
    """Return whether the tables are not there (any more)."""
    return _PLAIN.get(getattr(error.__cause__, "sqlstate", "")) == _NO_TABLES


def _explained(error: psycopg.Error, at: Address, session: str | None = None) -> AdjournError:
    """Return the error that says plainly what is wrong, and what to do."""
    state, text = error.sqlstate, _message(error, at)
    match state:
        case "XX001" | "XX002":
            found = CheckpointCorrupt(f"Postgres reports damage ({text})", session)
        case "23505":
            found = CheckpointCorrupt(f"rows that do not belong to it are in its way ({text})", session)
        case "22021" | "22P05":
            found = NotStorable("id", "", f"Postgres cannot keep it as text: {text}.")
        case "54000":
            found = ExceedsIndex(error.diag.table_name or "", "", text)
        case "42501":
            found = StoreUnavailable(str(at), f"{text}; {_grants(at)}", is_lasting=True)
        case state if state in _NOT_OURS:
            whose = f"the schema '{at.schema}' has tables that are not Adjourn's, or of another version of it"
            remedy = "give the store a schema of its own, such as schema='adjourn'"
            found = StoreUnavailable(str(at), f"{whose} ({text}); {remedy}", is_lasting=True)
        case None:
            found = _unreachable(text, at)
        case _:
            plain = _PLAIN.get(state)
            found = StoreUnavailable(str(at), f"{plain} ({text})" if plain else text)
    return found


def _unreachable(text: str, at: Address) -> StoreUnavailable:
    names = {"database": at.parameters.get("dbname", "…"), "role": at.role}
    for sign, remedy in _AT_THE_DOOR.items():
        if sign in text:
            return StoreUnavailable(str(at), f"{text}; {remedy.format_map(names)}", is_lasting=True)
    advice = next((f"; {remedy}" for sign, remedy in _FOR_NOW.items() if sign in text), "")
    return StoreUnavailable(str(at), f"{text}{advice}")


def _grants(at: Address) -> str:
    schema = '"' + at.schema.replace('"', '""') + '"'
    return (
        f"let the owner of the tables run `GRANT USAGE ON SCHEMA {schema} TO {at.role}; GRANT SELECT, INSERT, UPDATE, "
        f"DELETE ON ALL TABLES IN SCHEMA {schema} TO {at.role}`, or to let it create them, "
        f"`GRANT CREATE ON DATABASE {at.parameters.get('dbname', '…')} TO {at.role}`"
    )


def _message(error: psycopg.Error, at: Address) -> str:
    primary = error.diag.message_primary
    # libpq adds a question on a line of its own.
    whole = re.sub(r"\n\s*Is ([^\n]*\?)", r" (is \1)", primary or str(error))
    text = visible_line(" ".join(whole.split())).rstrip(".?")
    return _without_secrets(text or type(error).__name__, at.parameters)


def _forget_secrets(error: psycopg.Error, at: Address) -> None:
    """Take passwords out of an error that becomes the cause of ours: whatever reports errors may show all of it."""
    error._pgconn = None  # pyright: ignore[reportPrivateUsage]  # what psycopg drops, too, when it pickles one
    error.args = tuple(_without_secrets(each, at.parameters) if isinstance(each, str) else each for each in error.args)


def _without_secrets(text: str, parameters: Mapping[str, Any]) -> str:
    for name in ("password", "sslpassword"):
        secret = str(parameters.get(name) or "")
        if secret:
            text = text.replace(secret, "…")
    return text
