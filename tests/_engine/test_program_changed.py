"""Resuming with a program that has changed: what is stored must still have its place."""

from typing import Any

import pytest

from adjourn import Runner, current, interrupt, workflow
from adjourn.errors import ProgramChanged
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, lone, nothing, said


def ask(state: Any) -> Any:
    return {"log": [interrupt("q", key="q")]}


def build(store: Store, nodes: dict[str, Node], name: str = "g", schema: Any = Log) -> CompiledGraph:
    graph = StateGraph(schema, name=name)
    for each, fn in nodes.items():
        graph.add_node(each, fn).add_edge(START, each)
    return graph.compile(store=store)


async def test_a_node_that_is_gone_is_named(store: Store):  # rule R10
    before = await build(store, {"ask": ask, "other": said}).run({}, session_id="s")
    for changed in ({"other": said}, {"renamed": ask}):
        graph = build(store, changed)
        for call in (graph.resume("s", {"q": 1}), graph.recover("s"), graph.run({}, session_id="s")):
            with pytest.raises(ProgramChanged, match="ask") as raised:
                await call
            assert raised.value.address == "runnable:g;node:ask"
    graph = build(store, {"ask": ask, "other": said})
    assert (await graph.recover("s")).interrupts == before.interrupts
    assert (await graph.resume("s", {"q": 1})).state["log"] == [1, "said"]


async def test_what_was_added_is_fine(store: Store):  # rule R10
    class Wider(Log):
        extra: str

    await build(store, {"ask": ask}).run({}, session_id="s")
    wider = build(store, {"before": nothing, "ask": ask, "after": nothing}, schema=Wider)
    result = await wider.resume("s", {"q": 1})
    assert (result.status, result.state["log"]) == ("done", [1])


async def test_a_field_that_is_gone_is_named(store: Store):  # rule R10
    class Wider(Log):
        extra: str

    await build(store, {"ask": ask}, schema=Wider).run({"extra": "x"}, session_id="s")
    with pytest.raises(ProgramChanged, match="extra"):
        await build(store, {"ask": ask}).resume("s", {"q": 1})
    assert (await build(store, {"ask": ask}, schema=Wider).resume("s", {"q": 1})).state["log"] == [1]


async def test_another_program_is_refused(store: Store):  # rule R10
    await build(store, {"ask": ask}).run({}, session_id="s")

    @workflow(name="g")
    async def g() -> Any:
        return interrupt("q", key="q")

    for other in (build(store, {"ask": ask}, name="other"), Runner(g, store=store)):
        with pytest.raises(ProgramChanged):
            await other.resume("s", {"q": 1})
    assert (await build(store, {"ask": ask}).resume("s", {"q": 1})).status == "done"


async def test_a_nested_node_that_is_gone_is_named(store: Store):  # rule R10
    def outer(inner_node: str) -> CompiledGraph:
        inner = StateGraph(Log, name="inner").add_node(inner_node, ask).add_edge(START, inner_node).compile()
        return StateGraph(Log, name="outer").add_subgraph("sub", inner).add_edge(START, "sub").compile(store=store)

    await outer("ask").run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="runnable:outer;node:sub;node:ask"):
        await outer("other").resume("s", {"q": 1})
    assert (await outer("ask").resume("s", {"q": 1})).state["log"] == [1]


async def test_a_subgraph_that_became_a_function_is_named(store: Store):  # rule R10
    inner = lone(ask, name="inner")
    graph = StateGraph(Log, name="g").add_subgraph("sub", inner).add_edge(START, "sub").compile(store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="runnable:g;node:sub"):
        await build(store, {"sub": said}).resume("s", {"q": 1})
    assert (await graph.resume("s", {"q": 1})).state["log"] == [1]


async def test_a_function_that_became_a_subgraph_is_named(store: Store):  # rule R10
    await build(store, {"ask": ask}).run({}, session_id="s")
    inner = lone(ask, name="inner")
    graph = StateGraph(Log, name="g").add_subgraph("ask", inner).add_edge(START, "ask").compile(store=store)
    with pytest.raises(ProgramChanged, match="runnable:g;node:ask"):
        await graph.resume("s", {"q": 1})
    assert (await build(store, {"ask": ask}).resume("s", {"q": 1})).state["log"] == [1]


async def test_a_paused_condition_that_is_gone_is_named(store: Store):  # rule R10
    def condition(state: Any) -> str:
        return interrupt("q", key="q")

    def make(conditional: bool) -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("first", said).add_node("end", said).add_edge(START, "first")
        if conditional:
            graph.add_conditional_edges("first", condition)
        return graph.compile(store=store)

    await make(conditional=True).run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="runnable:g;node:first;branch:0"):
        await make(conditional=False).resume("s", {"q": "end"})
    assert (await make(conditional=True).resume("s", {"q": "end"})).state["log"] == ["said", "said"]


async def test_a_child_of_another_kind_is_named(store: Store):  # rule R10
    @workflow(name="child")
    async def as_workflow() -> Any:
        return interrupt("q", key="q")

    as_graph = lone(ask, name="child")

    def parent(child: Any) -> Runner:
        @workflow
        async def flow() -> Any:
            return await current().run(child)

        return Runner(flow, store=store)

    await parent(as_workflow).run(session_id="s")
    with pytest.raises(ProgramChanged, match="runnable:flow;runnable:child"):
        await parent(as_graph).resume("s", {"q": 1})
    assert (await parent(as_workflow).recover("s")).value == 1


async def test_what_was_to_run_next_is_named_when_it_is_gone(store: Store):  # rule R10
    broken = True

    def fail(state: Any) -> Any:
        if broken:
            raise ValueError("broken")
        return {"log": ["mended"]}

    def make(last: str) -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("first", said).add_node(last, fail).add_edge(START, "first")
        return graph.add_edge("first", last).compile(store=store)

    with pytest.raises(ValueError, match="broken"):
        await make("last").run({}, session_id="s")
    broken = False
    with pytest.raises(ProgramChanged, match="runnable:g;node:last"):
        await make("renamed").recover("s")
    assert (await make("last").recover("s")).state["log"] == ["said", "mended"]
