"""The example of docs/stores.md is a store: it passes the whole suite, with other callers between its trips."""

import ast
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from adjourn.errors import SessionBusy
from adjourn.stores import Claimed, Store
from adjourn.stores.kit import Cancel, Claim, GiveAnswers
from adjourn.testing import FakeClock, StoreSuite
from adjourn.testing.suite.bench import Drive, S, paused, question, yes

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"


def example() -> ModuleType:
    """The first block of the page, as a module."""
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    module = ModuleType("docs_store")
    sys.modules[module.__name__] = module
    exec(compile(ast.parse(code), str(PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page, and only in tests
    return module


EXAMPLE: Any = example()  # Any: made from a page
DictStore: Callable[[Any, Callable[[], float]], Store] = EXAMPLE.DictStore


class CountingStore(EXAMPLE.DictStore):
    """Counts the trips on which it reads facts."""

    reads = 0

    async def facts(self, query: Any) -> Any:
        self.reads += 1
        return await super().facts(query)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


class TestDictStore(StoreSuite):
    shared = True
    database: Any

    async def make_store(self, clock: FakeClock) -> Store:
        self.database = EXAMPLE.Database()
        return DictStore(self.database, clock)

    async def reopen(self, clock: FakeClock) -> Store:
        return DictStore(self.database, clock)


def several(count: int) -> list[Store]:
    """Stores on the same data, as in so many processes: nothing but guards keeps them apart."""
    shared = EXAMPLE.Database()
    return [DictStore(shared, FakeClock()) for _ in range(count)]


async def test_a_live_owner_commits_in_one_trip_whatever_others_do():  # rule R3
    shared = EXAMPLE.Database()
    owner: Any = CountingStore(shared, FakeClock())
    others = [DictStore(shared, FakeClock()) for _ in range(20)]
    run, ids = Drive(owner), [f"q{n}" for n in range(20)]
    await run.start(run.next(asks=tuple(question(each) for each in ids)))
    owner.reads = 0

    async def work() -> None:
        for _ in range(50):
            await run.commit(run.next(asks=(question(f"new{run.number}"),)))

    given = [store.write(GiveAnswers(ref=S, answers=[yes(each)])) for store, each in zip(others, ids, strict=True)]
    cancels = [store.write(Cancel(S, "after_step")) for store in others]
    renewals = [store.renew([run.held]) for store in others]
    await asyncio.gather(work(), *given, *cancels, *renewals)
    assert owner.reads == 0
    met = await run.pause()
    assert ({each.id for each in met.answers}, met.released, met.cancel) == (set(ids), False, "after_step")
    assert owner.reads == 1
    await run.commit(run.next(takes=tuple(ids)))
    assert (await run.pause()).released


async def test_of_many_processes_one_wins():  # rule R3, C6
    stores = several(20)
    run = await paused(stores[0], "q")
    tries = [store.write(GiveAnswers(ref=S, answers=[yes("q", b"%d" % n)])) for n, store in enumerate(stores)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["AlreadyResumed"] * 19 + ["Head"]
    claims = [
        store.write(Claim(ref=S, owner=f"o{n}", ttl=10, after="b.1", write=run.next(b"%d" % n)))
        for n, store in enumerate(stores)
    ]
    claimed = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(each, Claimed) for each in claimed) == 1
    assert sum(isinstance(each, SessionBusy) for each in claimed) == 19
    assert (await run.head()).fence == 2


async def test_of_many_processes_one_begins_a_session():  # rule C1
    stores = several(20)
    tries = [Drive(store, owner=f"o{n}").start() for n, store in enumerate(stores)]
    begun = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, Claimed) for each in begun) == 1
    assert sum(isinstance(each, SessionBusy) for each in begun) == 19
