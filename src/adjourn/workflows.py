"""Workflows: plain async functions that a Runner runs, made durable by `once`, `interrupt` and child runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, get_type_hints, overload

from ._engine.function import FunctionFrame
from ._engine.once import once
from ._engine.program import Program
from ._engine.record import Image
from ._engine.retry import Retry, backoff
from ._engine.scope import Frame, Scope
from ._generics import Out_co, P
from ._schemas.fits import Check, misfit, quick_check, type_name
from .errors import UsageError

__all__ = ["Retry", "Workflow", "backoff", "once", "workflow"]


class Workflow(Program[Any, Out_co, None, Out_co], Generic[P, Out_co]):
    """A workflow: call it as the plain function it is, or give it to a Runner."""

    kind = "runnable"

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, Out_co]], name: str) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"@workflow is for async functions; '{name}' is none. Write `async def {name}(...)`.")
        update_wrapper(self, fn)
        self.fn = fn
        self.name = name
        self._takes, self._needs = _takes(fn, name)
        self._check: tuple[Check, str, Any] | None = None

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Out_co]:
        return self.fn(*args, **kwargs)

    def call(self, argument: Any) -> Coroutine[Any, Any, Out_co]:
        """Call it with a run's input; without one, what has a default keeps it."""
        fn: Callable[..., Coroutine[Any, Any, Out_co]] = self.fn  # It takes one argument at most: see `_takes`.
        return fn(argument) if self._needs or (self._takes and argument is not None) else fn()

    def check_input(self, argument: object) -> None:
        """Refuse a run's input that does not fit what the function declares.

        Raises:
            UsageError: it does not fit, or there is none and the function needs one.
        """
        if argument is None and not self._needs:
            return
        if self._check is None:
            self._check = _check_of(self.fn)  # Not before: types may be named that are defined below the function.
        fits, parameter, type_ = self._check
        if fits(argument) or (problem := misfit(argument, type_)) is None:
            return
        if argument is None:
            raise UsageError(f"Workflow '{self.name}' needs an input: '{parameter}', {type_name(type_)}.")
        raise UsageError(f"Workflow '{self.name}': its input '{parameter}' does not fit: {problem}.")

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> FunctionFrame:
        """A frame for this workflow, from its stored image if there is one."""
        return FunctionFrame.of(self, scope, parent, segment, image)


def _takes(fn: Callable[..., Any], name: str) -> tuple[bool, bool]:
    """Whether a function takes an argument, and whether it needs one."""
    parameters = inspect.signature(fn).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY and p.name in required for p in parameters):
        raise UsageError(
            f"Workflow '{name}' needs {', '.join(required)}, but a run has one input. "
            "Take one argument, such as a dict."
        )
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters), bool(required)


def _check_of(fn: Callable[..., Any]) -> tuple[Check, str, Any]:
    """Return the check of a function's first parameter, with its name and type."""
    parameter = next(iter(inspect.signature(fn).parameters), "")
    try:
        type_ = get_type_hints(fn, include_extras=True).get(parameter, Any)
    except (NameError, TypeError, AttributeError):  # Only a type checker can find these names.
        type_ = Any
    return quick_check(type_), parameter, type_


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, Out_co]], /) -> Workflow[P, Out_co]: ...
@overload
def workflow(*, name: str) -> Callable[[Callable[P, Coroutine[Any, Any, Out_co]]], Workflow[P, Out_co]]: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make a plain async function a thing that a Runner runs; its argument is the run's input."""

    def mark(fn: Callable[..., Any]) -> Workflow[..., Any]:
        return Workflow(fn, name or getattr(fn, "__name__", "workflow"))

    return mark if fn is None else mark(fn)
