"""The same calls from sync code: a thin shell around the async ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from adjourn._engine.concurrency import context_for_run, waiting

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def sync_twin(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[[Callable[..., None]], Callable[Concatenate[S, P], T]]:
    """Make the decorated function the sync twin of an async method, and of what overrides the method in a subclass."""
    name = method.__name__

    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Coroutine[Any, Any, T]] = getattr(self, name)
        return wait_for(lambda: bound(*args, **kwargs))

    return lambda twin: as_twin(twin, call, method)


def as_twin(twin: Callable[..., None], call: Callable[P, T], method: Callable[..., Any]) -> Callable[P, T]:
    """Return `call` with the name and docstring of the decorated function, and the parameters of the method."""
    update_wrapper(call, method)
    update_wrapper(call, twin, ("__name__", "__qualname__", "__doc__"), ())
    call.__wrapped__ = method  # pyright: ignore[reportFunctionMemberAccess]  # where `inspect` finds the parameters
    return call


def wait_for(begin: Callable[[], Coroutine[Any, Any, T]], *, name: str = "adjourn-sync") -> T:
    """Return the result of a coroutine, whether or not an event loop is running around this call."""
    context = context_for_run()
    with waiting():
        if _is_loop_running():
            return _run_in_thread(begin, context, name)
        return context.run(lambda: asyncio.run(begin()))


def _run_in_thread(begin: Callable[[], Coroutine[Any, Any, T]], context: Context, name: str) -> T:
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(begin()))
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting thread
            failure.append(error)

    thread = threading.Thread(target=context.run, args=(work,), name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
