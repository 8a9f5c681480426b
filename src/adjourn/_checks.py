"""Checks of options that users give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, cast

from ._text import a_type
from .errors import UsageError

# By name: `Middleware` is defined in a layer above the runner, which takes it as an option.
_MIDDLEWARE = ("name", "before_agent", "after_agent", "before_model", "after_model", "wrap_model", "wrap_tool")


def check_middleware(given: Any, whose: str) -> tuple[Any, ...]:  # Any: users pass anything
    """Return a `middleware=` option as a tuple.

    Raises:
        UsageError: it is not a list, or something in it is not a `Middleware`.
    """
    if not isinstance(given, Iterable):
        raise UsageError(f"{whose}: middleware={given!r}. Give a list.")
    found = tuple(cast("Iterable[Any]", given))
    for each in found:
        if isinstance(each, type):
            made = f"{each.__name__}(...)"
            raise UsageError(f"{whose}: middleware has the class {each.__name__}. Give an object of it: {made}.")
        if not all(hasattr(each, name) for name in _MIDDLEWARE):
            raise UsageError(f"{whose}: middleware has {a_type(each)}. Give objects of subclasses of Middleware.")
    return found


def takes(function: Callable[..., object], count: int) -> bool:
    """Return whether a function can be called with so many values."""
    try:
        inspect.signature(function).bind(*(None,) * count)
    except TypeError:
        return False
    except ValueError:
        return True  # a builtin without a signature
    return True


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether it is a number, and neither a bool nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # NaN


def is_positive(value: object) -> TypeGuard[int | float]:
    """Return whether it is a number above zero."""
    return is_number(value) and value > 0


def is_count(value: object) -> TypeGuard[int]:
    """Return whether it is a whole number, 1 or more."""
    return isinstance(value, int) and is_positive(value)
