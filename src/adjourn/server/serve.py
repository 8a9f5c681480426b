"""Serving an App with uvicorn: it stops in time, also while streams are open."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from adjourn.errors import UsageError
from adjourn.runner._due import check_store

from ._app import App
from ._connections import PATIENCE, Connection, Waiting
from ._guards import is_loopback

NET = 5
"""Seconds that connections have to end after the application has ended what it did; then they are cut."""

SETTLE = 0.25
"""Seconds in which a server that retires still takes requests of connections that it has just accepted."""


class Server(uvicorn.Server):
    """A uvicorn server that lets its application hand over what it does before it closes any connection.

    Uvicorn alone would wait for the streams to end, and they would wait for the runs. A second signal stops it at once.
    """

    def __init__(
        self,
        app: App,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        tell: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
        waiting: int | None = None,
    ) -> None:
        """Serve an application.

        tell: gets the URL when it listens.
        patience: seconds in which a connection has to bring the head of a request.
        waiting: how many connections without an open request there may be, and how many whose clients do not read
            their answers; the oldest are closed. By default, a third of the files that the process may open, and at
            most 2,048.

        Raises:
            UsageError: others than this machine could connect, and the application lets everybody in.
        """
        if not is_loopback(host) and not app.is_closed:
            raise UsageError(
                f"host={host!r}: without tokens this would let everybody in. Make one with `adjourn token create` and "
                "serve with --tokens FILE, or listen on 127.0.0.1."
            )
        app.fence.let_in(host)
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                log_level="warning",
                access_log=False,
                lifespan="on",
                http=Connection,
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=NET,
            )
        )
        self.server_state: Waiting = Waiting(patience, 2 * app.stall, waiting)  # Streams end before, in order.
        self._app = app
        self._tell = tell
        self._stopping: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, once it was started."""
        return self.servers[0].sockets[0].getsockname()[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen.

        Raises:
            StoreError: the store cannot be used, and waiting would not help.
        """
        await check_store(self._app.store)
        await super().startup(sockets)
        if self._tell is not None and self.started:
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            self._tell(f"http://{host}:{self.port}")

    async def on_tick(self, counter: int) -> bool:
        """Do what is to be done ten times a second, and return whether it is time to end."""
        self.server_state.close_late()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order on the first signal, and at once on the second."""
        if self.started and self._stopping is None:
            self.stop()
        else:
            self.end()

    def stop(self) -> None:
        """Stop in order, from the thread of its event loop."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())

    def retire(self) -> None:
        """Stop in order, while others listen on the same sockets: they get the new connections."""
        if self._stopping is None:
            for each in self.servers:
                each.close()
            self._stopping = asyncio.get_running_loop().create_task(self._retire())

    def end(self) -> None:
        """Stop at once."""
        self.should_exit = self.force_exit = True
        # What is open is cancelled with the event loop, and uvicorn would log each of it as a failure.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    async def _retire(self) -> None:
        await asyncio.sleep(SETTLE)
        for connection in list(self.server_state.connections):
            # Requests that would follow on a kept connection are for the others. One without any so far waits for its.
            if getattr(connection, "cycle", None) is not None:
                connection.shutdown()
        await self._stop()

    async def _stop(self) -> None:
        try:
            await self._app.drain()
        finally:
            self.should_exit: bool = True
