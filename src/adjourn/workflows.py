"""Workflows: plain async functions that a Runner runs, made durable by `once`, `interrupt` and child runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, overload

from ._engine.function import FunctionFrame
from ._engine.once import once
from ._engine.record import Image
from ._engine.retry import Retry, backoff
from ._engine.scope import Frame, Scope
from .errors import UsageError

__all__ = ["Retry", "Workflow", "backoff", "once", "workflow"]

Function = Callable[..., Awaitable[Any]]


class Workflow:
    """A workflow: call it as the plain function it is, or give it to a Runner."""

    def __init__(self, fn: Function, name: str) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"@workflow is for async functions; '{name}' is none. Write `async def {name}(...)`.")
        update_wrapper(self, fn)
        self.fn = fn
        self.kind = "runnable"
        self.name = name
        self._takes, self._needs = _takes(fn, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        return self.fn(*args, **kwargs)

    def call(self, argument: Any) -> Awaitable[Any]:
        """Call it with a run's input; without one, what has a default keeps it."""
        return self.fn(argument) if self._needs or (self._takes and argument is not None) else self.fn()

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> FunctionFrame:
        """A frame for this workflow, from its stored image if there is one."""
        return FunctionFrame.of(self, scope, parent, segment, image)


def _takes(fn: Function, name: str) -> tuple[bool, bool]:
    """Whether a function takes an argument, and whether it needs one."""
    parameters = inspect.signature(fn).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY and p.name in required for p in parameters):
        raise UsageError(
            f"Workflow '{name}' needs {', '.join(required)}, but a run has one input. "
            "Take one argument, such as a dict."
        )
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters), bool(required)


@overload
def workflow(fn: Function, /) -> Workflow: ...
@overload
def workflow(*, name: str) -> Callable[[Function], Workflow]: ...
def workflow(fn: Function | None = None, /, *, name: str | None = None) -> Any:
    """Make a plain async function a thing that a Runner runs; its argument is the run's input."""

    def mark(fn: Function) -> Workflow:
        return Workflow(fn, name or getattr(fn, "__name__", "workflow"))

    return mark if fn is None else mark(fn)
