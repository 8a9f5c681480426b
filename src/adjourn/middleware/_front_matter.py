"""Front matter: the lines between `---` at the top of a Markdown file.

It is YAML, read as plain data (`adjourn._yaml`), where every value is a stripped text, `no` and `1.0` included. A text
may contain colons, though that is not YAML: `description: Use when: ...` is common.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from adjourn._yaml import Items, Node, Pairs, Scalar, read_yaml

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

MAX_LINES = 200
_WITH_COLON = re.compile(r"([A-Za-z][\w.-]{0,63}): +([^\s\[\]{}&*!|>%@`\"'#,?:-].*?(?:: .*|:))")


def read_front_matter(text: str) -> tuple[dict[str, Value], str]:
    """Return the front matter and the text below it.

    Raises:
        ValueError: there is none, or it cannot be read; the message names the line.
        UsageError: PyYAML is not installed.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ValueError("line 1: it does not begin with '---'")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("the line '---' that ends the front matter is missing")
    if end > MAX_LINES:
        raise ValueError(f"line {end + 1}: the front matter has more than {MAX_LINES} lines")
    return _mapping(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _mapping(lines: list[str]) -> dict[str, Value]:
    documents, problems = read_yaml("\n".join(_quoted(lines)), before=1)  # The line of `---` comes before.
    for problem in problems:
        raise ValueError(f"line {problem.place.line}: {problem.message}. {problem.hint}".rstrip())
    if len(documents) > 1 or not all(isinstance(each, Pairs) for each in documents):
        raise ValueError(f"line {documents[-1].place.line}: it has to be lines of 'key: value'")
    return {key.text: _value(node) for each in documents if isinstance(each, Pairs) for key, node in each.pairs}


def _value(node: Node) -> Value:
    match node:
        case Scalar():
            return node.text.strip()
        case Items():
            return [_value(item) for item in node.items]
        case Pairs():
            return {key.text: _value(value) for key, value in node.pairs}


def _quoted(lines: list[str]) -> list[str]:
    """Return the lines with quotes around texts that contain colons; every line stays where it is."""
    found: list[str] = []
    number = 0
    while number < len(lines):
        after = number + 1
        line = lines[number]
        if match := _WITH_COLON.fullmatch(_uncommented(line)):
            # The text may go on in indented lines.
            while after < len(lines) and (lines[after].startswith(" ") or not lines[after].strip()):
                after += 1
            more = [_uncommented(each).strip() for each in lines[number + 1 : after]]
            whole = " ".join([match[2], *filter(None, more)])
            line = f"{match[1]}: {msgspec.json.encode(whole).decode()}"
        found += [line, *[""] * (after - number - 1)]
        number = after
    return found


def _uncommented(line: str) -> str:
    return line.partition(" #")[0].rstrip()
