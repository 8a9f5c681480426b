"""A run has a task of its own; from Python 3.12 on an awaited run begins at once, before the event loop's next turn."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import pytest

from adjourn._engine.scope import Scope
from adjourn.stores import MemoryStore, Store

from .programs import Gate, awaited, begin, held, line, step, steps, turns


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12, where a task can begin at once")
async def test_an_awaited_run_that_never_waits_is_over_before_the_loops_next_turn():
    async def turns_meanwhile() -> int:
        turned: list[bool] = []
        asyncio.get_running_loop().call_soon(turned.append, True)
        await steps("a", "b", store=MemoryStore()).run({}, session_id="s")
        return len(turned)

    # On a busy machine a run may take so long that it lets others have their turn.
    assert 0 in [await turns_meanwhile() for _ in range(20)]


async def test_a_run_that_never_waits_leaves_no_task_behind():
    await steps("a", "b", store=MemoryStore()).run({}, session_id="s")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_nodes_timeout_ends_the_node_and_not_whoever_awaits_the_run(store: Store):
    async def patient(state: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return {"done": ["late"]}
        return {}

    result = await line(("a", patient), ("b", step("b")), store=store).run({}, session_id="s")
    assert result.state["done"] == ["late", "b"]
    assert current().cancelling() == 0


async def test_a_run_that_is_detached_while_it_is_awaited_goes_on_without_its_awaiter(store: Store):
    gate = Gate()
    run = line(("a", held("a", gate)), ("b", step("b")), store=store).run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    run.detach()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    assert (await run).state["done"] == ["a", "b"]


async def test_of_many_who_await_a_run_each_may_leave(store: Store):
    gate = Gate()
    run = line(("a", held("a", gate)), store=store).run({}, session_id="s")
    run.detach()
    waiting = [begin(run) for _ in range(3)]
    await gate.reached.wait()
    await turns()
    waiting[0].cancel()
    waiting[2].cancel()
    await turns()
    gate.opened.set()
    assert (await waiting[1]).state["done"] == ["a"]
    assert [each.cancelled() for each in waiting] == [True, False, True]


async def test_runs_in_nodes_of_runs_may_be_deep():
    async def digs(state: dict[str, Any]) -> dict[str, Any]:
        depth = state.get("answer", 0)
        if depth < 300:
            await graph.run({"answer": depth + 1})
        return {"done": ["dug"]}

    graph = line(("a", digs), store=MemoryStore())
    assert (await graph.run({})).state["done"] == ["dug"]


async def test_a_timeout_around_an_awaited_run_is_its_callers(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    limit = asyncio.timeout(None)

    async def limited() -> None:
        async with limit:
            await graph.run({}, session_id="s")

    waiting = asyncio.create_task(limited())
    await gate.reached.wait()
    limit.reschedule(0.0)
    with pytest.raises(TimeoutError):
        await waiting
    assert (await graph.status("s")).status == "cancelled"


async def test_whoever_awaits_run_after_run_leaves_others_on_the_loop_their_turns():
    graph, had_turns = steps("a", store=MemoryStore()), 0

    async def other() -> None:
        nonlocal had_turns
        while True:
            had_turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for number in range(20_000):
        await graph.run({}, session_id=f"s{number}")
        if had_turns > 2:
            break
    task.cancel()
    assert had_turns > 2


async def test_sessions_that_nobody_goes_on_with_are_freed_without_the_garbage_collector():
    kept, private = steps("a", store=MemoryStore()), steps("a")
    gc.collect()
    gc.disable()
    before = _scopes()
    try:
        for number in range(100):
            await awaited(kept.run({}, session_id=f"s{number}"))
            await awaited(private.run({}))
        assert _scopes() - before < 60
    finally:
        gc.enable()


def _scopes() -> int:
    return sum(isinstance(each, Scope) for each in gc.get_objects())
