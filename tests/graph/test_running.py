"""Running supersteps: how many there may be, and what the failure of one task means for the others."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import UsageError, current, interrupt, once
from adjourn.errors import MaxStepsExceeded
from adjourn.events import NodeEnd, NodeStart
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import Store
from tests.graph.shapes import Node, chain, events_of, failing, giving, names, together


class Log(TypedDict):
    log: Annotated[list[Any], append]
    item: int


def counting(limit: int) -> Node:
    """A node that counts up to a limit and goes to itself until then."""

    def count(state: Any) -> Command:
        return Command({"log": [len(state["log"])]}, goto=END if len(state["log"]) + 1 >= limit else "count")

    return count


# How many there may be


async def test_a_graph_may_make_exactly_as_many_supersteps_as_allowed() -> None:  # rule G10
    assert (await chain(Log, counting(5), max_steps=5).invoke({}))["log"] == [0, 1, 2, 3, 4]
    with pytest.raises(MaxStepsExceeded) as caught:
        await chain(Log, counting(6), max_steps=5).invoke({})
    assert (caught.value.limit, caught.value.graph) == (5, "g")


async def test_a_fan_out_is_one_superstep() -> None:  # rule G10
    graph = StateGraph(Log).add_node("s", giving([Command(goto="w")] * 20)).add_node("w", giving({"log": [1]}))
    assert len((await graph.set_entry_point("s").compile(max_steps=2).invoke({}))["log"]) == 20


async def test_a_run_may_bring_another_limit() -> None:  # rule G10
    graph = chain(Log, counting(6), max_steps=5)
    assert len((await graph.run({}, max_steps=6)).state["log"]) == 6
    with pytest.raises(MaxStepsExceeded):
        await graph.run({}, max_steps=2)
    with pytest.raises(UsageError, match="max_steps"):
        await graph.run({}, max_steps=0)


async def test_the_last_superstep_is_saved_before_the_limit_is_told(store: Store) -> None:  # rule G10
    with pytest.raises(MaxStepsExceeded):
        await chain(Log, counting(9), max_steps=3, store=store).run({}, session_id="s")
    graph = chain(Log, counting(9), max_steps=3, store=store)
    assert (await graph.state("s"))["log"] == [0, 1, 2]
    assert (await graph.history("s"))[0].next == ("count",)
    assert (await graph.status("s")).status == "failed"


async def test_recovering_with_a_higher_limit_goes_on(store: Store) -> None:  # rule G10
    ran: list[int] = []

    def count(state: Any) -> Command:
        ran.append(len(state["log"]))
        return counting(5)(state)

    with pytest.raises(MaxStepsExceeded):
        await chain(Log, count, max_steps=3, store=store).run({}, session_id="s")
    with pytest.raises(MaxStepsExceeded):
        await chain(Log, count, max_steps=3, store=store).recover("s")
    with pytest.raises(MaxStepsExceeded):
        await chain(Log, count, max_steps=3, store=store).recover("s", max_steps=4)
    assert (await chain(Log, count, max_steps=5, store=store).recover("s")).state["log"] == [0, 1, 2, 3, 4]
    assert ran == [0, 1, 2, 3, 4]


async def test_supersteps_are_counted_over_resumes(store: Store) -> None:  # rule G10
    def ask(state: Any) -> Command:
        return Command({"log": [interrupt("?")]}, goto="ask")

    graph = chain(Log, ask, max_steps=3, store=store)
    await graph.run({}, session_id="s")
    for number in range(2):
        paused = await chain(Log, ask, max_steps=3, store=store).resume("s", None)
        assert len(paused.state["log"]) == number + 1
    with pytest.raises(MaxStepsExceeded):
        await graph.resume("s", None)
    assert (await graph.recover("s", max_steps=4)).interrupts


async def test_each_turn_counts_anew() -> None:  # rule G10
    graph = chain(Log, giving({"log": [1]}), max_steps=1)
    for _ in range(3):
        result = await graph.run({}, session_id="s")
    assert len(result.state["log"]) == 3  # pyright: ignore[reportPossiblyUnboundVariable]


async def test_a_nested_graph_counts_its_own(store: Store) -> None:  # rule G10
    inner = chain(Log, counting(4), max_steps=4, name="inner")
    outer = StateGraph(Log, name="outer").add_node("a", inner).add_node("b", giving({"log": ["b"]}))
    graph = outer.add_sequence(START, "a", "b").compile(max_steps=2, store=store)
    assert (await graph.run({}, session_id="s")).state["log"] == [0, 1, 2, 3, "b"]
    tight = chain(Log, counting(4), max_steps=3, name="inner")
    with pytest.raises(MaxStepsExceeded, match="inner"):
        await StateGraph(Log).add_node("a", tight).set_entry_point("a").compile(max_steps=9).invoke({})


# Failures


async def test_siblings_of_a_failed_task_finish_and_are_kept(store: Store) -> None:  # rule G11
    ran: list[str] = []
    failed = asyncio.Event()

    async def broken(state: Any) -> None:
        ran.append("broken")
        failed.set()
        raise RuntimeError("broken")

    async def slow(state: Any) -> dict[str, Any]:
        await failed.wait()
        ran.append("slow")
        return {"log": ["slow"]}

    async def mended(state: Any) -> dict[str, Any]:
        ran.append("mended")
        return {"log": ["mended"]}

    with pytest.raises(RuntimeError, match="broken"):
        await together(Log, {"a": broken, "b": slow}, store=store).run({}, session_id="s")
    graph = together(Log, {"a": mended, "b": slow}, store=store)
    assert (await graph.state("s"))["log"] == []
    assert (await graph.status("s")).status == "failed"
    events = await events_of(graph.recover("s"))
    assert ran == ["broken", "slow", "mended"]
    assert names(events, NodeStart) == names(events, NodeEnd) == ["a"]
    assert (await graph.state("s"))["log"] == ["mended", "slow"]


async def test_the_first_error_in_task_order_is_raised_with_the_others_attached() -> None:  # rule G11
    later = asyncio.Event()

    async def first(state: Any) -> None:
        await later.wait()
        raise KeyError("first")

    async def second(state: Any) -> None:
        later.set()
        raise ValueError("second")

    with pytest.raises(KeyError) as caught:
        await together(Log, {"a": first, "b": second, "c": failing(OSError("third"))}).invoke({})
    notes = "\n".join(caught.value.__notes__)
    assert "second" in notes
    assert "third" in notes
    assert "node:b" in notes


async def test_only_the_failed_tasks_of_a_fan_out_run_again(store: Store) -> None:  # rule G11
    ran: list[int] = []

    def build(bad: set[int]) -> CompiledGraph:
        def worker(state: Any) -> dict[str, Any]:
            ran.append(state["item"])
            if state["item"] in bad:
                raise RuntimeError(str(state["item"]))
            return {"log": [state["item"] * 10]}

        sends = [Command({"item": item}, "w") for item in range(5)]
        graph = StateGraph(Log, name="g").add_node("s", giving(sends)).add_node("w", worker, thread=False)
        return graph.set_entry_point("s").compile(store=store)

    with pytest.raises(RuntimeError, match="1"):
        await build({1, 3}).run({}, session_id="s")
    with pytest.raises(RuntimeError, match="3"):
        await build({3}).recover("s")
    result = await build(set()).recover("s")
    assert ran == [0, 1, 2, 3, 4, 1, 3, 3]
    assert result.state["log"] == [0, 10, 20, 30, 40]


async def test_a_failed_task_keeps_what_it_did_once(store: Store) -> None:  # rules G11, R5
    charged: list[int] = []

    @once
    async def charge(cents: int) -> int:
        charged.append(cents)
        return cents

    def build(broken: bool) -> CompiledGraph:
        async def pay(state: Any) -> dict[str, Any]:
            paid = await charge(5)
            if broken:
                raise RuntimeError("after paying")
            return {"log": [paid, current().attempt]}

        return chain(Log, pay, store=store)

    with pytest.raises(RuntimeError):
        await build(broken=True).run({}, session_id="s")
    assert (await build(broken=False).recover("s")).state["log"] == [5, 2]
    assert charged == [5]


async def test_a_failure_in_a_later_superstep_keeps_the_earlier_ones(store: Store) -> None:  # rule G11
    ran: list[str] = []

    def first(state: Any) -> dict[str, Any]:
        ran.append("first")
        return {"log": ["first"]}

    def second(state: Any) -> dict[str, Any]:
        ran.append("second")
        if len(ran) < 4:
            raise RuntimeError("not yet")
        return {"log": ["second"]}

    graph = chain(Log, first, second, store=store)
    with pytest.raises(RuntimeError):
        await graph.run({}, session_id="s")
    with pytest.raises(RuntimeError):
        await graph.recover("s")
    assert (await graph.recover("s")).state["log"] == ["first", "second"]
    assert ran == ["first", "second", "second", "second"]


@pytest.mark.parametrize("error", [StopIteration("x"), StopAsyncIteration("x"), GeneratorExit()])
@pytest.mark.parametrize("thread", [True, False])
async def test_odd_exceptions_fail_the_run_and_do_not_hang_it(error: BaseException, thread: bool) -> None:  # rule G11
    def odd(state: Any) -> None:
        raise error

    graph = StateGraph(Log).add_node("odd", odd, thread=thread).add_node("b", giving(None))
    graph.add_edge(START, "odd").add_edge(START, "b")
    with pytest.raises(BaseException):  # noqa: B017, PT011  # whichever it is, it ends
        await asyncio.wait_for(graph.compile().invoke({}), 120)


async def test_a_node_that_pretends_to_be_cancelled_fails() -> None:  # rule G11
    async def pretends(state: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(Exception, match="CancelledError"):
        await together(Log, {"a": pretends, "b": giving(None)}).invoke({})
