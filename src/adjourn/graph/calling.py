"""How a node's function is called: with the state, with the context, with both, or with neither."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast, get_origin, get_type_hints

from adjourn.core.context import RunContext, current


def is_async(fn: Any) -> bool:
    """Whether calling `fn` gives something to await."""
    call = getattr(cast("type[Any]", type(fn)), "__call__", None)  # noqa: B004  # an object with an async __call__, not whether it is callable
    inner = inspect.unwrap(fn)
    return any(inspect.iscoroutinefunction(each) for each in (fn, inner, call) if each is not None)


def adapt(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of the state alone that calls `fn` with what it takes.

    Raises:
        TypeError: `fn` takes something else.
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        return fn  # A builtin that does not tell its signature.
    takes = [_kind(parameter, hint) for parameter, hint in _hinted(fn, parameters)]
    needed = [kind for kind in takes if kind != "optional"]
    match needed:
        case ["state"]:
            return fn
        case ["state", "context"]:
            return lambda state: fn(state, current())
        case ["context", "state"]:
            return lambda state: fn(current(), state)
        case ["context"]:
            return lambda state: fn(current())
        case []:
            return fn if takes else lambda state: fn()
        case _:
            raise TypeError("it takes more than the state and a RunContext")


def _hinted(fn: Any, parameters: list[inspect.Parameter]) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(fn)
    except Exception:  # noqa: BLE001  # protects the user: a hint that cannot be resolved here says nothing to us
        hints = {}
    return [(parameter, hints.get(parameter.name, parameter.annotation)) for parameter in parameters]


def _kind(parameter: inspect.Parameter, hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin is RunContext or (isinstance(hint, str) and hint.split("[")[0].endswith("RunContext")):
        return "context"
    optional = parameter.default is not inspect.Parameter.empty or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return "optional" if optional else "state"
