"""Text as Postgres can keep it: everything but the character U+0000, which is written as an escape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast


def escaped(value: Any) -> Any:
    """Return a parameter with its text escaped: ids may have any character."""
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in value or "\0" in value else value
    if isinstance(value, list):
        return [escaped(each) for each in cast("list[Any]", value)]
    return value


def unescaped(value: Any) -> Any:
    """Return a column's value as it was before `escaped`."""
    if isinstance(value, str):
        return _SPLIT.join(part.replace("\\0", "\0") for part in value.split("\\\\")) if "\\" in value else value
    if isinstance(value, list):
        return [unescaped(each) for each in cast("list[Any]", value)]
    return value


def array_of(texts: Iterable[str]) -> bytes:
    """Return texts as Postgres writes an array: lists of different lengths cannot stand in one."""
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in map(escaped, texts)]
    # The server refuses what is not text.
    return ("{" + ",".join(f'"{text}"' for text in quoted) + "}").encode(errors="surrogatepass")


_SPLIT = "\\"
