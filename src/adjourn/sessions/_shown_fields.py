"""Which fields of a state a question has shown, as far as its row tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, cast

import msgspec

from adjourn._engine.record import Question
from adjourn._values import codec

_NUMBER = re.compile(r"\d+(?:[.,'\s_]\d+)*")
_Part = tuple[object, bool]


def may_have_shown(question: Question, names: Set[str], state: Mapping[str, Any]) -> bool:
    """Return whether a question may have shown one of these fields; `state` has the values that they have now.

    What stands under the name of a field is that field, and so is what is its value, or contains it: numbers are
    compared however they are written. Another number, and any flag, may have been made of any field, while a text
    without numbers is the author's.
    """
    fields = {
        name: [str(leaf) for leaf, _ in _parts(msgspec.json.decode(codec.encode(value, False)), set())]
        for name, value in state.items()
    }
    numbers = {number for leaves in fields.values() for leaf in leaves for number in _numbers(leaf)}
    shown: set[str] = set()
    parts = [*_parts(msgspec.json.decode(question.info), shown, names | fields.keys()), (question.prompt or "", False)]
    for part, is_named in parts:
        text = str(part)
        found = {name for name, leaves in fields.items() if any(_are_alike(text, leaf) for leaf in leaves)}
        shown |= found
        is_told = _numbers(text) <= numbers and not isinstance(part, bool)
        if not (is_told or is_named):
            return True
    return not shown.isdisjoint(names)


def _parts(value: Any, shown: set[str], fields: Set[str] = frozenset(), *, is_named: bool = False) -> Iterator[_Part]:
    """Yield texts, numbers and flags, each with whether it stands under a field's name; these are added to `shown`."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            shown |= {key} & fields
            yield from _parts(item, shown, fields, is_named=is_named or key in fields)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _parts(item, shown, fields, is_named=is_named)
    elif value is not None:
        yield value, is_named


def _are_alike(one: str, other: str) -> bool:
    return _is_part(one, other) or _is_part(other, one) or not _numbers(one).isdisjoint(_numbers(other))


def _is_part(text: str, whole: str) -> bool:
    words = " ".join(text.casefold().split())
    return bool(words) and bool(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", " ".join(whole.casefold().split())))


def _numbers(text: str) -> set[str]:
    """Return the numbers in a text, without their separators and the zeros around them."""
    return {re.sub(r"\D", "", found).strip("0") for found in _NUMBER.findall(text)}
