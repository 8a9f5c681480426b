"""The ledger: what processes did to the outside and what was told, in one file that outlives all of them.

A line is written with one append and is on the disk before the writer goes on, so that the order of lines is the order
in which things happened, whoever did them and however their process ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

Kind = Literal["effect", "kept", "told", "accepted", "claimed", "asked", "committed"]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened.

    `effect`: code did something outside. `kept`: a `@once` call that did so has returned. `told`: a reader heard that
    the code at `address` finished. `accepted`: an answer was taken. `asked`: the owner with the number `fence` is
    about to commit a record. `claimed` and `committed`: the store said yes to it.
    """

    kind: Kind
    what: str
    pid: int
    key: str = ""
    address: str = ""
    arguments: Any = None  # Any: whatever the effect was called with, in JSON
    fence: int = 0


class Ledger:
    """An append-only file of lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self, kind: Kind, what: str, *, key: str = "", address: str = "", arguments: Any = None, fence: int = 0
    ) -> None:
        """Add a line of this process."""
        pid = os.getpid()
        self.add(Line(kind=kind, what=what, pid=pid, key=key, address=address, arguments=arguments, fence=fence))

    def add(self, line: Line) -> None:
        """Add a line; it is on the disk when this returns."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, msgspec.json.encode(line) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self, kind: Kind | None = None) -> list[Line]:
        """The lines so far, oldest first."""
        if not self.path.exists():
            return []
        found = [msgspec.json.decode(line, type=Line) for line in self.path.read_bytes().splitlines()]
        return [line for line in found if kind in (None, line.kind)]

    def effects(self, what: str | None = None) -> list[Line]:
        """The effects so far, of one name or of all."""
        return [line for line in self.lines("effect") if what in (None, line.what)]
