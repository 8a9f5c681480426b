"""Joins and deferred nodes: waiting for several others, or for all."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest
from msgspec.structs import replace

from adjourn import interrupt
from adjourn.errors import UsageError
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import Store
from tests.graph.shapes import Node, giving


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]


def note(name: str, result: Any = None) -> Node:
    return giving({"log": [name]} if result is None else Command({"log": [name]}, result))


def graph(names: str, *edges: str) -> StateGraph:
    """Nodes of one letter each, and edges as "ab": from a to b, the start being "^"; "ab>c" is a join."""
    built = StateGraph(Log, name="g")
    for name in names:
        built.add_node(name, note(name), thread=False)
    for edge in edges:
        sources, _, target = edge.partition(">")
        if target:
            built.add_edge(list(sources), target)
        else:
            built.add_edge(START if edge[0] == "^" else edge[0], edge[1])
    return built


async def log(built: StateGraph) -> str:
    return "".join((await built.compile(max_steps=30).invoke({}))["log"])


async def test_a_join_fires_when_all_sources_have_finished() -> None:  # rule G8
    assert await log(graph("abcd", "^a", "^b", "bc", "ac>d")) == "abcd"


async def test_a_join_whose_sources_never_finish_does_not_fire() -> None:  # rule G8
    assert await log(graph("abcd", "^a", "ac", "bc>d")) == "ac"


async def test_a_join_of_one_is_an_edge() -> None:  # rule G8
    assert await log(graph("ab", "^a", "a>b")) == "ab"
    assert await log(graph("ab", "^a", "aa>b")) == "ab"


async def test_several_joins_do_not_mix() -> None:  # rule G8
    built = graph("abcde", "^a", "^b", "^c", "ab>d", "bc>e")
    assert await log(built) == "abcde"
    assert await log(graph("abcd", "^a", "^b", "bc", "ab>d", "ac>d")) == "abcdd"


async def test_a_source_that_finishes_twice_counts_once() -> None:  # rule G8
    built = StateGraph(Log, name="g").add_node("s", note("s", ["a", "x"])).add_node("a", note("a"))
    built.add_node("x", note("x", ["a"])).add_node("b", note("b")).add_node("j", note("j")).set_entry_point("s")
    built.add_edge(["a", "b"], "j")
    assert await log(built) == "saxa"


async def test_a_join_arms_again_after_it_fired() -> None:  # rule G8
    def turn(state: Any) -> Command:
        return Command({"log": ["j"]}, goto=["a", "b"] if state["log"].count("j") < 2 else END)

    built = graph("ab", "^a", "^b").add_node("j", turn, thread=False).add_edge(["a", "b"], "j")
    assert await log(built) == "abjabjabj"


async def test_a_join_that_fired_needs_all_of_them_again() -> None:  # rule G8
    def turn(state: Any) -> Command:
        return Command({"log": ["j"]}, goto="a")  # Only one of the two.

    built = graph("ab", "^a", "^b").add_node("j", turn, thread=False).add_edge(["a", "b"], "j")
    assert await log(built) == "abja"


async def test_a_join_waits_for_a_fan_out_as_a_whole() -> None:  # rules G5, G8
    built = graph("wbj", "^b").add_node("s", giving([Command(goto="w")] * 3)).set_entry_point("s")
    assert await log(built.add_edge(["w", "b"], "j")) == "bwwwj"


async def test_a_source_that_leaves_by_goto_has_not_arrived() -> None:  # rules G4, G8
    built = graph("bj", "^b").add_node("a", note("a", END)).set_entry_point("a").add_edge(["a", "b"], "j")
    assert await log(built) == "ba"


async def test_a_half_filled_join_survives_a_pause(store: Store) -> None:  # rule G8
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    def build() -> CompiledGraph:
        built = graph("abj", "^a", "^b").add_node("q", ask).add_edge("b", "q").add_edge(["a", "q"], "j")
        return built.compile(store=store)

    paused = await build().run({}, session_id="s")
    assert paused.state["log"] == ["a", "b"]
    result = await build().resume("s", {paused.interrupts[0].id: "q"})
    assert result.state["log"] == ["a", "b", "q", "j"]


async def test_a_half_filled_join_survives_a_failure_and_more_edges(store: Store) -> None:  # rules G8, R10
    def build(middle: Node, *more: str) -> CompiledGraph:
        built = graph("abjx", *more, "^a", "^b").add_node("m", middle).add_edge("b", "m").add_edge(["a", "m"], "j")
        return built.compile(store=store)

    def broken(state: Any) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        await build(broken).run({}, session_id="s")
    result = await build(note("m"), "jx", "ab>x").recover("s")
    assert result.state["log"] == ["a", "b", "m", "j", "x"]


@pytest.mark.parametrize("names", ["abjx", "bajx"])
async def test_the_order_of_nodes_does_not_leave_a_join_half_filled(names: str) -> None:  # rule G8
    def again(state: Any) -> str | None:
        return "x" if "x" not in state["log"] else None

    def twice(state: Any) -> str | None:
        return "b" if state["log"].count("j") < 2 else None

    # After the join has fired, b alone must not fire it again: a has not finished since.
    built = graph(names, "^a", "xa", "xb", "ab>j").add_conditional_edges("a", again).add_conditional_edges("j", twice)
    assert (await log(built))[4:] == "jb"


def going(*targets: str, **options: Any) -> StateGraph:
    """a and b lead to j together, but b goes elsewhere by a command."""
    built = graph("ajx", "^a", "ab>j").add_edge(START, "b")
    return built.add_node("b", note("b", list(targets)), thread=False, **options)


async def test_a_source_of_a_join_that_goes_elsewhere_is_refused(store: Store) -> None:  # rules G4, G8
    with pytest.raises(UsageError, match=r"Node 'b' .* goto='x'.* join into 'j' .* destinations=\['x'\]"):
        await going("x").compile(store=store).run({}, session_id="s")
    with pytest.raises(UsageError, match="goto='j'"):
        await going("j").compile().invoke({})
    # What has finished is kept, and the node runs again with mended code.
    mended = graph("abjx", "^a", "^b", "ab>j").compile(store=store)
    assert (await mended.recover("s")).state["log"] == ["a", "b", "j"]


async def test_a_source_of_a_join_may_skip_it_on_purpose() -> None:  # rules G4, G8
    assert await log(going("x", destinations=["x"])) == "abx"
    assert await log(going(END)) == "ab"
    assert await log(going()) == "ab"


async def test_a_source_of_a_join_that_fans_out_says_so() -> None:  # rules G5, G8
    def fan(**options: Any) -> StateGraph:
        built = graph("ajx", "^a", "ab>j").add_edge(START, "b")
        return built.add_node("b", giving([Command(goto="x"), Command(goto="x")]), thread=False, **options)

    with pytest.raises(UsageError, match="join into 'j'"):
        await log(fan())
    assert await log(fan(destinations=["x"])) == "axx"


async def test_a_new_turn_starts_with_empty_joins(store: Store) -> None:  # rule G8
    def choose(state: Any) -> str:
        return "b" if len(state["log"]) else "a"

    built = graph("abj").add_conditional_edges(START, choose).add_edge(["a", "b"], "j").compile(store=store)
    await built.run({}, session_id="s")
    assert (await built.run({}, session_id="s")).state["log"] == ["a", "b"]


async def test_a_join_given_twice_counts_once() -> None:  # rule G8
    def turn(state: Any) -> Command:
        return Command({"log": ["j"]}, goto="a" if state["log"].count("j") < 2 else END)

    built = graph("ab", "^a", "^b").add_node("j", turn, thread=False).add_edge(["a", "b"], "j")
    assert await log(built.add_edge(["b", "a", "a"], "j")) == "abja"


async def test_an_edge_and_a_join_into_one_node_trigger_it_once_together() -> None:  # rule G8
    assert await log(graph("abj", "^a", "^b", "ab>j", "aj")) == "abj"


# Deferred nodes


def deferring(names: str, deferred: str, *edges: str) -> StateGraph:
    built = graph(names, *edges)
    for node in built.nodes:
        node.options = replace(node.options, defer=node.name in deferred)
    return built


async def test_a_deferred_node_runs_when_nothing_else_is_left() -> None:  # rule G8
    assert await log(deferring("abcd", "d", "^a", "^b", "ad", "bc", "cd")) == "abcd"
    assert await log(graph("abcd", "^a", "^b", "ad", "bc", "cd")) == "abcdd"


async def test_a_deferred_node_may_lead_on_and_come_again() -> None:  # rule G8
    def again(state: Any) -> Command:
        return Command({"log": ["d"]}, goto="b" if state["log"].count("d") == 0 else END)

    built = graph("ab", "^a").add_node("d", again, defer=True, thread=False).add_edge("a", "d").add_edge("b", "d")
    assert await log(built) == "adbd"


async def test_deferred_nodes_run_together_and_in_order() -> None:  # rules G8, G9
    assert await log(deferring("abxy", "xy", "^a", "ay", "ax", "ab")) == "abxy"


async def test_a_deferred_fan_out_keeps_what_was_laid_over(store: Store) -> None:  # rules G5, G8
    class Items(TypedDict, total=False):
        seen: Annotated[list[int], append]
        item: int

    def worker(state: Any) -> dict[str, Any]:
        return {"seen": [state["item"]]}

    def ask(state: Any) -> dict[str, Any]:
        return {"seen": [interrupt("?", schema=int)]}

    def build() -> CompiledGraph:
        built = StateGraph(Items, name="g").add_node("w", worker, defer=True).add_node("ask", ask)
        built.add_node("s", giving([*(Command({"item": i}, "w") for i in (1, 2)), Command(goto="ask")]))
        return built.set_entry_point("s").compile(store=store)

    paused = await build().run({}, session_id="s")
    result = await build().resume("s", {paused.interrupts[0].id: 0})
    assert result.state["seen"] == [0, 1, 2]


async def test_a_deferred_node_may_be_the_only_one() -> None:  # rule G8
    assert await log(deferring("a", "a", "^a")) == "a"


async def test_a_deferred_node_waits_for_the_others_not_for_time() -> None:  # rule G8
    order: list[str] = []
    gate = asyncio.Event()

    async def slow(state: Any) -> None:
        await gate.wait()
        order.append("slow")

    def quick(state: Any) -> None:
        gate.set()
        order.append("quick")

    def deferred(state: Any) -> None:
        order.append("deferred")

    built = StateGraph(Log).add_node("d", deferred, defer=True, thread=False)
    built.add_node(slow).add_node("quick", quick, thread=False)
    for name in ("d", "slow", "quick"):
        built.add_edge(START, name)
    await built.compile().invoke({})
    assert order == ["quick", "slow", "deferred"]
