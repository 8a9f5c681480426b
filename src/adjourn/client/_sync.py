"""SyncClient: the same for sync code, as a thin shell around the async client.

An event loop in a thread of its own does the work, so that it can be used with a loop running around it, too, as in a
notebook.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from adjourn._engine.concurrency import waiting
from adjourn._values.secret import Secret
from adjourn.errors import UsageError
from adjourn.events import Event

from ._client import Client
from ._http import Reconnecting
from ._run import CancelMode, RemoteResult, RemoteRun

P = ParamSpec("P")
T = TypeVar("T")


class _Portal:
    """An event loop in a thread, which begins when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; Ctrl-C cancels it."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            with waiting():
                return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise UsageError("This SyncClient is closed. Make another one.")
            if self._thread is threading.current_thread():
                raise UsageError(
                    "This is called by the SyncClient itself, which would wait for it. Use another thread."
                )
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run_loop, args=(loop,), name="adjourn-client", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # The system has no thread for it.
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
                weakref.finalize(self, _stop, loop).atexit = False  # The process ends, and with it the connections.
            return self._loop

    def close(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the last work, if there was any before, and end the thread."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            loop, thread = self._loop, self._thread
        if is_first and loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(work(), loop).result()
            _stop(loop)
            thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _each(portal: _Portal, items: AsyncGenerator[T]) -> Iterator[T]:
    """Yield what an async generator does; leaving early closes it."""
    try:
        while True:
            try:
                yield portal.call(_next(items))
            except StopAsyncIteration:
                return
    finally:
        if not sys.is_finalizing():  # Else the event loop's thread stands still.
            portal.call(_aclose(items))


async def _next(items: AsyncGenerator[T]) -> T:
    return await anext(items)


async def _aclose(items: AsyncGenerator[Any]) -> None:
    for _ in range(1000):
        try:
            await items.aclose()
        except RuntimeError:
            await asyncio.sleep(0.001)  # What was cancelled has to end first.
        else:
            return


class SyncRemoteRun:
    """One turn of a session on a server, from sync code: iterate it for its events, or wait for its `result`."""

    def __init__(self, run: RemoteRun, portal: _Portal) -> None:
        self._run = run
        self._portal = portal

    def __repr__(self) -> str:
        return f"<Sync{repr(self._run)[1:]}"

    @property
    def session_id(self) -> str:
        """The session that it is a turn of."""
        return self._run.session_id

    @property
    def seen(self) -> int:
        """The number of the last durable event that was read."""
        return self._run.seen

    def __iter__(self) -> Iterator[Event]:
        return _each(self._portal, self._run.__aiter__())

    def text(self) -> Iterator[str]:
        """Yield only the pieces of text, as they arrive."""
        return _each(self._portal, self._run.text())

    def result(self) -> RemoteResult:
        """Return the result, once the turn has ended or waits for answers."""
        return self._portal.call(_awaited(self._run))

    def cancel(self, mode: CancelMode = "now") -> None:
        """Stop the turn on the server, and return when it has ended."""
        self._portal.call(self._run.cancel(mode))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


async def _awaited(run: RemoteRun) -> RemoteResult:
    return await run


def _twin(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[[Callable[..., None]], Callable[Concatenate[SyncClient, P], T]]:
    def call(self: SyncClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return lambda _: update_wrapper(call, method)


def _run_twin(
    method: Callable[Concatenate[Client, P], RemoteRun],
) -> Callable[[Callable[..., None]], Callable[Concatenate[SyncClient, P], SyncRemoteRun]]:
    def call(self: SyncClient, *args: P.args, **kwargs: P.kwargs) -> SyncRemoteRun:
        return SyncRemoteRun(method(self._client, *args, **kwargs), self._portal)  # pyright: ignore[reportPrivateUsage]

    return lambda _: update_wrapper(call, method)


def _stream_twin(
    method: Callable[Concatenate[Client, P], AsyncGenerator[T]],
) -> Callable[[Callable[..., None]], Callable[Concatenate[SyncClient, P], Iterator[T]]]:
    def call(self: SyncClient, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _each(self._portal, method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return lambda _: update_wrapper(call, method)


class SyncClient:
    """A server of agents, from sync code: every method does what that of `Client` does.

    A thread of its own does the work, so that notebooks can use it, too. Close it with `close`, or use it as
    `with SyncClient(...) as client`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Secret | None = None,
        timeout: float = 30.0,
        silence: float = 45.0,
        reconnect: float = 120.0,
        on_reconnect: Callable[[Reconnecting], None] | None = None,
        httpx_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Use the server at a URL; the options are those of `Client`.

        Raises:
            UsageError: the URL is not one of a server, or something is not what it must be.
        """
        self._client = Client(
            url,
            token=token,
            timeout=timeout,
            silence=silence,
            reconnect=reconnect,
            on_reconnect=on_reconnect,
            httpx_options=httpx_options,
        )
        self._portal = _Portal()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._client.url

    def __repr__(self) -> str:
        return f"<SyncClient of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        self._portal.close(self._client.close)

    @_run_twin(Client.chat)
    def chat(self) -> None:
        """Do what `Client.chat` does."""

    @_run_twin(Client.resume)
    def resume(self) -> None:
        """Do what `Client.resume` does."""

    @_run_twin(Client.recover)
    def recover(self) -> None:
        """Do what `Client.recover` does."""

    @_run_twin(Client.attach)
    def attach(self) -> None:
        """Do what `Client.attach` does."""

    @_twin(Client.answer)
    def answer(self) -> None:
        """Do what `Client.answer` does."""

    @_twin(Client.cancel)
    def cancel(self) -> None:
        """Do what `Client.cancel` does."""

    @_twin(Client.submit)
    def submit(self) -> None:
        """Do what `Client.submit` does."""

    @_twin(Client.inputs)
    def inputs(self) -> None:
        """Do what `Client.inputs` does."""

    @_twin(Client.withdraw)
    def withdraw(self) -> None:
        """Do what `Client.withdraw` does."""

    @_twin(Client.agents)
    def agents(self) -> None:
        """Do what `Client.agents` does."""

    @_twin(Client.status)
    def status(self) -> None:
        """Do what `Client.status` does."""

    @_twin(Client.sessions)
    def sessions(self) -> None:
        """Do what `Client.sessions` does."""

    @_twin(Client.pending)
    def pending(self) -> None:
        """Do what `Client.pending` does."""

    @_twin(Client.count_pending)
    def count_pending(self) -> None:
        """Do what `Client.count_pending` does."""

    @_stream_twin(Client.subscribe)
    def subscribe(self) -> None:
        """Do what `Client.subscribe` does."""

    @_twin(Client.messages)
    def messages(self) -> None:
        """Do what `Client.messages` does."""

    @_twin(Client.decisions)
    def decisions(self) -> None:
        """Do what `Client.decisions` does."""

    @_twin(Client.audit)
    def audit(self) -> None:
        """Do what `Client.audit` does."""

    @_twin(Client.question)
    def question(self) -> None:
        """Do what `Client.question` does."""

    @_twin(Client.history)
    def history(self) -> None:
        """Do what `Client.history` does."""

    @_twin(Client.checkpoint)
    def checkpoint(self) -> None:
        """Do what `Client.checkpoint` does."""

    @_twin(Client.state)
    def state(self) -> None:
        """Do what `Client.state` does."""

    @_twin(Client.tree)
    def tree(self) -> None:
        """Do what `Client.tree` does."""

    @_twin(Client.diff)
    def diff(self) -> None:
        """Do what `Client.diff` does."""

    @_twin(Client.fork)
    def fork(self) -> None:
        """Do what `Client.fork` does."""

    @_twin(Client.edit)
    def edit(self) -> None:
        """Do what `Client.edit` does."""

    @_twin(Client.delete)
    def delete(self) -> None:
        """Do what `Client.delete` does."""
