"""A session that somebody runs: answers reach that run, in whatever loop, thread or process it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from adjourn import AlreadyResumed, RunResult, SessionBusy, current, interrupt
from adjourn.graph import CompiledGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import ListOpen, StoreRequest
from adjourn.testing import FaultStore

from .programs import Gate, asking, begin, held, side_by_side, step, until

T = TypeVar("T")


def asks(name: str) -> Any:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        said = interrupt(f"{name}?", key=name, schema=str)
        return {"done": [f"{name}: {said} ({current().deps})"]}

    return node


def meeting(gate: Gate, **options: Any) -> CompiledGraph:
    """Two people are asked while a third node works for as long as the test wants."""
    return side_by_side(("ann", asks("ann")), ("ben", asks("ben")), ("works", held("works", gate)), **options)


async def have_asked(graph: CompiledGraph, count: int) -> None:
    async def enough() -> bool:
        return len(await graph.store.read(ListOpen(SessionRef("s")))) == count

    await until(enough)


# What a resume brings besides its answers


@pytest.mark.parametrize("more", [{"values": {"x": 1}}, {"state": {"answer": 1}}, {"max_steps": 7}])
@pytest.mark.parametrize("same_runner", [True, False])
async def test_what_cannot_reach_a_live_run_is_refused_before_the_answer_counts(
    store: Store, more: dict[str, Any], same_runner: bool
):  # rule R3
    gate = Gate()
    graph = meeting(gate, store=store)
    running = begin(graph.run({}, session_id="s"))
    await have_asked(graph, 2)
    other = graph if same_runner else meeting(gate, store=store)
    with pytest.raises(SessionBusy, match=f"{next(iter(more))}= cannot reach that run") as busy:
        await other.resume("s", {"ann": "yes"}, **more)
    assert busy.value.refused == tuple(more)
    assert len(await graph.pending("s")) == 2  # nothing was answered
    gate.opened.set()
    assert len((await running).interrupts) == 2
    result = await other.resume("s", {"ann": "yes", "ben": "no"}, **more)  # nobody runs it now
    assert result.status == "done"


async def test_a_run_that_begins_while_the_resume_is_on_its_way_refuses_it_too(store: Store):  # rule R3
    gate = Gate()
    graph = meeting(gate, store=store)
    gate.opened.set()
    await graph.run({}, session_id="s")

    late = _Overtaken(store, lambda: asking_first.wait())
    asking_first = asyncio.Event()
    busy = begin(meeting(gate, store=late).resume("s", {"ann": "yes"}, values={"x": 1}))
    await late.reached.wait()
    slow = Gate()
    other = side_by_side(("ann", asks("ann")), ("ben", _asks_and_works(slow)), ("works", step("works")), store=store)
    running = begin(other.resume("s", {"ben": "no"}))
    await slow.reached.wait()
    asking_first.set()
    with pytest.raises(SessionBusy, match="values= cannot reach that run"):
        await busy
    slow.opened.set()
    assert [asked.key for asked in (await running).interrupts] == ["ann"]


class _Overtaken(FaultStore):
    """A store whose claims are held up while others write."""

    def __init__(self, inner: Store, wait: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.wait = wait
        self.reached = asyncio.Event()

    async def write(self, request: StoreRequest[T]) -> T:
        self.reached.set()
        await self.wait()
        return await super().write(request)


def _asks_and_works(gate: Gate) -> Any:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        said = interrupt("ben?", key="ben", schema=str)
        await gate.wait()
        return {"done": [f"ben: {said}"]}

    return node


async def test_a_live_run_keeps_its_own_deps(store: Store):  # rules R3, A13
    gate = Gate()
    graph = meeting(gate, store=store)
    running = begin(graph.run({}, session_id="s", deps="owner's"))
    await have_asked(graph, 2)
    follower = begin(graph.resume("s", {"ann": "yes", "ben": "no"}, deps="caller's"))
    await until(lambda: _nothing_is_open(graph))
    gate.opened.set()
    result = await running
    assert result.state["done"] == ["ann: yes (owner's)", "ben: no (owner's)", "works", "end"]
    assert (await follower).state == result.state


async def _nothing_is_open(graph: CompiledGraph) -> bool:
    return not await graph.store.read(ListOpen(SessionRef("s")))


# The same process, another loop


def in_a_thread(work: Callable[[], RunResult]) -> tuple[threading.Thread, list[Any]]:
    """Do something in a thread of the user's own."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001  # the test looks at it
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


async def joined(thread: threading.Thread) -> None:
    await asyncio.to_thread(thread.join, 30)


@pytest.mark.parametrize("same_runner", [True, False])
async def test_an_answer_from_another_loop_reaches_the_run(store: Store, same_runner: bool):  # rules R3, A14
    gate = Gate()
    graph = meeting(gate, store=store)
    running = begin(graph.run({}, session_id="s"))
    await have_asked(graph, 2)
    other = graph if same_runner else meeting(gate, store=store)
    threads = [
        in_a_thread(lambda: other.resume_sync("s", {"ann": "yes"})),
        in_a_thread(lambda: other.resume_sync("s", {"ben": "no"})),
    ]
    await until(lambda: _nothing_is_open(graph))
    with pytest.raises(AlreadyResumed) as late:
        await graph.resume("s", {"ann": "no"})
    assert late.value.live
    with pytest.raises(SessionBusy):
        await graph.recover("s")
    gate.opened.set()
    result = await running
    assert result.state["done"] == ["ann: yes (None)", "ben: no (None)", "works", "end"]
    for thread, found in threads:
        await joined(thread)
        assert [each.state for each in found] == [result.state]


async def test_of_two_loops_that_answer_one_question_one_proceeds(store: Store):  # rules R3, A14
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    threads = [in_a_thread(lambda: graph.resume_sync("s", {"go": "yes"})) for _ in range(4)]
    for thread, _ in threads:
        await joined(thread)
    found = [each for _, ended in threads for each in ended]
    assert sorted(type(each).__name__ for each in found) == ["AlreadyResumed"] * 3 + ["RunResult"]
    assert [each.status for each in found if isinstance(each, RunResult)] == ["done"]
