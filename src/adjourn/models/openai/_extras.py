"""Reasoning in fields of its own: read from answers, kept with them, and sent back to the server that sent it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from adjourn._values.frozen import freeze
from adjourn.messages import Message, ReasoningPart

from ._content import text_in

Json = Mapping[str, Any]  # Any: JSON as servers define it

# The names of reasoning as text, in the order in which they count.
_NAMES = ("reasoning_content", "reasoning", "thinking")
# Data that is sent back as it came, by the name under which it came.
_WHOLE = ("reasoning_details", "extra_content", "thinking_blocks", "reasoning_signature")
# The fields of a detail that arrive in pieces.
_JOINED = ("text", "summary")

REASONING_IN = "reasoning_in"
"""Under this name, `Message.extra` has the name of the field in which the reasoning came."""


class Details:
    """Collects what an answer has beside its text and calls."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._whole: dict[str, Any] = {}
        self._details: list[Any] = []
        self._places: dict[str, int] = {}  # where the detail with an index and type is
        self._written: dict[tuple[int, str], list[str]] = {}  # the pieces of the texts of details

    def read(self, content: Json, *, is_whole: bool) -> str:
        """Return the reasoning in a piece, and keep what must be sent back."""
        details: object = content.get("reasoning_details")
        if isinstance(details, list):
            if is_whole:  # It takes the place of what was streamed.
                self._details, self._places, self._written = [], {}, {}
            self._whole["reasoning_details"] = self._details
            for piece in cast("list[object]", details):
                self._add(piece, is_whole=is_whole)
        for name in _WHOLE[1:]:
            if content.get(name):
                self._whole[name] = content[name]
        for name in _NAMES:
            if text := text_in(content.get(name)):
                self._name = name
                return text
        return text_in(cast("object", details)) if isinstance(details, list) else ""

    def _add(self, piece: object, *, is_whole: bool) -> None:
        """Add a piece of the details: one that continues an earlier one becomes part of it."""
        if not isinstance(piece, Mapping):
            self._details.append(piece)
            return
        new = cast("Json", piece)
        key = None if new.get("index") is None else f"{new['index']!r} {new.get('type')!r}"
        if is_whole:
            place = None
        elif key is not None:
            place = self._places.get(key)
        else:
            place = len(self._details) - 1 if self._details and _continues(self._details[-1], new) else None
        if place is not None:
            self._merge(place, new)
            return
        if key is not None:
            self._places[key] = len(self._details)
        self._details.append(dict(new))

    def _merge(self, place: int, new: Json) -> None:
        # Changed in place, and texts are joined at the end: copying all of it with every piece would take for ever.
        old = self._details[place]
        for key, value in new.items():
            if value is None:
                continue
            if key in _JOINED and isinstance(value, str) and isinstance(old.get(key), str):
                self._written.setdefault((place, key), [old[key]]).append(value)
            else:
                self._written.pop((place, key), None)
                old[key] = value

    def extra(self, *, in_text: bool) -> Json | None:
        """Return the `extra` of the message; `in_text` says that its reasoning was part of the text."""
        for (place, key), pieces in self._written.items():
            self._details[place][key] = "".join(pieces)
        found = {name: value for name, value in self._whole.items() if _can_be_stored(value)}
        if self._name is not None and not in_text and "reasoning_details" not in found:
            found[REASONING_IN] = self._name
        return freeze(found, "extra") if found else None


def reasoning_fields(message: Message, send_reasoning: bool | None, *, is_in_turn: bool) -> dict[str, Any]:
    """Return the fields of an assistant message that carry what its server wants back, and its reasoning.

    Reasoning as text is sent if `send_reasoning` is True, or if it is None, the server is the one that sent it, and the
    message is in the current turn: models that reason between tool calls need theirs, and templates drop older ones.
    """
    extra = message.extra or {}
    fields = {name: value for name, value in extra.items() if name != REASONING_IN}
    thought = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    name = extra.get(REASONING_IN)
    if not thought or send_reasoning is False or "reasoning_details" in fields:
        return fields
    if send_reasoning or (name is not None and is_in_turn):
        fields[name or _NAMES[0]] = thought
    return fields


def _can_be_stored(value: object) -> bool:
    """Return whether data can be kept; what cannot is not sent back, but does not cost the answer."""
    try:
        freeze({"": value}, "extra")
    except ValueError:
        return False
    return True


def _continues(old: object, piece: Json) -> bool:
    """Return whether a piece without an index goes on with the words of the one before it."""
    if not isinstance(old, Mapping):
        return False
    last = cast("Json", old)
    is_same = last.get("type") == piece.get("type") and piece.get("id") in (None, last.get("id"))
    has_words = any(isinstance(last.get(key), str) and isinstance(piece.get(key), str) for key in _JOINED)
    return is_same and has_words and last.get("index") is None and not last.get("signature")
