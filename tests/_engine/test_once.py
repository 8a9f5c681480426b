"""`@once`: a call is made once in its frame, and its result is kept before anybody relies on it."""

import asyncio
from typing import Any

import pytest

from adjourn import Retry, Runner, UsageError, current, interrupt, once, raise_interrupt, workflow
from adjourn.errors import Conflict, NodeTimeout, NotStorable
from adjourn.events import Custom
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from adjourn.testing import FakeClock
from tests._engine.asking import Log, Node, chain, events_of, lone, together
from tests.conftest import MakeStore

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
async def charge(cents: int, currency: str = "EUR") -> str:
    await asyncio.sleep(0)
    made.append((cents, currency))
    return f"receipt {len(made)}"


@once
def charge_now(cents: int) -> str:
    made.append(cents)
    return f"receipt {len(made)}"


async def in_async_code(state: Any) -> Any:
    return {"log": [await charge(100), interrupt("q", key="q")]}


def in_a_thread(state: Any) -> Any:
    return {"log": [charge_now(100), interrupt("q", key="q")]}


async def on_the_loop(state: Any) -> Any:
    return {"log": [charge_now(100), interrupt("q", key="q")]}


async def in_a_thread_of_async_code(state: Any) -> Any:
    return {"log": [await asyncio.to_thread(charge_now, 100), interrupt("q", key="q")]}


async def in_a_task(state: Any) -> Any:
    return {"log": [await asyncio.create_task(charge(100)), interrupt("q", key="q")]}


PLACES: list[Node] = [in_async_code, in_a_thread, on_the_loop, in_a_thread_of_async_code, in_a_task]


@pytest.mark.parametrize("node", PLACES, ids=lambda node: node.__name__)
async def test_a_call_is_made_once_over_pauses(node: Node, store: Store):  # rule R13
    await lone(node, store=store).run({}, session_id="s")
    assert len(made) == 1
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["receipt 1", 1]
    assert len(made) == 1


async def test_a_call_in_an_inline_node_is_made_once(store: Store):  # rule R13
    await lone(in_a_thread, thread=False, store=store).run({}, session_id="s")
    result = await lone(in_a_thread, thread=False, store=store).resume("s", {"q": 1})
    assert (result.state["log"], made) == (["receipt 1", 1], [100])


async def test_a_call_in_a_condition_is_made_once(store: Store):  # rule R13
    def condition(state: Any) -> str:
        charge_now(1)
        return interrupt("q", key="q")

    def end(state: Any) -> Any:
        return {"log": ["end"]}

    def build() -> Any:
        graph = StateGraph(Log, name="g").add_node("first", end).add_node("end", end).add_edge(START, "first")
        return graph.add_conditional_edges("first", condition).compile(store=store)

    await build().run({}, session_id="s")
    assert (await build().resume("s", {"q": "end"})).state["log"] == ["end", "end"]
    assert made == [1]


@pytest.mark.parametrize("kind", ["async", "thread", "workflow"])
@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_a_result_is_stored_before_it_is_given(kind: str, durability: Any, make_store: MakeStore):  # rule R13, C8
    clock = FakeClock()
    store = make_store(clock)
    reached, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def async_node(state: Any = None) -> Any:
        receipt = await charge(100)
        reached.set()
        await go.wait()
        return {"log": [receipt]}

    def sync_node(state: Any) -> Any:
        receipt = charge_now(100)
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        return {"log": [receipt]}

    @workflow
    async def flow() -> Any:
        return await async_node()

    def build() -> Any:
        options: Any = {"store": store, "durability": durability, "clock": clock}
        return (
            Runner(flow, **options)
            if kind == "workflow"
            else lone({"async": async_node}.get(kind, sync_node), **options)
        )

    frozen = asyncio.create_task(_awaited(build().run(None if kind == "workflow" else {}, session_id="s")))
    await reached.wait()
    assert len(made) == 1
    clock.advance(60)
    go.set()
    result = await build().recover("s")
    assert (result.value if kind == "workflow" else result.state) == {"log": ["receipt 1"]}
    assert len(made) == 1
    (late,) = await asyncio.gather(frozen, return_exceptions=True)
    # Refused; or, if what it has to store at its end is what the other has stored, told that it is there.
    assert isinstance(late, Conflict) or (kind == "workflow" and _value(late) == result.value)


def _value(outcome: Any) -> Any:
    return outcome.value


async def _awaited(run: Any) -> Any:
    return await run


# What is kept


async def test_results_come_back_as_they_were(store: Store):  # rules R13, C10
    value = {"tuple": (1, 2), "bytes": b"x", "set": {1}, "none": None, 7: "int key"}

    @once
    async def get() -> Any:
        return value

    async def node(state: Any) -> Any:
        got = await get()
        interrupt("q", key="q")
        assert got == value
        return {"log": ["same"]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["same"]


async def test_nothing_is_a_result(store: Store):  # rule R13
    @once
    async def effect() -> None:
        made.append(1)

    async def node(state: Any) -> Any:
        await effect()
        interrupt("q", key="q")

    await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).resume("s", {"q": 1})
    assert made == [1]


@pytest.mark.parametrize("thread", [True, False])
async def test_a_result_that_cannot_be_kept_is_refused(thread: bool):  # rules R13, I7
    @once
    def get() -> object:
        return object()

    with pytest.raises(NotStorable, match="object"):
        await lone(lambda state: {"log": [get()]}, thread=thread).run({})


@pytest.mark.parametrize("is_async", [True, False])
async def test_exceptions_are_not_kept(is_async: bool, store: Store):  # rule R13
    @once
    async def flaky() -> int:
        return _flaky()

    @once
    def flaky_now() -> int:
        return _flaky()

    async def async_node(state: Any) -> Any:
        return {"log": [await flaky(), interrupt("q", key="q")]}

    def sync_node(state: Any) -> Any:
        return {"log": [flaky_now(), interrupt("q", key="q")]}

    node = async_node if is_async else sync_node
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await lone(node, store=store).run({}, session_id="s", on_pending="abandon")
    assert (await lone(node, store=store).recover("s")).status == "interrupted"
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [3, 1]
    assert made == [1, 1, 1]


def _flaky() -> int:
    made.append(1)
    if len(made) < 3:
        raise ConnectionError("away")
    return len(made)


async def test_a_call_within_a_call_belongs_to_it(store: Store):  # rule R13
    @once
    async def outer() -> list[str]:
        return [await charge(1), await charge(2)]

    async def node(state: Any) -> Any:
        return {"log": [await outer(), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [["receipt 1", "receipt 2"], 1]
    assert len(made) == 2


# What a kept call cannot do


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("ask", [interrupt, raise_interrupt])
async def test_asking_inside_is_refused(ask: Any, thread: bool):  # rule R13
    @once
    def asks() -> Any:
        return ask("q")

    with pytest.raises(UsageError, match="asks"):
        await lone(lambda state: {"log": [asks()]}, thread=thread).run({})


async def test_running_a_child_inside_is_refused():  # rule R13
    @workflow
    async def child() -> Any:
        return interrupt("q")

    inner = lone(lambda state: None, name="inner")

    @once
    async def runs() -> Any:
        return await current().run(child)

    @once
    async def invokes() -> Any:
        return await inner.invoke({})

    for call in (runs, invokes):

        async def node(state: Any, call: Any = call) -> Any:
            return {"log": [await call()]}

        with pytest.raises(UsageError, match="child"):
            await lone(node).run({})


async def test_outside_a_run_it_just_runs():  # rule R13
    assert await charge(1) == "receipt 1"
    assert await charge(1) == "receipt 2"
    assert charge_now(1) == "receipt 3"


async def test_what_is_sent_inside_is_not_sent_again(store: Store):  # rules R5, R13
    @once
    async def work() -> int:
        current().emit("inside")
        return 1

    async def node(state: Any) -> Any:
        current().emit("before")
        await work()
        current().emit("after")
        interrupt("q", key="q")
        current().emit("answered")
        current().emit("end")

    events = await events_of(lone(node, store=store).run({}, session_id="s"))
    assert [event.data for event in events if isinstance(event, Custom)] == ["before", "inside", "after"]
    events = await events_of(lone(node, store=store).resume("s", {"q": 1}))
    assert [event.data for event in events if isinstance(event, Custom)] == ["answered", "end"]


async def test_a_timeout_does_not_wait_for_a_call_that_hangs(store: Store):  # rules R13, G13
    hanging: list[asyncio.Task[Any]] = []

    @once
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def node(state: Any) -> Any:
        hanging.append(asyncio.create_task(hangs()))
        await asyncio.Event().wait()

    graph = StateGraph(Log, name="g").add_node("ask", node, timeout=0.01).add_edge(START, "ask").compile(store=store)
    with pytest.raises(NodeTimeout):
        await graph.run({}, session_id="s")
    assert hanging[0].cancelled()


async def test_parallel_nodes_keep_their_own(store: Store):  # rule R13
    nodes: dict[str, Node] = {"a": in_async_code, "b": in_async_code}
    result = await together(nodes, store=store).run({}, session_id="s")
    result = await together(nodes, store=store).resume("s", dict.fromkeys([i.id for i in result.interrupts], 1))
    assert result.state["log"] == ["receipt 1", 1, "receipt 2", 1]
    assert len(made) == 2


async def test_a_finished_frame_keeps_nothing_for_the_next(store: Store):  # rule R8
    def first(state: Any) -> Any:
        return {"log": [charge_now(1)]}

    def second(state: Any) -> Any:
        return {"log": [charge_now(1)]}

    for _ in range(2):
        result = await chain(first, second, store=store).run({}, session_id="s")
    assert result.state["log"] == [f"receipt {n}" for n in (1, 2, 3, 4)]  # pyright: ignore[reportPossiblyUnboundVariable]


async def test_a_retry_does_not_repeat_what_was_kept(store: Store):  # rules R13, G12
    attempts: list[int] = []

    async def node(state: Any) -> Any:
        receipt = await charge(1)
        attempts.append(current().attempt)
        if len(attempts) < 3:
            raise ConnectionError("away")
        return {"log": [receipt]}

    retry = Retry(attempts=3, backoff=0.0)
    graph = StateGraph(Log, name="g").add_node("ask", node, retry=retry).add_edge(START, "ask").compile(store=store)
    assert (await graph.run({}, session_id="s")).state["log"] == ["receipt 1"]
    assert (attempts, len(made)) == ([1, 2, 3], 1)
