"""Many things at once: threads, slots, loops, context variables, and a loop that is never starved."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import current, interrupt, workflow
from adjourn.errors import NodeTimeout
from adjourn.graph import START, Command, CompiledGraph, StateGraph, append
from adjourn.runner import Runner
from adjourn.stores import Store
from tests.graph.shapes import Node, chain, events_of, giving, together

WAIT = 120.0


class Log(TypedDict):
    log: Annotated[list[Any], append]
    item: Any


class Crowd:
    """Counts how many are inside at once; each leaves when as many as expected have come, or nobody else can come."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    async def node(self, state: Any) -> dict[str, Any]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(20):
            await asyncio.sleep(0)
        self.inside -= 1
        return {"log": [1]}


# Threads


async def test_sync_nodes_run_in_threads_unless_told() -> None:  # rule G14
    def where(state: Any) -> dict[str, Any]:
        return {"log": [threading.get_ident() == here]}

    here = threading.get_ident()
    graph = StateGraph(Log).add_node("thread", where).add_node("inline", where, thread=False)
    assert (await graph.add_sequence(START, "thread", "inline").compile().invoke({}))["log"] == [False, True]


async def test_sync_nodes_of_one_superstep_run_at_the_same_time() -> None:  # rule G14
    barrier = threading.Barrier(5, timeout=WAIT)

    def meet(state: Any) -> dict[str, Any]:
        barrier.wait()
        return {"log": [1]}

    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * 5)).add_node("w", meet)
    assert len((await graph.set_entry_point("s").compile().invoke({}))["log"]) == 5


async def test_a_blocking_sync_node_does_not_block_the_loop() -> None:  # rule G14
    free = threading.Event()

    def block(state: Any) -> dict[str, Any]:
        return {"log": [free.wait(WAIT)]}

    async def release(state: Any) -> None:
        free.set()

    assert (await together_in_threads({"a": block, "b": release}).invoke({}))["log"] == [True]


def together_in_threads(nodes: dict[str, Node], **options: Any) -> CompiledGraph:
    graph = StateGraph(Log)
    for name, node in nodes.items():
        graph.add_node(name, node).add_edge(START, name)
    return graph.compile(**options)


async def test_conditions_and_reducers_run_on_the_loop() -> None:  # rule G14
    threads: list[int] = []

    def reduce(old: list[int], new: list[int]) -> list[int]:
        threads.append(threading.get_ident())
        return old + new

    def route(state: Any) -> None:
        threads.append(threading.get_ident())

    class Numbers(TypedDict):
        numbers: Annotated[list[int], reduce]

    graph = StateGraph(Numbers).add_node("a", giving({"numbers": [1]})).set_entry_point("a")
    await graph.add_conditional_edges("a", route).compile().invoke({"numbers": [0]})
    assert set(threads) == {threading.get_ident()}


# Slots


async def test_without_a_limit_all_tasks_run_at_once() -> None:  # rule G14
    crowd = Crowd()
    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * 30)).add_node("w", crowd.node)
    await graph.set_entry_point("s").compile().invoke({})
    assert crowd.most == 30


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_limit_bounds_the_tasks_that_run_at_once(limit: int) -> None:  # rule G14
    crowd = Crowd()
    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * 30)).add_node("w", crowd.node)
    state = await graph.set_entry_point("s").compile(max_concurrency=limit).invoke({})
    assert len(state["log"]) == 30
    assert crowd.most == limit


async def test_a_limit_counts_over_nested_graphs() -> None:  # rules G14, G15
    crowd = Crowd()
    inner = StateGraph(Log, name="inner").add_node("s", giving([Command(goto="w")] * 5)).add_node("w", crowd.node)
    sub = inner.set_entry_point("s").compile()
    graph = together(Log, {"a": sub, "b": sub, "c": crowd.node}, max_concurrency=3)
    assert len((await graph.invoke({}))["log"]) == 11
    assert crowd.most == 3


async def in_time(awaited: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wait_for(awaited, WAIT)


async def test_a_subgraph_needs_no_slot_of_its_own() -> None:  # rules G14, G15
    deep = chain(Log, giving({"log": ["deep"]}), name="three")
    for name in ("two", "one"):
        deep = StateGraph(Log, name=name).add_node("sub", deep).set_entry_point("sub").compile(max_concurrency=1)
    assert (await in_time(deep.invoke({})))["log"] == ["deep"]


async def test_a_node_that_runs_a_graph_lends_it_its_slot() -> None:  # rules G14, G15
    crowd = Crowd()
    inner = StateGraph(Log, name="inner").add_node("s", giving([Command(goto="w")] * 4)).add_node("w", crowd.node)
    child = inner.set_entry_point("s").compile()

    async def calls(state: Any) -> dict[str, Any]:
        one, two = await asyncio.gather(child.invoke({}), child.invoke({}))
        three = await current().run_all([(child, {}), (child, {})])
        return {"log": [len(found["log"]) for found in (one, two, *three)]}

    graph = together(Log, {"a": calls, "b": calls}, max_concurrency=1)
    assert (await in_time(graph.invoke({})))["log"] == [4] * 8
    assert crowd.most == 1


async def test_a_node_whose_child_asks_gives_its_slot_back(store: Store) -> None:  # rules G14, G15
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    child = chain(Log, ask, name="child")

    async def calls(state: Any) -> dict[str, Any]:
        return {"log": (await child.invoke({}))["log"]}

    graph = together(Log, {"a": calls, "b": calls, "c": calls}, max_concurrency=1, store=store)
    paused = await in_time(awaiting(graph.run({}, session_id="s")))
    result = await in_time(awaiting(graph.resume("s", {each.id: each.id[-20] for each in paused.interrupts})))
    assert len(result.state["log"]) == 3


async def awaiting(run: Any) -> Any:
    return await run


async def test_a_workflow_may_run_graphs_under_a_limit() -> None:  # rule G14
    child = chain(Log, giving({"log": [1]}), name="child")

    @workflow
    async def flow(_: Any) -> int:
        found = await current().run_all([(child, None)] * 3)
        return sum(len(each["log"]) for each in found)

    assert (await in_time(awaiting(Runner(flow, max_concurrency=1).run(None)))).value == 3


async def test_tasks_beyond_the_limit_that_wait_are_cancelled_with_the_run() -> None:  # rules G14, A12
    entered = asyncio.Event()

    async def stay(state: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    run = together(Log, dict.fromkeys("abc", stay), max_concurrency=1).run({}, session_id="s")
    ending = asyncio.ensure_future(run)
    await entered.wait()
    await in_time(run.cancel())
    assert (await ending).status == "cancelled"


# Many runs


async def test_any_number_of_runs_at_once(store: Store) -> None:  # rule G14
    async def double(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": [state["item"] * 2]}

    graph = chain(Log, double, store=store)
    results = await asyncio.gather(*(graph.run({"item": n}, session_id=f"s{n}") for n in range(40)))
    assert [result.state["log"] for result in results] == [[n * 2] for n in range(40)]


def test_one_graph_serves_several_loops_and_threads(tmp_path: Any) -> None:  # rule G14
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [state["item"], interrupt("?")]}

    for url in (None, f"sqlite:///{tmp_path / 'many.db'}"):
        graph = chain(Log, ask, store=url)

        async def session(number: int, graph: CompiledGraph = graph) -> list[Any]:
            paused = await graph.run({"item": number}, session_id=f"s{number}")
            return (await graph.resume(f"s{number}", {paused.interrupts[0].id: "ok"})).state["log"]

        def work(number: int, session: Any = session) -> list[Any]:
            return asyncio.run(session(number))

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(24)))
        assert found == [[n, "ok"] for n in range(24)]
        asyncio.run(graph.store.close())


def test_a_session_may_go_on_in_another_loop_and_thread(tmp_path: Any) -> None:  # rule G14
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [state["item"], interrupt("?")]}

    for url in (None, f"sqlite:///{tmp_path / 'one.db'}"):
        graph = chain(Log, ask, store=url)
        for turn in range(3):
            paused = graph.run_sync({"item": turn}, session_id="s")
            with ThreadPoolExecutor(1) as pool:
                answers = {paused.interrupts[0].id: "ok"}
                result = pool.submit(graph.resume_sync, "s", answers).result(WAIT)
        assert result.state["log"] == [0, "ok", 1, "ok", 2, "ok"]  # pyright: ignore[reportPossiblyUnboundVariable]
        asyncio.run(graph.store.close())


async def test_sync_calls_work_inside_a_running_loop() -> None:  # rule G14
    assert chain(Log, giving({"log": [1]})).run_sync({}).state["log"] == [1]


# Context variables

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_run_leaves_its_callers_context_variables_alone() -> None:  # rule G17
    async def sets(state: Any) -> dict[str, Any]:
        seen = who.get()
        who.set("the node")
        return {"log": [seen]}

    def sets_inline(state: Any) -> dict[str, Any]:
        who.set("the inline node")
        return {}

    who.set("the caller")
    graph = chain(Log, sets, sets_inline)
    before = dict(contextvars.copy_context().items())
    assert (await graph.invoke({}))["log"] == ["the caller"]
    assert await events_of(graph.run({}))
    await graph.run({}, session_id="s")
    assert who.get() == "the caller"
    assert dict(contextvars.copy_context().items()) == before


async def test_threads_see_the_callers_context_variables() -> None:  # rule G17
    def sees(state: Any) -> dict[str, Any]:
        return {"log": [who.get()]}

    who.set("the caller")
    assert (await together_in_threads({"a": sees, "b": sees}).invoke({}))["log"] == ["the caller"] * 2


# A loop that is never starved


def busy(seconds: float) -> None:
    """Keep the thread busy without ever suspending."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    worked.append(1)


worked: list[int] = []
"""Once for each time that `busy` has ended."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    worked.clear()


class Pulse:
    """Something else on the loop: how often it got its turn."""

    def __init__(self) -> None:
        self.beats = 0

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.beats += 1


async def with_pulse(work: Callable[[], Coroutine[Any, Any, Any]]) -> Pulse:
    pulse = Pulse()
    beating = asyncio.ensure_future(pulse.beat())
    try:
        await asyncio.sleep(0)
        await work()
    finally:
        beating.cancel()
    return pulse


def looping(steps: int) -> CompiledGraph:
    async def step(state: Any) -> Command | None:
        busy(0.002)
        return Command({"item": state["item"] + 1}, goto="step") if state["item"] < steps else None

    return StateGraph(Log).add_node("step", step).set_entry_point("step").compile(max_steps=10_000)


def spreading(tasks: int) -> CompiledGraph:
    async def work(state: Any) -> None:
        busy(0.002)

    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * tasks)).add_node("w", work)
    return graph.set_entry_point("s").compile()


@pytest.mark.parametrize("shape", [looping, spreading])
async def test_nodes_that_never_suspend_leave_others_their_turn(shape: Callable[[int], CompiledGraph]) -> None:
    # rule G17
    pulse = await with_pulse(lambda: shape(150).invoke({"item": 0}))
    assert pulse.beats > 15


@pytest.mark.parametrize("shape", [looping, spreading])
async def test_a_run_that_never_suspends_can_be_cancelled(shape: Callable[[int], CompiledGraph]) -> None:  # rule G17
    run = shape(3_000).run({"item": 0}, session_id="s")
    ending = asyncio.ensure_future(run)
    while not worked:  # noqa: ASYNC110  # it never suspends, so only looking can tell
        await asyncio.sleep(0)
    await run.cancel("after_step" if shape is looping else "now")
    assert (await ending).status == "cancelled"
    assert len(worked) < 1_000


async def test_a_superstep_that_never_suspends_can_time_out() -> None:  # rule G17
    async def work(state: Any) -> None:
        busy(0.002)

    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * 2_000)).add_node("w", work)
    with pytest.raises(NodeTimeout):
        await graph.set_entry_point("s").compile(step_timeout=0.05).invoke({})
    assert len(worked) < 1_000
