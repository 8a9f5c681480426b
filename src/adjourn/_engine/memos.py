"""Memos: what user code has done that counts, kept in its frame and given back when the code runs again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import unquote

from msgspec import Raw, Struct

from adjourn.errors import CheckpointCorrupt

from .address import escape

NONE = Raw(b"")
"""No value; one object, since msgspec leaves a default out by identity (and knows no union with Raw)."""


class Kind(StrEnum):
    """What user code does that is told apart when it comes again."""

    ONCE = "once"
    """A call of an `@once` function: its name, and its key or the fingerprint of its arguments."""
    RUN = "run"
    """A child run, named by its segment."""
    LAYER = "layer"
    """A part of the code that stands in a frame of its own."""
    EMIT = "emit"
    """An event from one of several flows, named by its fingerprint."""
    ASK = "ask"
    """A question. It is not a memo, since its frame has it as a question, but it comes again as memos do."""
    NOTE = "note"
    """Something that the engine itself has to know when the code runs again."""


class Key(Struct, frozen=True):
    """The name of one thing that user code does: which one, and the how-manieth of its like in an entry."""

    kind: Kind
    name: str
    which: str = ""
    number: int = 1

    def __str__(self) -> str:
        """Return the form that records have, which `read_key` reads."""
        return f"{self.kind}:{escape(self.name)}:{escape(self.which)}:{self.number}"


def read_key(text: str) -> Key:
    """Return the key that a record names.

    Raises:
        ValueError: it is not one.
    """
    kind, name, which, number = text.split(":")
    return Key(Kind(kind), unquote(name), unquote(which), int(number))


class Memo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one thing that user code did.

    Without a `result` it is known only that it happened: it failed, or it is a note. `writes` are the session values
    that it wrote, which are part of what it gives. What is `optional` need not come again: it failed, or was done by
    code that was wrong. What is `concurrent` was done by one of several flows, so it may come in another order.
    """

    result: Raw = NONE
    writes: dict[str, list[Raw]] = {}
    optional: bool = False
    concurrent: bool = False


def read_memos(stored: Mapping[str, Memo]) -> dict[Key, Memo]:
    """Return memos under the keys that a record names.

    Raises:
        CheckpointCorrupt: one of them is not a key.
    """
    try:
        return {read_key(text): memo for text, memo in stored.items()}
    except ValueError as error:
        raise CheckpointCorrupt(f"the name of a memo cannot be read ({error})") from error
