"""Personal data with a fixed form: where it is in a text, however it is written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Found(NamedTuple):
    """A piece of personal data: `text[start:end]` is of this kind."""

    kind: str
    start: int
    end: int


Detector = Callable[[str], Iterable[Found]]
Span = tuple[int, int]


class Plain:
    """A text as ASCII where that is possible, and where each of its characters is in the original.

    Full-width and other digits, letters, spaces and dashes are written in the plain way, and invisible characters are
    left out, so that none of them hides what it stands for.
    """

    def __init__(self, original: str) -> None:
        if original.isascii():
            self.text, self._places = original, None
            return
        chars, places = list[str](), list[int]()
        for place, char in enumerate(original):
            for plain in char if char.isascii() else _plain(char):
                chars.append(plain)
                places.append(place)
        self.text, self._places = "".join(chars), places

    def original(self, span: Span) -> Span:
        """Return where a part of the plain text is in the original."""
        start, end = span
        return span if self._places is None else (self._places[start], self._places[end - 1] + 1)


def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cf", "Mn"):  # invisible, or a mark on the character before
        return ""
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category == "Zs":
        return " "
    if category == "Pd":
        return "-"
    return unicodedata.normalize("NFKC", char)


def matches(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Span]]:
    """Return a function that finds a pattern in a text."""
    return lambda text: (match.span() for match in pattern.finditer(text))


_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# Every repetition is bounded, so that no text takes long to search.
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64} ?@ ?[\w.-]{1,190}\.[A-Za-z]{2,24}", re.ASCII)
_PHONE = re.compile(r"(?<!\w)\+ ?\d(?:[ ()./-]{0,3}\d){6,14}(?!\d)", re.ASCII)
_IP = re.compile(rf"(?<![\d.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\d|\.\d)", re.ASCII)
_GAP = "[ ./-]{0,3}"
_CARD_START = re.compile(r"(?<!\d)()(?=\d)", re.ASCII)
_DIGITS = re.compile(rf"{_GAP}(\d{{1,20}})", re.ASCII)
_IBAN_START = re.compile(rf"(?<![A-Za-z0-9])([A-Za-z]{{2}})(?={_GAP}\d{_GAP}\d)", re.ASCII)
# Not words in lower case, which may follow an IBAN; together they would often have the right check digits by chance.
_CHARACTERS = re.compile(rf"{_GAP}((?=[A-Za-z]{{0,34}}\d)[A-Za-z0-9]{{1,35}}|[A-Z]{{1,35}})", re.ASCII)


def _numbers(
    begin: re.Pattern[str], group: re.Pattern[str], is_one: Callable[[str], bool], least: int, most: int
) -> Callable[[str], Iterator[Span]]:
    """Return a function that finds numbers by their check digits; other numbers may stand before and after them."""

    def find(text: str) -> Iterator[Span]:
        place = 0
        while match := begin.search(text, place):
            end = _end_of(text, match, group, is_one, least, most)
            if end is not None:
                yield match.start(), end
            place = match.start() + 1 if end is None else end

    return find


def _end_of(
    text: str, begin: re.Match[str], group: re.Pattern[str], is_one: Callable[[str], bool], least: int, most: int
) -> int | None:
    """Return where the number that begins here ends: after the last group with which the check digits are right."""
    joined, place, end = begin[1], begin.end(), None
    while (match := group.match(text, place)) and len(joined) < most:
        joined, place = joined + match[1], match.end()
        if least <= len(joined) <= most and is_one(joined):
            end = place
    return end


_DOUBLED = {str(digit): sum(divmod(2 * digit, 10)) for digit in range(10)}


def _is_card(digits: str) -> bool:
    """Return whether the check digit is right (Luhn)."""
    return (sum(map(int, digits[::-2])) + sum(map(_DOUBLED.__getitem__, digits[-2::-2]))) % 10 == 0


def _is_iban(text: str) -> bool:
    """Return whether the check digits are right."""
    return int("".join(str(int(each, 36)) for each in text[4:] + text[:4])) % 97 == 1


# No personal data of these kinds goes on after: a character that is not ASCII even when written plainly, a line break,
# or a word in lower case with punctuation, unless an "@" follows. Numbers and e-mail addresses may contain spaces.
_BREAK = re.compile(
    r"[^\x00-\x7f]|[\n\r\t\f\v]|(?<![A-Za-z0-9])(?=[A-Z]*[a-z])[A-Za-z]{3,}[^\sA-Za-z0-9@+]*(?=\x20+[^\s@])"
)


def safe_end(text: str) -> int:
    """Return how much of a text, from its beginning, no personal data of the known kinds can reach beyond."""
    plain = Plain(text)
    ends = [found.span() for found in _BREAK.finditer(plain.text)]
    return plain.original(ends[-1])[1] if ends else 0


KINDS: dict[str, Callable[[str], Iterator[Span]]] = {
    "email": matches(_EMAIL),
    "iban": _numbers(_IBAN_START, _CHARACTERS, _is_iban, 15, 34),
    "card": _numbers(_CARD_START, _DIGITS, _is_card, 13, 19),
    "phone": matches(_PHONE),
    "ip": matches(_IP),
}
