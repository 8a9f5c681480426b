"""Resuming with a program that has changed: what is stored must still have its place."""

from typing import Any

import pytest

from adjourn import Runner, current, interrupt, workflow
from adjourn.errors import ProgramChanged
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, lone, nothing, said
from tests.graph.shapes import giving


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
    with pytest.raises(ProgramChanged, match="runnable:g;node:first;branch:condition"):
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


def joined(store: Store, *sources: str, into: str = "c", name: str = "g") -> CompiledGraph:
    """A graph where "a" and "d" finish and "ask" waits, with a join of some of them."""
    graph = StateGraph(Log, name=name)
    for each, fn in {"a": said, "b": nothing, "d": said, "ask": ask, into: said}.items():
        graph.add_node(each, fn)
    for each in ("a", "b", "d"):
        graph.add_edge(START, each)
    graph.add_edge("b", "ask")
    if sources:
        graph.add_edge(sources, into)
    return graph.compile(store=store)


@pytest.mark.parametrize(
    ("sources", "into"), [(("a", "ask"), "c"), (("a", "ask", "d", "b"), "c"), (("a", "ask", "d"), "renamed"), ((), "c")]
)
async def test_a_half_filled_join_that_is_gone_is_named(
    store: Store, sources: tuple[str, ...], into: str
):  # rules G8, R10
    await joined(store, "a", "ask", "d").run({}, session_id="s")
    changed = joined(store, *sources, into=into)
    for call in (changed.resume("s", {"q": 1}), changed.recover("s")):
        with pytest.raises(ProgramChanged, match="join of 'a', 'ask', 'd' into 'c', where 'a', 'd' arrived") as raised:
            await call
        assert raised.value.address == "runnable:g"
    assert (await joined(store, "a", "ask", "d").resume("s", {"q": 1})).state["log"] == ["said", "said", 1, "said"]


async def test_a_nested_half_filled_join_that_is_gone_refuses_the_answer(store: Store):  # rules G8, R10, R17
    def outer(*sources: str) -> CompiledGraph:
        graph = StateGraph(Log, name="outer").add_subgraph("sub", joined(store, *sources, name="inner"))
        return graph.add_edge(START, "sub").compile(store=store)

    await outer("a", "ask").run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="runnable:outer;node:sub"):
        await outer("a", "ask", "d").resume("s", {"q": 1})
    assert [asked.key for asked in await outer("a", "ask").pending("s")] == ["q"]
    assert (await outer("a", "ask").resume("s", {"q": 2})).state["log"] == ["said", "said", 2, "said"]


async def test_a_join_that_nobody_has_reached_may_go(store: Store):  # rules G8, R10
    await joined(store, "ask", "c").run({}, session_id="s")
    assert (await joined(store).resume("s", {"q": 1})).state["log"] == ["said", "said", 1]


async def test_a_join_left_half_filled_by_the_last_turn_may_go(store: Store):  # rules G8, R10
    await joined(store, "a", "c").run({}, session_id="s")
    assert (await joined(store, "a", "c").resume("s", {"q": 1})).status == "done"
    assert (await joined(store, "a", "d").run({}, session_id="s")).status == "interrupted"
    assert (await joined(store, "a", "d").resume("s", {"q": 2})).status == "done"


def mended(store: Store, *edges: tuple[str | list[str], str], condition: Node | None = None) -> CompiledGraph:
    """Nodes "a" and "b" that start together, with "c" and "d" to follow."""
    graph = StateGraph(Log, name="g")
    for name in "abcd":
        graph.add_node(name, giving({"log": [name]}))
    for source, target in ((START, "a"), (START, "b"), *edges):
        graph.add_edge(source, target)
    if condition is not None:
        graph.add_conditional_edges("a", condition)
    return graph.compile(store=store)


def broken(state: Any) -> str:
    raise ValueError("no idea")


async def test_an_edge_may_take_the_place_of_a_condition_that_failed(store: Store):  # rules G7, R10
    with pytest.raises(ValueError, match="no idea"):
        await mended(store, ("a", "c"), condition=broken).run({}, session_id="s")
    result = await mended(store, ("a", "c"), ("a", "d")).recover("s")
    assert result.state["log"] == ["a", "b", "c", "d"]


async def test_a_join_may_take_the_place_of_a_condition_that_failed(store: Store):  # rules G7, G8, R10
    with pytest.raises(ValueError, match="no idea"):
        await mended(store, ("b", "c"), condition=broken).run({}, session_id="s")
    result = await mended(store, ("b", "c"), (["a", "c"], "d")).recover("s")
    assert result.state["log"] == ["a", "b", "c", "d"]


async def test_a_join_that_fired_does_not_count_a_node_again_when_its_condition_is_gone(store: Store):  # rules G8, R10
    join = (["a", "b"], "c")
    with pytest.raises(ValueError, match="no idea"):
        await mended(store, join, condition=broken).run({}, session_id="s")
    result = await mended(store, join, ("c", "b")).recover("s", max_steps=9)
    assert result.state["log"] == ["a", "b", "c", "b"]
