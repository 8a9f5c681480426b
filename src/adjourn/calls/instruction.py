"""Instructions: templates with the session's values in them, filled in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from adjourn.core.errors import RunError, UsageError

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\??")


def check_template(template: str, where: str) -> None:
    """Refuse a template that could never be filled.

    Raises:
        UsageError: it has something else than names in braces.
    """
    for piece in _PIECE.finditer(template):
        name = piece.group(1)
        if piece.group() in ("{{", "}}"):
            continue
        if name is None or not _NAME.fullmatch(name):
            raise UsageError(
                f"{where} has {piece.group()!r}, which is no name of a session value. Write {{name}}, or {{name?}} for "
                "one that may be missing; write {{ and }} for braces."
            )


def render(template: str, lookup: Callable[[str], object], missing: object, where: str) -> str:
    """The template with `lookup(name)` for each `{name}`; what a value contains is text and never a template.

    Raises:
        RunError: there is no such value; `{name?}` gives nothing instead.
    """
    if "{" not in template and "}" not in template:
        return template

    def fill(piece: re.Match[str]) -> str:
        name = piece.group(1)
        if name is None:
            return piece.group()[0]
        value = lookup(name.removesuffix("?"))
        if value is not missing:
            return _text(value)
        if name.endswith("?"):
            return ""
        raise RunError(
            f"{where} needs the session value '{name}', and there is none. Give it with run(values={{'{name}': ...}}), "
            f"or write {{{name}?}} if it may be missing."
        )

    return _PIECE.sub(fill, template)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
