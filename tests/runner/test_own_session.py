"""Code that would go on with the session it runs in: refused, since it would wait for itself."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, UsageError, current, interrupt
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.sessions import Sessions
from adjourn.stores import SQLiteStore, Store

from .programs import Path as State
from .programs import step

WAIT = 50.0
MATCH = r"is run by session 's'.*wait for itself"
Call = Callable[[CompiledGraph], Any]


async def asks(state: Any) -> Any:
    return {"answer": interrupt("Go on?", key="go")}


def build(node: Any, store: Store, **options: Any) -> CompiledGraph:
    """A graph whose node runs beside one that asks, so that there is something to answer."""
    graph = StateGraph(State, name="own")
    graph.add_node("asks", asks).add_edge(START, "asks").add_node("node", node, **options).add_edge(START, "node")
    return graph.compile(store=store)


ASYNC: dict[str, Call] = {
    "resume": lambda graph: graph.resume("s", {"go": 1}),
    "recover": lambda graph: graph.recover("s"),
    "run": lambda graph: graph.run({}, session_id="s"),
    "run_abandoning": lambda graph: graph.run({}, session_id="s", on_pending="abandon"),
    "run_finishing": lambda graph: graph.run({}, session_id="s", on_pending="finish"),
    "answer": lambda graph: graph.answer("s", {"go": 1}),
    "answer_without_program": lambda graph: Sessions(graph.store).answer("s", {"go": 1}),
    "attach": lambda graph: graph.attach("s"),
    "attach_and_cancel": lambda graph: graph.attach("s").cancel(),
    "edit": lambda graph: graph.edit("s", {}),
    "delete": lambda graph: graph.delete("s"),
    "delete_without_program": lambda graph: Sessions(graph.store).delete("s"),
    "for_user": lambda graph: Runner(graph, store=graph.store).resume("s", {"go": 1}),
}
SYNC: dict[str, Call] = {
    "resume": lambda graph: graph.resume_sync("s", {"go": 1}),
    "recover": lambda graph: graph.recover_sync("s"),
    "run": lambda graph: graph.run_sync({}, session_id="s"),
    "answer": lambda graph: graph.answer_sync("s", {"go": 1}),
    "attach": lambda graph: list(graph.attach("s")),
    "delete": lambda graph: graph.delete_sync("s"),
    "read": lambda graph: list(graph.resume("s", {"go": 1})),
}


async def until_asked(store: Store) -> None:
    async with asyncio.timeout(WAIT):
        while not await Sessions(store).pending("s"):  # noqa: ASYNC110  # nobody is told
            await asyncio.sleep(0.001)


async def check(graph: CompiledGraph) -> None:
    async with asyncio.timeout(WAIT):
        with pytest.raises(UsageError, match=MATCH):
            await graph.run({}, session_id="s")
    assert [asked.key for asked in await graph.pending("s")] == ["go"]  # nothing was answered


@pytest.mark.parametrize("call", ASYNC.values(), ids=ASYNC)
async def test_async_code_cannot_go_on_with_its_own_session(call: Call, store: Store):  # rule R18
    async def node(state: Any) -> Any:
        await until_asked(store)
        await call(graph)

    graph = build(node, store)
    await check(graph)


@pytest.mark.parametrize("call", SYNC.values(), ids=SYNC)
@pytest.mark.parametrize("where", ["pool", "own thread"])
async def test_sync_code_cannot_go_on_with_its_own_session(call: Call, where: str, store: Store):  # rule R18
    def node(state: Any) -> Any:
        asyncio.run(until_asked(store))
        if where == "pool":
            call(graph)
        else:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(contextvars.copy_context().run, call, graph).result()

    graph = build(node, store)
    await check(graph)


async def test_code_on_the_loop_cannot_either(store: Store):  # rule R18
    def node(state: Any) -> Any:
        graph.resume_sync("s", {"go": 1})

    graph = build(node, store, thread=False)
    await check(graph)


async def test_a_store_object_of_its_own_makes_no_difference(tmp_path: Path):  # rule R18
    """As when a tool builds everything anew."""
    store = SQLiteStore(tmp_path / "s.db")

    def node(state: Any) -> Any:
        asyncio.run(until_asked(store))
        build(node, SQLiteStore(tmp_path / "s.db")).resume_sync("s", {"go": 1})

    await check(build(node, store))
    await store.close()


async def test_code_cannot_go_on_with_the_session_that_waits_for_it(store: Store):  # rule R18
    async def inner_node(state: Any) -> Any:
        await graph.resume("s", {"go": 1})

    inner = StateGraph(State, name="inner").add_node("inner", inner_node).add_edge(START, "inner").compile(store=store)

    async def node(state: Any) -> Any:
        await until_asked(store)
        await inner.run({}, session_id="another")

    graph = build(node, store)
    async with asyncio.timeout(WAIT):
        with pytest.raises(UsageError, match=r"session 's'.*wait for itself"):
            await graph.run({}, session_id="s")


async def test_other_sessions_are_no_concern(store: Store):  # rules R18, G15
    """Also one of the same id in another app, and the session itself once its run is over."""
    other = StateGraph(State, name="other").add_node("a", step("a")).add_edge(START, "a").compile(store=store)

    async def node(state: Any) -> Any:
        assert current().session_id == "s"
        await other.run({}, session_id="t")
        await Runner(other, store=store, app_name="elsewhere").run({}, session_id="s")
        return {"done": ["node"]}

    graph = build(node, store)
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    assert (await graph.resume("s", {"go": 1})).state["answer"] == 1


async def test_code_may_cancel_and_look_at_its_own_session(store: Store):  # rule R18
    seen: list[Any] = []

    async def node(state: Any) -> Any:
        seen.append((await graph.status("s")).status)
        seen.append(await graph.cancel("s"))
        await asyncio.Event().wait()

    graph = build(node, store)
    async with asyncio.timeout(WAIT):
        assert (await graph.run({}, session_id="s")).status == "cancelled"
    assert seen == ["running", True]
