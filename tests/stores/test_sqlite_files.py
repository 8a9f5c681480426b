"""A database file that is deleted, moved away or replaced while it is open is noticed, and nothing goes to nobody."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adjourn.errors import StoreUnavailable
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import GetHead, ListQuestions, ListSessions, Load
from adjourn.testing.suite.bench import Drive
from tests.runner.programs import Gate, asking, begin, held, line, step

S = SessionRef("s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    await store.close()


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    """As a restored backup does it, or a deployment."""
    shutil.copy(path, path.with_name("new.db"))
    path.with_name("new.db").replace(path)


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def delete_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


WAYS = [delete, move, replace, delete_log, delete_index]


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def contents(*paths: Path) -> list[bytes]:
    return [path.read_bytes() for path in paths]


async def noticed(call: Callable[[], Awaitable[Any]]) -> StoreUnavailable:
    """The error of a call that is made until it fails: not every call looks at all files."""
    while True:
        try:
            await call()
        except StoreUnavailable as error:
            return error
        await asyncio.sleep(0)


@pytest.mark.parametrize("way", WAYS)
async def test_writing_notices(store: SQLiteStore, path: Path, way: Callable[[Path], None]):
    run = Drive(store)
    await run.start()
    way(path)
    if way in (delete, move, replace):
        with pytest.raises(StoreUnavailable):
            await run.commit()  # at once
    error = await noticed(run.commit)
    assert error.is_lasting
    assert "while it was open" in str(error)
    assert str(path) in str(error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read", ["head", "load", "sessions", "questions"])
async def test_reading_notices(store: SQLiteStore, path: Path, way: Callable[[Path], None], read: str):
    await Drive(store).start()
    await store.read(GetHead(S))
    way(path)
    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "head": lambda: store.read(GetHead(S)),
        "load": lambda: store.read(Load(S)),
        "sessions": lambda: store.read(ListSessions()),
        "questions": lambda: store.read(ListQuestions()),
    }
    await noticed(reads[read])


async def test_no_new_file_is_made_in_its_place(store: SQLiteStore, path: Path):
    run = Drive(store)
    await run.start()
    delete(path)
    await noticed(run.commit)
    await noticed(lambda: store.read(GetHead(S)))
    # Many reads at once open connections of their own.
    reads = await asyncio.gather(*[store.read(ListSessions()) for _ in range(8)], return_exceptions=True)
    assert {type(each) for each in reads} == {StoreUnavailable}
    assert files(path.parent) == {"store.db-wal", "store.db-shm"}


async def test_a_file_that_is_put_back_is_gone_on_with(store: SQLiteStore, path: Path):
    run = Drive(store)
    await run.start()
    move(path)
    await noticed(run.commit)
    path.with_name("moved.db").rename(path)
    await run.commit()
    assert (await run.head()).checkpoint == run.at


async def test_a_store_that_was_closed_uses_what_is_there(store: SQLiteStore, path: Path):
    run = Drive(store)
    await run.start()
    delete(path)
    await noticed(run.commit)
    await store.close()
    assert await store.read(GetHead(S)) is None
    other = Drive(store)
    await other.start()
    assert (await store.read(GetHead(S))) is not None


async def test_files_that_only_SQLite_itself_replaces_are_not_noticed(path: Path):  # noqa: N802  # its name
    """When nobody has the file open any more, SQLite removes the log, and makes another one later."""
    for number in range(3):
        one, two = SQLiteStore(path), SQLiteStore(path)
        run = Drive(one, session=f"s{number}")
        await run.start()
        await two.read(ListSessions())
        await one.close()
        await two.read(ListSessions())
        await two.close()
        assert files(path.parent) == {"store.db"}
        await run.commit()
        await one.close()


@pytest.mark.parametrize("way", [delete, move, replace])
async def test_a_run_whose_file_goes_away_fails_and_says_so(store: SQLiteStore, path: Path, way: Any):  # rule C11
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), *[(f"c{n}", step(f"c{n}")) for n in range(50)], store=store)
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    way(path)
    gate.opened.set()
    with pytest.raises(StoreUnavailable, match="while it was open"):
        await running


async def test_an_answer_is_not_given_to_a_file_that_is_gone(store: SQLiteStore, path: Path):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    kept = contents(path, Path(f"{path}-wal"))
    move(path)
    with pytest.raises(StoreUnavailable):
        await graph.answer("s", {"go": "yes"})
    with pytest.raises(StoreUnavailable):
        await graph.resume("s", {"go": "yes"})
    assert contents(path.with_name("moved.db"), Path(f"{path}-wal")) == kept
