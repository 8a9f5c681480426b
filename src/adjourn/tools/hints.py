"""Annotations of a function's parameters, resolved to types wherever their names can be found."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, SimpleNamespace
from typing import Any


def innermost(fn: Callable[..., Any]) -> Any:
    """The function that a partial, a bound method, a callable object or a decorator with `functools.wraps` calls."""
    inner: Any = inspect.unwrap(fn)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    inner = getattr(inner, "__func__", inner)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = getattr(inspect.unwrap(type(inner).__call__), "__func__", inspect.unwrap(type(inner).__call__))
    return inner


def resolved(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's type.

    A name in it may be one of the module, or of the functions and classes around `fn`, while these are running.

    Raises:
        NameError: a name is not there.
    """
    inner = innermost(fn)
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = {**_running_around(inner), **_enclosed(inner)}
    hints = typing.get_type_hints(holder, getattr(inner, "__globals__", {}), names, include_extras=True)
    return hints[parameter.name]


def _enclosed(fn: Any) -> Mapping[str, Any]:
    cells = zip(
        getattr(fn, "__code__", SimpleNamespace(co_freevars=())).co_freevars, fn.__closure__ or (), strict=False
    )
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name that is bound later
        return False
    return True


def _running_around(fn: Any) -> Mapping[str, Any]:
    # Python itself looks a local class up where the function stands; as text, its name is lost after that.
    names: dict[str, Any] = {}
    for frame in _frames():
        is_around = fn.__qualname__.startswith(f"{frame.f_code.co_qualname}.")
        if is_around and frame.f_globals is getattr(fn, "__globals__", None):
            names = {**frame.f_locals, **names}
    return names


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
