"""Processes killed in the middle of tool calls: no answer is lost, and what was finished does not run again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adjourn import AlreadyResumed, ChatModelAgent, Runner, interrupt, tool
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.agents.calling import call, lone, results, runner
from tests.agents.desk import Desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path, "ask")
    yield made
    await made.store.close()


@pytest.mark.parametrize("how", ["before", "after"])
async def test_an_approval_survives_the_process_and_is_not_asked_for_again(desk: Desk, how: str) -> None:
    # rules R4, C8
    asked = lone(await desk.begin())
    await desk.dies(how, "yes")
    assert await desk.runner().pending("s") == []
    with pytest.raises(AlreadyResumed):
        await desk.runner().resume("s", {asked: True})
    result = await desk.runner().recover("s")
    assert (result.status, results(result)) == ("done", ["one", "paid", "two"])
    paid = [line for line in desk.ledger if line.startswith("paid")]
    assert len(set(paid)) == 1  # one key, however often
    assert len(paid) == (1 if how == "before" else 2)


async def test_what_was_finished_and_told_does_not_run_again(desk: Desk) -> None:  # rules R7, C8
    await desk.begin()
    await desk.dies("after", "yes")
    await desk.runner().recover("s")
    assert sorted(line for line in desk.ledger if not line.startswith("paid")) == ["one", "two"]


async def test_a_process_that_died_is_told_as_a_failure_and_recovers(desk: Desk) -> None:  # rule C8
    await desk.begin()
    await desk.dies("before", "yes")
    made = desk.runner()
    assert (await made.status("s")).status == "failed"
    assert (await made.recover("s")).status == "done"
    assert len([line for line in desk.ledger if line.startswith("paid")]) == 1


async def test_a_question_is_answered_while_a_sibling_still_runs(store: Store) -> None:  # rules I4, R3
    gate = asyncio.Event()

    @tool
    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('What?')}"

    @tool
    async def wait() -> str:
        """Wait until it was answered."""
        await gate.wait()
        return "waited"

    made = runner([ask, wait], [call("ask", "c1"), call("wait", "c2")], store=store)
    running = asyncio.ensure_future(made.run("go", session_id="s"))
    for _ in range(10_000):
        if await made.pending("s"):
            break
        await asyncio.sleep(0)
    other = Runner(ChatModelAgent("A", model=ScriptedModel(["done"]), tools=[ask, wait]), store=store)
    answering = asyncio.ensure_future(other.resume("s", {"agent:A;tool:ask:c1": "it"}))
    for _ in range(10_000):
        if not await made.pending("s"):
            break
        await asyncio.sleep(0)
    gate.set()
    first, second = await running, await answering
    assert (first.status, second.status) == ("done", "done")
    assert results(await made.messages("s")) == ["got it", "waited"]
