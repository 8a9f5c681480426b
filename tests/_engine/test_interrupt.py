"""Asking from anywhere: the run pauses, the question is told and kept, and the answer arrives where it was asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjourn import (
    CheckpointNotFound,
    Runner,
    UsageError,
    address_segment,
    current,
    interrupt,
    raise_interrupt,
    workflow,
)
from adjourn.errors import InterruptsDisabled, NotInRun, NotStorable, StoreUnavailable
from adjourn.events import Custom, Done, Interrupted, NodeEnd
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.stores import Store
from adjourn.testing import FaultStore
from tests._engine.asking import Log, chain, events_of, events_until_error, ids, lone, nothing, said, together, until

Body = Callable[[], Any]
Build = Callable[..., Runner]


def in_async_node(body: Body, store: Store, **options: Any) -> Runner:
    async def node(state: Any) -> dict[str, Any]:
        return {"log": [body()]}

    return lone(node, store=store, **options)


def in_sync_node(body: Body, store: Store, **options: Any) -> Runner:
    return lone(lambda state: {"log": [body()]}, store=store, **options)


def in_inline_node(body: Body, store: Store, **options: Any) -> Runner:
    return lone(lambda state: {"log": [body()]}, thread=False, store=store, **options)


def in_thread_of_async_node(body: Body, store: Store, **options: Any) -> Runner:
    async def node(state: Any) -> dict[str, Any]:
        return {"log": [await asyncio.to_thread(body)]}

    return lone(node, store=store, **options)


def in_task_of_async_node(body: Body, store: Store, **options: Any) -> Runner:
    async def ask() -> Any:
        return body()

    async def node(state: Any) -> dict[str, Any]:
        return {"log": [await asyncio.create_task(ask())]}

    return lone(node, store=store, **options)


def in_condition(body: Body, store: Store, **options: Any) -> Runner:
    def condition(state: Any) -> str:
        return body() and "yes"

    return _conditional(condition, store, **options)


def in_async_condition(body: Body, store: Store, **options: Any) -> Runner:
    async def condition(state: Any) -> str:
        return body() and "yes"

    return _conditional(condition, store, **options)


def _conditional(condition: Callable[..., Any], store: Store, **options: Any) -> Runner:
    graph = StateGraph(Log, name="g").add_node("first", nothing).add_node("yes", said)
    return graph.add_edge(START, "first").add_conditional_edges("first", condition).compile(store=store, **options)


def in_entry_condition(body: Body, store: Store, **options: Any) -> Runner:
    def condition(state: Any) -> str:
        return body() and "yes"

    graph = StateGraph(Log, name="g").add_node("yes", said)
    return graph.add_conditional_edges(START, condition).compile(store=store, **options)


def in_subgraph(body: Body, store: Store, **options: Any) -> Runner:
    inner = lone(lambda state: {"log": [body()]}, name="inner")
    return StateGraph(Log, name="g").add_subgraph("sub", inner).add_edge(START, "sub").compile(store=store, **options)


def in_invoked_graph(body: Body, store: Store, **options: Any) -> Runner:
    inner = lone(lambda state: {"log": [body()]}, name="inner")

    async def node(state: Any) -> dict[str, Any]:
        return {"log": (await inner.invoke({}))["log"]}

    return lone(node, store=store, **options)


def in_workflow(body: Body, store: Store, **options: Any) -> Runner:
    @workflow
    async def g() -> Any:
        return body()

    return Runner(g, store=store, **options)


def in_child_workflow(body: Body, store: Store, **options: Any) -> Runner:
    @workflow
    async def inner() -> Any:
        return body()

    @workflow
    async def g() -> Any:
        return await current().run(inner)

    return Runner(g, store=store, **options)


PLACES: list[tuple[Build, str]] = [
    (in_async_node, "runnable:g;node:ask"),
    (in_sync_node, "runnable:g;node:ask"),
    (in_inline_node, "runnable:g;node:ask"),
    (in_thread_of_async_node, "runnable:g;node:ask"),
    (in_task_of_async_node, "runnable:g;node:ask"),
    (in_condition, "runnable:g;node:first;branch:condition"),
    (in_async_condition, "runnable:g;node:first;branch:condition"),
    (in_entry_condition, "runnable:g;node:__start__;branch:condition"),
    (in_subgraph, "runnable:g;node:sub;node:ask"),
    (in_invoked_graph, "runnable:g;node:ask;runnable:inner;node:ask"),
    (in_workflow, "runnable:g"),
    (in_child_workflow, "runnable:g;runnable:inner"),
]


@pytest.mark.parametrize(("build", "address"), PLACES, ids=lambda value: getattr(value, "__name__", ""))
async def test_every_place_can_ask_and_gets_its_answer(build: Build, address: str, store: Store):  # rules I1, I6, R9
    answers: list[Any] = []

    def body() -> Any:
        answers.append(interrupt({"what": "name?"}, reason="need_name", prompt="Your name?", schema=str))
        return answers[-1]

    result = await build(body, store).run({}, session_id="s")
    assert result.status == "interrupted"
    (asked,) = result.interrupts
    assert (asked.id, asked.address) == (address, address)
    assert answers == []
    assert (await build(body, store).recover("s")).interrupts == result.interrupts
    assert answers == []
    result = await build(body, store).resume("s", {asked.id: "Ann"})
    assert result.status == "done"
    assert answers == ["Ann"]


async def test_all_open_questions_come_in_one_last_event(store: Store):  # rule I4
    ran: list[str] = []

    def after(state: Any) -> None:
        ran.append("after")

    def ask(state: Any) -> None:
        interrupt("a")

    async def finish(state: Any) -> dict[str, Any]:
        return {"log": ["finished"]}

    graph = StateGraph(Log, name="g").add_node("a", ask).add_node("b", ask).add_node("c", finish)
    graph.add_node("after", after).add_edge("c", "after")
    for name in "abc":
        graph.add_edge(START, name)
    events = await events_of(graph.compile(store=store).run({}, session_id="s"))
    told = [event for event in events if isinstance(event, Interrupted)]
    assert told == events[-1:]
    assert [asked.id for asked in told[0].interrupts] == ["runnable:g;node:a", "runnable:g;node:b"]
    assert ran == []
    assert [event.node for event in events if isinstance(event, NodeEnd)] == ["c"]


async def test_a_question_can_be_listed_and_answered_while_its_sibling_runs(store: Store):  # rules I4, R3
    go = asyncio.Event()

    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("a")]}

    async def work(state: Any) -> dict[str, Any]:
        await go.wait()
        return {"log": ["worked"]}

    nodes = {"ask": ask, "work": work}
    owner = asyncio.create_task(_result(together(nodes, store=store)))
    other = together(nodes, store=store)
    found = await until(lambda: other.pending("s"))
    assert [asked.id for asked in found] == ["runnable:g;node:ask"]
    follower = asyncio.create_task(events_of(other.resume("s", {found[0].id: "yes"})))
    await until(lambda: _none_pending(other))
    go.set()
    assert (await owner).state["log"] == ["yes", "worked"]
    assert isinstance((await follower)[-1], Done)


async def _none_pending(graph: CompiledGraph) -> bool:
    return not await graph.pending("s")


async def _result(graph: CompiledGraph) -> Any:
    return await graph.run({}, session_id="s")


async def test_no_interrupt_is_shown_that_was_not_saved(store: Store):  # rule I5
    def node(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("q")]}

    writes = FaultStore(store, fail_at=10_000)
    await lone(node, store=writes).run({}, session_id="probe")
    for fail_at in range(1, writes.calls + 1):
        faulty = FaultStore(store, fail_at=fail_at, times=1_000)
        session = f"s{fail_at}"
        run = lone(node, store=faulty, store_timeout=0.01).run({}, session_id=session)
        events, error = await events_until_error(run)
        assert isinstance(error, StoreUnavailable)
        assert not any(isinstance(event, Interrupted) for event in events)
        assert await lone(node, store=store).pending(session) == []


async def test_without_a_store_a_pause_works_within_the_process():  # rule I11
    graph = lone(lambda state: {"log": [interrupt("q")]})
    result = await graph.run({})
    result = await graph.resume(result.session_id, {result.interrupts[0].id: "yes"})
    assert result.state["log"] == ["yes"]


async def test_an_unknown_session_is_not_found(store: Store):  # rule I11
    for graph in (lone(lambda state: None), lone(lambda state: None, store=store)):
        for call in (graph.resume("nobody"), graph.resume("nobody", {"a": 1}), graph.recover("nobody")):
            with pytest.raises(CheckpointNotFound, match="nobody"):
                await call


def test_asking_outside_a_run_is_refused():  # rule R13
    for call in (lambda: interrupt("q"), lambda: raise_interrupt("q"), lambda: current()):
        with pytest.raises(NotInRun):
            call()


async def test_nesting_has_no_limit_that_people_meet(store: Store):  # rules I1, I6
    graph = lone(lambda state: {"log": [interrupt("deep")]}, name="g0")
    for level in range(1, 30):
        outer = StateGraph(Log, name=f"g{level}").add_subgraph("sub", graph).add_edge(START, "sub")
        graph = outer.compile(store=store)
    result = await graph.run({}, session_id="s")
    (asked,) = result.interrupts
    assert asked.id == "runnable:g29" + ";node:sub" * 29 + ";node:ask"
    result = await graph.resume("s", {asked.id: "up"})
    assert result.state["log"] == ["up"]


async def test_workflows_nest_as_deep_as_they_like(store: Store):  # rules I1, I6
    @workflow
    async def down(level: int) -> str:
        return await current().run(down, level - 1) if level else str(interrupt("deep", key="deep"))

    runner = Runner(down, store=store)
    result = await runner.run(40, session_id="s")
    (asked,) = result.interrupts
    assert asked.id == ";".join(["runnable:down"] * 41)
    depth, parent = 0, asked.parent
    while parent is not None:
        depth, parent = depth + 1, parent.parent
    assert depth == 40
    assert (await Runner(down, store=store).resume("s", {"deep": "up"})).value == "up"


ODD = ["a;b", "a:b", "a#2", "100%", "%3B", "~", ";~", "ä 😀", " ", "a\nb", "\x00", "node:x", "__proto__", "a" * 1000]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
async def test_names_may_hold_any_characters(name: str, store: Store):  # rules I3, C12
    def node(state: Any) -> dict[str, Any]:
        with address_segment("part", name, name):
            return {"log": [interrupt("q", key=name)]}

    def build() -> CompiledGraph:
        inner = StateGraph(Log, name=name).add_node(name, node).add_edge(START, name).compile()
        outer = StateGraph(Log, name=name).add_subgraph(name, inner).add_edge(START, name)
        return outer.compile(store=store)

    result = await build().run({}, session_id=name)
    (asked,) = result.interrupts
    segments = asked.address.split(";")
    assert [segment.split(":")[0] for segment in segments] == ["runnable", "node", "node", "part"]
    assert "#" not in asked.id
    assert [each.key for each in await build().pending(name)] == [name]
    result = await build().resume(name, {asked.id: "yes"})
    assert result.state["log"] == ["yes"]


@pytest.mark.parametrize(
    "options",
    [
        {"key": 1},
        {"prompt": 1},
        {"reason": 1},
        {"key": "\ud800"},
        {"prompt": "\ud800"},
        {"reason": "\ud800"},
        {"expires_in": -1},
        {"expires_in": 0},
        {"expires_in": float("nan")},
        {"on_expire": "explode"},
        pytest.param({"schema": object()}, id="{'schema': object()}"),
        {"schema": {"type": "no such type"}},
    ],
    ids=repr,
)
async def test_a_malformed_question_is_refused_where_it_is_asked(options: dict[str, Any], store: Store):  # rule I7
    def node(state: Any) -> dict[str, Any]:
        with pytest.raises((UsageError, NotStorable)):
            interrupt("q", **options)
        return {"log": ["refused"]}

    result = await lone(node, store=store).run({}, session_id="s")
    assert result.state["log"] == ["refused"]


@pytest.mark.parametrize("build", [in_async_node, in_sync_node, in_condition, in_workflow, in_subgraph])
async def test_a_runner_can_forbid_interrupts(build: Build, store: Store):  # api: interrupts=False
    def body() -> Any:
        try:
            return interrupt("q")
        except Exception:  # noqa: BLE001  # as careless code does
            return "swallowed"

    with pytest.raises(InterruptsDisabled):
        await build(body, store, interrupts=False).run({}, session_id="s")
    assert await build(body, store).pending("s") == []
    assert (await build(body, store).recover("s")).status == "interrupted"


async def test_what_was_emitted_before_a_question_is_told_before_it(store: Store):  # rule I4
    def node(state: Any) -> None:
        current().emit("about to ask")
        interrupt("q")

    events = await events_of(lone(node, store=store).run({}, session_id="s"))
    told = [type(event) for event in events if isinstance(event, Custom | Interrupted)]
    assert told == [Custom, Interrupted]


async def test_a_finished_chain_pauses_once_per_question(store: Store):  # rule I4
    def first(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("one")]}

    def second(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("two")]}

    graph = chain(first, second, store=store)
    result = await graph.run({}, session_id="s")
    result = await graph.resume("s", {ids(result)[0]: 1})
    assert ids(result) == ["runnable:g;node:second"]
    result = await graph.resume("s", {ids(result)[0]: 2})
    assert result.state["log"] == [1, 2]
