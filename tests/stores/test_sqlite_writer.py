"""Writing: groups of writes in one transaction, lone runs on their own thread, and locks of other processes."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from adjourn.errors import Conflict, NotStorable, StoreUnavailable, UnknownInterrupt
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import Audit, Commit, GetHead, GiveAnswers, ListSessions
from adjourn.testing import FakeClock
from adjourn.testing.suite.bench import Drive, question, record, refused, went_on, yes


class Watch(FakeClock):
    """A clock that notes where each transaction was made: the store looks at it at the beginning and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.delay = 0.0

    def __call__(self) -> float:
        self.threads.append("own" if threading.current_thread() is threading.main_thread() else "writer")
        return self.advance(self.delay)

    def since(self) -> list[str]:
        """Who made the transactions since the last look."""
        threads, self.threads = self.threads, []
        return threads[::2]


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, watch: Watch) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, clock=watch)
    yield store
    await store.close()


# Who writes


async def test_a_lone_run_writes_on_its_own_thread(store: SQLiteStore, watch: Watch):
    run = Drive(store)
    await run.start()
    assert watch.since() == ["writer"]  # which opens the file
    await run.steps(3)
    await run.end()
    await run.claim(run.next())
    await run.end()
    await Drive(store, "t").start()
    assert watch.since() == ["own"] * 7


async def test_runs_that_take_turns_write_in_the_thread(store: SQLiteStore, watch: Watch):
    runs = [Drive(store, name) for name in "ab"]
    for run in runs:
        await run.start()
    for _ in range(3):
        for run in runs:
            await run.commit()
    assert set(watch.since()) == {"writer"}


async def test_a_run_that_saves_in_the_background_writes_in_the_thread(store: SQLiteStore, watch: Watch):
    run = Drive(store)
    await run.start()
    watch.since()
    for _ in range(5):
        await asyncio.ensure_future(run.commit())
    assert watch.since() == ["writer"] * 5


async def test_records_that_gathered_behind_a_run_are_written_in_the_thread(store: SQLiteStore, watch: Watch):
    run = Drive(store)
    await run.start()
    await run.steps(2)
    watch.since()
    await store.write(Commit(lease=run.held, writes=[record(n, f"b.{n - 1}") for n in range(3, 6)], after="b.2"))
    assert watch.since() == ["writer"]
    await store.write(Commit(lease=run.held, writes=(record(6, "b.5"),), after="b.5"))
    assert watch.since() == ["own"]


async def test_after_a_slow_write_a_lone_run_writes_in_the_thread(store: SQLiteStore, watch: Watch):
    run = Drive(store)
    await run.start()
    watch.since()
    watch.delay = 0.01
    await run.commit()
    watch.delay = 0.0
    await run.steps(15)
    assert watch.since() == ["own"] + ["writer"] * 10 + ["own"] * 5


async def test_while_the_disk_is_slow_a_lone_run_writes_in_the_thread(store: SQLiteStore, watch: Watch):
    run = Drive(store)
    await run.start()
    watch.since()
    watch.delay = 0.01
    await run.steps(100)
    assert watch.since() == ["own"] + ["writer"] * 99


async def test_while_a_write_waits_in_the_thread_a_lone_run_does_not_overtake_it(store: SQLiteStore):
    run = Drive(store)
    await run.start()
    writes = [record(n, f"b.{n - 1}") for n in range(1, 4)]
    first = asyncio.ensure_future(store.write(Commit(lease=run.held, writes=(writes[0],), after="b.0")))
    await asyncio.sleep(0)
    await store.write(Commit(lease=run.held, writes=(writes[1],), after="b.1"))
    await store.write(Commit(lease=run.held, writes=(writes[2],), after="b.2"))
    assert went_on(await first)


# Groups


async def test_runs_that_write_at_once_share_transactions(store: SQLiteStore, watch: Watch):
    runs = [Drive(store, f"s{n}") for n in range(50)]
    await asyncio.gather(*(run.start() for run in runs))
    watch.since()
    for _ in range(4):
        await asyncio.gather(*(run.commit() for run in runs))
    assert len(watch.since()) < 100  # and not 200
    assert {head.checkpoint for head in await store.read(ListSessions())} == {"b.4"}


async def test_a_write_that_fails_does_no_harm_to_others_of_its_group(store: SQLiteStore):
    runs = [Drive(store, f"s{n}") for n in range(6)]
    for run in runs:
        await run.start(run.next(asks=(question("q"), question("r"))))
    calls: list[Awaitable[object]] = [
        store.write(Commit(lease=run.held, writes=(run.next(),), after="b.0")) for run in runs[:4]
    ]
    calls.insert(
        1, store.write(GiveAnswers(ref=SessionRef("s4"), answers=[yes("q"), yes("r", by="\ud800")]))
    )  # fails when it has changed something
    calls.insert(
        3, store.write(Commit(lease=runs[5].held, writes=(record(7, "b.0"),), after="b.0"))
    )  # is refused at once
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[1], NotStorable)
    assert isinstance(results[3], Conflict)
    assert all(went_on(results[n]) for n in (0, 2, 4, 5))
    assert [(await run.head()).checkpoint for run in runs] == ["b.1", "b.1", "b.1", "b.1", "b.0", "b.0"]
    assert [asked.how for asked in await store.read(Audit(SessionRef("s4")))] == [None, None]
    assert (await runs[4].loaded()).answers == ()


async def test_of_records_that_come_together_none_is_kept_if_one_is_refused(store: SQLiteStore):
    run, other = Drive(store), Drive(store, "t")
    await run.start()
    await other.start()
    first, second = record(1, "b.0"), record(2, "b.1", closes=(yes("never asked"),))
    together = store.write(Commit(lease=run.held, writes=(first, second), after="b.0"))
    results = await asyncio.gather(together, other.commit(), return_exceptions=True)
    assert isinstance(results[0], UnknownInterrupt)
    assert (await run.head()).checkpoint == "b.0"
    await store.write(Commit(lease=run.held, writes=(first,), after="b.0"))
    assert (await run.loaded()).rows == (b"b0", b"b1")
    assert (await other.head()).checkpoint == "b.1"


async def test_a_caller_that_was_cancelled_does_no_harm_to_others(store: SQLiteStore):
    run = Drive(store)
    await run.start()
    writes = [record(n, f"b.{n - 1}") for n in range(1, 11)]
    commits = [
        asyncio.ensure_future(store.write(Commit(lease=run.held, writes=(write,), after=f"b.{write.number - 1}")))
        for write in writes
    ]
    await asyncio.sleep(0)
    commits[4].cancel()
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert isinstance(results[4], asyncio.CancelledError)
    assert went_on(results[-1])
    assert (await run.head()).checkpoint == "b.10"


# Locks


class Lock:
    """Another process that holds the file's lock, as far as SQLite can tell."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


async def test_a_locked_file_is_waited_for(path: Path, store: SQLiteStore):
    run = Drive(store)
    await run.start()
    lock = Lock(path)
    commit = asyncio.ensure_future(run.commit())
    assert (await run.loaded()).rows == (b"b0",)  # reading needs no lock, and the loop is free
    assert not commit.done()
    lock.release()
    await commit
    assert (await run.head()).checkpoint == "b.1"
    await run.steps(2)


async def test_writes_that_come_in_while_the_file_is_locked_share_a_transaction(
    path: Path, store: SQLiteStore, watch: Watch
):
    runs = [Drive(store, name) for name in "abc"]
    for run in runs:
        await run.start()
    watch.since()
    lock = Lock(path)
    first = asyncio.ensure_future(runs[0].commit())
    await asyncio.wait([first], timeout=0.02)  # By now its thread waits for the lock.
    others = [asyncio.ensure_future(run.commit()) for run in runs[1:]]
    await asyncio.sleep(0)
    lock.release()
    await asyncio.gather(first, *others)
    assert watch.since() == ["writer"]


def _log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_the_log_has_its_full_length_from_the_first_commit(path: Path, store: SQLiteStore):
    run = Drive(store)
    await run.start()
    whole = _log_size(path)
    assert whole >= 128 * 4096
    await run.steps(10)
    assert _log_size(path) == whole
    await store.close()


async def test_the_log_is_copied_less_often_while_others_write(path: Path):
    stores = [SQLiteStore(path, synchronous="NORMAL") for _ in range(2)]
    runs = [Drive(store, name) for store, name in zip(stores, "ab", strict=True)]
    for run in runs:
        await run.start()
    alone = _log_size(path)
    await runs[0].steps(150)
    assert _log_size(path) < 1.5 * alone
    for _ in range(75):
        for run in runs:
            await run.commit()
    assert _log_size(path) > 1.5 * alone
    for store in stores:
        await store.close()


async def test_a_file_that_stays_locked_is_told(path: Path):  # rule C11
    store = SQLiteStore(path, timeout=0.05)
    run = Drive(store)
    await run.start()
    lock = Lock(path)
    tries = [run.commit(run.next(b"%d" % n)) for n in range(3)]
    for result in await asyncio.gather(*tries, return_exceptions=True):
        assert isinstance(result, StoreUnavailable)
        assert "another process keeps the file locked" in str(result)
    lock.release()
    await run.commit()
    assert (await run.loaded()).rows == (b"b0", b"b1")
    await store.close()


async def test_a_new_file_that_is_locked_is_waited_for(path: Path, store: SQLiteStore):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    start = asyncio.ensure_future(Drive(store).start())
    assert not (await asyncio.wait([start], timeout=0.02))[0]
    connection.execute("ROLLBACK")
    connection.close()
    assert (await start).lease is not None


async def test_reading_waits_for_a_program_that_has_the_file_for_itself(path: Path, store: SQLiteStore):
    run = Drive(store)
    await run.start()
    await store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN IMMEDIATE")
    hasty = SQLiteStore(path, timeout=0.02)
    error = await refused(StoreUnavailable, hasty.read(GetHead(SessionRef("s"))))
    assert "another process keeps the file locked" in str(error)
    reading = asyncio.ensure_future(run.head())
    assert not (await asyncio.wait([reading], timeout=0.02))[0]
    connection.execute("ROLLBACK")
    connection.close()
    assert (await reading).checkpoint == "b.0"
    await hasty.close()
