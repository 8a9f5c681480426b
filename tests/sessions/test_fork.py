"""Forks by what is stored: as those that the program makes, and without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import pytest

from adjourn import CheckpointNotFound, Runner, UsageError, current, interrupt, workflow
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.runner import Options
from adjourn.runner._settings import Durability
from adjourn.sessions import Sessions
from adjourn.stores import Answer, SessionRef, Store
from adjourn.stores.kit import Audit, GiveAnswers
from tests.runner.programs import Path, asking, ids, line, side_by_side, step, steps
from tests.runner.test_travel import ASKED, finished


async def test_it_is_the_fork_that_the_program_makes(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s", user_id="ann", values={"tone": "dry"})
    before = await graph.history("s")
    assert await Sessions(store).fork("s", to="bare") == "bare"
    whole = await graph.fork("s", to="whole")
    one, two = [await graph.checkpoint(name) for name in ("bare", whole)]
    same = {name: getattr(one, name) == getattr(two, name) for name in ("source", "step", "next", "state", "metadata")}
    assert all(same.values()), same
    status = await graph.status("bare")
    assert (status.status, status.user_id, ids(status.interrupts)) == ("waiting", "ann", [ASKED])
    assert status.interrupts[0].session_id == "bare"
    results = [await graph.resume(name, {"go": "on"}) for name in ("bare", whole)]
    assert results[0].state == results[1].state
    assert (await graph.history("s"), (await graph.status("s")).status) == (before, "waiting")


async def test_from_an_older_checkpoint_it_asks_again(store: Store):  # rule C4
    graph = asking(store=store)
    points = await finished(graph, "first")
    fork = await Sessions(store).fork("s", checkpoint_id=points[2])
    assert ids(await graph.pending(fork)) == [ASKED]
    assert (await graph.resume(fork, {"go": "second"})).state["answer"] == "second"
    early = await Sessions(store).fork("s", checkpoint_id=points[1])
    assert (await graph.recover(early)).status == "interrupted"


async def test_what_has_ended_takes_new_turns(store: Store):
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    fork = await Sessions(store).fork("s")
    assert (await graph.status(fork)).status == "done"
    assert (await graph.run({}, session_id=fork)).status == "done"


async def test_answers_that_nobody_has_taken_up_come_along(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await store.write(GiveAnswers(ref=SessionRef("s"), answers=[Answer(id=ASKED, value=b'"yes"', by="ann")]))
    fork = await Sessions(store).fork("s")
    assert await graph.pending(fork) == []
    assert (await graph.recover(fork)).state["answer"] == "yes"
    assert [decision.by for decision in await store.read(Audit(SessionRef(fork)))] == ["ann"]


@workflow
async def tree(input: Any) -> str:
    """Children that ask, below a parent that has kept something."""
    kept = await current().run(leaf, "first", key="one")
    return f"{kept} and {await current().run(leaf, 'second', key='two')}"


@workflow
async def leaf(input: str) -> str:
    """Ask."""
    return f"{input} {interrupt({'about': input}, key=input)}"


async def test_nested_runs_go_on_in_the_fork(store: Store):
    runner = Runner(tree, store=store)
    await runner.run("x", session_id="s")
    await runner.resume("s", {"first": 1})
    fork = await Sessions(store).fork("s")
    assert (await runner.resume(fork, {"second": 2})).value == "first 1 and second 2"
    assert (await runner.resume("s", {"second": 3})).value == "first 1 and second 3"


def fail(state: Any) -> Any:
    """Fail, as a node or as a condition."""
    raise ValueError("no")


def failing_beside(**options: Unpack[Options]) -> CompiledGraph:
    """A node that fails beside one that ends."""
    return side_by_side(("a", step("a")), ("b;c", fail), **options)


def failing_after(**options: Unpack[Options]) -> CompiledGraph:
    """A condition that fails after its node has ended, beside an edge."""
    graph = StateGraph(Path, name="wide").add_node("a", step("a")).add_node("b", step("b"))
    graph.add_edge(START, "a").add_edge("a", "b").add_conditional_edges("a", fail, name="way")
    return graph.compile(**options)


def failing_later(**options: Unpack[Options]) -> CompiledGraph:
    """A node that fails some steps after the last checkpoint, if these are rare."""
    return line(("a", step("a")), ("b", fail), **options)


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
@pytest.mark.parametrize(
    ("build", "following"),
    [(failing_beside, ("b;c",)), (failing_after, ("node:a;branch:way", "b")), (failing_later, ("b",))],
    ids=["beside", "after", "later"],
)
async def test_what_has_ended_before_a_failure_does_not_run_next(
    build: Callable[..., CompiledGraph], following: tuple[str, ...], durability: Durability, store: Store
):  # rules C2, C4
    graph = build(store=store, durability=durability)
    with pytest.raises(ValueError, match="no"):
        await graph.run({}, session_id="s")
    for fork in (await Sessions(store).fork("s"), await Sessions(store).fork("s", to="s")):
        assert (await graph.checkpoint(fork)).next == following
        assert (await graph.status(fork)).status == "cancelled"


async def test_what_is_not_there_cannot_be_forked(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(CheckpointNotFound):
        await Sessions(store).fork("nobody")
    with pytest.raises(CheckpointNotFound):
        await Sessions(store).fork("s", checkpoint_id="nowhere.0")
    await graph.run({}, session_id="taken")
    with pytest.raises(UsageError, match="already"):
        await Sessions(store).fork("s", to="taken")
