"""An owner commits in one trip, whatever other processes write to its session, and nothing that they write is lost."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from adjourn.errors import UsageError
from adjourn.stores import PostgresStore, RedisStore, SQLiteStore, Store
from adjourn.stores.kit import Applied, Effects, FactSheet, FactsWanted, ListInputs, ListOpen, RemoteStore, notes_in
from adjourn.testing.suite.bench import Drive, S, question
from tests.effort import amount
from tests.servers import postgres, redis

PROCESSES = amount(default=4, proof=20, long=20)


class Trips(RemoteStore):
    """Counts what the owner reads and writes."""

    reads = writes = 0

    async def facts(self, wanted: FactsWanted) -> FactSheet:
        self.reads += 1
        return await super().facts(wanted)

    async def apply(self, effects: Effects) -> Applied | None:
        self.writes += 1
        return await super().apply(effects)


class OnPostgres(Trips, PostgresStore):
    pass


class OnRedis(Trips, RedisStore):
    pass


def owned(kind: str, folder: Path) -> tuple[str, Store]:
    """Return the URL of a new store, and the owner's own."""
    match kind:
        case "sqlite":
            return f"sqlite:///{folder}/s.db", SQLiteStore(folder / "s.db")
        case "postgres":
            return (url := postgres().fresh()), OnPostgres(url)
        case "redis":
            return (url := redis().fresh()), OnRedis(url)
        case _:
            raise UsageError(kind)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_an_owner_commits_in_one_trip_beside_many_processes(kind: str, tmp_path: Path):  # rules R3, C1
    url, store = owned(kind, tmp_path)
    run, names = Drive(store), [f"p{n}" for n in range(PROCESSES)]
    await run.start(run.next(asks=(question("marked"), *[question(each) for each in names])))
    if isinstance(store, Trips):
        store.reads = store.writes = 0
    others = asyncio.gather(*[beside(url, each) for each in names])
    commits = 0
    while not others.done():
        await run.commit(run.next(asks=(question(f"own{run.number}"),)))
        commits += 1
        await asyncio.sleep(0.002)
    assert {*await others} == {0}
    if isinstance(store, Trips):
        assert (store.reads, store.writes) == (0, commits)
    assert commits > PROCESSES
    met = await run.pause()
    assert ({each.id for each in met.answers}, met.released, met.cancel) == ({*names}, False, "after_step")
    waiting = [f"{each}.{number}" for each in names for number in range(0, 10, 2)]
    assert sorted(each.id for each in await store.read(ListInputs(S))) == sorted(waiting)
    (marked,) = [each for each in await store.read(ListOpen(S)) if each.id == "marked"]
    noted = {each.name for each in notes_in(marked.notes)}
    assert noted == {f"{each}.{number}" for each in names for number in range(10)}
    await store.close()


async def beside(url: str, name: str) -> int:
    """Run one of the other processes, and return its exit code."""
    words: Sequence[str] = (sys.executable, "-m", "tests.stores.beside", url, name)
    process = await asyncio.create_subprocess_exec(*words, cwd=Path(__file__).parents[2], env=os.environ)
    return await process.wait()
