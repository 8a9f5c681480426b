"""One compiled graph on one store, run from many event loops and threads at once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, cast

import pytest

from adjourn import AlreadyResumed, RunResult, current, interrupt, once, session_values, set_session_value
from adjourn.errors import SessionError
from adjourn.graph import START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import MemoryStore, SQLiteStore, Store

T = TypeVar("T")
THREADS = 4
RUNS = 6
"""Runs at once on the loop of each thread."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "sessions.db")
    yield store
    asyncio.run(store.close())


class Trip(TypedDict):
    who: str
    notes: Annotated[list[str], append]


@once
async def book(who: str) -> str:
    current().deps.append(f"book {who}")
    await asyncio.sleep(0)
    return f"booked {who}"


async def start(state: Trip) -> list[Command]:
    set_session_value("who", state["who"])
    return [Command(update={"who": f"{state['who']}/{n}"}, goto="leg") for n in range(3)]


def leg(state: Trip) -> dict[str, Any]:
    return {"notes": [f"leg {state['who']} of {session_values()['who']}"]}


async def ask(state: Trip) -> dict[str, Any]:
    booked = await book(state["who"])
    said = interrupt(f"{state['who']}?", key="ok", schema=str)
    current().deps.append(f"heard {said}")
    return {"notes": [booked, said]}


def trip(store: Store) -> CompiledGraph:
    graph = StateGraph(Trip, name="trip").add_node("start", start, destinations=["leg"]).add_node("leg", leg)
    graph.add_node("ask", ask)
    return graph.add_edge(START, "start").add_edge("leg", "ask").compile(store=store)


def in_threads(work: Callable[[int], T]) -> list[T]:
    """What each of several threads comes to, all of which begin together."""
    barrier = threading.Barrier(THREADS)

    def begin(number: int) -> T:
        barrier.wait(120)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def at_once(calls: Callable[[int], Any]) -> list[Any]:
    """The results of several runs on an event loop of this thread's own."""

    async def gather() -> list[Any]:
        return await asyncio.gather(*(calls(number) for number in range(RUNS)), return_exceptions=True)

    return asyncio.run(gather())


def expected(who: str) -> list[str]:
    return [*(f"leg {who}/{n} of {who}" for n in range(3)), f"booked {who}", f"yes {who}"]


def test_runs_in_many_threads_and_loops_do_not_mix(store: Store):  # rules G14, C12
    graph = trip(store)
    done: list[str] = []

    def run(thread: int) -> list[RunResult]:
        return at_once(lambda n: graph.run({"who": f"{thread}.{n}"}, session_id=f"{thread}.{n}", deps=done))

    def resume(thread: int) -> list[RunResult]:
        # Another thread, and so another loop, than the one that asked.
        asker = (thread + 1) % THREADS
        return at_once(lambda n: graph.resume(f"{asker}.{n}", {"ok": f"yes {asker}.{n}"}, deps=done))

    names = [f"{thread}.{n}" for thread in range(THREADS) for n in range(RUNS)]
    asked = [result for results in in_threads(run) for result in results]
    assert [result.interrupts[0].session_id for result in asked] == names
    ended = {result.session_id: result for results in in_threads(resume) for result in results}
    assert {name: result.state["notes"] for name, result in ended.items()} == {name: expected(name) for name in names}
    assert Counter(done) == Counter(f"{what} {name}" for name in names for what in ("book", "heard yes"))


def test_sync_calls_from_many_threads_do_not_mix(store: Store):  # rules G14, A14
    graph = trip(store)
    done: list[str] = []

    def talk(thread: int) -> list[str]:
        name = f"t{thread}"
        graph.run_sync({"who": name}, session_id=name, deps=done)
        return graph.resume_sync(name, {"ok": f"yes {name}"}, deps=done).state["notes"]

    assert in_threads(talk) == [expected(f"t{thread}") for thread in range(THREADS)]


def test_of_many_threads_that_answer_one_question_one_proceeds(store: Store):  # rule R3
    graph = trip(store)
    done: list[str] = []
    for turn in range(5):
        session = f"s{turn}"
        graph.run_sync({"who": session}, session_id=session, deps=done)
        done.clear()

        def resume(thread: int, session: str = session) -> list[Any]:
            return at_once(lambda n: graph.resume(session, {"ok": f"{thread}.{n}"}, deps=done))

        results = [result for results in in_threads(resume) for result in results]
        (won,) = (cast("RunResult", result) for result in results if isinstance(result, RunResult))
        assert sum(isinstance(result, AlreadyResumed) for result in results) == THREADS * RUNS - 1
        assert done == [f"heard {won.state['notes'][-1]}"]


def test_turns_of_one_session_from_many_threads_come_one_after_the_other(store: Store):  # rules R12, C1
    graph = StateGraph(Trip, name="turns").add_node("note", _note).add_edge(START, "note").compile(store=store)

    def run(thread: int) -> list[Any]:
        return at_once(lambda n: graph.run({"who": f"{thread}.{n}"}, session_id="s"))

    results = [result for results in in_threads(run) for result in results]
    done = [cast("RunResult", result) for result in results if isinstance(result, RunResult)]
    assert done
    assert all(isinstance(result, SessionError) for result in results if not isinstance(result, RunResult)), results
    # Each turn that was taken is in the state once, and each saw all that were taken before it.
    notes = graph.recover_sync("s").state["notes"]
    assert len(notes) == len(set(notes)) == len(done)
    assert sorted(len(result.state["notes"]) for result in done) == list(range(1, len(done) + 1))
    assert all(result.state["notes"] == notes[: len(result.state["notes"])] for result in done)


async def _note(state: Trip) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"notes": [state["who"]]}
