"""A store that fails where a test wants it to."""

import asyncio

import pytest

from adjourn.errors import StoreUnavailable
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import Cancel, Delete, DeleteIdle, GetHead, Prune
from adjourn.testing import FakeClock, FaultStore, StoreSuite, count_ids
from adjourn.testing.suite.bench import Drive, paused, refused, yes


class TestFaultStoreWithoutFaults(StoreSuite):
    async def make_store(self, clock: FakeClock) -> Store:
        return FaultStore(MemoryStore(clock), fail_at=0)


async def story(store: Store) -> None:
    run = await paused(store, "q")
    await run.claim(run.next(), yes("q"))
    await store.write(Cancel(SessionRef("s"), "now"))
    await run.end()
    await store.write(Prune(SessionRef("s"), keep=1))
    await store.write(DeleteIdle(ttl=1000))
    await store.write(Delete(SessionRef("s")))


async def test_every_write_call_can_be_made_to_fail():
    for n in range(1, 20):
        store = FaultStore(MemoryStore(), fail_at=n)
        if n <= 8:
            await refused(StoreUnavailable, story(store))
            assert (store.calls, store.fired) == (n, True)
        else:
            await story(store)
            assert (store.calls, store.fired) == (8, False)


async def test_before_means_that_nothing_was_written():
    store = FaultStore(MemoryStore(), fail_at=2, mode="before")
    run = Drive(store)
    await run.start()
    await refused(StoreUnavailable, run.commit())
    assert (await run.head()).checkpoint == "b.0"
    await run.commit()


async def test_after_means_that_it_was_written_and_can_be_repeated():  # rule C1
    store = FaultStore(MemoryStore(), fail_at=1, mode="after", times=3)
    run = Drive(store)
    first = run.next()
    await refused(StoreUnavailable, run.start(first))
    assert (await run.head()).checkpoint == "b.0"
    await refused(StoreUnavailable, run.start(first))
    await refused(StoreUnavailable, run.start(first))
    claimed = await run.start(first)
    assert claimed.claims == 1


async def test_hanging_ends_when_the_caller_is_cancelled():
    store = FaultStore(MemoryStore(), fail_at=1, mode="hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Drive(store).start()
    assert store.fired
    assert await store.read(GetHead(SessionRef("s"))) is None
    await Drive(store).start()


async def test_renewals_and_reads_do_not_count():
    store = FaultStore(MemoryStore(), fail_at=2)
    run = Drive(store)
    await run.start()
    await store.renew([run.held])
    await run.head()
    assert store.calls == 1


def test_a_clock_goes_on_when_it_is_told_to():
    clock = FakeClock(5.0)
    assert (clock(), clock(), clock.advance(2.5), clock()) == (5.0, 5.0, 7.5, 7.5)


def test_ids_are_counted():
    new_id, other = count_ids(), count_ids("run-")
    assert [new_id(), new_id(), other(), new_id()] == ["1", "2", "run-1", "3"]
