"""Threads that wait for a run or for a commit lend their places: no number of them can stop the others."""

import asyncio
import contextvars
import threading
from typing import Any, TypeVar

import pytest

from adjourn import ChatModelAgent, Runner, ToolCall, current, interrupt, once, tool
from adjourn._engine.concurrency import MAX_THREADS, Threads, _threads  # pyright: ignore[reportPrivateUsage]
from adjourn.graph import CompiledGraph
from adjourn.stores import MemoryStore, Store
from adjourn.stores.kit import Commit, StoreRequest
from adjourn.testing import ScriptedModel
from tests._engine.asking import lone, together

T = TypeVar("T")

WAIT = 50.0
USERS = MAX_THREADS + 6


async def all_of(*runs: Any) -> list[Any]:
    async with asyncio.timeout(WAIT):
        return await asyncio.gather(*(awaited(run) for run in runs))


async def awaited(run: Any) -> Any:
    return await run


def crowd(graph: CompiledGraph, users: int = USERS) -> list[Any]:
    return [graph.run({}, session_id=f"user {number}") for number in range(users)]


def said(state: Any) -> Any:
    return {"log": ["inner"]}


async def test_as_many_sync_nodes_as_there_are_threads_can_each_run_a_graph(store: Store):  # rule G14
    """All of them are in their threads before the first one calls."""
    inner, meet = lone(said, name="inner"), threading.Barrier(MAX_THREADS, timeout=WAIT)

    def node(state: Any) -> Any:
        meet.wait()
        return {"log": [inner.run_sync({}).state["log"]]}

    results = await all_of(*crowd(lone(node, store=store), MAX_THREADS))
    assert [result.state["log"] for result in results] == [[["inner"]]] * MAX_THREADS
    assert (await lone(said).run({})).state["log"] == ["inner"]


async def test_sync_nodes_can_each_read_the_events_of_a_graph(store: Store):  # rule G14
    inner, meet = lone(said, name="inner"), threading.Barrier(MAX_THREADS, timeout=WAIT)

    def node(state: Any) -> Any:
        meet.wait()
        return {"log": [type(list(inner.run({}))[-1]).__name__]}

    results = await all_of(*crowd(lone(node, store=store), MAX_THREADS))
    assert [result.state["log"] for result in results] == [["Done"]] * MAX_THREADS


async def test_sync_nodes_that_run_graphs_run_them_to_any_depth():  # rule G14
    deep = lone(said, name="deep")
    for name in ("third", "second", "first"):
        deep = lone(calling(deep), name=name)
    results = await all_of(*crowd(deep))
    assert len(results) == USERS


async def test_sync_tools_that_run_agents_100_deep_end_on_a_small_pool():  # rule G14
    """Each waits in a thread for the one below it, and the pool has four."""

    def deeper(depth: int) -> ChatModelAgent:
        @tool
        def below() -> str:
            """Ask the agent below."""
            return Runner(deeper(depth - 1)).run_sync("go").output

        script = [ToolCall(id="c", name="below", arguments={}), "so it is"] if depth else ["the last"]
        return ChatModelAgent("A", model=ScriptedModel(script), tools=[below], return_directly=["below"])

    _threads.set(Threads(limit=4))
    async with asyncio.timeout(WAIT):
        results = await asyncio.gather(*(awaited(Runner(deeper(100)).run("go")) for _ in range(6)))
    assert [result.output for result in results] == ["the last"] * 6


def calling(graph: CompiledGraph) -> Any:
    def node(state: Any) -> Any:
        return {"log": graph.run_sync({}).state["log"]}

    return node


async def test_sync_nodes_that_resume_others_do_not_keep_these_from_running(store: Store):  # rules G14, R3
    """What they wait for needs threads of the same pool: it is live, and its owner goes on."""
    go, meet = asyncio.Event(), threading.Barrier(MAX_THREADS, timeout=WAIT)

    async def held(state: Any) -> Any:
        await go.wait()

    def asks(state: Any) -> Any:
        return {"log": [interrupt("q", key="q")]}

    asking = together({"held": held, "asks": asks}, name="asking", store=store)
    owners = [asyncio.create_task(awaited(asking.run({}, session_id=str(n)))) for n in range(MAX_THREADS)]
    async with asyncio.timeout(WAIT):
        while len(await asking.pending()) < MAX_THREADS:  # noqa: ASYNC110  # nobody is told
            await asyncio.sleep(0.01)
    loop = asyncio.get_running_loop()

    def resumes(state: Any) -> Any:
        number = current().session_id.rpartition(" ")[2]
        meet.wait()
        loop.call_soon_threadsafe(go.set)
        return {"log": asking.resume_sync(number, {"q": number}).state["log"]}

    results = await all_of(*crowd(lone(resumes, name="resuming", store=store), MAX_THREADS))
    assert [result.state["log"] for result in results] == [[str(number)] for number in range(MAX_THREADS)]
    await asyncio.gather(*owners)


async def test_what_a_thread_holds_while_it_waits_does_not_stop_what_it_waits_for():  # rule G14
    """Here it holds a lock, and all other places are those of threads that wait for the lock."""
    inner, lock, come, all_here = lone(said, name="inner"), threading.Lock(), list[int](), threading.Event()

    def node(state: Any) -> Any:
        come.append(1)
        if len(come) == MAX_THREADS:
            all_here.set()
        with lock:
            assert all_here.wait(WAIT)
            return {"log": inner.run_sync({}).state["log"]}

    results = await all_of(*crowd(lone(node)))
    assert len(results) == USERS


class HeldStore(MemoryStore):
    """A store whose commits wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.go = asyncio.Event()

    async def write(self, request: StoreRequest[T]) -> T:
        if isinstance(request.plain, Commit):
            self.held += 1
            await self.go.wait()
        return await super().write(request)


async def test_sync_nodes_that_wait_for_a_commit_let_others_run():  # rules G14, R13
    store = HeldStore()

    @once
    def charge(number: str) -> str:
        return number

    def node(state: Any) -> Any:
        return {"log": [charge(current().session_id)]}

    waiting = [asyncio.create_task(awaited(run)) for run in crowd(lone(node, store=store), MAX_THREADS)]
    async with asyncio.timeout(WAIT):
        while store.held < MAX_THREADS:  # noqa: ASYNC110  # they come from threads
            await asyncio.sleep(0.005)
        assert (await lone(said).run({})).state["log"] == ["inner"]
        store.go.set()
        await asyncio.gather(*waiting)


@pytest.mark.parametrize("thread", [True, False])
async def test_a_sync_call_sees_the_context_variables_of_its_caller(thread: bool):
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var")

    async def inner_node(state: Any) -> Any:
        return {"log": [var.get()]}

    inner = lone(inner_node, name="inner")

    def node(state: Any) -> Any:
        var.set("mine")
        return {"log": inner.run_sync({}).state["log"]}

    assert (await lone(node, thread=thread).run({})).state["log"] == ["mine"]


async def test_sync_nodes_can_each_run_a_graph_on_an_event_loop_of_their_own():  # rule G14
    inner, meet = lone(said, name="inner"), threading.Barrier(MAX_THREADS, timeout=WAIT)

    async def run_two() -> list[Any]:
        return [result.state["log"] for result in await asyncio.gather(awaited(inner.run({})), awaited(inner.run({})))]

    def node(state: Any) -> Any:
        meet.wait()
        return {"log": asyncio.run(run_two())}

    results = await all_of(*crowd(lone(node), MAX_THREADS))
    assert [result.state["log"] for result in results] == [[["inner"], ["inner"]]] * MAX_THREADS


async def test_event_loops_in_sync_nodes_nest_to_any_depth():  # rule G14
    graph = lone(said, name="g0")
    for depth in range(1, 4):
        graph = around(graph, f"g{depth}")
    result = (await all_of(*crowd(graph, MAX_THREADS)))[0]
    assert result.state["log"] == [[[["inner"]]]]


def around(inner: CompiledGraph, name: str) -> CompiledGraph:
    def node(state: Any) -> Any:
        return {"log": [asyncio.run(awaited(inner.run({}))).state["log"]]}

    return lone(node, name=name)
