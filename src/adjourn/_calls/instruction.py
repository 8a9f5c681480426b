"""Instructions: templates with the session's values in them, filled in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec

from adjourn._engine.scope import GONE
from adjourn.errors import RunError, UsageError

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\??")


class Template:
    """A text with names of session values in braces; `where` is what messages call it.

    Raises:
        UsageError: it has something else in braces, so that it could never be filled.
    """

    __slots__ = ("_text", "_where")

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        for piece in _PIECE.finditer(text):
            name = piece.group(1)
            if piece.group() not in ("{{", "}}") and (name is None or not _NAME.fullmatch(name)):
                raise UsageError(
                    f"{where} has {piece.group()!r}, which is no name of a session value. Write {{name}}, or "
                    "{name?} for one that may be missing; write {{ and }} for braces."
                )

    def filled(self, lookup: Callable[[str], object]) -> str:
        """The text with `lookup(name)` for each `{name}`; what a value contains is text and never a template.

        Raises:
            RunError: there is no such value (`lookup` gives `GONE`); `{name?}` gives nothing instead.
        """
        text = self._text
        return _PIECE.sub(partial(self._piece, lookup), text) if "{" in text or "}" in text else text

    def _piece(self, lookup: Callable[[str], object], piece: re.Match[str]) -> str:
        name = piece.group(1)
        if name is None:
            return piece.group()[0]
        value = lookup(name.removesuffix("?"))
        if value is not GONE:
            return _text(value)
        if name.endswith("?"):
            return ""
        raise RunError(
            f"{self._where} needs the session value '{name}', and there is none. Give it with "
            f"run(values={{'{name}': ...}}), or write {{{name}?}} if it may be missing."
        )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
