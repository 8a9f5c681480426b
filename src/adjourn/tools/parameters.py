"""The parameters of a function that is to be a tool: which a model gives, which the run gives, and their types."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct

from adjourn.core.context import RunContext
from adjourn.core.errors import UsageError

from .hints import resolved

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter that a model gives; `default` makes what stands for it when the model does not."""

    name: str
    hint: Any
    default: Callable[[], Any] | None = None


def given_parameters(fn: Callable[..., Any], name: str) -> tuple[Parameter, ...]:
    """The parameters that a model gives, with their types.

    Raises:
        UsageError: one of them has no type, or cannot be given by name.
    """
    own = [parameter for parameter in signature_of(fn, name) if not is_context(fn, parameter)]
    return tuple(_parameter(fn, parameter, name) for parameter in own)


def context_parameters(fn: Callable[..., Any], name: str) -> tuple[str, ...]:
    """The names of the parameters that take the `RunContext`."""
    return tuple(parameter.name for parameter in signature_of(fn, name) if is_context(fn, parameter))


def check_takes(fn: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> None:
    """Refuse a function that cannot be called with what a given schema names.

    Raises:
        UsageError: it lacks a parameter, or needs one that the schema does not promise.
    """
    contexts = context_parameters(fn, name)
    for names in (schema.get("properties", ()), schema.get("required", ())):
        try:
            inspect.signature(fn).bind(**dict.fromkeys((*names, *contexts)))
        except TypeError as error:
            raise UsageError(
                f"Tool '{name}' cannot be called with {', '.join(names) or 'nothing'}, as its schema allows: {error}. "
                "Let the function take what the schema names, or give parameters that may be missing a default."
            ) from error


def signature_of(fn: Callable[..., Any], name: str) -> Sequence[inspect.Parameter]:
    """The parameters that are still to be given: not those that a partial has fixed."""
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError as error:
        raise UsageError(
            f"Tool '{name}': {fn!r} does not tell its signature. Wrap it in a function that does."
        ) from error
    fixed = _fixed(fn)
    return [parameter for parameter in parameters.values() if parameter.name not in fixed]


def _fixed(fn: Any) -> Mapping[str, Any]:
    # Python would take another value for these; a model must not give one.
    return {**_fixed(fn.func), **fn.keywords} if isinstance(fn, functools.partial) else {}


def _parameter(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str) -> Parameter:
    if parameter.kind in _VARIADIC:
        star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise UsageError(
            f"Tool '{tool}' takes {star}{parameter.name}, of which a model cannot be told. "
            "Name each parameter, or give the JSON Schema of the arguments: tool(schema=...)."
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise UsageError(
            f"Tool '{tool}' takes '{parameter.name}' by position only, but arguments come by name. "
            "Remove the '/' from its signature."
        )
    hint = _hint(fn, parameter, tool)
    return Parameter(name=parameter.name, hint=hint, default=_default(parameter.default))


def _hint(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str) -> Any:
    if parameter.annotation is parameter.empty:
        remedy = f"Write its type: {parameter.name}: str"
        if parameter.name in ("self", "cls"):
            remedy = "Make a tool of the bound method: tool(instance.method)"
        raise UsageError(f"Tool '{tool}' has the parameter '{parameter.name}' without a type. {remedy}.")
    try:
        hint = resolved(fn, parameter)
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise UsageError(
            f"Tool '{tool}' has the parameter '{parameter.name}: {parameter.annotation}', whose type cannot be found "
            f"({error}). Import or define it where the function is, not for type checkers alone."
        ) from error
    return Annotated[hint, parameter.default] if _is_field(parameter.default) else hint


def _default(default: Any) -> Callable[[], Any] | None:
    if default is inspect.Parameter.empty:
        return None
    if not _is_field(default):
        return lambda: default
    if default.default_factory is not None:
        return default.default_factory
    return None if default.is_required() else lambda: default.default


def _is_field(default: Any) -> bool:
    """Whether a default is Pydantic's `Field(...)`, which says more than that."""
    return type(default).__module__ == "pydantic.fields" and hasattr(default, "default_factory")


def is_context(fn: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes the `RunContext`."""
    annotation = parameter.annotation
    if isinstance(annotation, str) and "RunContext" not in annotation:
        return False
    try:
        return _means_context(resolved(fn, parameter))
    except Exception:  # noqa: BLE001  # protects the user: a hint may raise anything, and is looked at again as a type
        # RunContext[Deps], say, in which only type checkers know Deps.
        return isinstance(annotation, str) and annotation.partition("[")[0].endswith("RunContext")


def _means_context(hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Annotated:
        return _means_context(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return any(_means_context(member) for member in get_args(hint))
    return origin is RunContext
