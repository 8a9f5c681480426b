"""What a SQLite file may do to whoever opens it, who may read it, and what is left of what was deleted."""

# ruff: noqa: ASYNC240 - these tests are about files, and nothing else is on their loops

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adjourn import Runner, Sessions, interrupt, workflow
from adjourn.errors import CheckpointCorrupt
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import DeleteIdle, GetHead, ListQuestions, ListSessions, Prune
from adjourn.testing.suite.bench import Drive, refused


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@workflow
async def ask(secret: str) -> str:
    return secret + interrupt({"about": secret}, prompt=f"About {secret}?")


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


# What is planted

PLANTED = {
    "trigger": "CREATE TRIGGER steal AFTER INSERT ON records BEGIN DELETE FROM questions; END",
    "view": "CREATE VIEW mine AS SELECT * FROM sessions",
    "table": "CREATE TABLE other (x)",
    "index": "CREATE INDEX slow ON records (abs(seq))",
}


@pytest.mark.parametrize("kind", PLANTED)
async def test_what_is_planted_in_a_file_is_refused_by_its_name(path: Path, kind: str):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    change(path, PLANTED[kind])
    before = path.read_bytes()
    name = PLANTED[kind].split()[2]
    for call in (store.read(GetHead(SessionRef("s"))), Drive(store, "t").start()):
        error = await refused(CheckpointCorrupt, call)
        assert f"{kind} '{name}'" in str(error)
    await store.close()
    assert path.read_bytes() == before


async def test_a_table_that_was_replaced_is_refused(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    change(
        path,
        "ALTER TABLE questions RENAME TO real_questions",
        "CREATE VIEW questions AS SELECT * FROM real_questions",
    )
    error = await refused(CheckpointCorrupt, store.read(ListQuestions()))
    assert "'questions'" in str(error)
    await store.close()


async def test_a_missing_index_is_told(path: Path):  # rule C10
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    change(path, "DROP INDEX questions_due")
    error = await refused(CheckpointCorrupt, store.read(ListQuestions()))
    assert "lacks index 'questions_due'" in str(error)
    await store.close()


async def test_a_trigger_that_is_planted_while_the_file_is_open_does_not_run(path: Path):  # rule C10
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    await run.commit()
    change(path, PLANTED["trigger"], "CREATE TABLE log (x)")
    error = await refused(CheckpointCorrupt, run.commit())
    assert str(path) in str(error)
    await store.close()


async def test_statistics_of_sqlite_are_nobodys_trouble(path: Path):
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.close()
    change(path, "ANALYZE")
    assert await store.read(GetHead(SessionRef("s"))) is not None
    await store.close()


# Who may read it


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
async def test_nobody_else_can_read_the_files(path: Path, umask: None):  # rule C15
    store = SQLiteStore(path)
    await Drive(store).start()
    await store.read(ListSessions())
    assert modes(path) == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    await store.close()


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
async def test_an_open_file_is_left_as_it_is_and_logged_once(path: Path, caplog: pytest.LogCaptureFixture):
    path.touch()
    path.chmod(0o640)
    for _ in range(2):
        store = SQLiteStore(path)
        await Drive(store, os.urandom(4).hex()).start()
        await store.close()
    assert modes(path)["store.db"] == 0o640
    said = [record.message for record in caplog.records if record.name == "adjourn.stores"]
    assert len([line for line in said if "chmod 600" in line and str(path) in line]) == 1


# What is left


def remains(path: Path, text: str) -> list[str]:
    return [each.name for each in path.parent.iterdir() if text.encode() in each.read_bytes()]


SECRET = "the-launch-code-is-0000"


async def test_what_is_deleted_is_gone_from_every_file(path: Path):  # rule C15
    store = SQLiteStore(path)
    runner = Runner(ask, store=store)
    await runner.run("harmless", session_id="other")
    await runner.run(SECRET * 1000, session_id="s")
    await runner.run(SECRET, session_id="t")
    assert remains(path, SECRET)
    await runner.delete("s")
    await store.write(DeleteIdle(ttl=-1.0, user=None, app="adjourn"))
    assert remains(path, SECRET) == []
    await store.close()
    assert remains(path, SECRET) == []


async def test_what_is_pruned_is_gone_from_every_file(path: Path):  # rule C15
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start(run.next(SECRET.encode(), full=True))
    await run.commit(run.next(b"{}", full=True))
    assert remains(path, SECRET)
    await store.write(Prune(SessionRef("s"), keep=1))
    assert remains(path, SECRET) == []
    await store.close()


async def test_a_reader_that_is_at_it_does_not_hold_a_delete_up_for_long(path: Path):  # rule C15
    store = SQLiteStore(path)
    await Runner(ask, store=store).run(SECRET, session_id="s")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM records").fetchone()
    async with asyncio.timeout(10):
        await Sessions(store).delete("s")
    assert remains(path, SECRET) != []
    reader.close()
    await Runner(ask, store=store).run("harmless", session_id="next")
    assert remains(path, SECRET) == []
    await store.close()


# Damaged sessions beside sound ones


@pytest.fixture
async def two(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    for session in ("sound", "damaged"):
        await Runner(ask, store=store).run("x", session_id=session, user_id="ann")
    await store.close()
    yield store
    await store.close()


ROWS = {
    "a status that there is not": "UPDATE sessions SET status = 'well' WHERE id = 'damaged'",
    "a negative number": "UPDATE sessions SET seq = -1 WHERE id = 'damaged'",
    "a time beyond all times": "UPDATE sessions SET updated = 9e999 WHERE id = 'damaged'",
    "a position beyond its log": "UPDATE sessions SET full_pos = pos + 1 WHERE id = 'damaged'",
    "text for a number": "UPDATE sessions SET fence = 'x' WHERE id = 'damaged'",
    "bytes for text": "UPDATE sessions SET branch = x'ff' WHERE id = 'damaged'",
    "text that is not UTF-8": "UPDATE sessions SET owner = CAST(x'ff' AS TEXT) WHERE id = 'damaged'",
    "a number that no session has": "UPDATE sessions SET no = 4611686018427387904 WHERE id = 'damaged'",
}


@pytest.mark.parametrize("name", ROWS)
async def test_a_damaged_session_is_named_and_left_out_of_listings(
    two: SQLiteStore, name: str, caplog: pytest.LogCaptureFixture
):  # rules C10, C15
    change(two.path, ROWS[name])
    sessions = Sessions(two)
    for call in (sessions.status("damaged"), Runner(ask, store=two).recover("damaged"), sessions.fork("damaged")):
        with pytest.raises(CheckpointCorrupt) as caught:
            await call
        assert caught.value.session_id == "damaged"
    assert [each.session_id for each in await sessions.sessions()] == ["sound"]
    assert [each.session_id for each in await sessions.sessions(limit=1)] == ["sound"]
    assert "sound" in [each.session_id for each in await sessions.pending()]
    said = [record for record in caplog.records if "left out of a listing as damaged session=damaged" in record.message]
    assert {record.levelno for record in said} == {logging.WARNING}
    assert len({record.message for record in said}) == len(said)  # Each is said once, however often it is listed.
    # It can be removed, and nothing of it gets in the way of a new one.
    await sessions.delete("damaged")
    assert (await Runner(ask, store=two).run("x", session_id="damaged")).status == "interrupted"


async def test_a_damaged_question_is_nobody_elses_trouble(two: SQLiteStore):  # rules C10, C15
    change(two.path, "UPDATE questions SET body = x'00' WHERE session = (SELECT no FROM sessions WHERE id = 'damaged')")
    sessions = Sessions(two)
    assert [each.session_id for each in await sessions.pending()] == ["sound"]
    assert {each.session_id: len(each.interrupts) for each in await sessions.sessions()} == {"sound": 1, "damaged": 0}
    assert await sessions.audit("damaged") == []
    watching = sessions.subscribe(report_open=True)
    assert (await anext(watching)).session_id == "sound"
    await watching.aclose()
    for call in (sessions.pending("damaged"), sessions.status("damaged")):
        with pytest.raises(CheckpointCorrupt) as caught:
            await call
        assert caught.value.session_id == "damaged"


async def test_rows_that_were_swapped_are_noticed(two: SQLiteStore):  # rules C10, C12, failures 55
    change(
        two.path,
        "CREATE TEMP TABLE bodies AS SELECT key, body FROM records WHERE full",
        "UPDATE records SET body = (SELECT body FROM bodies WHERE bodies.key <> records.key) WHERE full",
    )
    for session in ("sound", "damaged"):
        with pytest.raises(CheckpointCorrupt, match="another session") as caught:
            await Runner(ask, store=two).resume(session, [])
        assert caught.value.session_id == session
        with pytest.raises(CheckpointCorrupt):
            await Sessions(two).state(session)


@pytest.mark.parametrize("column", ["app", "user"])
async def test_a_row_of_another_app_or_user_is_noticed(two: SQLiteStore, column: str):  # rules C10, C12
    change(two.path, f"UPDATE sessions SET {column} = 'eve' WHERE id = 'damaged'")  # noqa: S608
    app = "eve" if column == "app" else "adjourn"
    with pytest.raises(CheckpointCorrupt, match="another session"):
        await Sessions(two, app_name=app).state("damaged")


async def test_rows_that_stand_in_the_way_of_a_new_session_are_told_at_once(path: Path):  # rule C10
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    row = "INSERT INTO records SELECT key + 1, full, at, seq, count, source, header, events, body FROM records"
    change(path, row)
    error = await refused(CheckpointCorrupt, run.commit())
    assert error.session_id == "s"
    await store.close()
