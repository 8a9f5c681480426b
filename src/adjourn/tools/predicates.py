"""Predicates: functions that tell whether a call needs approval, called with those of its arguments that they name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from adjourn.core.context import current
from adjourn.core.errors import UsageError

from .parameters import is_context, signature_of

Approval = bool | Callable[..., bool | Awaitable[bool]]
Predicate = Callable[[Mapping[str, Any]], bool | Awaitable[bool]]


def predicate(approval: Approval, tool: str, names: Collection[str]) -> Predicate:
    """A function of a call's converted arguments that tells whether it needs approval.

    Raises:
        UsageError: the given function takes something that the tool has not.
    """
    if isinstance(approval, bool):
        return lambda arguments: approval
    if not callable(approval):
        raise UsageError(f"Tool '{tool}': approval={approval!r}. Give True, False, or a function that tells which.")
    fn = approval
    takes = [(parameter, _source(fn, parameter, tool, names)) for parameter in signature_of(fn, tool)]
    if any(source == "all" for _, source in takes):
        return lambda arguments: fn(**arguments)
    by_name = [parameter.name for parameter, source in takes if source == "argument"]
    wholes = [parameter.name for parameter, source in takes if source == "arguments"]
    contexts = [parameter.name for parameter, source in takes if source == "context"]

    def ask(arguments: Mapping[str, Any]) -> bool | Awaitable[bool]:
        values: dict[str, Any] = {name: arguments.get(name) for name in by_name}
        values |= {name: dict(arguments) for name in wholes}
        return fn(**values, **(dict.fromkeys(contexts, current()) if contexts else {}))

    return ask


def _source(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str, names: Collection[str]) -> str:
    """Where the value of a predicate's parameter comes from."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return "all"
    if is_context(fn, parameter):
        return "context"
    if parameter.name in names:
        return "argument"
    if parameter.name == "arguments":
        return "arguments"
    if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
        return "default"
    raise UsageError(
        f"The approval of tool '{tool}' takes '{parameter.name}', which is none of the tool's parameters "
        f"({', '.join(names) or 'none'}). Name some of these, or take all of them as `arguments`."
    )
