"""The same calls from sync code: a thin shell around the async ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def sync_twin(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Make the sync twin of an async method; a subclass that overrides the method changes its twin, too."""
    name = method.__name__

    @wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Coroutine[Any, Any, T]] = getattr(self, name)
        return wait_for(lambda: bound(*args, **kwargs))

    call.__name__ = f"{name}_sync"
    call.__qualname__ = f"{method.__qualname__}_sync"
    call.__doc__ = f"Do what `{name}` does, from sync code."
    return call


def wait_for(begin: Callable[[], Coroutine[Any, Any, T]], *, name: str = "adjourn-sync") -> T:
    """Return the result of a coroutine, whether or not an event loop is running around this call."""
    if not _is_loop_running():
        return asyncio.run(begin())
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(begin()))
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting thread
            failure.append(error)

    thread = threading.Thread(target=work, name=name)
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
