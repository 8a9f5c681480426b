"""What SQLite's errors mean to the people who meet them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from adjourn.errors import CheckpointCorrupt, NotStorable, StoreError, StoreUnavailable

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, None)
_LASTING = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
_PLAIN = {
    sqlite3.SQLITE_FULL: "its disk is full; free some space",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written; check their owner and mode",
    sqlite3.SQLITE_PERM: "the file or its folder cannot be written; check their owner and mode",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check its folder, owner and mode",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the file locked, so that trying again makes sense."""
    return _code(error) in _BUSY


def is_disk_error(error: sqlite3.Error) -> bool:
    """Whether reading or writing failed in a way after which the connection is not to be trusted."""
    return _code(error) == sqlite3.SQLITE_IOERR


def explained(error: sqlite3.Error, path: Path) -> StoreError:
    """The error that says in plain words what is wrong with the database at `path`, and what to do."""
    code = _code(error)
    if code in _DAMAGED:
        return _damaged(path, error)
    if code in _BUSY:
        return StoreUnavailable(f"sqlite:///{path}", "another process keeps the file locked")
    plain = _PLAIN.get(code or 0)
    detail = f"{plain} ({error})" if plain else str(error)
    return StoreUnavailable(f"sqlite:///{path}", detail, is_lasting=code in _LASTING)


def no_text(error: UnicodeEncodeError) -> NotStorable:
    """The error for an id or name with half a surrogate pair, which is no text that a file can hold."""
    return NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.")


def foreign(path: Path) -> CheckpointCorrupt:
    """The error for a sound database that is not ours."""
    return CheckpointCorrupt(
        f"'{path}' is a database of another program, not a store of Adjourn. It was left as it is: choose another path"
    )


def _damaged(path: Path, error: sqlite3.Error) -> CheckpointCorrupt:
    """The error for a file that is not, or no longer, a database."""
    return CheckpointCorrupt(
        f"'{path}' is no sound store of Adjourn ({error}). It was left as it is: use another path, or if it was one, "
        "restore it from a backup, or try the `.recover` command of the sqlite3 program on a copy"
    )


def _code(error: sqlite3.Error) -> int | None:
    # Extended codes keep the primary one in their low byte. Python raises some errors itself, without any code:
    # for stored text that is not UTF-8.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
