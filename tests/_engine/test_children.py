"""Children: programs that user code runs in frames of their own, kept like `@once`."""

import asyncio
from typing import Any

import pytest

from adjourn import RunContext, Runner, UsageError, address_segment, current, interrupt, once, workflow
from adjourn.context import Outcome
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, chain, ids, lone

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
async def charge(cents: int) -> str:
    made.append(cents)
    return f"receipt {cents}"


@workflow
async def child(n: int) -> Any:
    made.append(f"child {n}")
    return [n, interrupt(f"{n}?", key=f"q{n}")]


@workflow
async def quick(n: int) -> int:
    made.append(f"quick {n}")
    return n * 2


async def test_children_run_in_frames_of_their_own(store: Store):  # rules A15, I6
    inner = lone(lambda state: {"log": [interrupt("inner", key="inner")]}, name="inner")

    @workflow
    async def flow() -> Any:
        ctx = current()
        first = await ctx.run(quick, 1)
        second = await ctx.run(child, 2)
        third = await ctx.run(inner, {"log": ["given"]})
        fourth = await ctx.run(child, 4, key="last; one")
        return [first, second, third, fourth]

    places = ["runnable:child", "runnable:inner;node:ask", "runnable:child:last%3B one"]
    result = await Runner(flow, store=store).run(session_id="s")
    for number, place in enumerate(places):
        assert ids(result) == [f"runnable:flow;{place}"]
        result = await Runner(flow, store=store).resume("s", {ids(result)[0]: number})
    assert result.value == [2, [2, 0], {"log": ["given", 1]}, [4, 2]]
    assert made == ["quick 1", "child 2", "child 2", "child 4", "child 4"]


async def test_children_stand_below_the_segments_that_code_has_added(store: Store):  # rule I6
    async def part(name: str) -> Any:
        with address_segment("part", name), address_segment("step", "a;b"):
            return [await current().run(child, 1), await current().run(child, 2)]

    @workflow
    async def flow() -> Any:
        return list(await asyncio.gather(part("x"), part("y")))

    result = await Runner(flow, store=store).run(session_id="s")
    assert ids(result) == [f"runnable:flow;part:{name};step:a%3Bb;runnable:child" for name in "xy"]
    result = await Runner(flow, store=store).resume("s", dict.fromkeys(ids(result), "one"))
    assert ids(result) == [f"runnable:flow;part:{name};step:a%3Bb;runnable:child:2" for name in "xy"]
    result = await Runner(flow, store=store).resume("s", dict.fromkeys(ids(result), "two"))
    assert result.value == [[[1, "one"], [2, "two"]]] * 2


async def test_children_at_once_get_as_far_as_they_can(store: Store):  # api: run_all; rules R5, R7
    @workflow
    async def flow() -> Any:
        return await current().run_all([(child, 1), (quick, 2), (child, 3)])

    result = await Runner(flow, store=store).run(session_id="s")
    assert [asked.key for asked in result.interrupts] == ["q1", "q3"]
    assert ids(result) == ["runnable:flow;runnable:child", "runnable:flow;runnable:child:2"]
    assert sorted(made) == ["child 1", "child 3", "quick 2"]
    result = await Runner(flow, store=store).resume("s", {"q3": "c"})
    result = await Runner(flow, store=store).resume("s", {"q1": "a"})
    assert result.value == [[1, "a"], 4, [3, "c"]]
    assert sorted(made) == ["child 1", "child 1", "child 3", "child 3", "quick 2"]


async def test_children_that_the_code_gathers_get_as_far_as_they_can(store: Store):  # rules I4, R5
    asked = asyncio.Event()

    @workflow
    async def first() -> Any:
        asked.set()
        return interrupt("first", key="first")

    @workflow
    async def slow() -> Any:
        made.append("slow")
        await asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return await current().run(quick, 1)

    @workflow
    async def flow() -> Any:
        return list(await asyncio.gather(current().run(first), current().run(slow)))

    await Runner(flow, store=store).run(session_id="s")
    assert made == ["slow", "quick 1"]
    assert (await Runner(flow, store=store).resume("s", {"first": 1})).value == [1, 2]
    assert made == ["slow", "quick 1"]


async def test_children_run_at_the_same_time():  # api: run_all
    ready = asyncio.Barrier(3)

    @workflow
    async def meets(n: int) -> int:
        await ready.wait()
        return n

    @workflow
    async def flow() -> Any:
        return await current().run_all([(meets, n) for n in range(3)])

    assert (await Runner(flow).run()).value == [0, 1, 2]


async def test_no_children_give_no_results():  # api: run_all
    @workflow
    async def flow() -> Any:
        return await current().run_all([])

    assert (await Runner(flow).run()).value == []


async def test_a_failed_child_is_the_only_one_to_run_again(store: Store):  # rules R5, G11
    broken = True

    @workflow
    async def fails() -> str:
        made.append("fails")
        if broken:
            raise ValueError("broken")
        return "mended"

    @workflow
    async def flow() -> Any:
        return await current().run_all([(quick, 1), (fails, None), (child, 3)])

    with pytest.raises(ValueError, match="broken"):
        await Runner(flow, store=store).run(session_id="s")
    assert [asked.key for asked in await Runner(flow, store=store).pending("s")] == ["q3"]
    broken = False
    made.clear()
    assert (await Runner(flow, store=store).recover("s")).status == "interrupted"
    assert made == ["fails"]
    assert (await Runner(flow, store=store).resume("s", {"q3": 1})).value == [2, "mended", [3, 1]]


async def test_a_childs_failure_can_be_caught(store: Store):  # rule A15
    @workflow
    async def fails(n: int) -> None:
        made.append(n)
        raise ValueError("broken")

    @workflow
    async def flow() -> Any:
        try:
            await current().run(fails, 1)
        except ValueError:
            return [await current().run(quick, 2), interrupt("q", key="q")]

    await Runner(flow, store=store).run(session_id="s")
    assert (await Runner(flow, store=store).resume("s", {"q": 1})).value == [4, 1]
    assert made == [1, "quick 2"]  # The failure led to the question, so it is kept with it (rule R13).


async def test_a_failed_child_can_be_tried_again_by_its_key(store: Store):  # rule R5
    @workflow
    async def flaky() -> int:
        receipt = await charge(1)
        made.append(receipt)
        if len(made) < 4:
            raise ConnectionError("away")
        return len(made)

    @workflow
    async def flow() -> Any:
        while True:
            try:
                return await current().run(flaky, key="the one")
            except ConnectionError:
                continue

    assert (await Runner(flow, store=store).run(session_id="s")).value == 4
    assert made == [1, "receipt 1", "receipt 1", "receipt 1"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_key_names_one_child(at_once: bool, store: Store):  # rule R5
    @workflow
    async def flow() -> Any:
        ctx = current()
        if at_once:
            return await asyncio.gather(ctx.run(quick, 1, key="k"), ctx.run(quick, 2, key="k"))
        return [await ctx.run(quick, 1, key="k"), await ctx.run(quick, 2, key="k")]

    with pytest.raises(UsageError, match="'k'"):
        await Runner(flow, store=store).run(session_id="s")


async def test_only_programs_can_be_children():  # api: current().run
    @workflow
    async def flow() -> Any:
        return await current().run(lambda: 1)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]

    with pytest.raises(UsageError, match="child"):
        await Runner(flow).run()


async def test_try_run_tells_how_it_went(store: Store):  # api: try_run
    outcomes: list[Outcome] = []

    @workflow
    async def flow() -> Any:
        outcomes.clear()
        outcomes.extend([await current().try_run(quick, 1), await current().try_run(child, 2)])
        if outcomes[1].signal is not None:
            raise outcomes[1].signal
        return [outcome.result for outcome in outcomes]

    result = await Runner(flow, store=store).run(session_id="s")
    assert [outcome.paused for outcome in outcomes] == [False, True]
    assert ids(result) == ["runnable:flow;runnable:child"]
    assert (await Runner(flow, store=store).resume("s", {"q2": "yes"})).value == [2, [2, "yes"]]


async def test_a_workflow_can_be_a_node_and_a_node_can_run_one(store: Store):  # rules A15, I6
    async def node(state: Any, ctx: RunContext[Any]) -> Any:
        return {"log": [await ctx.run(child, 1)]}

    @workflow
    async def as_node(state: Any) -> Any:
        return {"log": [interrupt("node", key="node")]}

    def build() -> Any:
        graph = StateGraph(Log, name="g").add_node("runs", node).add_node("flow", as_node)
        return graph.add_edge(START, "runs").add_edge(START, "flow").compile(store=store)

    result = await build().run({}, session_id="s")
    assert ids(result) == ["runnable:g;node:runs;runnable:child", "runnable:g;node:flow"]
    assert (await build().resume("s", {"q1": 1, "node": 2})).state["log"] == [[1, 1], 2]


async def test_a_child_graph_finishes_in_its_own_supersteps(store: Store):  # rules A15, G15
    def one(state: Any) -> Any:
        made.append("one")
        return {"log": ["one"]}

    def two(state: Any) -> Any:
        return {"log": [interrupt("q", key="q")]}

    graph = chain(one, two, name="steps")

    @workflow
    async def flow() -> Any:
        return (await current().run(graph, {}))["log"]

    await Runner(flow, store=store).run(session_id="s")
    assert (await Runner(flow, store=store).resume("s", {"q": "two"})).value == ["one", "two"]
    assert made == ["one"]


async def first(state: Any) -> Any:
    return {"log": [1]}


async def second(state: Any) -> Any:
    return {"log": [2]}


async def third(state: Any) -> Any:
    return {"log": [3]}


@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_a_child_run_that_is_cancelled_while_it_is_stored_leaves_the_session_whole(
    turns: int, store: Store
):  # rules R5, C1
    three_steps = chain(first, second, third, name="steps")

    async def node(state: Any) -> Any:
        task = asyncio.ensure_future(current().run(three_steps, {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return {"log": (await current().run(three_steps, {}, key="again"))["log"]}

    assert (await lone(node, store=store).run({}, session_id="s")).state["log"] == [1, 2, 3]
