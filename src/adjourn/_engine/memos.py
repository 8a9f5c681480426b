"""Memos: results of what user code has done, kept in its frame and given back when the code is rerun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from urllib.parse import unquote

from msgspec import Raw, Struct
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt

from .address import escape

NONE = Raw(b"")
"""No value; one object, since msgspec leaves a default out by identity (and knows no union with Raw)."""


class Kind(StrEnum):
    """The kinds of things that user code does and that are recognized when it is rerun."""

    ONCE = "once"
    """A call of an `@once` function: its name, and its key or the fingerprint of its arguments."""
    RUN = "run"
    """A child run, named by its segment."""
    LAYER = "layer"
    """A part of the code that has a separate frame."""
    EMIT = "emit"
    """An event from one of several flows, named by its fingerprint."""
    ASK = "ask"
    """A question. It is not a memo, since its frame has it as a question, but it is replayed as memos are."""
    NOTE = "note"
    """Something that the engine itself must know when the code is rerun."""


class Key(Struct, frozen=True):
    """The name of one thing that user code does: which one, and its number among equals in an entry."""

    kind: Kind
    name: str
    which: str = ""
    number: int = 1

    def __str__(self) -> str:
        """Return the form used in records, which `read_key` reads."""
        return f"{self.kind}:{escape(self.name)}:{escape(self.which)}:{self.number}"


def read_key(text: str) -> Key:
    """Return the key that a record names.

    Raises:
        ValueError: it is not one.
    """
    kind, name, which, number = text.split(":")
    return Key(Kind(kind), unquote(name), unquote(which), int(number))


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception as it is stored: its class by name, its text, and what it holds; `parts` are those of a group.

    What was cut off, by a time limit or by the code itself, is a `TimeoutError` to whoever called it.
    """

    kind: str
    text: str
    args: Raw = NONE
    attributes: Raw = NONE
    is_cut_off: bool = False
    parts: tuple[Failure, ...] = ()


class Memo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about one thing that user code did.

    Without a `result` or a `failure`, it is only known that it happened, or it is a note. A failure is stored when the
    code has asked somebody after it (rule R13). `writes` are the session values that it wrote, which are part of its
    result. An `optional` memo need not happen again: it failed, or was done by code that was wrong. A `concurrent` one
    was done by one of several flows, so the order may differ.
    """

    result: Raw = NONE
    failure: Failure | None = None
    writes: dict[str, list[Raw]] = {}
    optional: bool = False
    concurrent: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it is known how it ended."""
        return self.result is not NONE or self.failure is not None

    @property
    def is_to_be_cut_off(self) -> bool:
        """Whether it was cut off beside other work, and has to lose against that again."""
        return self.concurrent and self.failure is not None and self.failure.is_cut_off

    def forget_failure(self) -> Memo:
        """Return what is known without how it failed: it may be tried again."""
        return self if self.failure is None else replace(self, failure=None, optional=True)


def without_writes(memo: Memo, is_dropped: Callable[[str], bool]) -> Memo:
    """Return a memo that does not write these session values again; the same one if it does not write any of them."""
    left = {name: value for name, value in memo.writes.items() if not is_dropped(name)}
    return memo if len(left) == len(memo.writes) else replace(memo, writes=left)


def read_memos(stored: Mapping[str, Memo]) -> dict[Key, Memo]:
    """Return memos under the keys that a record names.

    Raises:
        CheckpointCorrupt: one of them is not a key.
    """
    try:
        return {read_key(text): memo for text, memo in stored.items()}
    except ValueError as error:
        raise CheckpointCorrupt(f"the name of a memo cannot be read ({error})") from error
