"""Front matter: the lines between `---` at the top of a Markdown file.

Front matter is YAML, and this module reads the subset that it typically uses: keys with a text, a list of texts, or
keys with texts one level below. It reads these as YAML does, except that every value is a stripped text: `no` and `1.0`
stay as they are. Everything else is rejected, including duplicate keys, tags, anchors and aliases.
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
    """Return the front matter and the text below it.

    Raises:
        ValueError: there is none, or it cannot be read; the message names the line.
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
    """Reads the lines in a single pass."""

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
        """Return the next line that is not blank or a comment, if it starts with one of `begins`."""
        while self.next < len(self.lines) and _is_blank(self.lines[self.next]):
            self.next += 1
        if self.next == len(self.lines) or not self.lines[self.next].startswith(begins or ""):
            return None
        self.next += 1
        line = self.lines[self.next - 1].rstrip()
        if "\t" in line[: _indent(line)]:
            raise self.wrong("a tab in the indentation; indent with spaces")
        return line

    def _key(self, line: str, found: dict[str, Value] | dict[str, str]) -> tuple[str, str]:
        match = _KEY.fullmatch(line)
        if match is None:
            raise self.wrong(f"{line[:60]!r} is not a 'key: value' line")
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
            raise self.wrong(f"{rest[:60]!r} is not a valid quoted text") from None
        if rest[0] == "'":
            if not re.fullmatch(r"'(?:[^']|'')*'", rest):
                raise self.wrong(f"{rest[:60]!r} is not a valid quoted text")
            return rest[1:-1].replace("''", "'")
        if rest.startswith(_SPECIAL) or ": " in rest or " #" in rest or rest.endswith(":"):
            raise self.wrong(f"{rest[:60]!r} is not plain text; to use it as text, put it in double quotes")
        return rest

    def _block(self) -> list[str]:
        """Return the indented lines that follow, without their indentation."""
        lines = list(self._indented())
        indent = min((_indent(line) for line in lines if line.strip()), default=0)
        return [line[indent:].rstrip() for line in lines]

    def _indented(self) -> Iterator[str]:
        while self.next < len(self.lines) and (not self.lines[self.next].strip() or self.lines[self.next][0] == " "):
            self.next += 1
            yield self.lines[self.next - 1]

    def _below(self) -> Value:
        """Return a list, or keys one level below; an empty text if there is neither."""
        items, keys, indent = list[str](), dict[str, str](), None
        while (line := self._line(" ", "-", "\t")) is not None:
            indent = _indent(line) if indent is None else indent
            if _indent(line) != indent:
                raise self.wrong("it is indented differently from the lines above it")
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


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
