"""Idempotency keys: the same whenever this very step is tried again, and for nothing else."""

import asyncio
from typing import Any

import pytest

from adjourn import Retry, Runner, address_segment, current, interrupt, once, workflow
from adjourn.errors import Conflict
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph
from adjourn.stores import Store
from adjourn.testing import FakeClock
from tests._engine.asking import Log, Node, ids, lone, together
from tests.conftest import MakeStore

keys: list[str] = []


@pytest.fixture(autouse=True)
def _no_keys() -> None:
    keys.clear()


def note() -> None:
    keys.append(current().idempotency_key)


@once
async def pay(cents: int) -> str:
    note()
    return keys[-1]


@once
def pay_now(cents: int) -> str:
    note()
    return keys[-1]


def ask(state: Any) -> Any:
    note()
    return {"log": [interrupt("q", key="q")]}


async def test_a_key_is_text_that_other_systems_take():  # rule R14
    await lone(ask).run({}, session_id="s")
    (key,) = keys
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")


async def test_it_is_the_same_over_a_pause(store: Store):  # rule R14
    await lone(ask, store=store).run({}, session_id="s")
    await lone(ask, store=store).resume("s", {"q": 1})
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_it_is_the_same_over_retries_and_failures(store: Store):  # rule R14
    broken = True

    async def node(state: Any) -> Any:
        note()
        await fails(1)
        return {"log": []}

    @once
    async def fails(cents: int) -> None:
        note()
        if broken:
            raise ConnectionError("away")

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("ask", node, retry=Retry(attempts=3, backoff=0.0))
        return graph.add_edge(START, "ask").compile(store=store)

    with pytest.raises(Exception, match="away"):
        await build().run({}, session_id="s")
    broken = False
    await build().recover("s")
    assert len(keys) == 8
    assert len(set(keys[::2])) == 1
    assert len(set(keys[1::2])) == 1
    assert keys[0] != keys[1]


async def test_it_is_the_same_over_a_crash(make_store: MakeStore):  # rule R14
    clock = FakeClock()
    store = make_store(clock)
    reached, go = asyncio.Event(), asyncio.Event()

    async def node(state: Any) -> Any:
        note()
        reached.set()
        await go.wait()
        return {"log": ["done"]}

    frozen = asyncio.create_task(_awaited(lone(node, store=store).run({}, session_id="s")))
    await reached.wait()
    clock.advance(60)
    go.set()
    assert (await lone(node, store=store).recover("s")).state["log"] == ["done"]
    assert len(set(keys)) == 1
    assert len(keys) == 2
    with pytest.raises(Conflict):
        await frozen


async def _awaited(run: Any) -> Any:
    return await run


async def test_each_pass_of_a_loop_has_its_own(store: Store):  # rules R14, R8
    def node(state: Any) -> Any:
        note()
        pay_now(1)
        return Command(update={"log": [1]}, goto="ask" if len(state["log"]) < 3 else END)

    await lone(node, store=store).run({}, session_id="s")
    assert len(set(keys)) == len(keys) == 8


async def test_each_turn_has_its_own(store: Store):  # rule R14
    for _ in range(3):
        await lone(ask, store=store).run({}, session_id="s")
        await lone(ask, store=store).resume("s", {"q": 1})
    assert len(keys) == 6
    assert len(set(keys)) == 3

    @workflow
    async def flow() -> Any:
        note()
        await pay(1)

    keys.clear()
    for _ in range(3):
        await Runner(flow, store=store).run(session_id="w")
    assert len(set(keys)) == len(keys) == 6


async def test_each_session_has_its_own(store: Store):  # rule R14
    for session in "abc":
        await lone(ask, store=store).run({}, session_id=session)
    assert len(set(keys)) == 3


async def test_each_place_call_and_argument_has_its_own(store: Store):  # rule R14
    async def node(state: Any) -> Any:
        note()
        await pay(1)
        await pay(1)
        await pay(2)
        pay_now(1)
        with address_segment("part", "a"):
            note()
            await pay(3)

    def fan(state: Any) -> Any:
        return [Command(update={"log": [0]}, goto="work") for _ in range(3)]

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("a", node).add_node("b", node).add_node("fan", fan)
        graph.add_node("work", node).add_edge(START, "a").add_edge(START, "b").add_edge(START, "fan")
        return graph.compile(store=store)

    await build().run({}, session_id="s")
    assert len(set(keys)) == len(keys) == 5 * 7


async def test_children_have_their_own(store: Store):  # rule R14
    @workflow
    async def child(n: int) -> None:
        note()
        await pay(1)

    @workflow
    async def flow() -> None:
        await current().run_all([(child, 1), (child, 1)])
        await current().run(child, 1)
        await current().run(child, 1, key="named")

    await Runner(flow, store=store).run(session_id="s")
    assert len(set(keys)) == len(keys) == 8


async def test_each_fork_has_its_own(store: Store):  # rule R14
    graph = lone(ask, store=store)
    await graph.run({}, session_id="s")
    forks = [await graph.fork("s"), await graph.fork("s")]
    for session in ("s", *forks):
        await graph.resume(session, {"q": 1})
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


async def test_going_back_has_its_own(store: Store):  # rule R14
    graph = lone(ask, store=store)
    result = await graph.run({}, session_id="s")
    await graph.resume("s", {"q": 1})
    await graph.run(None, session_id="s", checkpoint_id=result.checkpoint_id)
    await graph.resume("s", {"q": 2})
    assert keys[0] == keys[1]
    assert len(set(keys[1:])) == 2
    assert keys[-1] != keys[0]


async def test_each_edit_has_its_own(store: Store):  # rule R14
    graph = lone(ask, store=store)
    await graph.run({}, session_id="s")
    await graph.edit("s", {"log": ["edited"]})
    result = await graph.recover("s")
    await graph.resume("s", {ids(result)[0]: 1})
    assert len(set(keys)) == 2


async def test_it_does_not_depend_on_the_process_or_the_store(store: Store):  # rule R14
    async def collect(nodes: dict[str, Node]) -> None:
        graph = together(nodes, store=store)
        result = await graph.run({}, session_id="s", on_pending="abandon")
        await together(nodes, store=store).resume("s", dict.fromkeys(ids(result), 1))

    await collect({"a": ask, "b": ask})
    first, again = sorted(keys[:2]), sorted(keys[2:])
    assert first == again
