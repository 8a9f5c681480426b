"""YAML as data with places: what a file says, and where it says it.

Of PyYAML, only what splits a text into events is used. Nothing here creates objects from tags, and nothing is expanded:
tags, anchors, aliases and merge keys are reported. So are duplicate keys, and plain texts that YAML 1.1 and 1.2 read
differently (`no`, `1_000`, `2026-01-01`), which must be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from .errors import UsageError

if TYPE_CHECKING:
    from yaml.error import Mark
    from yaml.events import Event

# Reading the largest file takes a fraction of a second.
MAX_CHARACTERS = 128 * 1024
MAX_DOCUMENTS = 1000
MAX_VALUES = 10_000
MAX_DEPTH = 32


class Place(Struct, frozen=True):
    """A place in a text, counted from 1."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    """What is wrong at a place, and what to do about it."""

    place: Place
    message: str
    hint: str = ""


class Scalar(Struct, frozen=True):
    """A text, number, boolean or null, as it was written."""

    place: Place
    text: str
    is_plain: bool
    """Whether it was written without quotes, so that it may be more than a text."""
    is_alias: bool = False
    """Whether it stands for something else, which is reported, and not looked up."""


class Items(Struct, frozen=True):
    """A list."""

    place: Place
    items: list[Node]


class Pairs(Struct, frozen=True):
    """A mapping, without duplicate keys."""

    place: Place
    pairs: list[tuple[Scalar, Node]]

    def get(self, key: str) -> Node | None:
        """Return the value of a key, if it is there."""
        return next((value for name, value in self.pairs if name.text == key), None)


Node: TypeAlias = Scalar | Items | Pairs


class Ambiguous(ValueError):
    """A plain text that readers of YAML do not agree on."""


def read_yaml(text: str, *, before: int = 0) -> tuple[list[Node], list[Problem]]:
    """Return the documents of a text, and everything that is wrong with it; empty documents are left out.

    One that is not YAML does not stop those after it. `before` is the number of lines that come before the text.

    Raises:
        UsageError: PyYAML is not installed.
    """
    if len(text) > MAX_CHARACTERS:
        what = f"the file has {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read"
        return [], [Problem(Place(before + 1, 1), what, "Split it into several files.")]
    reader = _Reader()
    for number, (line, document) in enumerate(_split(text)):
        if number == MAX_DOCUMENTS:
            what = f"there are more than {MAX_DOCUMENTS:,} documents"
            reader.problems.append(Problem(Place(before + line + 1, 1), what, "Split the file into several."))
            break
        try:
            for event in _events(document, before + line):
                reader.take(event)
        except _Unreadable as error:
            reader.problems.append(error.problem)
            reader.stack.clear()  # The document is not whole.
        if reader.is_full:
            break
    return reader.documents, reader.problems


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document with the number of lines before it; directives belong to what follows them."""
    first, lines = 0, list[str]()
    for number, line in enumerate(text.splitlines(keepends=True)):
        if _BEGINS.match(line) and any(not _BEFORE.match(each) for each in lines):
            yield first, "".join(lines)
            first, lines = number, []
        lines.append(line)
        if _ENDS.match(line):
            yield first, "".join(lines)
            first, lines = number + 1, []
    yield first, "".join(lines)


_BEGINS = re.compile(r"---(\s|$)")
_ENDS = re.compile(r"\.\.\.(\s|$)")
_BEFORE = re.compile(r"\s*($|#)|%")


def value_of(scalar: Scalar) -> str | int | float | bool | None:
    """Return what a scalar stands for.

    Raises:
        Ambiguous: that depends on who reads it.
    """
    text = scalar.text
    if not scalar.is_plain:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _DIFFERENT.fullmatch(text):
        raise Ambiguous(text)
    return text


_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# What both versions of YAML agree on, and what fits into 64 bits.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17}|0x[0-9a-fA-F]{1,15})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,17}\.[0-9]{1,17}([eE][-+][0-9]{1,2})?")
_DIFFERENT = re.compile(
    r"(?i:yes|no|on|off)"  # booleans of YAML 1.1
    r"|(?i:[-+]?\.(inf|nan))"  # not numbers in JSON
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"  # base 60
    r"|[-+]?0[bo]?[0-9_]+"  # octal and binary
    r"|[-+]?([0-9][0-9_]*|0x[0-9a-fA-F_]+)"  # digits in groups, or too many
    r"|[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"  # dates
    r"|<<|="
)


def data_of(node: Node, problems: list[Problem]) -> Any:
    """Return a node as plain data; what cannot be read is added to `problems`."""
    match node:
        case Items():
            return [data_of(item, problems) for item in node.items]
        case Pairs():
            return {key.text: data_of(value, problems) for key, value in node.pairs}
        case Scalar():
            try:
                return value_of(node)
            except Ambiguous:
                problems.append(ambiguous(node))
                return None


def ambiguous(scalar: Scalar) -> Problem:
    """Return what is wrong with a scalar that readers of YAML do not agree on."""
    shown = shortened(scalar.text)
    is_word = shown.isalpha()
    hint = f"Write true or false, or put it in quotes if it is a text: '{shown}'." if is_word else _QUOTE.format(shown)
    return Problem(scalar.place, f"{shown} means different things in different versions of YAML", hint)


_QUOTE = "Put it in quotes if it is a text: '{}'."


def shortened(text: str) -> str:
    """Return a text for a message, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


class _Unreadable(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _events(text: str, first: int) -> Iterator[Event]:
    """Split a text into events; `first` is the number of lines before it.

    Raises:
        _Unreadable: it is not YAML; what came before was.
    """
    try:
        from yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415 - an extra, which not everybody needs
        from yaml.parser import Parser  # noqa: PLC0415
        from yaml.reader import Reader, ReaderError  # noqa: PLC0415
        from yaml.scanner import Scanner  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("Reading YAML needs PyYAML. Install it: pip install 'adjourn[yaml]'.") from error

    class Splitter(Reader, Scanner, Parser):
        def __init__(self) -> None:
            Reader.__init__(self, text)
            self.line = first
            Scanner.__init__(self)
            Parser.__init__(self)

    splitter = None
    try:
        splitter = Splitter()
        parser: Any = splitter  # of whose methods the stubs say nothing
        while parser.check_event():
            yield parser.get_event()
    except ReaderError as error:
        before = text[: error.position].split("\n")
        code = error.character if isinstance(error.character, int) else ord(error.character)
        place = Place(first + len(before), len(before[-1]) + 1)
        hint = f'In a text in double quotes, write "\\u{code:04x}".'
        raise _Unreadable(Problem(place, f"U+{code:04X} is not allowed in YAML", hint)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "this is not YAML"
        if error.context_mark is not None and _UNENDED.search(message):
            what = "what begins here has no end"
            raise _Unreadable(Problem(_place(error.context_mark), what, _STILL_OPEN)) from error
        raise _Unreadable(Problem(_place(mark), shortened(message), _hint(message))) from error
    except (YAMLError, ValueError, OverflowError) as error:  # of escapes and versions that are not numbers
        place = Place(first + 1, 1) if splitter is None else Place(splitter.line + 1, splitter.column + 1)
        raise _Unreadable(Problem(place, f"this is not YAML: {shortened(str(error))}")) from error


def _hint(message: str) -> str:
    for part, hint in _HINTS.items():
        if part in message:
            return hint
    return ""


_UNENDED = re.compile("^expected ',' or .*<(document|stream)|unexpected (end of stream|document separator)")
_STILL_OPEN = "Is a quote or a bracket still open?"
_FLOW = "Between brackets, a text that contains any of { } [ ] , ? must be in quotes. Or is one still open?"
_HINTS = {
    "mapping values are not allowed": "A text that contains ': ' must be in quotes. Or is the line indented too far?",
    r"'\t' that cannot start": "Indent with spaces, not with tabs.",
    "could not find expected ':'": "Is there a colon and a space after the key?",
    "expected <block end>": "Indent lines alike that belong together, and put a text that begins with { in quotes.",
    "expected the node content, but found '<": _STILL_OPEN,
    "expected ',' or '}'": _FLOW,
    "expected ',' or ']'": _FLOW,
    "'@' that cannot start": "A text that begins with @ must be in quotes.",
    "'`' that cannot start": "A text that begins with ` must be in quotes.",
}


def _place(mark: Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


class _Reader:
    """Builds the documents from events, without recursion."""

    def __init__(self) -> None:
        self.documents: list[Node] = []
        self.problems: list[Problem] = []
        self.stack: list[Items | _Open] = []
        self._values = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many values as are read."""
        return self._values > MAX_VALUES

    def take(self, event: Event) -> None:
        kind, place = type(event).__name__, _place(event.start_mark)
        given: Any = event  # each kind of event has attributes of its own
        match kind:
            case "ScalarEvent":
                self._refuse_extras(given, place)
                self._add(Scalar(place, self._text(given.value, place), given.style is None))
            case "SequenceStartEvent" | "MappingStartEvent":
                self._refuse_extras(given, place)
                if len(self.stack) == MAX_DEPTH:
                    what = f"there are more than {MAX_DEPTH} levels"
                    raise _Unreadable(Problem(place, what, "Nest less deeply."))
                self.stack.append(Items(place, []) if kind == "SequenceStartEvent" else _Open(place))
            case "SequenceEndEvent" | "MappingEndEvent":
                ended = self.stack.pop()
                self._add(ended if isinstance(ended, Items) else Pairs(ended.place, ended.pairs))
            case "AliasEvent":
                self._refuse(
                    place, f"*{given.anchor} is an alias, which is not allowed", "Write out what it stands for."
                )
                self._add(Scalar(place, "", is_plain=False, is_alias=True))
            case _:
                pass

    def _refuse(self, place: Place, message: str, hint: str) -> None:
        self.problems.append(Problem(place, message, hint))

    def _refuse_extras(self, event: Any, place: Place) -> None:
        if event.anchor is not None:
            self._refuse(place, f"&{shortened(event.anchor)} is an anchor, which is not allowed", "Remove it.")
        if event.tag is not None:
            self._refuse(place, f"{shortened(event.tag)} is a tag, which is not allowed", "Remove it.")

    def _text(self, text: str, place: Place) -> str:
        if any("\ud800" <= char <= "\udfff" for char in text):
            self._refuse(place, "the text has half of a surrogate pair", "Write the whole character.")
        return text

    def _add(self, node: Node) -> None:
        self._values += 1
        if self.is_full:
            what = f"there are more than {MAX_VALUES:,} keys and values"
            raise _Unreadable(Problem(node.place, what, "Split the file into several."))
        if not self.stack:
            if not isinstance(node, Scalar) or node.text:
                self.documents.append(node)
            return
        top = self.stack[-1]
        if isinstance(top, Items):
            top.items.append(node)
        elif problem := top.add(node):
            self.problems.append(problem)


class _Open:
    """A mapping that is being read."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.pairs: list[tuple[Scalar, Node]] = []
        self._key: Node | None = None
        self._lines: dict[str, int] = {}

    def add(self, node: Node) -> Problem | None:
        """Take a key, or the value of the last one; return what is wrong with the key."""
        if self._key is None:
            self._key = node
            return None
        key, self._key = self._key, None
        if not isinstance(key, Scalar):
            return Problem(key.place, "a list or a mapping cannot be a key", "Use a text.")
        if key.text in self._lines:
            first = f"It is already in line {self._lines[key.text]}."
            return Problem(key.place, f"the key '{shortened(key.text)}' comes twice", first)
        self._lines[key.text] = key.place.line
        self.pairs.append((key, node))
        return key_problem(key)


def key_problem(key: Scalar) -> Problem | None:
    """Return what is wrong with a key by itself."""
    try:
        value = value_of(key)
    except Ambiguous:
        value = None
    if isinstance(value, str):
        return None
    shown = shortened(key.text)
    if shown == "<<":
        return Problem(key.place, "'<<' merges mappings, which is not allowed", "Write out what it stands for.")
    return Problem(key.place, f"the key {shown or 'is empty and'} is not a text", f"Put it in quotes: '{shown}'.")
