"""Front matter: the few lines between `---` at the top of a Markdown file.

They are YAML, and this reads the part of it that such lines use: keys with a text, a list of texts, or keys with texts
one level below. What it reads, it reads as YAML does, but everything is text, without space around it: `no` and `1.0`
are just that. What it does not read, it refuses: a key that comes twice, tags, anchors and aliases among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

Value: TypeAlias = str | list[str] | dict[str, str]

MAX_LINES = 200
_KEY = re.compile(r"([A-Za-z][\w.-]{0,63}):(?:[ ]+(.*))?")
_SPECIAL = tuple("[]{}&*!|>%@`\"'#,?:-")


def read_front_matter(text: str) -> tuple[dict[str, Value], str]:
    """What the lines say, and the text below them.

    Raises:
        ValueError: there are none, or they are nothing that can be read here; the message has the line.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ValueError("line 1: it does not begin with '---'")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("the line '---' that ends the front matter is missing")
    if end > MAX_LINES:
        raise ValueError(f"line {end + 1}: the front matter has more than {MAX_LINES} lines")
    return _Reader(lines[1:end]).mapping(), "\n".join(lines[end + 1 :]).strip()


class _Reader:
    """Goes through the lines once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.next = 0

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"line {self.next + 1}: {what}")

    def mapping(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while (line := self._line()) is not None:
            key, rest = self._key(line, found)
            found[key] = self._text(rest) if rest else self._below()
        return found

    def _line(self, *begins: str) -> str | None:
        """The next line that says something, if it begins so."""
        while self.next < len(self.lines) and _says_nothing(self.lines[self.next]):
            self.next += 1
        if self.next == len(self.lines) or not self.lines[self.next].startswith(begins or ""):
            return None
        self.next += 1
        line = self.lines[self.next - 1].rstrip()
        if "\t" in line[: _indent(line)]:
            raise self.wrong("a tab in front; indent with spaces")
        return line

    def _key(self, line: str, found: dict[str, Value] | dict[str, str]) -> tuple[str, str]:
        match = _KEY.fullmatch(line)
        if match is None:
            raise self.wrong(f"{line[:60]!r} is no 'key: value'")
        if match[1] in found:
            raise self.wrong(f"the key '{match[1]}' comes twice")
        return match[1], (match[2] or "").strip()

    def _text(self, rest: str) -> str:
        if rest in ("|", "|-"):
            return "\n".join(self._block()).strip()
        if rest in (">", ">-"):
            lines = self._block()
            if any(line.startswith(" ") for line in lines):
                raise self.wrong("lines of one text are indented differently; use '|'")
            return re.sub(r"\n+", lambda gap: gap[0][1:] or " ", "\n".join(lines).strip())
        return self._scalar(rest)

    def _scalar(self, rest: str) -> str:
        try:
            if rest[0] == '"':
                return msgspec.json.decode(rest, type=str)
        except msgspec.DecodeError:
            raise self.wrong(f"{rest[:60]!r} is no text in quotes") from None
        if rest[0] == "'":
            if not re.fullmatch(r"'(?:[^']|'')*'", rest):
                raise self.wrong(f"{rest[:60]!r} is no text in quotes")
            return rest[1:-1].replace("''", "'")
        if rest.startswith(_SPECIAL) or ": " in rest or " #" in rest or rest.endswith(":"):
            raise self.wrong(f"{rest[:60]!r} is more than a text here; if it is meant as one, put it in double quotes")
        return rest

    def _block(self) -> list[str]:
        """The indented lines that follow, without their indent."""
        lines = list(self._indented())
        indent = min((_indent(line) for line in lines if line.strip()), default=0)
        return [line[indent:].rstrip() for line in lines]

    def _indented(self) -> Iterator[str]:
        while self.next < len(self.lines) and (not self.lines[self.next].strip() or self.lines[self.next][0] == " "):
            self.next += 1
            yield self.lines[self.next - 1]

    def _below(self) -> Value:
        """A list, or keys one level below; nothing at all is an empty text."""
        items, keys, indent = list[str](), dict[str, str](), None
        while (line := self._line(" ", "-", "\t")) is not None:
            indent = _indent(line) if indent is None else indent
            if _indent(line) != indent:
                raise self.wrong("it is indented otherwise than the lines above it")
            line = line.lstrip()
            if line.startswith("- "):
                items.append(self._scalar(line[2:].strip()))
            else:
                key, rest = self._key(line, keys)
                keys[key] = self._scalar(rest) if rest else ""
            if items and keys:
                raise self.wrong("a list and keys are mixed")
        return items or keys or ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
