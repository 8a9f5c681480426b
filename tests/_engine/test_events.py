"""The events of a run: numbered, in order, told once, and ended by exactly one that says how."""

import asyncio
import contextlib
from typing import Any

import pytest

from adjourn import Event, Retry, Run, Runner, RunResult, current, interrupt, once, workflow
from adjourn.errors import NotStorable
from adjourn.events import Cancelled, CheckpointSaved, Custom, Done, Failed, Interrupted, NodeEnd, NodeStart, Retrying
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, chain, events_of, events_until_error, lone, nothing, together
from tests.conftest import Buffer

FINAL = (Done, Interrupted, Failed, Cancelled)


def emits(*data: Any) -> Node:
    def node(state: Any) -> Any:
        for each in data:
            current().emit(each)

    node.__name__ = f"emits_{data[0]}"
    return node


def customs(events: list[Event]) -> list[Any]:
    return [event.data for event in events if isinstance(event, Custom)]


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


# The last event


def asks(state: Any) -> Any:
    return {"log": [interrupt("q", key="q")]}


def breaks(state: Any) -> Any:
    raise ValueError("broken")


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
@pytest.mark.parametrize(("node", "last"), [(nothing, Done), (asks, Interrupted), (breaks, Failed)])
async def test_exactly_one_final_event_comes_last(node: Node, last: type[Any], durability: Any, store: Store):  # A11
    graph = chain(emits(1), node, store=store, durability=durability)
    events, error = await events_until_error(graph.run({}, session_id="s"))
    assert [type(event) for event in events if isinstance(event, FINAL)] == [last]
    assert isinstance(events[-1], last)
    assert (error is not None) is (last is Failed)
    assert await stored(graph) == [event for event in events if event.seq is not None]


async def stored(graph: Runner, after: int = 0) -> list[Event]:
    """The events that are stored, as a reader sees who comes late."""
    events, _ = await events_until_error(graph.attach("s", after=after))
    return events


async def test_a_cancelled_run_ends_with_that(store: Store):  # rule A11
    started = asyncio.Event()

    async def hangs(state: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    graph = lone(hangs, store=store)
    run = graph.run({}, session_id="s")
    reading = asyncio.create_task(events_of(run))
    await started.wait()
    await run.cancel()
    events = await reading
    assert [type(event) for event in events if isinstance(event, FINAL)] == [Cancelled]
    assert isinstance(events[-1], Cancelled)
    assert await stored(graph) == [event for event in events if event.seq is not None]


async def test_a_failure_says_what_went_wrong(store: Store):  # api: Run
    events, error = await events_until_error(lone(breaks, store=store).run({}, session_id="s"))
    assert isinstance(error, ValueError)
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error, failed.message) == ("ValueError", "broken")
    with pytest.raises(ValueError, match="broken"):
        await lone(breaks, store=store).recover("s")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even be shown")


ODD_ERRORS: list[Exception] = [
    ValueError("\ud800 lone"),
    ValueError("x" * 100_000),
    ValueError("\x00"),
    ValueError(),
    Unspeakable(),
    ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    KeyError("missing"),
    StopIteration(1),
    StopAsyncIteration(),
    RecursionError("deep"),
]


@pytest.mark.parametrize("error", ODD_ERRORS, ids=range(len(ODD_ERRORS)))
@pytest.mark.parametrize("place", ["node", "inline", "condition", "workflow"])
async def test_any_exception_can_fail_a_run(error: Exception, place: str, store: Store):  # rules A11, G11
    broken = True

    def fails(state: Any = None) -> Any:
        if broken:
            raise error
        return "end" if place == "condition" else None

    @workflow
    async def flow() -> Any:
        return fails()

    def build() -> Runner:
        if place == "workflow":
            return Runner(flow, store=store)
        if place == "condition":
            graph = StateGraph(Log, name="g").add_node("first", nothing).add_node("end", nothing)
            return graph.add_edge(START, "first").add_conditional_edges("first", fails).compile(store=store)
        return lone(fails, thread=place == "node", store=store)

    events, raised = await events_until_error(build().run(None if place == "workflow" else {}, session_id="s"))
    assert raised is not None
    assert raised is error or isinstance(raised, RuntimeError)
    assert isinstance(events[-1], Failed)
    assert (await build().status("s")).status == "failed"
    assert await stored(build()) == [event for event in events if event.seq is not None]
    broken = False
    assert (await build().recover("s")).status == "done"


# Numbers and order


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_durable_events_are_numbered_over_runs_and_live_ones_are_not(
    durability: Any, store: Store
):  # api: Events
    def build() -> CompiledGraph:
        return chain(emits(1, 2), asks, store=store, durability=durability)

    seen: list[Event] = []
    for turn in (1, 2):
        seen += await events_of(build().run({}, session_id="s"))
        seen += await events_of(build().resume("s", {"q": turn}))
    assert numbers(seen) == list(range(1, len(numbers(seen)) + 1))
    assert all(event.seq is None for event in seen if isinstance(event, NodeStart))
    assert all(event.seq is not None for event in seen if not isinstance(event, NodeStart))
    if durability == "step":
        assert await stored(build()) == [event for event in seen if event.seq is not None]


async def test_a_reader_can_come_back_where_it_left(store: Store):  # api: attach
    graph = chain(emits(1, 2, 3), asks, store=store)
    seen = [event for event in await events_of(graph.run({}, session_id="s")) if event.seq is not None]
    for after in range(len(seen) + 1):
        assert await stored(graph, after) == seen[after:]


async def test_events_come_in_the_order_of_what_they_tell(store: Store):  # api: Events
    graph = chain(emits("a"), emits("b"), store=store)
    events = await events_of(graph.run({}, session_id="s"))
    told = [event for event in events if not isinstance(event, CheckpointSaved)]
    assert [type(event) for event in told] == [NodeStart, Custom, NodeEnd, NodeStart, Custom, NodeEnd, Done]
    assert [event.address for event in told[:3]] == ["runnable:g;node:emits_a"] * 3
    sources = [event.source for event in events if isinstance(event, CheckpointSaved)]
    assert sources == ["input", "step", "end"]
    assert sources == [point.source for point in reversed(await graph.history("s"))]


async def test_what_a_checkpoint_event_names_is_there(store: Store):  # rule C2
    graph = chain(emits("a"), asks, store=store)
    async for event in graph.run({}, session_id="s"):
        if isinstance(event, CheckpointSaved):
            assert (await graph.checkpoint("s", event.checkpoint_id)).source == event.source
        if isinstance(event, Interrupted):
            assert (await graph.checkpoint("s")).id == event.checkpoint_id
            assert [asked.id for asked in await graph.pending("s")] == [asked.id for asked in event.interrupts]


async def test_a_slow_reader_misses_nothing_durable(store: Store, buffer: Buffer):  # rule A11
    buffer(2)
    graph = chain(emits(*range(50)), emits(*range(50, 100)), store=store)
    run = graph.run({}, session_id="s")
    seen: list[Event] = []
    async for event in run:
        seen.append(event)
        for _ in range(5):
            await asyncio.sleep(0)
    assert customs(seen) == list(range(100))
    assert numbers(seen) == list(range(1, len(numbers(seen)) + 1))


async def test_two_readers_of_one_run_see_the_same(store: Store):  # api: attach
    go = asyncio.Event()

    async def waits(state: Any) -> None:
        current().emit("before")
        await go.wait()
        current().emit("after")

    graph = lone(waits, store=store)
    first = asyncio.create_task(events_of(graph.run({}, session_id="s")))
    other = lone(waits, store=store)
    while not await _exists(other):  # noqa: ASYNC110
        await asyncio.sleep(0)
    second = asyncio.create_task(events_of(other.attach("s")))
    go.set()
    assert [event for event in await first if event.seq is not None] == await second


async def _exists(graph: CompiledGraph) -> bool:
    return bool(await graph.sessions())


# Custom events


def in_thread(state: Any) -> Any:
    current().emit("before")
    answer = interrupt("q", key="q")
    current().emit(answer)
    return {"log": [answer]}


async def in_async(state: Any) -> Any:
    return in_thread(state)


async def in_task(state: Any) -> Any:
    return await asyncio.create_task(in_async(state))


@pytest.mark.parametrize("node", [in_thread, in_async, in_task], ids=lambda node: node.__name__)
async def test_what_was_sent_is_not_sent_again(node: Node, store: Store):  # rule R5
    assert customs(await events_of(lone(node, store=store).run({}, session_id="s"))) == ["before"]
    assert customs(await events_of(lone(node, store=store).resume("s", {"q": "yes"}))) == ["yes"]
    assert customs(await stored(lone(node, store=store))) == ["before", "yes"]


async def test_a_retry_or_recovery_does_not_send_again(store: Store):  # rules R5, G12
    passes: list[int] = []

    def node(state: Any) -> Any:
        passes.append(1)
        current().emit("start")
        if len(passes) < 4:
            raise ConnectionError("away")
        current().emit("end")

    graph = StateGraph(Log, name="g").add_node("ask", node, retry=Retry(attempts=3, backoff=0.0))
    compiled = graph.add_edge(START, "ask").compile(store=store)
    events, _ = await events_until_error(compiled.run({}, session_id="s"))
    assert customs(events) == ["start"]
    assert [event.attempt for event in events if isinstance(event, Retrying)] == [1, 2]
    assert customs(await events_of(compiled.recover("s"))) == ["end"]


async def test_equal_events_are_events_of_their_own(store: Store):  # rule R5
    def node(state: Any) -> Any:
        current().emit("tick")
        current().emit("tick")
        interrupt("q", key="q")
        current().emit("tick")

    assert customs(await events_of(lone(node, store=store).run({}, session_id="s"))) == ["tick", "tick"]
    assert customs(await events_of(lone(node, store=store).resume("s", {"q": 1}))) == ["tick"]


async def test_events_from_tasks_at_once_are_told_apart_by_what_they_are(store: Store):  # rule R5
    async def first() -> None:
        answer = interrupt("q", key="q")
        current().emit(f"answered {answer}")

    async def second() -> None:
        current().emit("second")
        await asyncio.sleep(0)
        current().emit("second again")

    async def node(state: Any) -> Any:
        with contextlib.suppress(BaseException):
            await asyncio.gather(first(), second(), return_exceptions=True)

    assert customs(await events_of(lone(node, store=store).run({}, session_id="s"))) == ["second", "second again"]
    assert customs(await events_of(lone(node, store=store).resume("s", {"q": 1}))) == ["answered 1"]


async def test_events_of_a_loop_are_new_each_time(store: Store):  # rule R8
    @workflow
    async def flow(turn: int) -> Any:
        current().emit(turn)

    for turn in (1, 2, 2):
        assert customs(await events_of(Runner(flow, store=store).run(turn, session_id="s"))) == [turn]


async def test_children_and_conditions_send_from_their_own_place(store: Store):  # rule I6
    @workflow
    async def child() -> None:
        current().emit("child")
        interrupt("q", key="q")

    async def node(state: Any) -> Any:
        await current().run(child)

    def condition(state: Any) -> None:
        current().emit("condition")

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("node", node).add_edge(START, "node")
        return graph.add_conditional_edges("node", condition).compile(store=store)

    events = await events_of(build().run({}, session_id="s"))
    events += await events_of(build().resume("s", {"q": 1}))
    assert [(event.address, event.data) for event in events if isinstance(event, Custom)] == [
        ("runnable:g;node:node;runnable:child", "child"),
        ("runnable:g;node:node;branch:condition", "condition"),
    ]


async def test_what_cannot_be_stored_cannot_be_sent(store: Store):  # rule I7
    def node(state: Any) -> Any:
        with pytest.raises(NotStorable, match="emit"):
            current().emit(object())
        current().emit((1, b"2"))

    events = await events_of(lone(node, store=store).run({}, session_id="s"))
    assert customs(events) == [(1, b"2")]
    assert customs(await stored(lone(node, store=store))) == [(1, b"2")]


async def test_what_was_sent_does_not_change_later(store: Store):  # rule S6
    def node(state: Any) -> Any:
        data = [1]
        current().emit(data)
        data.append(2)

    assert customs(await events_of(lone(node, store=store).run({}, session_id="s"))) == [[1]]


async def test_nobody_need_listen(store: Store):  # api: Run
    result: RunResult = await lone(emits(1, 2), store=store).run({}, session_id="s")
    assert result.status == "done"
    assert customs(await stored(lone(nothing, store=store))) == [1, 2]


async def test_sync_code_reads_events(store: Store):  # api: Run
    graph = lone(emits(1), store=store)

    def read() -> list[Event]:
        run: Run = graph.run({}, session_id="s")
        return list(run)

    events = await asyncio.to_thread(read)
    assert customs(events) == [1]
    assert isinstance(events[-1], Done)


async def test_parallel_nodes_are_each_told_once(store: Store):  # rule R7
    @once
    async def work(n: int) -> int:
        current().emit(f"work {n}")
        return n

    def maker(n: int) -> Node:
        async def node(state: Any) -> Any:
            await work(n)
            interrupt("q", key=f"q{n}")

        return node

    nodes = {f"n{n}": maker(n) for n in range(3)}
    events = await events_of(together(nodes, store=store).run({}, session_id="s"))
    for n in range(3):
        events += await events_of(together(nodes, store=store).resume("s", {f"q{n}": 1}))
    assert sorted(customs(events)) == ["work 0", "work 1", "work 2"]
    assert sorted(event.node for event in events if isinstance(event, NodeEnd)) == ["n0", "n1", "n2"]
    assert [type(event) for event in events if isinstance(event, FINAL)] == [Interrupted] * 3 + [Done]
