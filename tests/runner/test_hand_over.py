"""Handing over: a process that ends leaves its runs to others, who go on at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from adjourn import Run, Runner, current, interrupt, once, workflow
from adjourn.sessions import SessionEnded, Sessions
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Cancel, ListDue
from adjourn.testing import FakeClock, FaultStore

from .programs import Gate, asking, begin, held, line, step, turns


async def due(store: Store) -> list[tuple[str, str]]:
    return [(each.session, each.why) for each in await store.read(ListDue())]


async def test_a_run_stops_after_its_step_and_others_go_on(store: Store):  # failures 25
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    handing = asyncio.create_task(run.hand_over())
    await turns()
    gate.opened.set()
    await handing
    assert (await waiting).state["done"] == ["a", "b"]
    status = await graph.status("s")
    assert (status.status, status.owner) == ("queued", None)  # nobody has cancelled it
    assert [each.source for each in await graph.history("s")] == ["step", "step", "input"]
    assert await due(store) == [("s", "lease")]
    other = line(("a", step("x")), ("b", step("x")), ("c", step("c")), store=store)
    assert (await other.recover("s")).state["done"] == ["a", "b", "c"]
    assert await due(store) == []


async def test_whoever_goes_on_is_said_to_run_it(store: Store):
    gate, again = Gate(), Gate()
    run = line(("a", held("a", gate)), store=store).run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.hand_over(timeout=0)
    await waiting
    other = line(("a", held("a", again)), store=store)
    recovering = begin(other.recover("s"))
    await again.reached.wait()
    status = await other.status("s")
    assert (status.status, status.owner is None) == ("running", False)
    assert [each.session_id for each in await other.sessions(status="running")] == ["s"]
    assert [each.session_id for each in await other.sessions(status="queued")] == []
    again.opened.set()
    assert (await recovering).state["done"] == ["a"]


async def test_a_step_that_takes_too_long_is_cut_off_and_runs_again_with_its_key(store: Store):  # rule R14
    seen: list[tuple[str, int]] = []
    gate = Gate()

    def pay(waits: Gate | None) -> Any:
        async def node(state: Mapping[str, Any]) -> dict[str, Any]:
            seen.append((current().idempotency_key, current().attempt))
            if waits is not None:
                await waits.wait()
            return {"done": ["pay"]}

        return node

    run = line(("pay", pay(gate)), store=store).run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.hand_over(timeout=0)
    await waiting
    assert await due(store) == [("s", "lease")]
    assert (await line(("pay", pay(None)), store=store).recover("s")).state["done"] == ["pay"]
    assert seen[0][0] == seen[1][0]
    assert seen[1][1] == 1  # it is no crash, so no attempt was lost


async def test_a_workflow_stops_between_its_calls(store: Store):  # failures 25
    gate, calls = Gate(), list[str]()

    @once
    async def call(name: str) -> str:
        calls.append(name)
        if name == "a":
            await gate.wait()
        return name

    @workflow
    async def flow(input: str) -> list[str]:
        return [await call("a"), await call("b")]

    run = Runner(flow, store=store).run("x", session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    handing = asyncio.create_task(run.hand_over())
    await turns()
    gate.opened.set()
    await asyncio.gather(handing, waiting)
    assert calls == ["a"]
    assert (await Runner(flow, store=store).recover("s")).value == ["a", "b"]
    assert calls == ["a", "b"]


async def test_a_run_that_pauses_or_ends_meanwhile_is_left_as_it_is(store: Store):
    run = asking(store=store).run({}, session_id="s")
    assert (await run).status == "interrupted"
    await run.hand_over()
    assert (await asking(store=store).status("s")).status == "waiting"
    assert await due(store) == []
    unstarted = asking(store=store).run({}, session_id="t")
    await unstarted.hand_over()
    assert (await unstarted).status == "interrupted"


async def test_a_cancel_counts_more_than_handing_over(store: Store):
    for first in ("cancel", "hand_over"):
        gate = Gate()
        graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
        run = graph.run({}, session_id=first)
        waiting = begin(run)
        await gate.reached.wait()
        calls = {"cancel": run.cancel("after_step"), "hand_over": run.hand_over()}
        tasks = [asyncio.create_task(calls.pop(first)), *map(asyncio.create_task, calls.values())]
        await turns()
        gate.opened.set()
        await asyncio.gather(*tasks)
        await waiting
        assert (await graph.status(first)).status == "cancelled"
    assert await due(store) == []


async def test_a_cancel_from_elsewhere_that_comes_last_is_not_lost(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    handing = asyncio.create_task(run.hand_over())
    await turns()
    assert await store.write(Cancel(SessionRef("s"), "now"))  # as another process does: only the store knows
    gate.opened.set()
    await asyncio.gather(handing, waiting)
    assert (await graph.status("s")).status == "cancelled"
    assert await due(store) == []


async def test_whoever_follows_the_run_follows_it_to_its_end(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    reading = begin(line(("a", step("a")), ("b", step("b")), store=store).attach("s"))
    handing = asyncio.create_task(run.hand_over())
    await turns()
    gate.opened.set()
    await asyncio.gather(handing, waiting)
    await turns()
    assert not reading.done()
    await graph.recover("s")
    assert (await reading).state["done"] == ["a", "b"]


async def test_a_subscription_does_not_report_it_as_ended(store: Store):
    await asking(store=store).run({}, session_id="asks")
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    async with contextlib.aclosing(Sessions(store).subscribe(report_open=True)) as notices:
        assert (await anext(notices)).session_id == "asks"  # From here on it sees whatever happens.
        handing = asyncio.create_task(run.hand_over())
        await turns()
        gate.opened.set()
        await asyncio.gather(handing, waiting)
        await graph.recover("s")
        ended = await anext(notices)
    assert isinstance(ended, SessionEnded)
    assert (ended.session_id, ended.status) == ("s", "done")


async def test_questions_that_are_open_then_stay_open(store: Store):
    gate = Gate()

    async def both(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": interrupt("Go on?", key="go"), "done": ["asks"]}

    graph = line(("a", held("a", gate)), ("asks", both), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    handing = asyncio.create_task(run.hand_over(timeout=0))
    await asyncio.gather(handing, waiting)
    gate.opened.set()
    assert (await graph.recover("s")).status == "interrupted"
    assert [each.key for each in await graph.pending("s")] == ["go"]
    assert (await graph.resume("s", {"go": 1})).state["answer"] == 1


async def test_if_the_store_is_away_its_lease_ends_later(timed: Store, clock: FakeClock):  # rule C11
    gate = Gate()
    away = FaultStore(timed, fail_at=3, times=None)
    graph = line(("a", held("a", gate)), ("b", step("b")), store=away, clock=clock)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    away.calls = 2
    handing = asyncio.create_task(run.hand_over(timeout=0))
    await asyncio.wait([handing, waiting])
    clock.advance(31)
    again = line(("a", step("a")), ("b", step("b")), store=timed, clock=clock)
    assert (await again.recover("s")).state["done"] == ["a", "b"]


async def test_from_another_thread(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    handing = asyncio.create_task(asyncio.to_thread(_hand_over_elsewhere, run))
    await asyncio.gather(handing, waiting)
    assert (await graph.status("s")).status == "queued"
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["a", "b"]


def _hand_over_elsewhere(run: Run) -> None:
    asyncio.run(run.hand_over(timeout=0))
