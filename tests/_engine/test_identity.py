"""Child runs are known by what is run with which input, in whatever order code comes to them."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from adjourn import Runner, UsageError, current, interrupt, once, workflow
from adjourn.errors import ReplayMismatch
from adjourn.graph import START, Overwrite, StateGraph, append
from adjourn.stores import Store
from tests._engine.asking import ids, lone

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@workflow
async def look_up(name: str) -> str:
    made.append(name)
    return f"{name} found"


@workflow
async def ask_about(name: str) -> str:
    return f"{name}: {interrupt({'about': name}, key=name)}"


async def test_results_do_not_swap_when_the_order_changes(store: Store):  # rule R6
    order = ["a", "b", "c"]

    @workflow
    async def flow() -> Any:
        found = await asyncio.gather(*(current().run(look_up, name) for name in order))
        return [dict(zip(order, found, strict=True)), interrupt("go on?", key="q")]

    await Runner(flow, store=store).run(session_id="s")
    order.reverse()
    result = await Runner(flow, store=store).resume("s", {"q": "yes"})
    assert result.value == [{name: f"{name} found" for name in "abc"}, "yes"]
    assert made == ["a", "b", "c"]


async def test_answers_reach_the_child_they_were_given_to(store: Store):  # rules R6, I14
    order = ["draft.txt", "payroll.db"]

    @workflow
    async def flow() -> Any:
        return await current().run_all([(ask_about, name) for name in order])

    paused = await Runner(flow, store=store).run(session_id="s")
    assert ids(paused) == ["runnable:flow;runnable:ask_about", "runnable:flow;runnable:ask_about:2"]
    order.reverse()
    result = await Runner(flow, store=store).resume("s", {ids(paused)[0]: "delete", ids(paused)[1]: "keep"})
    assert result.value == ["payroll.db: keep", "draft.txt: delete"]


async def test_one_key_serves_one_payment(store: Store):  # rules R6, R14
    order, away = [1, 2], True
    keys: dict[int, set[str]] = {1: set(), 2: set()}

    @workflow
    async def pay(cents: int) -> int:
        keys[cents].add(current().idempotency_key)
        if away:
            raise ConnectionError("away")
        return cents

    @workflow
    async def flow() -> Any:
        return sorted(await asyncio.gather(*(current().run(pay, cents) for cents in order)))

    with pytest.raises(ConnectionError):
        await Runner(flow, store=store).run(session_id="s")
    order.reverse()
    away = False
    assert (await Runner(flow, store=store).recover("s")).value == [1, 2]
    assert [len(each) for each in keys.values()] == [1, 1]
    assert keys[1] != keys[2]


async def test_equal_children_are_children_of_their_own(store: Store):  # rules R6, R14
    keys: list[str] = []

    @workflow
    async def pay(cents: int) -> str:
        keys.append(current().idempotency_key)
        return interrupt("pay?")

    @workflow
    async def flow() -> Any:
        return await current().run_all([(pay, 1), (pay, 1)])

    paused = await Runner(flow, store=store).run(session_id="s")
    assert len(ids(paused)) == len(set(keys)) == 2
    result = await Runner(flow, store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert result.value == ["yes", "yes"]


async def test_a_straight_call_with_other_input_does_not_run(store: Store):  # rule R6
    names = ["a"]

    @workflow
    async def flow() -> Any:
        return [await current().run(look_up, name) for name in names] + [interrupt("q", key="q")]

    await Runner(flow, store=store).run(session_id="s")
    names[:] = ["b"]
    with pytest.raises(ReplayMismatch, match="with other input"):
        await Runner(flow, store=store).resume("s", {"q": 1})
    assert made == ["a"]
    names[:] = ["a"]
    assert (await Runner(flow, store=store).recover("s")).value == ["a found", 1]


async def test_a_key_with_other_input_is_a_mismatch(store: Store):  # rule R6
    given = "a"

    @workflow
    async def flow() -> Any:
        return [await current().run(look_up, given, key="it"), interrupt("q", key="q")]

    await Runner(flow, store=store).run(session_id="s")
    given = "b"
    with pytest.raises(ReplayMismatch, match="runnable:look_up:it"):
        await Runner(flow, store=store).resume("s", {"q": 1})
    given = "a"
    assert (await Runner(flow, store=store).recover("s")).value == ["a found", 1]
    assert made == ["a"]


async def test_a_key_is_used_once_whatever_the_input(store: Store):  # rule R6
    @workflow
    async def flow() -> Any:
        return [await current().run(look_up, "a", key="it"), await current().run(look_up, "b", key="it")]

    with pytest.raises(UsageError, match="'it'"):
        await Runner(flow, store=store).run(session_id="s")
    assert made == ["a"]


async def test_graphs_called_in_a_node_are_known_by_their_input(store: Store):  # rules G15, R6
    order = ["a", "b"]

    @dataclass
    class Item:
        name: str
        log: Annotated[list[str], append] = field(default_factory=list[str])

    async def see(state: Item) -> Any:
        made.append(state.name)
        return {"log": [f"{state.name} seen"]}

    inner = StateGraph(Item, name="inner").add_node("see", see).add_edge(START, "see").compile()

    async def node(state: Any) -> Any:
        found = await asyncio.gather(*(inner.invoke(Item(name)) for name in order))
        return {"log": [{each.name: each.log for each in found}, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    order.reverse()
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == [{"a": ["a seen"], "b": ["b seen"]}, 1]
    assert made == ["a", "b"]


async def test_input_that_overwrites_is_other_input() -> None:  # rule R6
    inner = lone(lambda state: {"log": ["end"]}, name="inner")

    async def node(state: Any) -> Any:
        first = await inner.invoke({"log": ["x"]})
        second = await inner.invoke({"log": Overwrite(["x"])})
        return {"log": [first, second, interrupt("q", key="q")]}

    graph = lone(node)
    await graph.run({}, session_id="s")
    assert (await graph.resume("s", {"q": 1})).state["log"] == [{"log": ["x", "end"]}, {"log": ["x", "end"]}, 1]


async def test_a_task_that_starts_later_than_it_did_is_no_mismatch(store: Store):  # rule R6
    is_slow = True

    @workflow
    async def flow() -> Any:
        beside = asyncio.ensure_future(current().run(ask_about, "beside"))
        if is_slow:
            await asyncio.wait([beside])
        straight = await current().run(ask_about, "straight")
        return [await beside, straight]

    await Runner(flow, store=store).run(session_id="s")
    is_slow = False
    await Runner(flow, store=store).resume("s", {"straight": "a"})
    assert (await Runner(flow, store=store).resume("s", {"beside": "b"})).value == ["beside: b", "straight: a"]


async def test_a_thousand_children_cost_a_thousand_times_one(store: Store):  # rules R6, C9
    @workflow
    async def flow() -> Any:
        for number in range(300):
            await current().run(look_up, str(number))
        return interrupt("q", key="q")

    await Runner(flow, store=store).run(session_id="s")
    assert (await Runner(flow, store=store).resume("s", {"q": 1})).value == 1
    assert made == [str(number) for number in range(300)]


async def test_text_keys_of_once_do_not_stand_for_the_arguments(store: Store):  # rule R6
    order = [1, 2]

    @once(key="charge")
    async def charge(cents: int) -> str:
        await asyncio.sleep(0)
        made.append(cents)
        return f"receipt {cents}"

    async def node(state: Any) -> Any:
        found = await asyncio.gather(*(charge(cents) for cents in order))
        return {"log": [dict(zip(map(str, order), found, strict=True)), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    order.reverse()
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == [{"1": "receipt 1", "2": "receipt 2"}, 1]
    assert made == [1, 2]
