"""What a docstring says about a function and its parameters, in the styles of Google, NumPy and Sphinx."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments"}
# What a model need not know, since it sees results and errors when they come.
_SILENT = {"returns", "return", "yields", "yield", "raises", "raise", "throws", "warns"}
_GOOGLE = re.compile(r"(?P<title>[A-Za-z ]+):\s*$")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(?P<names>\w+)\s*(\((?P<type>.*?)\))?\s*:(?:\s+(?P<text>.*)|$)")
_NUMPY_ITEM = re.compile(r"(?P<names>\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*)\s*(:.*)?$")
_SPHINX = re.compile(r":(?P<field>\w+)(?P<words>[^:]*):(?:\s+(?P<text>.*)|\s*$)")
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_RULE = re.compile(r"\s*(-{3,}|={3,})\s*$")


class Docs(Struct, frozen=True, kw_only=True):
    """A docstring taken apart."""

    description: str = ""
    parameters: dict[str, str] = {}


def read(docstring: str | None) -> Docs:
    """Take a docstring apart; what is in no style that is known is part of the description."""
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
    """Where a section that starts here ends, if one does."""
    title, first, numpy = _title(lines, at)
    if title not in _PARAMETERS | _SILENT:
        return None
    # The first line of a docstring has no indent of its own, so that what follows it seems to be no deeper.
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
    """The first line that is no deeper than the title, blank lines aside."""
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
        at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _items(lines: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Each parameter with its text; whatever stands deeper than the first of them continues one."""
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
    """Where a field in Sphinx's style that starts here ends, if one does."""
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
