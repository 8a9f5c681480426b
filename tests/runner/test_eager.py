"""Runs that are awaited begin at once, in a task of their own that the event loop hears of when it first waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import pytest

from adjourn._engine.scope import Scope
from adjourn.runner._eager import begin_task
from adjourn.stores import MemoryStore, Store

from .programs import Gate, awaited, begin, held, line, step, steps, turns

tone: ContextVar[str] = ContextVar("tone", default="unset")


def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    return begin_task(work, loop=asyncio.get_running_loop(), name="work")


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


# Tasks


async def test_work_that_never_waits_is_done_at_once():
    done: list[str] = []

    async def work() -> None:
        tone.set("loud")
        done.append(current().get_name())

    assert start(work()) is None
    assert done == ["work"]
    assert tone.get() == "unset"
    assert asyncio.all_tasks() == {current()}


async def test_work_is_done_in_the_name_of_its_own_task_from_its_first_line():
    seen: list[Any] = []

    async def work() -> None:
        for _ in range(3):
            seen.append(current())
            await asyncio.sleep(0)

    task = start(work())
    assert task is not None
    assert seen == [task]
    assert current() is not task
    await task
    assert seen == [task, task, task]


async def test_no_two_works_have_one_task_that_somebody_kept():
    kept: set[asyncio.Task[Any]] = set()
    weak: WeakSet[asyncio.Task[Any]] = WeakSet()
    ended: list[Any] = []

    async def keeps() -> None:
        kept.add(current())

    async def keeps_weakly() -> None:
        assert current() not in weak
        weak.add(current())

    async def waits_for_its_end() -> None:
        current().add_done_callback(ended.append)

    for _ in range(3):
        start(keeps())
        start(keeps_weakly())
        start(waits_for_its_end())
    await turns()
    assert len(kept) == 3
    assert all(task.done() for task in kept)
    assert len(ended) == 3


async def test_a_cancel_that_work_did_not_wait_for_is_not_handed_on():
    async def cancels() -> None:
        current().cancel()

    async def waits() -> None:
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    start(cancels())
    task = start(waits())
    assert task is not None
    await task


async def test_a_cancel_reaches_work_that_has_not_had_a_turn_on_the_loop():
    reached = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.set()
            raise

    task = start(work())
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reached.is_set()
    assert task.cancelled()


async def test_a_cancel_of_its_own_before_it_first_waits_reaches_work():
    async def work() -> None:
        current().cancel()
        await asyncio.Event().wait()

    task = start(work())
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_timeouts_and_groups_that_begin_before_the_first_wait_mean_the_work():
    said: list[str] = []

    async def work() -> None:
        tone.set("loud")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            inner = group.create_task(asyncio.sleep(0, tone.get()))
        said.append(inner.result())

    task = start(work())
    assert task is not None
    await task
    assert said == ["loud"]
    assert tone.get() == "unset"


async def test_work_that_goes_on_is_among_the_tasks_of_its_loop():
    gate = Gate()
    task = start(gate.wait())
    assert task in asyncio.all_tasks()
    gate.opened.set()
    assert task is not None
    await task
    assert gate.passed == 1


def test_loops_in_several_threads_have_tasks_of_their_own():
    async def waits() -> None:
        for _ in range(200):
            await asyncio.sleep(0)
            time.sleep(0)  # noqa: ASYNC251  # another thread has its turn in the middle of a step

    async def starts() -> None:
        for _ in range(10):
            task = start(waits())
            assert task is not None
            await task

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(asyncio.run, starts()) for _ in range(4)]:
            each.result(60)


# Runs


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
