"""Personal data with a fixed form: where it is in a text, however it is written."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
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
        self._places.append(len(original))

    def original(self, span: Span) -> Span:
        """Return where a part of the plain text is in the original, with what was left out at its end."""
        start, end = span
        return (
            span if self._places is None else (self._places[start], max(self._places[end], self._places[end - 1] + 1))
        )


# Dashes, dots and slashes that are none for Unicode.
_LIKE = {
    **dict.fromkeys("\u2212\u2043\u02d7\u2500\u2501", "-"),
    **dict.fromkeys("\u00b7\u0387\u2022\u2027\u2219\u22c5\u30fb", "."),
    **dict.fromkeys("\u2044\u2215\u2571\u29f8", "/"),
}


LIGATURE = 6
"""Characters that one has to stand for to be left as it is: whole phrases, which would make a text much longer."""


@lru_cache(maxsize=4096)
def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cf", "Mn", "Mc", "Me"):  # invisible, or a mark on the character before
        return ""
    if category == "Nd":
        return str(unicodedata.digit(char))
    if category == "Zs":
        return " "
    if category == "Pd":
        return "-"
    plain = unicodedata.normalize("NFKC", char)
    return "".join(_LIKE.get(each, each) for each in plain) if len(plain) < LIGATURE else char


def matches(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Span]]:
    """Return a function that finds a pattern in a text."""
    return lambda text: (match.span() for match in pattern.finditer(text))


# Characters of scripts that put no space between words: data may stand between them, and only a domain has them.
_SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u303c\u3040-\u318f"
    r"\u31a0-\u31bf\u31f0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W\d_{_SPACELESS}]"
_NOT_IN_A_WORD = rf"(?<![^\W_{_SPACELESS}])"
# No pattern can do more than a bounded number of steps for each character: repetitions are bounded, or begin only where
# the one before cannot, and never try again what they have taken.
_INSIDE = rf"[^\W{_SPACELESS}]|[.\u3002-]"
_LOCAL = rf"[^\W{_SPACELESS}]|[.%+-]"
_EMAIL = re.compile(
    rf"(?<![^\W{_SPACELESS}])(?<![.%+-])(?:{_LOCAL}){{1,64}}+ ?@ ?[\w.\u3002-]{{1,190}}"
    rf"(?:\.(?:xn--[a-z0-9-]{{2,59}}|{_LETTER}{{2,24}}|[{_SPACELESS}]{{1,24}})|\u3002[a-z]{{2,24}})",
    re.IGNORECASE,
)
_PHONE = re.compile(rf"{_NOT_IN_A_WORD}\+\s?[0-9](?:[\s()./_-]{{0,3}}+[0-9]){{6,14}}(?![0-9])")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IP = re.compile(rf"(?<![\d.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\d|\.\d)", re.ASCII)
_GAP = r"[\s./_-]{0,3}+"
# A number as programs write it, such as 2.718281828459045: one in five would have a right check digit. Not if what
# follows the dot looks like a card by itself, as in a list: "1.4111111111111111".
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]{1,10}\.(?![3-6][0-9]{14,15}(?![0-9]))[0-9]{9,}+(?!\.[0-9])")
_DIGITS = re.compile(rf"[0-9](?:{_GAP}[0-9])*+")
_IBAN_START = re.compile(rf"{_NOT_IN_A_WORD}([A-Za-z]{{2}})(?={_GAP}[0-9]{_GAP}[0-9])")
# Not words in lower case, which may follow an IBAN; together they would often have the right check digits by chance.
_CHARACTERS = re.compile(rf"{_GAP}((?=[A-Za-z]{{0,34}}[0-9])[A-Za-z0-9]{{1,35}}|[A-Z]{{1,35}})")

_CARD = range(13, 20)
"""How many digits the number of a card has."""

_IBAN = range(15, 35)
"""How many characters an IBAN has."""

_DOUBLED = tuple(sum(divmod(2 * digit, 10)) for digit in range(10))
_VALUES = {char: int(char, 36) for char in string.digits + string.ascii_letters}


def _cards(text: str) -> Iterator[Span]:
    """Find groups of digits that have a check digit (Luhn) together; others may stand before and after them."""
    for run in _DIGITS.finditer(_DECIMAL.sub(lambda found: "x" * len(found[0]), text)):
        places = [place for place in range(*run.span()) if text[place].isdigit()]
        count = len(places)
        if count < _CARD.start:
            continue
        digits = [int(text[place]) for place in places]
        # Sums up to each digit, with every second one doubled: those at odd places, and those at even ones.
        odd = [0, *accumulate(_DOUBLED[digit] if place % 2 else digit for place, digit in enumerate(digits))]
        even = [0, *accumulate(digit if place % 2 else _DOUBLED[digit] for place, digit in enumerate(digits))]
        # Where a group may begin or end: what stands before a digit is none.
        cuts = [True, *(after - before > 1 for before, after in pairwise(places)), True]
        first = 0
        while first + _CARD.start <= count:
            last = first
            if cuts[first]:
                for end in range(min(first + _CARD.stop - 1, count), first + _CARD.start - 1, -1):
                    sums = odd if end % 2 else even
                    if cuts[end] and (sums[end] - sums[first]) % 10 == 0:
                        last = end
                        yield places[first], places[end - 1] + 1
                        break
            first = max(last, first + 1)


def _ibans(text: str) -> Iterator[Span]:
    """Find IBANs by their check digits; other words and numbers may stand before and after them."""
    place = 0
    while begin := _IBAN_START.search(text, place):
        end = _end_of_iban(text, begin)
        if end is not None:
            yield begin.start(), end
        place = begin.start() + 1 if end is None else end


def _end_of_iban(text: str, begin: re.Match[str]) -> int | None:
    """Return where the IBAN that begins here ends: after the last group with which the check digits are right."""
    head, rest, place, end = list(begin[1]), 0, begin.end(), None
    count = len(head)
    while count < _IBAN.stop - 1 and (group := _CHARACTERS.match(text, place)):
        for char in group[1]:
            if len(head) < 4:
                head.append(char)
            else:
                value = _VALUES[char]
                rest = (rest * (10 if value < 10 else 100) + value) % 97
        count, place = count + len(group[1]), group.end()
        if count in _IBAN and int(f"{rest}{''.join(str(_VALUES[char]) for char in head)}") % 97 == 1:
            end = place
    return end


# No personal data of these kinds goes on after: a character that none of them has; one of a script without spaces; or
# a word that is not only in upper case, with punctuation, unless an "@" follows. Numbers and e-mail addresses may
# contain spaces. Scripts without spaces do go on in a domain.
_BREAK = re.compile(
    rf"@ ?(?:{_INSIDE})*+[{_SPACELESS}][\w.\u3002-]*+|([^\w\s./()%+@\u3002-]|[{_SPACELESS}]"
    rf"|{_NOT_IN_A_WORD}(?=[A-Z]*+{_LETTER}){_LETTER}{{3,}}+[^\s\w@+]*+(?=\s++[^\s@]))"
)


def safe_end(text: str) -> int:
    """Return how much of a text, from its beginning, no personal data of the known kinds can reach beyond."""
    plain = Plain(text)
    ends = {plain.original(found.span())[1] for found in _BREAK.finditer(plain.text) if found[1]}
    if plain.text != text:  # It is searched as it is, too.
        ends &= {found.end() for found in _BREAK.finditer(text) if found[1]}
    return max(ends, default=0)


KINDS: dict[str, Callable[[str], Iterator[Span]]] = {
    "email": matches(_EMAIL),
    "iban": _ibans,
    "card": _cards,
    "phone": matches(_PHONE),
    "ip": matches(_IP),
}
