"""Forks: a new session, or when told so a new branch, that begins where another one was."""

from __future__ import annotations

import asyncio

import pytest

from adjourn import CheckpointNotFound, UsageError
from adjourn.errors import Conflict
from adjourn.stores import Store

from .programs import Gate, asking, events_of, held, ids, line, step, steps
from .test_travel import ASKED, finished


async def test_a_fork_is_a_new_session_that_begins_where_the_old_one_was(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s", user_id="ann", values={"tone": "dry"})
    before = await graph.history("s")
    fork = await graph.fork("s")
    assert fork != "s"
    status = await graph.status(fork)
    assert (status.status, status.user_id, ids(status.interrupts)) == ("waiting", "ann", [ASKED])
    assert status.interrupts[0].session_id == fork
    point = await graph.checkpoint(fork)
    assert (point.source, point.parent_id) == ("fork", None)
    assert point.metadata["forked_from"] == {"session_id": "s", "checkpoint_id": before[0].id}
    assert (await graph.resume(fork, {"go": "fork"})).state["answer"] == "fork"
    assert (await graph.history("s"), (await graph.status("s")).status) == (before, "waiting")
    assert (await graph.resume("s", {"go": "old"})).state["answer"] == "old"


async def test_two_forks_are_independent(store: Store):  # rule C4
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    one, two = await graph.fork("s"), await graph.fork("s", to="two")
    assert two == "two"
    await graph.resume(one, {"go": 1})
    await graph.edit(two, {"done": ["edited"]})
    await graph.recover(two)
    await graph.resume(two, {"go": 2})
    assert (await graph.state(one))["done"] == ["before", "ask", "after"]
    assert (await graph.state(two))["done"] == ["before", "edited", "ask", "after"]
    assert (await graph.status("s")).status == "waiting"


async def test_a_fork_from_an_older_checkpoint(store: Store):
    graph = asking(store=store)
    points = await finished(graph, "first")
    fork = await graph.fork("s", checkpoint_id=points[2])
    assert ids(await graph.pending(fork)) == [ASKED]
    assert (await graph.resume(fork, {"go": "second"})).state["answer"] == "second"
    early = await graph.fork("s", checkpoint_id=points[1])
    assert (await graph.recover(early)).status == "interrupted"


async def test_a_fork_of_a_finished_session_takes_new_turns(store: Store):
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    fork = await graph.fork("s")
    assert (await graph.status(fork)).status == "done"
    assert (await graph.run({}, session_id=fork)).state["done"] == ["a", "a"]
    assert (await graph.state("s"))["done"] == ["a"]


async def test_a_fork_never_replaces_a_session(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.run({"done": ["mine"]}, session_id="taken")
    with pytest.raises((Conflict, UsageError)):
        await graph.fork("s", to="taken")
    assert (await graph.state("taken"))["done"] == ["mine", "before"]
    with pytest.raises(CheckpointNotFound):
        await graph.fork("nobody")
    with pytest.raises(CheckpointNotFound):
        await graph.fork("s", checkpoint_id="x.0")


async def test_a_fork_within_the_session_when_told_so(store: Store):  # rule C4
    graph = asking(store=store)
    points = await finished(graph, "first")
    assert await graph.fork("s", checkpoint_id=points[2], to="s") == "s"
    assert ids(await graph.pending("s")) == [ASKED]
    assert (await graph.resume("s", {"go": "second"})).state["answer"] == "second"
    assert (await graph.state("s", checkpoint_id=points[-1]))["answer"] == "first"


async def test_a_fork_while_the_original_runs(store: Store):  # failures 29
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    reading = asyncio.create_task(events_of(graph.run({}, session_id="s")))
    await gate.reached.wait()
    other = steps("a", "b", store=store)
    fork = await other.fork("s")
    assert (await other.recover(fork)).state["done"] == ["a", "b"]
    gate.opened.set()
    await reading
    assert (await graph.state("s"))["done"] == ["a", "b"]


async def test_a_fork_survives_the_end_of_its_origin(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    fork = await graph.fork("s")
    await graph.delete("s")
    assert (await graph.resume(fork, {"go": 1})).state["done"] == ["before", "ask", "after"]


async def test_pruning_keeps_the_base_of_a_branch(store: Store):  # rule C7
    graph = asking(store=store)
    points = await finished(graph, "first")
    await graph.run(None, session_id="s", checkpoint_id=points[2])
    await graph.prune("s", keep=1)
    assert points[2] in [point.id for point in await graph.history("s")]
    assert (await graph.resume("s", {"go": "second"})).state["answer"] == "second"
