"""Readers that are slow, many or gone: they miss no durable event, and the run does not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from adjourn import Run, Runner, current
from adjourn.errors import StoreUnavailable
from adjourn.events import Done, Event, Failed, Interrupted
from adjourn.runner._reader import Reader
from adjourn.stores import SessionRef, Store
from adjourn.testing import FaultStore
from tests.conftest import Buffer

from .programs import FINAL, Gate, asking, begin, held, kinds, line, step, steps, turns
from .stores import ReadStore

NAMES = [f"n{number}" for number in range(20)]


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


async def read_slowly(run: Run, turns_each: int, into: list[Event] | None = None) -> list[Event]:
    events: list[Event] = [] if into is None else into
    async for event in run:
        events.append(event)
        await turns(turns_each)
    return events


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("turns_each", [0, 1, 3, 40])
@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_a_slow_reader_gets_every_durable_event_once_and_in_order(  # rule A11
    store: Store, buffer: Buffer, size: int, turns_each: int, durability: Any
):
    buffer(size)
    graph = steps(*NAMES, store=store, durability=durability)
    events = await read_slowly(graph.run({}, session_id="s"), turns_each)
    assert numbers(events) == list(range(1, len(numbers(events)) + 1))
    assert isinstance(events[-1], Done)
    assert [isinstance(event, FINAL) for event in events].count(True) == 1
    assert kinds(events).count("NodeEnd") == len(NAMES)


async def test_a_slow_reader_of_a_second_turn_gets_that_turn_alone(store: Store, buffer: Buffer):
    buffer(1)
    graph = steps(*NAMES, store=store)
    first = await read_slowly(graph.run({}, session_id="s"), 3)
    second = await read_slowly(graph.run({}, session_id="s"), 3)
    both = numbers(first) + numbers(second)
    assert both == list(range(1, len(both) + 1))


async def test_a_run_does_not_wait_for_a_reader_who_stands_still(store: Store, buffer: Buffer):  # rule A11
    buffer(2)
    graph = steps(*NAMES, store=store)
    run = graph.run({}, session_id="s")
    events = aiter(run)
    first = await anext(events)
    assert (await run).status == "done"  # while the reader has taken one event
    rest = [event async for event in events]
    assert numbers([first, *rest]) == list(range(1, len(numbers([first, *rest])) + 1))


async def test_a_reader_who_stands_still_costs_no_more_than_the_buffer(store: Store, buffer: Buffer):  # rule A11
    async def chatters(state: dict[str, Any]) -> None:
        for number in range(500):
            current().emit(number)

    buffer(4)
    run = line(("talk", chatters), store=store).run({}, session_id="s")
    events = aiter(run)
    await anext(events)
    await run
    assert sum(len(queue.events) for queue in run._readers.queues) <= 4  # pyright: ignore[reportPrivateUsage]  # the memory that a stalled reader holds
    data = [getattr(event, "data", None) async for event in events]
    assert [value for value in data if value is not None] == list(range(500))


async def test_a_reader_who_keeps_up_never_looks_into_the_log(store: Store):
    class Hearing:
        def note(self, event: Event) -> None:
            pass

    reads = ReadStore(store)
    graph = steps(*NAMES, store=reads)
    for _ in range(2):  # In the second turn, there is a log of the first one.
        assert isinstance((await read_slowly(graph.run({}, session_id="s"), 0))[-1], Done)
    graph._live.listen = Hearing  # pyright: ignore[reportPrivateUsage]  # as a server does
    async with graph.run({}, session_id="s") as run:
        await run.start()
        assert isinstance([item async for item in run.watch().items()][-1], Done)
    assert not reads.rows["events"]


async def test_a_slow_reader_of_a_failing_run_is_told_and_then_it_raises(store: Store, buffer: Buffer):
    async def fails(state: dict[str, Any]) -> None:
        raise ValueError("no luck")

    nodes = [(name, step(name)) for name in NAMES]
    buffer(1)
    run = line(*nodes, ("fails", fails), store=store).run({}, session_id="s")
    events: list[Event] = []
    with pytest.raises(ValueError, match="no luck"):
        await read_slowly(run, 5, into=events)
    assert isinstance(events[-1], Failed)
    assert numbers(events) == list(range(1, len(numbers(events)) + 1))


async def test_a_slow_reader_of_a_run_whose_store_goes_away_is_not_left_waiting(store: Store, buffer: Buffer):
    faulty = FaultStore(store, fail_at=8, times=100)
    buffer(1)
    run = steps(*NAMES, store=faulty, store_timeout=0.3).run({}, session_id="s")
    events: list[Event] = []
    with pytest.raises(StoreUnavailable):
        await read_slowly(run, 20, into=events)
    assert isinstance(events[-1], Failed)
    assert events[-1].error == "StoreUnavailable"


async def test_a_slow_reader_of_a_pause_gets_it_last(store: Store, buffer: Buffer):
    buffer(1)
    events = await read_slowly(asking(store=store).run({}, session_id="s"), 10)
    assert isinstance(events[-1], Interrupted)


async def test_a_vanished_reader_leaves_nothing_behind(store: Store):  # rule A11
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    run = graph.run({}, session_id="s")
    run.detach()
    reader = asyncio.create_task(read_slowly(run, 0))
    await gate.reached.wait()
    reader.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reader
    gate.opened.set()
    assert (await run).status == "done"
    assert not run._readers.queues  # pyright: ignore[reportPrivateUsage]  # nobody reads them, so nobody keeps them
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_a_detached_run_whose_reader_left_keeps_no_events_in_memory(store: Store, durability: Any):  # rule A11
    async def chatters(state: dict[str, Any]) -> None:
        for number in range(500):
            current().emit(number)

    nodes = [(name, chatters) for name in ("a", "b", "c")]
    run = line(*nodes, store=store, durability=durability).run({}, session_id="s")
    run.detach()
    async for _ in run:
        break
    await turns()
    await run
    assert not run._readers.queues  # pyright: ignore[reportPrivateUsage]


async def test_a_reader_who_left_can_come_back(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    run.detach()
    seen: list[Event] = []
    async for event in run:
        seen.append(event)
        break
    await turns()
    gate.opened.set()
    seen += [event async for event in run]
    assert numbers(seen) == list(range(1, len(numbers(seen)) + 1))
    assert isinstance(seen[-1], Done)


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_what_was_told_is_in_the_log_for_everybody_after_the_end(store: Store, durability: Any):
    graph = steps(*NAMES, store=store, durability=durability)
    told = await read_slowly(graph.run({}, session_id="s"), 0)
    later = [event async for event in Runner(steps(*NAMES), store=store).attach("s")]
    assert [event for event in told if event.seq is not None] == later


async def test_an_awaited_run_stores_its_events_all_the_same(store: Store):
    graph = steps("a", "b", store=store)
    await begin(graph.run({}, session_id="s"))
    events = [event async for event in graph.attach("s")]
    assert numbers(events) == [1, 2, 3, 4, 5, 6]


async def test_a_reader_who_comes_when_the_run_has_begun_gets_what_is_logged_of_it_first(store: Store):  # rule A11
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    awaited = begin(run)
    await gate.reached.wait()
    asyncio.get_running_loop().call_soon(gate.opened.set)
    events = [event async for event in run]
    await awaited
    logged = [event async for event in graph.attach("s", after=0)]
    assert isinstance(events[-1], Done)
    assert [event for event in events if event.seq is not None] == logged


async def test_a_reader_who_comes_while_the_run_goes_on_in_another_thread_misses_nothing(store: Store):  # rule A11
    gates = [Gate(), Gate()]
    graph = line(*[(name, held(name, gate)) for name, gate in zip("ab", gates, strict=True)], store=store)
    run = graph.run({}, session_id="s")
    first = asyncio.create_task(read_slowly(run, 0))
    await gates[0].reached.wait()
    reader = Reader(store, SessionRef("s"), after=0)
    reader.join(run._readers)  # pyright: ignore[reportPrivateUsage]
    gates[0].opened.set()  # as a run in another thread may emit at any moment
    await gates[1].reached.wait()
    reader.follow_on()
    gates[1].opened.set()
    events = [event for event in await first if event.seq is not None]
    assert [event async for event in reader.items() if event.seq is not None] == events
