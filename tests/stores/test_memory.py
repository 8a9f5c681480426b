"""The memory store keeps every promise of the protocol, and little memory."""

import asyncio
import threading
import tracemalloc

from adjourn.stores import Header, MemoryStore, SessionRef, Store
from adjourn.stores.kit import ListCheckpoints, ListSessions
from adjourn.testing import FakeClock, StoreSuite
from adjourn.testing.suite.bench import Drive, paused, question


class TestMemoryStore(StoreSuite):
    async def make_store(self, clock: FakeClock) -> Store:
        return MemoryStore(clock=clock)


async def test_what_it_keeps_is_encoded():  # rule C14
    store = MemoryStore()
    run = Drive(store)
    metadata: dict[str, object] = {"n": 1}
    await run.start(run.next(header=Header(source="input", metadata=metadata)))
    metadata["n"] = 2
    (listed,) = await store.read(ListCheckpoints(SessionRef("s")))
    assert listed.header.metadata == {"n": 1}


async def test_closing_keeps_what_is_in_it():
    store = MemoryStore()
    run = await paused(store, "q")
    await store.close()
    assert (await run.head()).status == "waiting"


async def test_threads_with_loops_of_their_own_can_share_it():
    store = MemoryStore()

    async def write(name: str) -> None:
        run = Drive(store, name)
        await run.start()
        await run.steps(50)

    threads = [threading.Thread(target=asyncio.run, args=[write(f"s{n}")]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {head.checkpoint for head in await store.read(ListSessions())} == {"b.50"}


async def test_a_paused_session_takes_little_memory():
    store = MemoryStore()

    async def park(n: int) -> None:
        run = Drive(store, f"session-{n:028}")
        await run.start(run.next(b"", header=Header(source="input", step=n)))
        await run.commit(run.next(b"", status="waiting", asks=(question(f"node:{n}", b""),)), release=True)

    await park(0)
    tracemalloc.start()
    try:
        for n in range(1, 501):
            await park(n)
        # Threads that other tests have left may take memory meanwhile.
        ours = [tracemalloc.Filter(True, each) for each in ("*/adjourn/stores/*", "*/tests/stores/*")]
        used = sum(each.size for each in tracemalloc.take_snapshot().filter_traces(ours).traces)
    finally:
        tracemalloc.stop()
    assert 1_000 < used / 500 < 1_800
