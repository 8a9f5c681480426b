"""The tables of the SQLite store, opening a file that has them, and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
from functools import cache
from pathlib import Path
from typing import Literal

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, NotStorable, StoreError, StoreUnavailable, UsageError
from adjourn.stores.kit.rows import RecordRow
from adjourn.stores.kit.tables import RECORDS

from ._files import Connection
from ._tables import ROWS, SCHEMA

log = logger("adjourn.stores")

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, None),
    # Stored data does not have the type or shape that our statements write, or something planted tries to run.
    *(sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_ERROR),
)
_LASTING = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_TOOBIG)
_PLAIN = {
    sqlite3.SQLITE_FULL: "its disk is full; free some space",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written; check their owner and mode",
    sqlite3.SQLITE_PERM: "the file or its folder cannot be written; check their owner and mode",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check its folder, owner and mode",
    sqlite3.SQLITE_TOOBIG: "the data is larger than SQLite accepts; store less with each step",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether somebody else has locked the file, so that trying again makes sense."""
    return _code(error) in _BUSY


def is_disk_error(error: sqlite3.Error) -> bool:
    """Return whether reading or writing failed in a way that makes the connection untrustworthy."""
    return _code(error) == sqlite3.SQLITE_IOERR


def explained(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error that says plainly what is wrong with the database at `path`, and what to do."""
    code = _code(error)
    if code in _DAMAGED:
        return _damaged(path, error)
    if code in _BUSY:
        return StoreUnavailable(
            f"sqlite:///{path}", "another process keeps the file locked; end it, or raise the timeout"
        )
    plain = _PLAIN.get(code or 0)
    detail = f"{plain} ({error})" if plain else str(error)
    return StoreUnavailable(f"sqlite:///{path}", detail, is_lasting=code in _LASTING)


def no_text(error: UnicodeEncodeError) -> NotStorable:
    """Return the error for an id or name with half a surrogate pair, which cannot be stored as text."""
    return NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.")


def foreign(path: Path) -> CheckpointCorrupt:
    """Return the error for a sound database that is not ours."""
    return CheckpointCorrupt(
        f"'{path}' is a database of another program, not a store of Adjourn",
        remedy="It was left as it is: choose another path",
    )


def _unreleased(path: Path) -> CheckpointCorrupt:
    """Return the error for a store of ours that nothing reads any more."""
    return CheckpointCorrupt(
        f"'{path}' was written before the first release of Adjourn, in a format that is not read any more",
        remedy="It was left as it is: choose another path, or delete it",
    )


def _damaged(path: Path, error: sqlite3.Error) -> CheckpointCorrupt:
    """Return the error for a file that is not, or no longer, a database."""
    return CheckpointCorrupt(
        f"'{path}' is not a sound store of Adjourn ({error})",
        remedy="It was left as it is: use another path, or if it was one, restore it from a backup, or try the "
        "`.recover` command of the sqlite3 program on a copy",
    )


def _code(error: sqlite3.Error) -> int | None:
    # Extended codes keep the primary one in their low byte. Python raises some errors itself, without any code:
    # for stored text that is not UTF-8.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


Synchronous = Literal["NORMAL", "FULL", "EXTRA"]

APPLICATION = 0x41444A4E  # "ADJN": distinguishes our files from those of other programs

# After so many pages SQLite copies its log into the database and starts over. Overwriting a log costs half as much as
# growing it, so it is short for a few runs; many runs at once touch many pages with each commit, and copying them less
# often pays for a longer one. So it does where several processes write: SQLite can start over only if nobody has
# written while it copied, and until then it copies with every commit. Up to this length, one table leads to all pages.
_LOG_PAGES = 128
_LONG_LOG_PAGES = 4000

VERSION = 5
"""The version of the tables. Files of the first four were written before the first release, and are not read."""

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "glusterfs", "gpfs", "beegfs"}
_NETWORK_FUSE = {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph"}


def connect(path: Path, synchronous: Synchronous) -> Connection:
    """Return a connection to the database at `path`, which is created if necessary.

    It does not wait for locks: a locked file raises at once.

    Raises:
        UsageError: the file would be on a network filesystem.
        StoreUnavailable: its folder does not exist.
        CheckpointCorrupt: the file is something else.
        CheckpointTooNew: a newer version of Adjourn has written it.
        sqlite3.Error: anything else; see `explained`.
    """
    _check_place(path)
    _protect(path)
    connection = Connection(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.text_factory = _text
    # This also covers what is planted while the file is open: statements are recompiled when the schema changes.
    connection.set_authorizer(_refuse_planted)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")  # a file that somebody handed us must not run functions
        connection.execute("PRAGMA cell_size_check = ON")  # a damaged page is detected before it is trusted
        version = _check_version(connection, path)
        _configure(connection, path, synchronous)
        if not version:
            _create(connection)
        connection.check_files()
    except BaseException:
        connection.close()
        raise
    return connection


def grow_log(connection: Connection) -> None:
    """Give the write-ahead log its full length at once, since commits to a growing log take twice as long.

    A transaction that spills out of a tiny cache and is rolled back leaves nothing but the file's length.
    """
    log = Path(f"{connection.path}-wal")
    size = _LOG_PAGES * 4096
    if log.exists() and log.stat().st_size >= size:
        return
    record = RecordRow("", None, 0, full=False, source=None, seq=0, count=0, header=b"", events=b"", body=bytes(size))
    with contextlib.suppress(sqlite3.Error):  # it is only for speed; the first commit will report what is wrong
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(ROWS[RECORDS].insert, ROWS[RECORDS].values(record, session=-1))
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.execute("PRAGMA cache_size = -2000")


def set_log_length(connection: sqlite3.Connection, *, long: bool) -> None:
    """Choose when the log is copied into the database: soon for a few runs, later for many at once."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LONG_LOG_PAGES if long else _LOG_PAGES}")


def filesystem(path: Path, mounts: str) -> str:
    """Return the type of the filesystem that `path` is on, given the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        # Of two mounts at the same point, the later covers the earlier.
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"sqlite:///{path}", f"the folder '{path.parent}' does not exist; create it", is_lasting=True
        )
    mounts = Path("/proc/self/mountinfo")
    if mounts.exists():
        check_filesystem(path, filesystem(path.resolve(), mounts.read_text()))


def check_filesystem(path: Path, kind: str) -> None:
    """Refuse a filesystem on which SQLite's log does not work.

    Raises:
        UsageError: it is a network filesystem.
    """
    if kind in _NETWORK | _NETWORK_FUSE:
        raise UsageError(
            f"'{path}' is on a network filesystem ({kind}), where SQLite can lose data. "
            "Put the file on a local disk, or use a database server for several machines."
        )


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    # In one transaction: another process may be creating the tables right now, and we must see either none or all.
    connection.execute("BEGIN")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    objects = _objects(connection)
    connection.execute("COMMIT")
    if application != APPLICATION and (application or version or objects):
        raise foreign(path)
    if version > VERSION:
        raise CheckpointTooNew(version, VERSION)
    if 0 < version < VERSION:
        raise _unreleased(path)
    expected = _expected() if version else {}
    if objects != expected:
        raise _altered(path, objects, expected)
    return version


Objects = dict[tuple[object, object], object]


def _objects(connection: sqlite3.Connection) -> Objects:
    """Return the tables, indexes, triggers and views of a database: the SQL of each, by its type and name.

    Tables in which SQLite itself keeps statistics are not ours, and do no harm.
    """
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    return {(kind, name): sql for kind, name, sql in rows if (kind, name) not in _STATISTICS}


_STATISTICS = {("table", f"sqlite_stat{number}") for number in (1, 3, 4)}


@cache
def _expected() -> Objects:
    """Return the objects of a sound file."""
    connection = sqlite3.connect(":memory:")
    try:
        for statement in SCHEMA:
            connection.execute(statement)
        return _objects(connection)
    finally:
        connection.close()


def _altered(path: Path, found: Objects, expected: Objects) -> CheckpointCorrupt:
    """Return the error for a file with more than our tables and indexes, or others of the same name: maybe a trap."""
    foreign = [f"{kind} '{name}'" for (kind, name), sql in found.items() if expected.get((kind, name)) != sql]
    missing = [f"{kind} '{name}'" for kind, name in expected if (kind, name) not in found]
    what = f"has {', '.join(foreign)}: not" if foreign else f"lacks {', '.join(missing)}:"
    return CheckpointCorrupt(
        f"'{path}' {visible_line(what)} part of a store of Adjourn. Somebody has changed the file, and nothing of it "
        "was run",
        remedy="Find out who did that, and drop or restore what was changed",
    )


def _refuse_planted(_action: int, _one: str | None, _two: str | None, _db: str | None, inside: str | None) -> int:
    """Keep SQLite from compiling anything that belongs to a trigger or a view: we have none."""
    return sqlite3.SQLITE_OK if inside is None else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str | bytes:
    """Read text; what is not UTF-8 stays bytes, so that one damaged row does not break a whole listing."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_warned: set[Path] = set()


def _protect(path: Path) -> None:
    """Create the file so that nobody else can read it; SQLite gives its log the same mode.

    The mode of a file that exists is its owner's choice, and is left alone; if others can read it, that is logged once.
    """
    with contextlib.suppress(OSError):  # SQLite itself reports what is wrong with the path
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        except FileExistsError:
            _warn_if_open(path)
            return
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(handle, 0o600)  # whatever the umask is
        finally:
            os.close(handle)


def _warn_if_open(path: Path) -> None:
    if os.name == "posix" and path not in _warned and path.stat().st_mode & _OTHERS:
        _warned.add(path)
        log.warning("'%s' can be read or written by other users; `chmod 600` it and its -wal and -shm", path)


def _configure(connection: sqlite3.Connection, path: Path, synchronous: Synchronous) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UsageError(
            f"SQLite cannot keep a write-ahead log beside '{path}' (it offers '{mode}'). "
            "Put the file on a local disk that supports shared memory."
        )
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    set_log_length(connection, long=False)
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten


def forget_log(connection: sqlite3.Connection) -> bool:
    """Copy the log, which still holds deleted data, into the database and empty it; False while somebody reads it."""
    (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been faster
        if not version:
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
