"""The SQLite store keeps every promise of the protocol, from any loop or thread, and lets go in good order."""

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adjourn.errors import StoreUnavailable, UsageError
from adjourn.stores import Input, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Commit, GetHead, ListInputs, ListSessions, Submit
from adjourn.testing import FakeClock, StoreSuite
from adjourn.testing.suite.bench import Drive, paused, record, refused, went_on


class TestSQLiteStore(StoreSuite):
    shared = True

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def make_store(self, clock: FakeClock) -> Store:
        return SQLiteStore(self.path, clock=clock)

    async def reopen(self, clock: FakeClock) -> Store:
        return SQLiteStore(self.path, clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# Opening and closing


async def test_a_closed_store_leaves_one_file_with_everything_in_it(path: Path):
    store = SQLiteStore(path)
    run = await paused(store, "q")
    before = await run.loaded()
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    run.store = SQLiteStore(path)
    assert await run.loaded() == before
    await run.store.close()


async def test_closing_waits_for_what_was_accepted(path: Path):  # rule C8
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start()
    commits = [
        asyncio.ensure_future(
            store.write(Commit(lease=run.held, writes=(record(n, f"b.{n - 1}"),), after=f"b.{n - 1}"))
        )
        for n in range(1, 300)
    ]
    await asyncio.sleep(0)
    await store.close()
    assert went_on((await asyncio.gather(*commits))[-1])
    assert (await run.head()).checkpoint == "b.299"
    await store.close()


async def test_a_closed_store_opens_again_when_it_is_used(path: Path):
    store = SQLiteStore(path)
    await store.close()
    run = Drive(store)
    await run.start()
    await store.close()
    await store.close()
    await run.commit()
    assert (await run.head()).checkpoint == "b.1"
    await store.close()


async def test_inputs_of_any_size_are_listed(path: Path):
    store, ref = SQLiteStore(path), SessionRef("s")
    await store.write(Submit(ref=ref, input=Input(id="i", body=b"small")))
    assert [each.body for each in await store.read(ListInputs(ref))] == [b"small"]
    await store.write(Submit(ref=ref, input=Input(id="j", body=b"l" * 1_000_000)))
    assert [each.body for each in await store.read(ListInputs(ref))] == [b"small", b"l" * 1_000_000]
    assert [each.id for each in await store.read(ListInputs(ref, limit=1))] == ["i"]
    await store.close()


def test_a_forgotten_store_closes_itself(path: Path):
    before = set(threading.enumerate())

    async def forget() -> None:
        await paused(SQLiteStore(path), "q")

    asyncio.run(forget())
    gc.collect()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "adjourn-sqlite"]


def test_the_end_of_the_process_loses_nothing_that_was_accepted(path: Path):  # rule C8
    program = """
import asyncio, sys
from adjourn.stores import SQLiteStore
from adjourn.stores.kit import Commit
from adjourn.testing.suite.bench import Drive, record

store = SQLiteStore(sys.argv[1])

async def main():
    run = Drive(store)
    await run.start()
    for n in range(1, 400):
        asyncio.ensure_future(store.write(Commit(lease=run.held, writes=[record(n, f"b.{n - 1}")], after=f"b.{n - 1}")))
    await asyncio.sleep(0)

asyncio.run(main())
"""
    command = [sys.executable, "-W", "error", "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]

    async def look() -> None:
        store = SQLiteStore(path)
        assert (await Drive(store).head()).checkpoint == "b.399"
        await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("wrong", ["", ":memory:"])
def test_a_path_that_is_none_is_refused(wrong: str):
    with pytest.raises(UsageError, match="MemoryStore"):
        SQLiteStore(wrong)


def test_an_unknown_way_to_synchronize_is_refused(path: Path):
    with pytest.raises(UsageError, match="NORMAL"):
        SQLiteStore(path, synchronous="OFF")  # pyright: ignore[reportArgumentType]


async def test_a_missing_folder_is_told_and_can_be_made_later(tmp_path: Path):
    store = SQLiteStore(tmp_path / "missing" / "store.db")
    error = await refused(StoreUnavailable, store.read(GetHead(SessionRef("s"))))
    assert f"the folder '{tmp_path / 'missing'}' does not exist; create it" in str(error)
    await refused(StoreUnavailable, Drive(store).start())
    (tmp_path / "missing").mkdir()
    await Drive(store).start()
    await store.close()


async def test_a_folder_in_place_of_the_file_is_told(tmp_path: Path):
    store = SQLiteStore(tmp_path)
    error = await refused(StoreUnavailable, Drive(store).start())
    assert "the file cannot be opened" in str(error)
    await store.close()


# Loops and threads


def test_loops_in_several_threads_can_share_it(path: Path):
    store = SQLiteStore(path)
    names = [f"s{n}" for n in range(6)]

    async def write(name: str) -> None:
        run = Drive(store, name)
        await run.start()
        for _ in range(20):
            await run.commit()
            assert (await run.head()).checkpoint == run.checkpoint

    threads = [threading.Thread(target=asyncio.run, args=[write(name)]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heads = asyncio.run(store.read(ListSessions()))
    assert {(head.session, head.checkpoint) for head in heads} == {(name, "b.20") for name in names}
    asyncio.run(store.close())


def test_one_loop_after_the_other_can_use_it(path: Path):
    store = SQLiteStore(path)
    run = Drive(store)
    asyncio.run(run.start())
    for _ in range(3):
        asyncio.run(run.commit())
    assert asyncio.run(run.head()).checkpoint == "b.3"
    asyncio.run(store.close())


async def test_a_big_session_is_read_without_holding_the_loop(path: Path):
    store = SQLiteStore(path)
    run = Drive(store)
    await run.start(run.next(b"x" * 20_000_000))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    loaded = await run.loaded()
    counting.cancel()
    assert len(loaded.rows[0]) == 20_000_000
    assert turns > 3
    await store.close()
