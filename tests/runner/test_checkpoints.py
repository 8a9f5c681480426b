"""What a checkpoint says about itself: where it comes from, what runs next, and what its run was begun with."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest

from adjourn import ChatModelAgent, Checkpoint, Runner, Sessions, ToolCall, UsageError, interrupt, once, tool, workflow
from adjourn.graph import START, StateGraph, append
from adjourn.stores import Store
from adjourn.testing import ScriptedModel


class Log(TypedDict):
    done: Annotated[list[str], append]


@once
async def effect(name: str) -> str:
    return name


async def first(state: Log) -> dict[str, Any]:
    return {"done": [await effect("first")]}


async def asks(state: Log) -> dict[str, Any]:
    await effect("before")
    return {"done": [interrupt("sure?", key="sure")]}


async def works(state: Log) -> dict[str, Any]:
    return {"done": [await effect("works")]}


async def ends(state: Log) -> dict[str, Any]:
    return {"done": ["end"]}


def desk(store: Store) -> Any:
    graph = StateGraph(Log, name="desk").add_node(first).add_node(asks).add_node(works).add_node(ends)
    graph.add_edge(START, "first").add_edge("first", "asks").add_edge("first", "works")
    return graph.add_edge(["asks", "works"], "ends").compile(store=store)


def lines(points: list[Checkpoint]) -> list[str]:
    """Each checkpoint with the source of its parent, oldest first."""
    known = {point.id: point.source for point in points}
    return [f"{known[point.parent_id] if point.parent_id else None} -> {point.source}" for point in reversed(points)]


# Parents


async def test_the_parent_is_the_checkpoint_before(store: Store) -> None:  # rule C2
    graph = desk(store)
    await graph.run({"done": []}, session_id="s")
    await graph.resume("s", {"sure": "yes"})
    points = await graph.history("s")
    assert lines(points) == [
        "None -> input",
        "input -> step",
        "step -> interrupt",
        "interrupt -> resume",
        "resume -> step",
        "step -> end",
    ]
    for point in points:
        assert (await graph.checkpoint("s", point.id)).parent_id == point.parent_id
        if point.parent_id is not None:
            assert (await graph.checkpoint("s", point.parent_id)).id == point.parent_id


@pytest.mark.parametrize(
    "chosen", [{"limit": 1}, {"source": "end"}, {"source": "step"}, {"under": "runnable:desk"}, {"metadata": {"a": 1}}]
)
async def test_the_parent_is_known_where_it_is_not_listed(store: Store, chosen: Any) -> None:  # rules C2, C5
    graph = desk(store)
    await graph.run({"done": []}, session_id="s", metadata={"a": 1})
    await graph.resume("s", {"sure": "yes"})
    parents = {point.id: point.parent_id for point in await graph.history("s")}
    found = await graph.history("s", **chosen)
    assert found
    assert {point.id: parents[point.id] for point in found} == {point.id: point.parent_id for point in found}


async def test_a_branch_has_its_parent_where_it_left(store: Store) -> None:  # rules C2, C4
    graph = desk(store)
    await graph.run({"done": []}, session_id="s")
    paused = await graph.checkpoint("s")
    await graph.resume("s", {"sure": "yes"})
    step = (await graph.history("s", source="step"))[-1]
    await graph.run(None, session_id="s", checkpoint_id=step.id)
    edited = await graph.edit("s", {"done": ["by hand"]}, checkpoint_id=paused.id)
    assert edited.parent_id == paused.id
    branch = [point for point in await graph.history("s") if point.source == "fork"]
    assert [point.parent_id for point in branch] == [step.id]
    rows = {row.id: row.parent for _, row in await graph.tree("s")}
    assert rows == {point.id: point.parent_id for point in await graph.history("s")}


async def test_a_fork_says_where_it_comes_from(store: Store) -> None:  # rules C2, C4
    graph = desk(store)
    paused = await graph.run({"done": []}, session_id="s", metadata={"who": "ann"})
    fork = await graph.fork("s")
    await graph.resume(fork, {"sure": "yes"})
    points = await graph.history(fork)
    origin = {"session_id": "s", "checkpoint_id": paused.checkpoint_id}
    assert (points[-1].parent_id, points[-1].metadata) == (None, {"who": "ann", "forked_from": origin})
    assert [point.metadata for point in points[:-1]] == [{"who": "ann"}] * (len(points) - 1)


async def test_what_was_pruned_is_no_parent(store: Store) -> None:  # rules C2, C7
    graph = desk(store)
    await graph.run({"done": []}, session_id="s")
    await graph.resume("s", {"sure": "yes"})
    await graph.prune("s", keep=2)
    points = await graph.history("s")
    assert [point.parent_id for point in points] == [*(point.id for point in points[1:]), None]


# What runs next


async def test_what_has_finished_at_a_pause_does_not_run_next(store: Store) -> None:  # rule C2
    graph = desk(store)
    await graph.run({"done": []}, session_id="s")
    paused = await graph.checkpoint("s")
    # Updates of a superstep are applied together, when all its tasks have finished.
    assert (paused.next, paused.state) == (("asks",), {"done": ["first"]})
    result = await graph.resume("s", {"sure": "yes"})
    assert result.state["done"] == ["first", "yes", "works", "end"]
    assert (await graph.checkpoint("s")).next == ()


async def test_a_tool_call_that_has_finished_does_not_run_next(store: Store) -> None:  # rule C2
    @tool
    async def ask() -> str:
        """Ask."""
        return str(interrupt("?", key="q"))

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    calls = [ToolCall(id="c1", name="look", arguments={}), ToolCall(id="c2", name="ask", arguments={})]
    runner = Runner(ChatModelAgent("A", model=ScriptedModel([calls, "end"]), tools=[ask, look]), store=store)
    await runner.run("go", session_id="s")
    assert (await runner.checkpoint("s")).next == ("ask",)
    assert (await runner.resume("s", {"q": "yes"})).output == "end"


# Metadata


async def test_metadata_of_a_run_is_listed_with_its_checkpoints(store: Store) -> None:  # rules C2, C5
    graph = desk(store)
    await graph.run({"done": []}, session_id="s", metadata={"batch": 7, "tags": ["a"]})
    # Another process goes on.
    await desk(store).resume("s", {"sure": "yes"})
    await desk(store).run({"done": []}, session_id="s", metadata={"batch": 8})
    points = await graph.history("s", metadata={"batch": 7})
    assert lines(points)[-1] == "step -> end"
    assert len(points) == 6
    assert {point.metadata["batch"] for point in await graph.history("s")} == {7, 8}
    assert len(await graph.history("s", metadata={"tags": ["a"]}, limit=2)) == 2
    assert await graph.history("s", metadata={"batch": 9}) == []
    assert (await Sessions(store).checkpoint("s")).metadata == {"batch": 8}


async def test_a_turn_without_metadata_has_none(store: Store) -> None:  # rule C2
    graph = desk(store)
    await graph.run({"done": []}, session_id="s", metadata={"batch": 7})
    await graph.run({"done": []}, session_id="s", on_pending="abandon")
    assert (await graph.checkpoint("s")).metadata == {}


async def test_an_edit_keeps_the_metadata_and_names_what_changed(store: Store) -> None:  # rule C4
    graph = desk(store)
    await graph.run({"done": []}, session_id="s", metadata={"batch": 7})
    assert (await graph.edit("s", {"done": ["x"]})).metadata == {"batch": 7, "edited": ["done"]}


async def test_workflows_and_agents_take_metadata(store: Store) -> None:  # rule C2
    @workflow
    async def job(text: str) -> str:
        return text

    for program in (job, ChatModelAgent("A", model=ScriptedModel(["hi"]))):
        runner = Runner(program, store=store, app_name=program.name)
        await runner.run("go", session_id="s", metadata={"n": None})
        assert [point.metadata for point in await runner.history("s", metadata={"n": None})]


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"a": object()}, "give a mapping of names to JSON values"),
        ({"a": float("nan")}, "give a mapping of names to JSON values"),
        ({1: 2}, "give a mapping of names to JSON values"),
        (["a"], "give a mapping of names to JSON values"),
        ({"forked_from": "x"}, "'forked_from', which edits and forks write"),
    ],
)
async def test_metadata_that_cannot_be_listed_is_refused(store: Store, metadata: Any, match: str) -> None:
    graph = desk(store)
    with pytest.raises(UsageError, match=match):
        await graph.run({"done": []}, metadata=metadata)
    assert await graph.sessions() == []


async def test_metadata_belongs_to_a_turn(store: Store) -> None:
    graph = desk(store)
    paused = await graph.run({"done": []}, session_id="s")
    with pytest.raises(UsageError, match="neither state, metadata nor on_busy"):
        await graph.run(None, session_id="s", checkpoint_id=paused.checkpoint_id, metadata={"a": 1})
    with pytest.raises(UsageError, match=r"metadata='a': give a mapping"):
        await graph.history("s", metadata="a")
