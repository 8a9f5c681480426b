"""Runners without a store: a memory of their own, in which a session without an id lives until it is done."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import CheckpointNotFound, NodeEnd, Runner, interrupt, once, workflow
from adjourn.events import Cancelled, Done
from adjourn.stores import MemoryStore

from .programs import Gate, asking, begin, events_of, held, line, step, steps


async def test_a_session_without_id_is_forgotten_when_done():
    runner = Runner(steps("a"))
    result = await runner.run({})
    assert await runner.sessions() == []
    with pytest.raises(CheckpointNotFound):
        await runner.status(result.session_id)


async def test_whoever_comes_back_to_a_forgotten_session_learns_why_it_is_gone():
    runner = Runner(asking())
    paused = await runner.run({})
    assert (await runner.resume(paused.session_id, {"go": 1})).status == "done"
    name = paused.session_id
    calls = (runner.run({}, session_id=name), Runner(asking()).run({}, session_id=name), runner.resume(name, {"go": 1}))
    for call in (*calls, runner.messages(name), runner.history(name), runner.status(name)):
        with pytest.raises(CheckpointNotFound, match=r"forgotten when it was done.*session_id=.*store="):
            await call
    assert (await runner.run({}, session_id="mine")).status == "interrupted"


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_a_session_without_id_is_forgotten_whatever_the_durability(durability: Any):
    runner = Runner(steps("a", "b"), durability=durability)
    assert (await runner.run({})).state["done"] == ["a", "b"]
    assert await runner.sessions() == []


async def test_a_session_without_id_that_pauses_is_kept_until_it_is_done():  # rule I11
    @once
    async def charge() -> int:
        charged.append(1)
        return len(charged)

    @workflow
    async def pays(_: Any) -> Any:
        await charge()
        first = interrupt("First?", key="first")
        await charge()
        return [first, interrupt("Second?", key="second")]

    charged: list[int] = []
    runner = Runner(pays)
    paused = await runner.run(None)
    assert (await runner.status(paused.session_id)).status == "waiting"
    assert (await runner.resume(paused.session_id, {"first": 1})).status == "interrupted"
    done = await runner.resume(paused.session_id, {"second": 2})
    assert (done.value, charged) == ([1, 2], [1, 1])
    assert await runner.sessions() == []


async def test_more_paused_sessions_than_are_kept_ready_are_forgotten_too():
    runner = Runner(asking())
    paused = [await runner.run({}) for _ in range(40)]
    for result in paused:
        assert (await runner.resume(result.session_id, {"go": 1})).status == "done"
    assert await runner.sessions() == []


async def test_a_session_with_an_id_is_kept_without_a_store():
    runner = Runner(steps("a"))
    await runner.run({}, session_id="s")
    assert (await runner.run({}, session_id="s")).state["done"] == ["a", "a"]


async def test_two_runners_without_a_store_share_nothing():
    graph = steps("a")
    await Runner(graph).run({}, session_id="s")
    with pytest.raises(CheckpointNotFound):
        await Runner(graph).status("s")


async def test_a_session_without_id_on_a_given_store_is_kept():
    store = MemoryStore()
    result = await Runner(steps("a"), store=store).run({})
    assert (await Runner(steps("a"), store=store).status(result.session_id)).status == "done"


async def test_a_cancelled_session_without_id_can_be_recovered():
    gate = Gate()
    runner = Runner(line(("a", step("a")), ("b", held("b", gate))))
    run = runner.run({})
    waiting = begin(run)
    await gate.reached.wait()
    await run.cancel()
    assert (await waiting).status == "cancelled"
    gate.opened.set()
    assert (await runner.recover(run.session_id)).state["done"] == ["a", "b"]
    assert await runner.sessions() == []


async def test_reading_a_run_without_a_store_tells_everything():
    events = await events_of(Runner(steps("a", "b")).run({}))
    assert [event.node for event in events if isinstance(event, NodeEnd)] == ["a", "b"]
    assert not any(isinstance(event, Cancelled) for event in events)
    assert isinstance(events[-1], Done)
