"""The declaration of options, read: names, types, defaults, and the line about each.

An option is declared once, where editors and type checkers see it: as a parameter of a constructor or a field of the
`TypedDict` that the constructor takes, with a line `name: what it does` in the docstring there. What else lists options
(the check of names, YAML files, their schema, `help`, the page of names) reads that declaration here.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, Unpack, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Struct

F = TypeVar("F", bound=Callable[..., Any])

REQUIRED: Any = inspect.Parameter.empty
"""The default of an option that has none."""

_LINE = re.compile(r"^(\w+): (.+)$")


class Option(Struct, frozen=True):
    """An option: its name, its type, its default, and the text about it."""

    name: str
    type: Any
    default: Any = REQUIRED
    text: str = ""

    @property
    def sentence(self) -> str:
        """What the text says first."""
        return re.split(r"(?<=[^.])\.\s+(?=[A-Z`])", self.text)[0].rstrip(".") + "." if self.text else ""


@cache
def options_of(declared: Any) -> Mapping[str, Option]:
    """Return the options of a class, a function or a `TypedDict`, in their order.

    What a constructor does not say about an option itself, the class above says.
    """
    if is_typeddict(declared):
        return dict(_named(declared, get_type_hints(declared), {}))
    if not isinstance(declared, type):
        return _taken([declared])
    if issubclass(declared, Struct):
        given = {each.name: each.default for each in inspect.signature(declared).parameters.values()}
        return dict(_named(declared, get_type_hints(declared), given))
    return _taken([vars(each)["__init__"] for each in declared.__mro__[:-1] if "__init__" in vars(each)])


def _taken(functions: list[Callable[..., Any]]) -> dict[str, Option]:
    """Return the options that the first of these functions takes; the others are those above it."""
    if not functions:
        return {}
    first, *above = functions
    parameters = inspect.signature(first).parameters.values()
    hints = hints_of(first)
    defaults = {each.name: each.default for each in parameters if each.kind in _BY_NAME and each.name != "self"}
    found = dict(_named(first, {name: hints.get(name, Any) for name in defaults}, defaults))
    for each in parameters:
        if each.kind is each.VAR_KEYWORD and each.name in hints:
            passed = get_args(hints[each.name])[0]  # of `Unpack`
            for name, option in options_of(get_origin(passed) or passed).items():
                found.setdefault(name, option)
    inherited = _taken(above)
    return {
        name: Option(
            name,
            option.type,
            option.default if name in defaults or name not in inherited else inherited[name].default,
            option.text or (inherited[name].text if name in inherited else ""),
        )
        for name, option in found.items()
    }


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters, as far as they are known when the program runs."""
    found: dict[str, Any] = {}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    for name, each in inspect.signature(function).parameters.items():
        if each.annotation is each.empty:
            continue
        one = SimpleNamespace(__annotations__={name: each.annotation})
        with contextlib.suppress(NameError, TypeError, AttributeError):  # a name that only type checkers know
            hints = get_type_hints(one, known)
            if each.kind in _BY_NAME or get_origin(hints[name]) is Unpack:
                found |= hints
    return found


def _named(declared: Any, hints: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Option]]:
    texts = option_lines(declared.__doc__)
    for name, type_ in hints.items():
        yield name, Option(name, type_, defaults.get(name, REQUIRED), texts.get(name, ""))


def option_lines(doc: str | None) -> dict[str, str]:
    """Return what the lines of a docstring say about options; lines that are indented go on with the one above."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(doc or "").splitlines():
        if match := _LINE.match(line):
            name = match[1]
            found[name] = match[2]
        elif name and line.startswith("    "):
            found[name] += f" {line.strip()}"
        else:
            name = ""
    return found


def tells_options(declared: Any) -> Callable[[F], F]:
    """Let the docstring of a function, which `help` shows, have the lines about the options that it passes on."""

    def told(function: F) -> F:
        lines = "\n".join(f"{name}: {text}" for name, text in option_lines(declared.__doc__).items())
        head, raises, tail = inspect.cleandoc(function.__doc__ or "").partition("Raises:")
        function.__doc__ = f"{head}{lines}\n\n{raises}{tail}"
        return function

    return told
