"""Hints over NOTIFY and LISTEN, each on a thread and a connection of its own.

Notifications are sent apart from the commits that they are about, and gathered: transactions that notify wait for one
another, in the whole database. What gets lost on the way costs time only, since whoever waits also looks by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
import threading
import time
import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, StoreUnavailable, text_of
from adjourn.stores.kit.forks import forget_after_fork
from adjourn.stores.kit.hints import MOST, Fanout
from adjourn.stores.types import SessionRef

from ._driver import Address, Explaining, ready
from ._line import break_off, deadline
from ._schema import quoted

if TYPE_CHECKING:
    from psycopg import Connection

    from ._connection import OwnConnection

log = logger("adjourn.stores")

_GATHER = 0.015  # seconds
_IDLE = 10.0  # seconds after which the thread that sends ends, with its connection
_PAUSES = (0.1, 2.0)  # seconds between attempts to connect, at first and at most
_PAYLOAD = 7000  # bytes; Postgres takes less than 8,000
_REPLY = 10.0  # seconds in which the server should reply, at most
_ECHO = 5.0  # seconds in which a listener hears itself, if it can hear anything
_DEAF = 10.0  # seconds without a connection after which that is said


class _Message(msgspec.Struct, array_like=True):
    """The payload of a notification: who sends it, and which sessions it is about, None for any."""

    sender: str
    sessions: list[tuple[str, str]] | None


_ECHO_OF = SessionRef("", "")  # in place of a session: nothing is said about any

_decoder = msgspec.json.Decoder(_Message)


def channel_of(schema: str) -> str:
    """Return the channel of a schema's stores. Postgres takes names of up to 63 bytes."""
    name = f"adjourn_{schema}"
    return name if len(name.encode()) < 64 else f"adjourn_{hashlib.sha256(schema.encode()).hexdigest()[:32]}"


class Notifier:
    """Sends hints to other processes, gathered, on a thread that lives while there are any."""

    def __init__(self, address: Address, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._channel = channel_of(address.schema)
        self._forget()
        forget_after_fork(self, Notifier._forget)

    def _forget(self) -> None:
        self.sender: str = uuid.uuid4().hex
        self._gate = threading.Lock()  # guards the next two
        self._news: dict[SessionRef | None, None] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopped = False

    def send(self, ref: SessionRef | None) -> None:
        """Let other processes know that a session, or (None) anything, may have changed; do not wait for it."""
        self._put(ref)

    def _put(self, ref: SessionRef | None) -> None:
        if ref in self._news and self._thread is not None:
            return  # it is yet to be sent; whoever looks then sees this, too
        with self._gate:
            if None not in self._news:
                self._news[ref] = None
                if len(self._news) > MOST:
                    self._news = {None: None}
            if self._thread is None:
                self._stopped = False
                thread = threading.Thread(target=self._run, name="adjourn-notify", daemon=True)
                with contextlib.suppress(RuntimeError):  # The system has none: the news go with the next.
                    thread.start()
                    self._thread = thread
        self._wake.set()

    def send_echo(self) -> None:
        """Send something that only a listener of this process takes note of."""
        self._put(_ECHO_OF)

    def close(self, seconds: float) -> None:
        """Send what has gathered, and end the thread; wait for it for so many seconds at most."""
        with self._gate:
            thread, self._stopped = self._thread, True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _run(self) -> None:
        with asyncio.Runner() as loop:
            self._run_on(loop)

    def _run_on(self, loop: asyncio.Runner) -> None:
        connection: OwnConnection | None = None
        try:
            while self._has_news():
                if not self._stopped:
                    time.sleep(_GATHER)
                with self._gate:
                    news, self._news = self._news, {}
                connection = loop.run(self._notify(connection, list(news)))
        finally:
            if connection is not None:
                connection.end()

    def _has_news(self) -> bool:
        """Wait for news; without any, the thread is over."""
        over = time.monotonic() + _IDLE
        while True:
            self._wake.clear()  # before the look, so that nothing that comes after it is missed
            with self._gate:
                if self._news:
                    return True
                if self._stopped or time.monotonic() >= over:
                    self._thread = None
                    return False
            self._wake.wait(max(0.0, over - time.monotonic()))

    async def _notify(self, connection: OwnConnection | None, news: list[SessionRef | None]) -> OwnConnection | None:
        """Send hints, and return the connection to use next."""
        try:
            with Explaining(self._address, None, self._patience):
                if connection is None:
                    connection = await self._address.connect_plainly()
                query = b"SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"
                with deadline(connection, self._patience):
                    await connection.execute(query, (self._channel, self._payloads(news)))
        except AdjournError as error:
            log.debug("hints not sent: %s", visible_line(text_of(error)))
            if connection is not None:
                connection.end()
            return None
        return connection

    def _payloads(self, news: list[SessionRef | None]) -> list[str]:
        names = [(each.app, each.id) for each in news if each is not None and each is not _ECHO_OF]
        sessions = None if None in news else names
        payload = msgspec.json.encode(_Message(self.sender, sessions))
        if len(payload) <= _PAYLOAD:
            return [payload.decode()]
        if len(news) < 2:
            return self._payloads([None])  # a name that is too long
        middle = len(news) // 2
        return [*self._payloads(news[:middle]), *self._payloads(news[middle:])]


class Ear:
    """Hears hints from other processes, on a thread of its own, until it is stopped."""

    def __init__(self, address: Address, notifier: Notifier, fanout: Fanout, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._notifier = notifier
        self._fanout = fanout
        self.hears = False
        """Whether it is connected, so that no hint gets lost."""
        self._echo_by: float | None = None  # until when it should have heard itself
        self._deaf_since: float | None = None
        self._is_told = False
        self._bell, self._rope = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="adjourn-listen", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon, and its connection."""
        with contextlib.suppress(OSError):
            self._rope.send(b"!")

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, so many seconds at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = _PAUSES[0]
        with self._bell, self._rope:
            while True:
                try:
                    with Explaining(self._address, None), self._address.connect_sync() as connection:
                        self._begin(connection)
                        pause = _PAUSES[0]
                        self._hear(connection)
                        return
                except AdjournError as error:
                    self._note(error)
                self.hears = False
                if self._waits([], random.uniform(0.5, 1) * pause):
                    return
                pause = min(2 * pause, _PAUSES[1])

    def _note(self, error: AdjournError) -> None:
        """Say once that it cannot listen, if that does not pass by itself, or has lasted for a while."""
        text, now = visible_line(text_of(error)), time.monotonic()
        log.debug("hints not heard: %s", text)
        self._deaf_since = now if self._deaf_since is None else self._deaf_since
        is_lasting = isinstance(error, StoreUnavailable) and error.is_lasting
        if not self._is_told and (is_lasting or now > self._deaf_since + _DEAF):
            self._is_told = True
            log.warning("%s: no hints arrive, so news is noticed late: %s", self._address, text)

    def _begin(self, connection: Connection[Any]) -> None:
        late = threading.Timer(self._patience, break_off, (connection.pgconn.socket,))
        late.daemon = True
        late.start()
        try:
            connection.execute(f"LISTEN {quoted(channel_of(self._address.schema))}".encode())
        finally:
            late.cancel()
        self.hears, self._deaf_since, self._is_told = True, None, False
        self._fanout.publish(None)  # what happened until now was not heard
        self._echo_by = time.monotonic() + _ECHO
        self._notifier.send_echo()

    def _hear(self, connection: Connection[Any]) -> None:
        """Pass on what comes in, until the thread is to end."""
        while not self._waits([connection.fileno()], None if self._echo_by is None else _ECHO):
            for each in connection.notifies(timeout=0):
                self._take(each.payload)
            if self._echo_by is not None and time.monotonic() > self._echo_by:
                self._echo_by = None
                log.warning(
                    "%s: no hints arrive, so news is noticed late. If a pooler such as PgBouncer is in between, give "
                    "PostgresStore(listen_url=…) a URL that leads to the server itself",
                    self._address,
                )

    def _waits(self, files: list[int], seconds: float | None) -> bool:
        """Wait for something to read, or so many seconds; return whether the thread is to end."""
        bell = self._bell.fileno()
        return bell in ready([bell, *files], seconds)

    def _take(self, payload: str) -> None:
        try:
            message = _decoder.decode(payload)
        except msgspec.MsgspecError:
            message = _Message("", None)  # from a newer version, perhaps
        if message.sender == self._notifier.sender:
            self._echo_by = None  # its own; whoever listens here has heard of that already
        elif message.sessions is None:
            self._fanout.publish(None)
        else:
            for app, session in message.sessions:
                self._fanout.publish(SessionRef(session, app))


class Wakeups:
    """The hints of one store: those of this process, and to and from others."""

    def __init__(self, address: Address, listen_address: Address, timeout: float) -> None:
        self._patience = min(timeout, _REPLY)
        self.fanout: Fanout = Fanout()
        self._notifier = Notifier(address, self._patience)
        self._listen_address = listen_address
        self._forget()
        forget_after_fork(self, Wakeups._forget)

    def _forget(self) -> None:
        self._gate = threading.Lock()  # guards the next two
        self._listeners = 0
        self._ear: Ear | None = None

    def send(self, ref: SessionRef) -> None:
        """Let everybody know that a session may have changed; do not wait for it."""
        self.fanout.publish(ref)
        self._notifier.send(SessionRef(ref.id, ref.app))

    @contextlib.contextmanager
    def hearing(self) -> Generator[Ear]:
        """Hear hints from other processes while this lasts."""
        with self._gate:
            self._listeners += 1
            if self._ear is None:
                self._ear = Ear(self._listen_address, self._notifier, self.fanout, self._patience)
            ear = self._ear
        try:
            yield ear
        finally:
            self._leave(ear)

    def _leave(self, ear: Ear) -> None:
        with self._gate:
            if self._ear is not ear:
                return  # the store was closed meanwhile
            self._listeners -= 1
            if self._listeners:
                return
            self._ear = None
        ear.stop()

    def close(self, seconds: float) -> None:
        """End all threads and connections; whoever listens hears nothing more from other processes.

        A thread that waits for a silent server is left to itself after so many seconds; it ends when it gives up.
        """
        over = time.monotonic() + seconds
        with self._gate:
            ear, self._ear, self._listeners = self._ear, None, 0
        if ear is not None:
            ear.stop()
            ear.join(seconds)
        self._notifier.close(max(0.0, over - time.monotonic()))
