"""Which processes live, on systems without `/proc`: beside the database each of them keeps a file that it has locked.

The system ends the lock with the process, however it ends, so a file without a lock belongs to a process that is gone.
Of a process whose file is missing or cannot be opened nothing is known: its leases end by the clock.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

from adjourn._owner import mark, witnesses
from adjourn.errors import AdjournError
from adjourn.stores.kit.forks import after_fork

from ._schema import connect

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, wait: bool) -> None:
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int, *, wait: bool) -> None:
        # Not lockf: its locks end when the process closes any other handle of the file.
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


_OPEN = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
_MARK = re.compile("[0-9a-f]{16}")

_held: dict[Path, int] = {}
"""The locked file of this process beside each database."""


class Presence:
    """Shows that this process lives to all who use a database, and sees which of them do not."""

    # Held while a file is made or removed. It is an RLock since garbage collection may call `_leave` in between.
    gate: ClassVar = threading.RLock()

    def __init__(self, database: Path) -> None:
        self._database = database
        weakref.finalize(self, _leave, database).atexit = False  # The system ends the lock, after everything else.
        witnesses.add(self)

    def show(self, connection: sqlite3.Connection) -> None:
        """Create and lock the file of this process, and remove those that no session needs any more."""
        with self.gate, suppress(OSError):  # In a folder that cannot be written, others wait for our leases to end.
            if self._database not in _held:
                path = _path(self._database, mark())
                file = os.open(path, _OPEN | os.O_CREAT, 0o600)
                try:
                    _lock(file, wait=True)  # Another process that just looks has it locked for a moment.
                except OSError:  # There are no locks here.
                    os.close(file)
                    Path(path).unlink()
                    raise
                _held[self._database] = file
                _sweep(self._database, connection)

    def lives(self, mark: str) -> bool | None:
        """Return whether the process with a mark has its file locked, or None if there is no such file."""
        return _is_locked(_path(self._database, mark)) if _MARK.fullmatch(mark) else None


_presences: weakref.WeakValueDictionary[Path, Presence] = weakref.WeakValueDictionary()


def presence_at(database: Path) -> Presence | None:
    """Return what shows who lives among the users of a database; None where the system itself tells."""
    if not mark():
        return None
    with Presence.gate:
        presence = _presences.get(database)
        if presence is None:
            presence = _presences[database] = Presence(database)
        return presence


def _path(database: Path, mark: str) -> str:
    return f"{database}-owner-{mark}"


def _is_locked(path: str) -> bool | None:
    """Return whether a process has locked a file; None if it cannot be opened."""
    try:
        file = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        _lock(file, wait=False)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _needed(database: Path, connection: sqlite3.Connection) -> set[str]:
    """Return the files of processes that own a session."""
    owners = connection.execute("SELECT owner FROM sessions WHERE owner IS NOT NULL").fetchall()
    return {_path(database, mark) for (owner,) in owners for mark in str(owner).split("/")[3:4]}


def _sweep(database: Path, connection: sqlite3.Connection) -> None:
    """Remove the files of ended processes, except where a session still names one as its owner."""
    start = _path(database, "")
    found = [path for path in map(str, database.parent.iterdir()) if path.startswith(start)]
    left = {path for path in found if _MARK.fullmatch(path.removeprefix(start)) and _is_locked(path) is False}
    for path in left - _needed(database, connection) if left else ():
        Path(path).unlink(missing_ok=True)


def _leave(database: Path) -> None:
    """Remove the file of this process when it closes the database, unless a run that it has not ended needs it."""
    with Presence.gate, suppress(sqlite3.Error, AdjournError, OSError):
        if database in _presences or database not in _held:
            return  # Another store of this process has the database open, or nothing was written.
        path = _path(database, mark())
        if not database.exists():
            os.close(_held.pop(database))
            Path(path).unlink()
            return
        with closing(connect(database, "NORMAL")) as connection:
            if path not in _needed(database, connection):
                os.close(_held.pop(database))
            _sweep(database, connection)


@after_fork
def _forget() -> None:
    # An open handle would keep the lock of a parent that has ended.
    while _held:
        os.close(_held.popitem()[1])
    Presence.gate = threading.RLock()
