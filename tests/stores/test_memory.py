"""The memory store keeps every promise of the protocol, and little memory."""

import asyncio
import threading
import tracemalloc
from typing import Any, TypedDict

from adjourn import Runner, Sessions, interrupt
from adjourn.graph import START, StateGraph
from adjourn.stores import Header, MemoryStore, SessionRef, Store
from adjourn.stores.kit import ListCheckpoints, ListSessions
from adjourn.testing import FakeClock, StoreSuite
from adjourn.testing.suite.bench import Drive, paused, question
from tests.counting import lines_of


class Votes(TypedDict, total=False):
    vote: str


def ask(state: Any) -> Votes:
    return {"vote": interrupt("Your vote?", key="q", schema=str)}


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


async def test_the_inbox_and_an_answer_cost_the_same_however_many_sessions_are_parked():  # rules C9, I15
    async def costs(count: int) -> list[int]:
        store = MemoryStore()
        graph = StateGraph(Votes, name="voting").add_node("ask", ask, thread=False).add_edge(START, "ask")
        runner = Runner(graph.compile(), store=store)
        for number in range(count):
            await runner.run({}, session_id=f"s{number}")
        sessions = Sessions(store)
        [*_, last] = first = await sessions.pending(limit=10)
        assert len(first) == 10
        return [
            await lines_of(lambda: sessions.pending(limit=10)),
            await lines_of(lambda: sessions.pending(limit=10, after=first.next)),
            await lines_of(lambda: sessions.answer(last.session_id or "", {last.token: "yes"})),
        ]

    await costs(20)  # What is made and imported once.
    few, many = await costs(50), await costs(1600)
    assert all(large < 1.1 * small for small, large in zip(few, many, strict=True))


async def test_the_inbox_has_the_questions_of_each_head():  # rule I15
    store = MemoryStore()
    graph = StateGraph(Votes, name="voting").add_node("ask", ask, thread=False).add_edge(START, "ask")
    runner = Runner(graph.compile(), store=store)
    for session in ("a", "b", "c"):
        await runner.run({}, session_id=session)

    async def waiting() -> list[str | None]:
        return [each.session_id for each in await runner.pending()]

    assert await waiting() == ["a", "b", "c"]
    await runner.fork("b", to="b")
    assert await waiting() == ["a", "b", "c"], "its question is as old as it was, on the new branch"
    assert await runner.count_pending() == 3
    await runner.delete("a")
    await runner.resume("c", {"q": "yes"})
    assert await waiting() == ["b"]
    await runner.resume("b", {"q": "yes"})
    assert await waiting() == []
