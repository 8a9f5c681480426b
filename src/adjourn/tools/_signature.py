"""The signature of a function that becomes a tool: parameters, their types, and their descriptions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from adjourn.context import RunContext
from adjourn.errors import UsageError


def innermost(fn: Callable[..., Any]) -> Any:
    """Return the function behind a partial, a bound method, a callable object or a `functools.wraps` decorator."""
    inner: Any = inspect.unwrap(fn)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    inner = getattr(inner, "__func__", inner)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = getattr(inspect.unwrap(type(inner).__call__), "__func__", inspect.unwrap(type(inner).__call__))
    return inner


def resolved(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return a parameter's type.

    Names in it are looked up in the module, and in the functions and classes around `fn` while these are running.

    Raises:
        NameError: a name cannot be found.
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
    except ValueError:  # not bound yet
        return False
    return True


def _running_around(fn: Any) -> Mapping[str, Any]:
    # An annotation that is text can no longer be resolved once the scope of a local class is gone, so look in the
    # frames that are still running.
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


_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments"}
# Not part of the description: the model sees results and errors when they occur.
_SILENT = {"returns", "return", "yields", "yield", "raises", "raise", "throws", "warns"}
_GOOGLE = re.compile(r"(?P<title>[A-Za-z ]+):\s*$")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(?P<names>\w+)\s*(\((?P<type>.*?)\))?\s*:(?:\s+(?P<text>.*)|$)")
_NUMPY_ITEM = re.compile(r"(?P<names>\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*)\s*(:.*)?$")
_SPHINX = re.compile(r":(?P<field>\w+)(?P<words>[^:]*):(?:\s+(?P<text>.*)|\s*$)")
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_RULE = re.compile(r"\s*(-{3,}|={3,})\s*$")


class Docs(Struct, frozen=True, kw_only=True):
    """A parsed docstring."""

    description: str = ""
    parameters: dict[str, str] = {}


def read(docstring: str | None) -> Docs:
    """Parse a docstring; anything not in a known style is part of the description."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    rest, parameters = list[str](), dict[str, str]()
    at = 0
    while at < len(lines):
        at = _section(lines, at, parameters) or _field(lines, at, parameters) or _plain(lines, at, rest)
    return Docs(description=_paragraphs(rest), parameters=parameters)


def _plain(lines: list[str], at: int, rest: list[str]) -> int:
    rest.append(lines[at])
    return at + 1


def _section(lines: list[str], at: int, parameters: dict[str, str]) -> int | None:
    """Return the end of a section that starts at this line, or None if there is none."""
    title, first, numpy = _title(lines, at)
    if title not in _PARAMETERS | _SILENT:
        return None
    # The first line of a docstring is never indented, so the lines after it do not look any deeper.
    end = _end_of_numpy(lines, first) if numpy else _end_of_block(lines, first, _indent(lines[at]) if at else -1)
    if title in _PARAMETERS:
        parameters.update(_items(lines[first:end], _NUMPY_ITEM if numpy else _GOOGLE_ITEM))
    return end


def _title(lines: list[str], at: int) -> tuple[str, int, bool]:
    if at + 1 < len(lines) and _RULE.match(lines[at + 1]):
        return lines[at].strip().rstrip(":").lower(), at + 2, True
    found = _GOOGLE.match(lines[at].strip())
    return (found["title"].strip().lower() if found else ""), at + 1, False


def _end_of_numpy(lines: list[str], at: int) -> int:
    while at < len(lines) and not (at + 1 < len(lines) and lines[at].strip() and _RULE.match(lines[at + 1])):
        at += 1
    return at


def _end_of_block(lines: list[str], at: int, indent: int) -> int:
    """Return the first non-blank line that is not indented deeper than the title."""
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
        at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _items(lines: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield each parameter with its text; lines indented deeper than the first one continue it."""
    depth = min((_indent(line) for line in lines if line.strip()), default=0)
    names, texts = list[str](), list[str]()
    for line in lines:
        found = pattern.match(line.strip()) if _indent(line) == depth else None
        if found is None:
            texts.append(line)
            continue
        yield from _described(names, texts)
        names = [name.strip().lstrip("*") for name in found["names"].split(",")]
        texts = [_text(found)]
    yield from _described(names, texts)


def _described(names: list[str], texts: list[str]) -> Iterator[tuple[str, str]]:
    text = _one_line(texts)
    yield from ((name, text) for name in names if text)


def _text(found: re.Match[str]) -> str:
    groups: dict[str, Any] = found.groupdict()
    return groups.get("text") or ""


def _field(lines: list[str], at: int, parameters: dict[str, str]) -> int | None:
    """Return the end of a Sphinx-style field that starts at this line, or None if there is none."""
    found = _SPHINX.match(lines[at].strip())
    if found is None or found["field"] not in _SPHINX_FIELDS:
        return None
    end = at + 1
    while end < len(lines) and lines[end].strip() and _indent(lines[end]) > _indent(lines[at]):
        end += 1
    words = found["words"].split()
    if found["field"] in _SPHINX_PARAMETERS and words:
        parameters.update(_described([words[-1].lstrip("*")], [_text(found), *lines[at + 1 : end]]))
    return end


_SPHINX_FIELDS = _SPHINX_PARAMETERS | _SILENT | {"type", "rtype", "exception", "except", "raises", "vartype"}


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _paragraphs(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter that a model passes; `default` makes its value when the model leaves it out."""

    name: str
    hint: Any
    default: Callable[[], Any] | None = None


def given_parameters(fn: Callable[..., Any], name: str) -> tuple[Parameter, ...]:
    """Return the parameters that a model passes, with their types.

    Raises:
        UsageError: one of them has no type, or cannot be passed by name.
    """
    given = [parameter for parameter in signature_of(fn, name) if not is_context(fn, parameter)]
    return tuple(_parameter(fn, parameter, name) for parameter in given)


def context_parameters(fn: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return the names of the parameters that take the `RunContext`."""
    return tuple(parameter.name for parameter in signature_of(fn, name) if is_context(fn, parameter))


def check_takes(fn: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> None:
    """Check that a function can be called with the arguments that a schema allows.

    Raises:
        UsageError: it lacks a parameter, or requires one that the schema does not.
    """
    contexts = context_parameters(fn, name)
    for names in (schema.get("properties", ()), schema.get("required", ())):
        try:
            inspect.signature(fn).bind(**dict.fromkeys((*names, *contexts)))
        except TypeError as error:
            raise UsageError(
                f"Tool '{name}' cannot be called with {', '.join(names) or 'nothing'}, as its schema allows: {error}. "
                "Let the function take every property of the schema, and give optional ones a default."
            ) from error


def signature_of(fn: Callable[..., Any], name: str) -> Sequence[inspect.Parameter]:
    """Return the parameters that are still open, without those that a partial has fixed."""
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError as error:
        raise UsageError(
            f"Tool '{name}': {fn!r} has no signature that Python can read. Wrap it in a function that has one."
        ) from error
    fixed = fixed_values(fn)
    return [parameter for parameter in parameters.values() if parameter.name not in fixed]


def fixed_values(fn: Any) -> Mapping[str, Any]:
    """Return what a partial passes, by name or by place.

    Python would accept another value for a name, but a model must not pass one.
    """
    if not isinstance(fn, functools.partial):
        return {}
    by_place = {str(place): value for place, value in enumerate(fn.args)}
    return {**fixed_values(fn.func), **by_place, **fn.keywords}


def _parameter(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str) -> Parameter:
    if parameter.kind in _VARIADIC:
        star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise UsageError(
            f"Tool '{tool}' takes {star}{parameter.name}, which cannot be described to a model. "
            "Name each parameter, or pass the JSON Schema of the arguments: tool(schema=...)."
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise UsageError(
            f"Tool '{tool}' takes '{parameter.name}' by position only, but arguments are passed by name. "
            "Remove the '/' from its signature."
        )
    hint = _hint(fn, parameter, tool)
    return Parameter(name=parameter.name, hint=hint, default=_default(parameter.default, tool))


def _hint(fn: Callable[..., Any], parameter: inspect.Parameter, tool: str) -> Any:
    if parameter.annotation is parameter.empty:
        remedy = f"Write its type: {parameter.name}: str"
        if parameter.name in ("self", "cls"):
            remedy = "Make the bound method a tool: tool(instance.method)"
        raise UsageError(f"Tool '{tool}' has the parameter '{parameter.name}' without a type. {remedy}.")
    try:
        hint = resolved(fn, parameter)
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise UsageError(
            f"Tool '{tool}' has the parameter '{parameter.name}: {parameter.annotation}', whose type cannot be found "
            f"({error}). Import or define it where the function is, not only under TYPE_CHECKING."
        ) from error
    return Annotated[hint, parameter.default] if _is_field(parameter.default) else hint


def _default(default: Any, tool: str) -> Callable[[], Any] | None:
    """Return what makes a default; it may stand in a `field(...)` of Pydantic, msgspec or the standard library."""
    if default is inspect.Parameter.empty:
        return None
    if _is_field(default):
        if default.default_factory is not None:
            return default.default_factory
        return None if default.is_required() else lambda: default.default
    if not isinstance(default, dataclasses.Field | _MsgspecField):
        return lambda: default
    field: Any = default
    if field.name is not None:
        raise UsageError(
            f"Tool '{tool}' has a parameter with the default field(name={field.name!r}), but its name is that in the "
            "signature. Leave `name` out."
        )
    if field.default_factory is not dataclasses.MISSING and field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory
    is_required = field.default is dataclasses.MISSING or field.default is msgspec.NODEFAULT
    return None if is_required else lambda: field.default


_MsgspecField = cast("type[Any]", type(msgspec.field()))


def _is_field(default: Any) -> bool:
    """Return whether a default is Pydantic's `Field(...)`, which holds more than a default."""
    return type(default).__module__ == "pydantic.fields" and hasattr(default, "default_factory")


def own_defaults(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the defaults of the parameters that a model passes, by name."""
    given = [parameter for parameter in signature_of(fn, name) if not is_context(fn, parameter)]
    makers = {parameter.name: _default(parameter.default, name) for parameter in given}
    return {parameter: make() for parameter, make in makers.items() if make is not None}


def is_context(fn: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return whether a parameter takes the `RunContext`."""
    annotation = parameter.annotation
    if isinstance(annotation, str) and "RunContext" not in annotation:
        return False
    try:
        return _means_context(resolved(fn, parameter))
    except Exception:  # noqa: BLE001  # protects the user: a hint may raise anything; it is resolved again as a type
        # For example RunContext[Deps], where Deps exists only for type checkers.
        return isinstance(annotation, str) and annotation.partition("[")[0].endswith("RunContext")


def _means_context(hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Annotated:
        return _means_context(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return any(_means_context(member) for member in get_args(hint))
    return origin is RunContext
