"""Edits that act as a node: what else is under way stays as it is."""

from typing import Any

import pytest

from adjourn import interrupt
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node
from tests.graph.shapes import giving


def note(name: str) -> Node:
    return giving({"log": [name]})


def asking(name: str) -> Node:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"{name} {interrupt(name, key=name)}"]}

    return ask


def waiting(store: Store, **options: Any) -> CompiledGraph:
    """Nodes "p" and "q" that ask, and a join of both into "c"."""
    graph = StateGraph(Log, name="g").add_node("p", asking("p"), **options).add_node("q", asking("q"))
    graph.add_node("c", note("c")).add_edge(START, "p").add_edge(START, "q").add_edge(["p", "q"], "c")
    return graph.compile(store=store)


async def test_a_half_filled_join_is_filled_by_hand(store: Store) -> None:  # rules C4, G8
    graph = StateGraph(Log, name="g").add_node("a", note("a")).add_node("b", note("b")).add_node("b2", asking("b2"))
    graph.add_node("c", note("c")).add_edge(START, "a").add_edge(START, "b").add_edge("b", "b2")
    compiled = graph.add_edge(["a", "b2"], "c").compile(store=store)
    await compiled.run({}, session_id="s")
    point = await compiled.edit("s", {"log": ["by hand"]}, as_node="b2")
    assert point.next == ("c",)
    assert (await compiled.recover("s")).state["log"] == ["a", "b", "by hand", "c"]


async def test_a_half_filled_join_stays_when_an_earlier_node_is_redone(store: Store) -> None:  # rules C4, G8
    graph = StateGraph(Log, name="g").add_node("a", note("a")).add_node("b", note("b")).add_node("b2", asking("b2"))
    graph.add_node("c", note("c")).add_edge(START, "a").add_edge(START, "b").add_edge("b", "b2")
    compiled = graph.add_edge(["a", "b2"], "c").compile(store=store)
    await compiled.run({}, session_id="s")
    await compiled.edit("s", {"log": ["b by hand"]}, as_node="b")
    await compiled.recover("s")
    assert (await compiled.resume("s", {"b2": 1})).state["log"] == ["a", "b", "b by hand", "b2 1", "c"]


async def test_siblings_that_wait_start_over(store: Store) -> None:  # rule C4
    await waiting(store).run({}, session_id="s")
    for text in ("first", "second"):
        point = await waiting(store).edit("s", {"log": [text]}, as_node="p")
        assert (point.next, point.interrupts) == (("q",), ())
    paused = await waiting(store).recover("s")
    assert [asked.key for asked in paused.interrupts] == ["q"]
    result = await waiting(store).resume("s", {"q": 1})
    assert result.state["log"] == ["first", "second", "q 1", "c"]


async def test_a_sibling_that_is_done_keeps_its_result(store: Store) -> None:  # rule C4
    await waiting(store).run({}, session_id="s")
    await waiting(store).resume("s", {"q": 1})
    await waiting(store).edit("s", {"log": ["by hand"]}, as_node="p")
    assert (await waiting(store).recover("s")).state["log"] == ["by hand", "q 1", "c"]


async def test_all_siblings_may_be_done_by_hand(store: Store) -> None:  # rule C4
    await waiting(store).run({}, session_id="s")
    for name in "pq":
        await waiting(store).edit("s", {"log": [name]}, as_node=name)
    assert (await waiting(store).recover("s")).state["log"] == ["p", "q", "c"]


async def test_the_old_branch_stays_as_it_was(store: Store) -> None:  # rule C4
    paused = await waiting(store).run({}, session_id="s")
    await waiting(store).edit("s", {"log": ["by hand"]}, as_node="p")
    back = await waiting(store).run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    assert [asked.key for asked in back.interrupts] == ["p", "q"]


async def test_a_breakpoint_before_a_node_that_is_done_does_not_pause(store: Store) -> None:  # rules C4, I8
    paused = await waiting(store, interrupt_before=True).run({}, session_id="s")
    assert [asked.reason for asked in paused.interrupts] == ["static"]
    await waiting(store, interrupt_before=True).edit("s", {"log": ["by hand"]}, as_node="p")
    paused = await waiting(store, interrupt_before=True).recover("s")
    assert [asked.key for asked in paused.interrupts] == ["q"]


async def test_every_task_of_a_fan_out_ends(store: Store) -> None:  # rules C4, G5
    graph = StateGraph(Log, name="g").add_node("split", giving([Command({}, name) for name in "ppq"]))
    graph.add_node("p", asking("p")).add_node("q", asking("q")).add_node("last", note("last"), defer=True)
    graph.add_edge(START, "split").add_edge(START, "last").add_edge("p", "last")
    compiled = graph.compile(store=store)
    await compiled.run({}, session_id="s")
    await compiled.edit("s", {"log": ["by hand"]}, as_node="p")
    assert [asked.key for asked in (await compiled.recover("s")).interrupts] == ["q"]
    assert (await compiled.resume("s", {"q": 1})).state["log"] == ["by hand", "q 1", "last"]


async def test_a_deferred_node_stays(store: Store) -> None:  # rules C4, G8
    graph = StateGraph(Log, name="g").add_node("p", asking("p")).add_node("last", note("last"), defer=True)
    compiled = graph.add_edge(START, "p").add_edge(START, "last").compile(store=store)
    await compiled.run({}, session_id="s")
    await compiled.edit("s", {"log": ["by hand"]}, as_node="p")
    assert (await compiled.recover("s")).state["log"] == ["by hand", "last"]


@pytest.mark.parametrize("asks", ["a", "b"])
async def test_conditions_of_a_finished_node_are_decided_again(store: Store, asks: str) -> None:  # rules C4, G7
    def after(name: str) -> Any:
        def condition(state: Any) -> str:
            if name == asks:
                interrupt("Go on?", key="go")
            return END if "stop" in state["log"] else f"{name}2"

        return condition

    graph = StateGraph(Log, name="g")
    for name in ("a", "b", "a2", "b2", "both"):
        graph.add_node(name, note(name))
    for name in "ab":
        graph.add_edge(START, name).add_conditional_edges(name, after(name), name=name)
    compiled = graph.add_edge(["a", "b"], "both").compile(store=store)
    await compiled.run({}, session_id="s")
    await compiled.edit("s", {"log": ["stop"]}, as_node="a")
    paused = await compiled.recover("s")
    assert [asked.key for asked in paused.interrupts] == ["go"]
    # The other one had decided before the edit, if it was not the one that asked.
    expected = ["a", "b", "stop", *(["b2"] if asks == "a" else []), "both"]
    assert (await compiled.resume("s", {"go": 1})).state["log"] == expected
