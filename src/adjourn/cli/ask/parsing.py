"""Turns what a person typed into the answer that a question expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from adjourn._schemas.answers import problems
from adjourn.errors import InvalidAnswer
from adjourn.events import Interrupt

_WORDS = {
    **dict.fromkeys(("y", "yes", "true", "ok", "approve", "approved"), True),
    **dict.fromkeys(("n", "no", "false", "reject", "refuse", "refused"), False),
}


def parse(text: str, asked: Interrupt) -> Any:
    """Return the answer that a text means: a choice, yes or no, JSON if the schema expects it, else the text itself.

    Raises:
        InvalidAnswer: the schema takes none of these.
    """
    text = text.strip()
    for value in _readings(text, asked):
        if accepts(asked, value):
            return value
    best = _word(text) if isinstance(_word(text), bool) else parse_data(text)
    raise InvalidAnswer(asked.session_id, asked.id, problems(best, asked.schema))


def accepts(asked: Interrupt, value: Any) -> bool:
    """Return whether the question's schema accepts this answer."""
    return not problems(value, asked.schema)


def parse_data(text: str) -> Any:
    """Return a text as JSON data if it is JSON, but quoted text and anything else as it is."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _readings(text: str, asked: Interrupt) -> Iterator[Any]:
    """Yield what a text may mean, most likely first."""
    named = [choice for choice in asked.choices if text in (choice, json.dumps(choice, ensure_ascii=False))]
    yield from named
    if isinstance(word := _word(text), bool) and (asked.schema is not None or asked.reason == "need_approval"):
        yield word
    if asked.choices and text.isascii() and text.isdigit() and 0 < int(text) <= len(asked.choices):
        yield asked.choices[int(text) - 1]
    if asked.schema is not None:
        yield parse_data(text)
    yield text


def _word(text: str) -> bool | None:
    return _WORDS.get(text.lower())
