"""Tasks that code leaves behind when it pauses or fails: found without touching the event loop's task factory."""

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from adjourn import current, interrupt, once
from adjourn._engine.execution import contexts_of
from adjourn.graph import START, Command, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, lone

cancelled: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_cancelled() -> None:
    cancelled.clear()


async def wait_for_ever(name: Any = "left") -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append(name)


def leave(name: Any = "left") -> Any:
    return asyncio.get_running_loop().create_task(wait_for_ever(name))


async def pauses(state: Any) -> Any:
    leave()
    await asyncio.sleep(0)
    return {"log": [interrupt("q", key="q")]}


async def fails(state: Any) -> Any:
    leave()
    await asyncio.sleep(0)
    raise ValueError("no")


def wrapping(loop: asyncio.AbstractEventLoop, made: list[Any]) -> None:
    """Wrap the loop's task factory, as libraries that trace tasks do, around whatever is there."""
    before: Any = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        made.append(coro)
        if before is not None:
            return before(loop, coro, **options)
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)


async def test_a_pause_ends_what_was_started(store: Store):  # rule I1
    assert (await lone(pauses, store=store).run({}, session_id="s")).status == "interrupted"
    assert cancelled == ["left"]


async def test_a_failure_ends_what_was_started(store: Store):  # rule I1
    with pytest.raises(ValueError, match="no"):
        await lone(fails, store=store).run({}, session_id="s")
    assert cancelled == ["left"]


async def test_what_a_kept_call_started_ends_with_the_code():  # rules I1, R13
    @once
    async def start() -> int:
        leave("of a kept call")
        await asyncio.sleep(0)
        return 1

    async def node(state: Any) -> Any:
        await start()
        return {"log": [interrupt("q", key="q")]}

    await lone(node).run({}, session_id="s")
    assert cancelled == ["of a kept call"]


async def test_what_sync_code_on_the_loop_started_ends_with_it():  # rule I1
    def node(state: Any) -> Any:
        leave("of sync code")
        return {"log": [interrupt("q", key="q")]}

    await lone(node, thread=False).run({}, session_id="s")
    assert cancelled in (["of sync code"], [])  # A task that is cancelled before its first step does nothing.
    assert not [task for task in asyncio.all_tasks() if "wait_for_ever" in repr(task)]


async def test_tasks_of_others_go_on():  # rule I1
    mine = leave("mine")
    await asyncio.sleep(0)
    await lone(pauses).run({}, session_id="s")
    assert (cancelled, mine.done()) == (["left"], False)
    mine.cancel()


async def test_a_child_run_beside_a_timeout_ends_with_it():  # rules I1, G12
    inner = lone(pauses_never, name="inner")

    async def node(state: Any) -> Any:
        await asyncio.gather(current().run(inner, {}), asyncio.sleep(0))

    graph = StateGraph(Log, name="g").add_node("ask", node, timeout=0.05).add_edge(START, "ask").compile()
    with pytest.raises(Exception, match=r"0\.05"):
        await graph.run({}, session_id="s")
    assert cancelled == ["inner"]


async def pauses_never(state: Any) -> None:
    await wait_for_ever("inner")


async def test_the_loops_own_task_factory_stays(store: Store):  # rule C13
    loop, made = asyncio.get_running_loop(), list[Any]()
    graph = lone(pauses, store=store)
    assert loop.get_task_factory() is None
    run = graph.run({}, session_id="s")
    async for _ in run:
        assert loop.get_task_factory() is None
    # A library that wraps the factory before one run, between two, and around another one's wrapping.
    for number in range(3):
        wrapping(loop, made)
        factory = loop.get_task_factory()
        assert (await graph.run({}, session_id=f"s{number}")).status == "interrupted"
        assert (await graph.resume(f"s{number}", {"q": 1})).state["log"] == [1]
        assert loop.get_task_factory() is factory
    assert cancelled.count("left") == 4
    loop.set_task_factory(None)
    assert (await graph.resume("s", {"q": 1})).state["log"] == [1]


async def test_a_factory_that_is_taken_away_during_a_run_is_not_missed():
    loop, made = asyncio.get_running_loop(), list[Any]()

    async def node(state: Any) -> Any:
        wrapping(loop, made)
        leave()
        await asyncio.sleep(0)
        loop.set_task_factory(None)
        return {"log": [interrupt("q", key="q")]}

    await lone(node).run({}, session_id="s")
    assert (cancelled, len(made)) == (["left"], 1)
    assert loop.get_task_factory() is None


# The cost


def fan(node: Any, count: int) -> Any:
    def spread(state: Any) -> list[Command]:
        return [Command(update={"log": [number]}, goto="ask") for number in range(count)]

    graph = StateGraph(Log, name="g").add_node("spread", spread, destinations=["ask"], thread=False)
    return graph.add_node("ask", node).add_edge(START, "spread").compile()


@pytest.fixture
def looked_at() -> Iterator[list[Any]]:
    """A line for each task that was looked at in search of those left behind."""
    found: list[Any] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is contexts_of.__code__:
            found.append(frame.f_lineno)

    sys.setprofile(note)
    yield found
    sys.setprofile(None)


async def test_a_pause_that_leaves_nothing_behind_searches_for_nothing(looked_at: list[Any]):
    async def asks(state: Any) -> Any:
        ctx = current()
        await asyncio.sleep(0)
        return {"log": [interrupt(ctx.session_id, key="q")]}

    result = await fan(asks, 200).run({}, session_id="s")
    assert (len(result.interrupts), looked_at) == (200, [])


async def test_tasks_that_pause_together_share_a_search(looked_at: list[Any]):
    async def asks(state: Any) -> Any:
        leave(state["log"][0])
        await asyncio.sleep(0)
        return {"log": [interrupt("q", key="q")]}

    result = await fan(asks, 100).run({}, session_id="s")
    assert len(result.interrupts) == 100
    assert sorted(cancelled) == list(range(100))
    # A search for each would look at 100 * 200 tasks.
    assert len(looked_at) < 10 * 200
