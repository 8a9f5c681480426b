"""Patterns for paths, which `..` and its like cannot get around."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from adjourn.errors import UsageError

_UNCLEAR = re.compile(r"[\x00-\x1f\x7f\\%:]|^~|(?:^|/)\.\.(?:/|$)")
"""What other programs may read differently: `..`, `~`, backslashes, drives, percent escapes, control characters."""

_PATH = "$path"
"""The key under which a stored pattern has a path pattern: {"$path": "/tmp/**"}."""


class PathPattern(Struct, frozen=True):
    """Matches paths with `/`: `*` stands for anything in one name, `**` for one or more names.

    `PathPattern("/tmp/**")` is everything below `/tmp`, and not `/tmp` itself. `//` and `/./` count as `/`. A path that
    another program may take for a different one is *unclear*: with `..` (which a link may lead anywhere), a backslash,
    `%`, `:`, a `~` in front, control characters, or relative where the pattern is absolute. An unclear path, and one
    that differs from the pattern only in upper and lower case, may fit or not: it never counts where that would allow
    something, and always where it would forbid something. Links are the tool's own affair.
    """

    pattern: str

    def __post_init__(self) -> None:
        given = cast("object", self.pattern)
        if not isinstance(given, str) or not given.strip("/") or _UNCLEAR.search(given):
            raise UsageError(
                f"PathPattern({given!r}): give a path such as '/tmp/**', without '..', '~', ':', '%' and backslashes."
            )

    @property
    def stored(self) -> dict[str, str]:
        """The pattern as JSON, as remembered approvals have it."""
        return {_PATH: self.pattern}

    def surely_fits(self, value: object) -> bool:
        """Return whether an argument is a path that the pattern matches, however it is read."""
        if isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            return bool(items) and all(self.surely_fits(each) for each in items)
        return isinstance(value, str) and self._is_clear(value) and _fit(_names(value), _names(self.pattern))

    def may_fit(self, value: object) -> bool:
        """Return whether an argument may be a path that the pattern matches."""
        if isinstance(value, list | tuple):
            return any(self.may_fit(each) for each in cast("Sequence[object]", value))
        if not isinstance(value, str):
            return value is not None  # Whatever it is, it may stand for a path.
        return not self._is_clear(value) or _fit(_names(_folded(value)), _names(_folded(self.pattern)))

    def _is_clear(self, path: str) -> bool:
        return not _UNCLEAR.search(path) and path.startswith("/") == self.pattern.startswith("/")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _fit(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of a path fit those of a pattern, in a time that both lengths bound."""
    reached = {0}  # How many names the pattern so far can stand for.
    for each in pattern:
        if each == "**":
            first = min(reached, default=len(names))
            reached = set(range(first + 1, len(names) + 1))
        else:
            reached = {n + 1 for n in reached if n < len(names) and fits_text(names[n], each)}
    return len(names) in reached


def fits_text(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern in which `*` stands for anything."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def path_pattern(wanted: Any) -> PathPattern | None:
    """Return the path pattern that a part of a pattern is, if it is one, as an object or as stored."""
    if isinstance(wanted, PathPattern):
        return wanted
    if isinstance(wanted, dict) and list(cast("dict[str, Any]", wanted)) == [_PATH]:
        return PathPattern(cast("dict[str, Any]", wanted)[_PATH])
    return None
