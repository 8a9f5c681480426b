"""Attach: following a run that somebody else drives."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from adjourn import CheckpointNotFound, RunError, UnfinishedRun, interrupt
from adjourn.errors import CheckpointCorrupt, Conflict
from adjourn.events import Cancelled, Done, Event, Failed, Interrupted, NodeEnd
from adjourn.graph import START, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import Claim, GetHead, StoreRequest
from adjourn.testing import FakeClock

from .programs import (
    Gate,
    Path,
    asking,
    begin,
    events_of,
    events_until_failure,
    held,
    line,
    step,
    steps,
    until,
)

T = TypeVar("T")


def durable(events: list[Event]) -> list[Event]:
    return [event for event in events if event.seq is not None]


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


async def test_a_follower_sees_what_the_driver_sees(store: Store):  # rule A11
    gate = Gate()
    driver = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = driver.run({}, session_id="s")
    reading = asyncio.create_task(events_of(run))
    await gate.reached.wait()
    follower = asyncio.create_task(events_of(steps("a", "b", "c", store=store).attach("s")))
    gate.opened.set()
    assert await follower == durable(await reading)


async def test_a_follower_can_begin_after_any_event(store: Store):
    graph = steps("a", "b", store=store)
    events = durable(await events_of(graph.run({}, session_id="s")))
    for number in range(len(events) + 2):
        assert await events_of(graph.attach("s", after=number)) == events[number:]


async def test_a_follower_of_a_finished_session_gets_its_result(store: Store):
    await steps("a", store=store).run({}, session_id="s")
    result = await steps("a", store=store).attach("s")
    assert (result.status, result.state["done"], result.session_id) == ("done", ["a"], "s")


async def test_a_follower_of_a_waiting_session_gets_its_questions(store: Store):
    paused = await asking(store=store).run({}, session_id="s")
    result = await asking(store=store).attach("s")
    assert (result.status, result.interrupts) == ("interrupted", paused.interrupts)


async def test_a_follower_of_a_failing_run_is_told_and_then_it_raises(store: Store):
    await events_until_failure(line(("a", fails), store=store).run({}, session_id="s"))
    events, error = await events_until_failure(steps("a", store=store).attach("s"))
    assert isinstance(events[-1], Failed)
    assert isinstance(error, RunError)
    assert "no luck" in str(error)
    with pytest.raises(RunError, match="no luck"):
        await steps("a", store=store).attach("s")


async def test_a_follower_of_a_run_that_failed_once_and_was_recovered_does_not_raise(store: Store):
    await events_until_failure(line(("a", fails), store=store).run({}, session_id="s"))
    await steps("a", store=store).recover("s")
    events = await events_of(steps("a", store=store).attach("s"))
    assert [type(event) for event in events if isinstance(event, Failed | Done)] == [Failed, Done]


async def test_a_follower_of_a_cancelled_run_is_told(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    run = graph.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    follower = begin(steps("a", store=store).attach("s"))
    await run.cancel()
    await waiting
    assert (await follower).status == "cancelled"
    assert isinstance((await events_of(graph.attach("s")))[-1], Cancelled)


async def test_a_follower_who_leaves_does_not_stop_the_run(store: Store):
    gate = Gate()
    waiting = begin(line(("a", step("a")), ("b", held("b", gate)), store=store).run({}, session_id="s"))
    await gate.reached.wait()
    async with steps("a", "b", store=store).attach("s") as following:
        async for event in following:
            if isinstance(event, NodeEnd):
                break
    gate.opened.set()
    assert (await waiting).status == "done"


async def test_a_follower_can_stop_the_run(timed: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=timed, lease_ttl=0.3)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    following = line(("a", held("a", gate)), ("b", step("b")), store=timed).attach("s")
    reading = begin(following)
    await following.cancel()
    assert (await waiting).status == "cancelled"
    assert (await reading).status == "cancelled"


async def test_a_follower_of_a_second_turn_is_not_stopped_by_the_end_of_the_first(store: Store):
    gate = Gate()
    await steps("a", store=store).run({}, session_id="s")
    waiting = begin(line(("a", held("a", gate)), store=store).run({}, session_id="s"))
    await gate.reached.wait()
    follower = asyncio.create_task(events_of(steps("a", store=store).attach("s")))
    gate.opened.set()
    await waiting
    assert [type(event) for event in await follower].count(Done) == 2


async def test_a_follower_of_a_recovered_run_is_not_stopped_by_its_old_failure(store: Store):
    await events_until_failure(line(("a", fails), store=store).run({}, session_id="s"))
    gate = Gate()
    waiting = begin(line(("a", held("a", gate)), store=store).recover("s"))
    await gate.reached.wait()
    follower = asyncio.create_task(events_of(steps("a", store=store).attach("s")))
    gate.opened.set()
    await waiting
    assert isinstance((await follower)[-1], Done)


async def test_a_follower_stops_with_its_run_even_if_the_next_one_begins_at_once(store: Store):
    gates = [Gate(), Gate()]

    async def turn(state: Mapping[str, Any]) -> dict[str, Any]:
        await gates[len(state.get("done", []))].wait()
        return {"done": ["a"]}

    graph = line(("a", turn), store=store)
    first = begin(graph.run({}, session_id="s"))
    await gates[0].reached.wait()
    follower = asyncio.create_task(events_of(steps("a", store=store).attach("s")))
    gates[0].opened.set()
    await first
    second = begin(graph.run({}, session_id="s"))
    assert isinstance((await follower)[-1], Done)
    gates[1].opened.set()
    await second


async def test_a_follower_of_a_dead_run_does_not_wait_for_ever(timed: Store, clock: FakeClock):
    gate = Gate()
    driver = line(("a", step("a")), ("b", held("b", gate)), store=timed)
    run = driver.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    clock.advance(60)  # The driver's lease is over, as if its machine were gone.
    with pytest.raises(UnfinishedRun, match="recover"):
        await steps("a", "b", store=timed).attach("s")
    await run.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_follower_of_a_session_that_is_deleted_is_told_so(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    following = asking(store=store).attach("s")
    events = aiter(following)
    await anext(events)
    await graph.delete("s")
    with pytest.raises(CheckpointNotFound):
        await following


async def test_events_that_are_missing_are_noticed(tmp_path: Any):  # rule C10
    path = tmp_path / "s.db"
    await steps("a", "b", store=f"sqlite:///{path}").run({}, session_id="s")
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE records SET events = '[]' WHERE key = (SELECT max(key) FROM records)")
    with pytest.raises(CheckpointCorrupt):
        await events_of(steps("a", "b", store=f"sqlite:///{path}").attach("s"))


# Answers to a run that is live: their giver follows it


def two_questions(gate: Gate, store: Store) -> Any:
    async def first(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"done": [interrupt("First?", key="first")]}

    async def second(state: Mapping[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return {"done": ["second"]}

    graph = StateGraph(Path, name="two").add_node("first", first).add_node("second", second)
    return graph.add_edge(START, "first").add_edge(START, "second").compile(store=store)


async def none_pending(graph: Any) -> bool:
    return not await graph.pending("s")


async def test_who_answers_a_live_run_follows_it_from_there(store: Store):  # rule R3
    gate = Gate()
    driver = two_questions(gate, store).run({}, session_id="s")
    reading = asyncio.create_task(events_of(driver))
    await gate.reached.wait()
    other = two_questions(Gate(), store)
    await until(lambda: other.pending("s"))
    known = (await store.read(GetHead(SessionRef("s")))).seq  # pyright: ignore[reportOptionalMemberAccess]
    answering = asyncio.create_task(events_of(other.resume("s", {"first": "yes"}, by="ann")))
    await until(lambda: none_pending(other))
    gate.opened.set()
    seen, told = durable(await answering), durable(await reading)
    assert isinstance(told[-1], Done)
    assert not any(isinstance(event, Interrupted) for event in told)
    assert seen == [event for event in told if (event.seq or 0) > known]


async def test_who_answers_a_live_run_gets_its_result(store: Store):  # rule R3
    gate = Gate()
    waiting = begin(two_questions(gate, store).run({}, session_id="s"))
    await gate.reached.wait()
    other = two_questions(Gate(), store)
    await until(lambda: other.pending("s"))
    answering = begin(other.resume("s", {"first": "yes"}))
    await until(lambda: none_pending(other))
    gate.opened.set()
    assert (await answering).state["done"] == (await waiting).state["done"] == ["yes", "second"]


# After the last event, and while others write


async def test_a_follower_who_has_read_that_it_failed_is_told_again(store: Store):
    events, _ = await events_until_failure(line(("a", fails), store=store).run({}, session_id="s"))
    other = line(("a", fails), store=store)
    with pytest.raises(RunError, match=r"failed with ValueError: no luck. Try again with `recover`"):
        await other.attach("s", after=events[-1].seq or 0)


async def test_a_damaged_end_is_an_error_where_it_is_read_and_nowhere_before(tmp_path: Any):  # rule C10
    path = tmp_path / "s.db"
    graph = steps("a", "b", store=f"sqlite:///{path}")
    whole = durable(await events_of(graph.run({}, session_id="s")))
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE records SET body = x'00' WHERE key = (SELECT max(key) FROM records)")
    seen: list[Event] = []

    async def read() -> None:
        async for event in steps("a", "b", store=f"sqlite:///{path}").attach("s"):
            seen.append(event)  # noqa: PERF401  # those before the error, too

    with pytest.raises(CheckpointCorrupt):
        await read()
    assert seen == whole[:-1]


class Contended(StoreWrapper):
    """A store in which somebody else is faster, so many times."""

    def __init__(self, inner: Store, times: int) -> None:
        super().__init__(inner)
        self.times = times

    async def write(self, request: StoreRequest[T]) -> T:
        asked = request.plain
        if self.times and isinstance(asked, Claim):
            self.times -= 1
            raise Conflict(asked.ref.id, "somebody else was faster")
        return await super().write(request)


async def test_a_session_that_others_write_is_stopped_all_the_same(store: Store):
    await asking(store=store).run({}, session_id="s")
    assert await asking(store=Contended(store, 2)).cancel("s")
    assert (await asking(store=store).status("s")).status == "cancelled"


async def test_a_session_that_others_never_stop_writing_is_a_conflict(store: Store):
    await asking(store=store).run({}, session_id="s")
    with pytest.raises(Conflict, match="others keep writing it"):
        await asking(store=Contended(store, 10_000)).cancel("s")
    assert (await asking(store=store).status("s")).status == "waiting"
