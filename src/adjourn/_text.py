"""Text for people: words that messages are built from, and text that hides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable


def with_article(noun: str) -> str:
    """Return a name with "a" or "an" before it; a leading u is assumed to sound as in "UUID" and "user"."""
    return f"{'an' if noun.lstrip('_')[:1].lower() in tuple('aeio') else 'a'} {noun}"


def a_type(value: object) -> str:
    """Return the name of a value's type, with its article."""
    return with_article(type(value).__qualname__)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an "s" unless there is one of it."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def undotted(sentence: object) -> str:
    """Return a sentence without its final full stop, so that more can follow."""
    return str(sentence).rstrip(" .")


# Letters and marks in Unicode, but invisible: fillers, variation selectors, the empty Braille pattern.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Not printable according to Python, but recognizable: layout, and spaces that have a width.
_SPACE = re.compile("[\t\n\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_LAYOUT = re.compile("[\t\n]")
# One selector after a symbol is how emoji are written.
_EMOJI = re.compile("(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\ufe0f(?![\ufe00-\ufe0f])")


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.75) -> str:
    """Return a question for the nearest known name, to be put after a sentence; empty if none is near."""
    import difflib  # noqa: PLC0415 - needed only for mistakes

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f" Did you mean {close[0]!r}?" if close else ""


def visible(text: str) -> str:
    """Return the text with every invisible or reordering character spelled out, as `<U+202E>`.

    Line breaks and tabs are kept.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable() and not _BLANK.search(text):
        return text
    emoji = {match.start() for match in _EMOJI.finditer(text)}
    return "".join(char if index in emoji or _is_seen(char) else _spelled(char) for index, char in enumerate(text))


def visible_line(text: str) -> str:
    """Return the text as `visible` does, on one line, for names and ids."""
    return _LAYOUT.sub(lambda match: _spelled(match[0]), visible(text))


def _spelled(char: str) -> str:
    return f"<U+{ord(char):04X}>"


def _is_seen(char: str) -> bool:
    return not _BLANK.match(char) if char.isprintable() else bool(_SPACE.match(char))
