"""One run and many who use it: on other event loops, several who await it, and several who read it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from adjourn import ChatModelAgent, Delta, Run, Runner
from adjourn.errors import Conflict
from adjourn.events import Done, Event
from adjourn.models import Chunk
from adjourn.runner._heartbeat import Heartbeat
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import GetHead
from tests.conftest import Buffer

from .programs import Gate, awaited, begin, events_of, held, line, step, steps, turns

WAIT = 50.0


async def on_another_loop(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine gives that runs on an event loop of its own, in another thread."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def work() -> None:
        try:
            result: Any = asyncio.run(call())
            loop.call_soon_threadsafe(outcome.set_result, result)
        except BaseException as error:  # noqa: BLE001  # it belongs to the test
            loop.call_soon_threadsafe(outcome.set_exception, error)

    threading.Thread(target=work, daemon=True).start()
    async with asyncio.timeout(WAIT):
        return await outcome


def a_b(gate: Gate, store: Store, **options: Any) -> Any:
    return line(("a", held("a", gate)), ("b", step("b")), store=store, **options)


# Another event loop


async def test_a_run_can_be_awaited_on_another_loop(store: Store):  # rule A14
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    here = begin(run)
    await gate.reached.wait()
    there = asyncio.create_task(on_another_loop(lambda: awaited(run)))
    await asyncio.sleep(0.05)
    gate.opened.set()
    assert (await there).state["done"] == (await here).state["done"] == ["a", "b"]
    assert await on_another_loop(lambda: awaited(run)) is await run  # and when it is over


async def test_a_run_can_be_read_on_another_loop(store: Store):  # rule A14
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    here = asyncio.create_task(events_of(run))
    await gate.reached.wait()
    there = asyncio.create_task(on_another_loop(lambda: events_of(run)))
    await asyncio.sleep(0.05)
    gate.opened.set()
    events, others = await here, await there
    assert isinstance(others[-1], Done)
    numbered = [event for event in others if event.seq is not None]
    assert numbered
    assert numbered == [event for event in events if event.seq is not None][-len(numbered) :]


async def test_a_run_can_be_cancelled_on_another_loop(store: Store):  # rules A12, A14
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    here = begin(run)
    await gate.reached.wait()
    await on_another_loop(run.cancel)
    assert (await here).status == "cancelled"


async def test_a_wait_on_another_loop_can_be_given_up(store: Store):  # rule A14
    """As the only one who waits, its cancel stops the run; beside another, it just leaves."""
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    here = begin(run)
    await gate.reached.wait()

    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.05):
                await run
        except TimeoutError:
            return "left"
        return "stayed"

    assert await on_another_loop(impatient) == "left"
    gate.opened.set()
    assert (await here).status == "done"


def test_a_wait_for_a_run_whose_loop_is_closed_ends():  # rule A14
    loop, gate = asyncio.new_event_loop(), Gate()
    run = a_b(gate, MemoryStore()).run({}, session_id="s")

    async def start() -> None:
        run.detach()
        starting = asyncio.ensure_future(awaited(run))
        await gate.reached.wait()
        starting.cancel()
        await asyncio.wait([starting])

    loop.run_until_complete(start())
    left = asyncio.all_tasks(loop)
    loop.close()
    with pytest.raises(Conflict, match=r"closed\. Whoever runs it now continues; if nobody does, use `recover`\."):
        asyncio.run(awaited(run))
    for task in left:
        setattr(task, "_log_destroy_pending", False)  # noqa: B010  # nobody can end them any more


@pytest.mark.parametrize("ttl", [0.3, 10 * WAIT])
async def test_a_lease_of_a_closed_loop_ends(store: Store, ttl: float):  # rule C6
    """Nothing can end the run any more, so nothing may keep its session: not even until the lease is over."""
    tasks = list[Any]()

    def abandon() -> None:
        loop, gate = asyncio.new_event_loop(), Gate()
        run = a_b(gate, store, lease_ttl=ttl).run({}, session_id="s")
        run.detach()

        async def start() -> None:
            tasks.append(asyncio.ensure_future(awaited(run)))
            await gate.reached.wait()

        loop.run_until_complete(start())
        tasks.extend(asyncio.all_tasks(loop))
        loop.close()

    thread = threading.Thread(target=abandon)
    thread.start()
    await asyncio.to_thread(thread.join)
    async with asyncio.timeout(WAIT):
        while (head := await store.read(GetHead(SessionRef("s")))) is None or head.owner is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await steps("a", "b", store=store).recover("s")).state["done"] == ["a", "b"]
    assert not Heartbeat.of(store)._leases  # pyright: ignore[reportPrivateUsage]
    for task in tasks:
        setattr(task, "_log_destroy_pending", False)  # noqa: B010  # nobody can end them any more


# Several who await


@pytest.mark.parametrize("first", [True, False])
async def test_one_of_two_awaiters_can_leave(store: Store, first: bool):  # rule A14
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    two = [begin(run), begin(run)]
    await gate.reached.wait()
    leaves, stays = two if first else reversed(two)
    leaves.cancel()
    await asyncio.wait([leaves])
    assert leaves.cancelled()
    await turns()
    gate.opened.set()
    assert (await stays).state["done"] == ["a", "b"]


async def test_an_awaiter_who_leaves_while_the_run_is_opened_takes_nobody_along(store: Store):  # rule A14
    run = steps("a", "b", store=store).run({}, session_id="s")
    leaves, stays = begin(run), begin(run)
    await asyncio.sleep(0)
    leaves.cancel()
    assert (await stays).state["done"] == ["a", "b"]


async def test_the_last_of_two_awaiters_stops_the_run(store: Store):  # rule A14
    gate = Gate()
    graph = a_b(gate, store)
    run = graph.run({}, session_id="s")
    two = [begin(run), begin(run)]
    await gate.reached.wait()
    for task in two:
        task.cancel()
    await asyncio.wait(two)
    assert (await graph.status("s")).status == "cancelled"


async def test_a_reader_who_leaves_does_not_stop_a_run_that_another_awaits(store: Store):  # rule A14
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    waits = begin(run)
    await gate.reached.wait()
    reader = asyncio.create_task(events_of(run))
    await turns()
    reader.cancel()
    await asyncio.wait([reader])
    gate.opened.set()
    assert (await waits).state["done"] == ["a", "b"]


# Several who read


@pytest.mark.parametrize("durability", ["step", "async"])
async def test_two_readers_both_get_every_event(store: Store, durability: Any):  # rule A11
    run = steps("a", "b", "c", store=store, durability=durability).run({}, session_id="s")
    one, two = await asyncio.gather(events_of(run), events_of(run))
    assert [event for event in one if event.seq is not None] == [event for event in two if event.seq is not None]
    assert isinstance(one[-1], Done)
    assert numbers(one) == list(range(1, len(numbers(one)) + 1))


async def test_a_slow_reader_and_a_fast_one_both_get_every_event(store: Store, buffer: Buffer):  # rule A11
    buffer(2)
    run = steps(*"abcdefgh", store=store).run({}, session_id="s")
    slow: list[Event] = []

    async def read_slowly(run: Run) -> None:
        async for event in run:
            slow.append(event)
            await turns(10)

    fast, _ = await asyncio.gather(events_of(run), read_slowly(run))
    assert numbers(fast) == numbers(slow) == list(range(1, len(numbers(fast)) + 1))


class Teller:
    """A model that writes one text in many pieces, once it may."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()

    async def stream(self, request: object) -> AsyncIterator[Chunk]:
        await self.may_go.wait()
        for number in range(3000):
            yield Chunk(text=f"{number} ")
            if number % 20 == 0:
                await asyncio.sleep(0)


async def test_a_slow_reader_on_another_loop_gets_every_piece(store: Store, buffer: Buffer):  # rules A11, A14
    buffer(1)
    model, loop = Teller(), asyncio.get_running_loop()
    run = Runner(ChatModelAgent("Teller", model=model), store=store).run("Tell me", session_id="s")

    async def read() -> str:
        text = ""
        async for event in run:
            loop.call_soon_threadsafe(model.may_go.set)
            text += event.text if isinstance(event, Delta) else ""
        return text

    here = asyncio.create_task(events_of(run))
    await turns()
    assert await on_another_loop(read) == "".join(f"{number} " for number in range(3000))
    assert isinstance((await here)[-1], Done)


async def test_who_reads_a_run_again_gets_what_is_stored_of_it(store: Store):  # rule A11
    graph = steps("a", "b", store=store)
    await graph.run({}, session_id="s")
    run = graph.run({}, session_id="s")
    first = await events_of(run)
    again = await events_of(run)
    assert [event for event in first if event.seq is not None] == [event for event in again if event.seq is not None]


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_who_reads_a_run_after_awaiting_it_gets_what_is_stored_of_it(store: Store, durability: Any):  # rule A11
    graph = steps("a", "b", store=store, durability=durability)
    await graph.run({}, session_id="s")
    run = graph.run({}, session_id="s")
    await run
    await graph.run({}, session_id="s")
    events, logged = await events_of(run), await events_of(graph.attach("s"))
    assert events == logged[len(logged) // 3 : -len(logged) // 3]
    assert isinstance(events[-1], Done)
    assert await events_of(run) == events


async def test_who_joins_a_run_that_another_awaits_gets_it_from_its_beginning(store: Store):  # rule A11
    gate = Gate()
    run = a_b(gate, store).run({}, session_id="s")
    starting = begin(run)
    await gate.reached.wait()
    joining = asyncio.create_task(events_of(run))
    await turns(5)
    gate.opened.set()
    events = await joining
    await starting
    assert numbers(events) == [1, 2, 3, 4, 5, 6]
    assert isinstance(events[-1], Done)


async def test_who_reads_a_run_that_had_nothing_to_do_after_awaiting_it_gets_its_end(store: Store):  # rule A11
    graph = steps("a", "b", store=store)
    await graph.run({}, session_id="s")
    run = graph.recover("s")
    await run
    assert [type(event) for event in await events_of(run)] == [Done]


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]
