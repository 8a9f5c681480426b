"""Opening a file: what is not ours, not well, or too new is told and left alone."""

# ruff: noqa: ASYNC240 - these tests are about files, and nothing else is on their loops

import os
import sqlite3
from pathlib import Path

import pytest

from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, StoreUnavailable, UsageError
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import GetHead, ListCheckpoints
from adjourn.stores.sqlite._schema import APPLICATION, VERSION, check_filesystem, connect, filesystem
from adjourn.stores.sqlite._tables import SCHEMA
from adjourn.testing.suite.bench import Drive, refused


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_file_that_is_no_database_is_left_alone(path: Path):  # rule C10
    path.write_bytes(b"Dear diary, today I was not a database. " * 100)
    before = path.read_bytes()
    store = SQLiteStore(path)
    for call in (
        Drive(store).start(),
        store.read(GetHead(SessionRef("s"))),
        store.read(ListCheckpoints(SessionRef("s"))),
    ):
        error = await refused(CheckpointCorrupt, call)
        assert str(path) in str(error)
        assert "backup" in str(error)
    await store.close()
    assert path.read_bytes() == before


async def test_a_database_of_another_program_is_left_alone(path: Path):  # rule C10
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sessions (mine TEXT)")
    connection.close()
    before = path.read_bytes()
    store = SQLiteStore(path)
    error = await refused(CheckpointCorrupt, Drive(store).start())
    assert "not a store of Adjourn" in str(error)
    assert "choose another path" in str(error)
    assert "backup" not in str(error)
    await store.close()
    assert path.read_bytes() == before


async def test_a_database_of_a_newer_version_is_left_alone(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    for call in (store.read(GetHead(SessionRef("s"))), Drive(store, "t").start()):
        error = await refused(CheckpointTooNew, call)
        assert (error.version, error.known) == (99, VERSION)
    await store.close()
    assert path.read_bytes() == before


async def test_a_file_of_before_the_first_release_is_left_alone(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION - 1}")
    connection.close()
    before = path.read_bytes()
    error = await refused(CheckpointCorrupt, Drive(store).head())
    assert "before the first release" in str(error)
    assert "choose another path" in str(error)
    await store.close()
    assert path.read_bytes() == before


async def test_a_truncated_file_is_told(path: Path):  # rule C10
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    for _ in range(50):
        await run.commit(run.next(os.urandom(5000)))
    await store.close()
    os.truncate(path, path.stat().st_size // 2)
    error = await refused(CheckpointCorrupt, run.loaded())
    assert str(path) in str(error)
    await store.close()


async def test_damaged_pages_are_told_and_do_no_harm_to_others(path: Path):  # rule C10
    store = SQLiteStore(path)
    for name in ("s", "t"):
        run = Drive(store, name)
        await run.start(run.next(b"x" * 100_000))
        await run.commit(run.next(b"y" * 100_000))
    await store.close()
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = os.urandom(64)
    path.write_bytes(data)
    await refused(CheckpointCorrupt, Drive(store, "s").head())
    await refused(CheckpointCorrupt, Drive(store, "new").start())
    await store.close()
    other = SQLiteStore(path.with_name("other.db"))
    await Drive(other).start()
    await other.close()


async def test_records_that_are_missing_are_told(path: Path):  # rule C10
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    await run.steps(3)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM records WHERE key & 0xFF = 2")
    connection.close()
    error = await refused(CheckpointCorrupt, run.loaded())
    assert (error.session_id, error.detail) == ("s", "it lacks 1 of its records")
    assert str(error).endswith("it lacks 1 of its records. Restore a backup.")
    await store.close()


async def test_a_damaged_header_is_told(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET header = x'7b'")
    connection.close()
    assert [(each.id, each.damaged) for each in await store.read(ListCheckpoints(SessionRef("s")))] == [("b.0", True)]
    await store.close()


async def test_text_that_is_not_utf8_is_told(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET user = CAST(x'ff' AS TEXT)")
    connection.close()
    await refused(CheckpointCorrupt, Drive(store).head())
    await store.close()


async def test_a_read_only_file_is_told(path: Path):
    if os.geteuid() == 0:
        pytest.skip("root writes to read-only files")
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    await store.close()
    path.chmod(0o400)
    error = await refused(StoreUnavailable, run.commit())
    assert "cannot be written" in str(error)
    await store.close()


async def test_a_write_ahead_log_with_flipped_bits_recovers_to_a_prefix(path: Path):  # rule C10
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    await run.steps(12)
    database, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    await store.close()
    used = log.rindex(b"b12") + 4096
    for n in range(60):
        damaged = bytearray(log)
        damaged[(n * used) // 60 + n] ^= 1 << n % 8
        path.write_bytes(database)
        Path(f"{path}-wal").write_bytes(damaged)
        head = await store.read(GetHead(SessionRef("s")))
        rows = () if head is None else (await run.loaded()).rows
        count = 0 if head is None else int(head.checkpoint.removeprefix("b.")) + 1
        assert rows == tuple(f"b{number}".encode() for number in range(count))
        await store.close()


def test_filesystems_are_told_apart():
    mounts = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:40 / /srv rw shared:1 - nfs4 host:/srv rw
31 30 0:41 / /srv/local\\040disk rw - xfs /dev/vdb rw
32 22 0:42 / /srvother rw - tmpfs none rw
33 22 0:43 / /mnt rw - ext4 /dev/vdc rw
34 33 0:44 / /mnt rw - cifs //host/share rw
"""
    places = {"/a.db": "ext4", "/srv/a.db": "nfs4", "/srv/local disk/a.db": "xfs", "/srvother/a.db": "tmpfs"}
    for place, kind in {**places, "/mnt/x/a.db": "cifs"}.items():
        assert filesystem(Path(place), mounts) == kind


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_network_filesystems_are_refused(kind: str):
    with pytest.raises(UsageError, match=f"'/srv/a.db' is on a network filesystem .{kind}."):
        check_filesystem(Path("/srv/a.db"), kind)


def test_a_new_file_says_whose_it_is_and_which_version(path: Path):
    connection = connect(path, "FULL")
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize("statements", range(len(SCHEMA)))
def test_a_creation_that_was_cut_off_has_not_happened(path: Path, statements: int):  # rule C8
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA[:statements]:
        connection.execute(statement)
    connection.close()  # as a crash would, without a commit
    connection = connect(path, "FULL")
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    connection.close()
