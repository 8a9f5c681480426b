"""The files of a database, and whether they are still the ones that were opened.

SQLite goes on with a file that was deleted, moved away or replaced: its writes succeed, and nobody will ever read them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from adjourn.errors import StoreUnavailable

_PAUSE = 0.01
"""Seconds between two looks at the files; but the database itself is looked at before every write."""

Identity = tuple[int, int] | None


class Connection(sqlite3.Connection):
    """A connection that knows which files it has opened."""

    def __init__(self, database: Path, *args: Any, **options: Any) -> None:
        super().__init__(database, *args, **options)
        self.path = database
        self._name = str(database)
        self._beside: dict[str, Identity] = {f"{database}-wal": None, f"{database}-shm": None}
        self._looked = 0.0
        self.database = identity(database)
        """The database file that it has opened."""

    def check_files(self, *, before_write: bool = False) -> None:
        """Refuse to go on if its files are not at their paths any more.

        Raises:
            StoreUnavailable: one was deleted, moved away or replaced.
        """
        now = time.monotonic()
        is_due = now - self._looked > _PAUSE
        if before_write or is_due:
            found = identity(self._name)
            if found != self.database:
                raise replaced(self.path, self._name, is_gone=found is None)
        if is_due:
            self._check_beside()
            self._looked = now

    def _check_beside(self) -> None:
        for path, opened in self._beside.items():
            found = identity(path)
            if opened is None:
                self._beside[path] = found  # SQLite creates them when they are first needed.
            elif found != opened:
                raise replaced(self.path, path, is_gone=found is None)


def identity(path: str | Path) -> Identity:
    """Return what distinguishes a file from any other that takes its place; None if there is none.

    An open file keeps its number for itself, even when it was deleted.
    """
    try:
        found = os.stat(path)  # noqa: PTH116  # it is called with every write, and a Path costs as much again
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def replaced(database: Path, path: str | Path, *, is_gone: bool) -> StoreUnavailable:
    """Return the error for a file that is not the one that was opened."""
    what = "was deleted or moved away" if is_gone else "was replaced by another file"
    return StoreUnavailable(
        f"sqlite:///{database}",
        f"'{path}' {what} while it was open, so nothing is written any more; put the file back, or close the store (or "
        "restart) to use what is there now",
        is_lasting=True,
    )
