"""Tools that must not run twice: after a crash in the middle a person decides; their processes are really killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adjourn import Approve, ChatModelAgent, Edit, Reject, Respond, Runner, current, interrupt, tool
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import ScriptedModel
from tests.agents.calling import call, lone, results, runner
from tests.agents.desk import Desk

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path, "pay")
    yield made
    await made.store.close()


@pytest.mark.parametrize("how", ["before", "after"])
async def test_after_a_crash_in_the_middle_a_person_is_asked(desk: Desk, how: str) -> None:  # rules T6, C8
    await desk.dies(how)
    paid = len(desk.ledger)
    asked = await desk.recover()
    (question,) = asked.interrupts
    assert (question.id, question.reason, question.key) == ("agent:A;tool:pay:c1", "need_decision", "at_most_once")
    assert question.info.arguments == {"amount": 5}
    assert question.prompt is not None
    assert "pay" in question.prompt
    assert len(desk.ledger) == paid  # nothing ran
    again = await desk.recover()
    assert (lone(again), len(desk.ledger)) == (question.id, paid)


async def test_a_tool_of_the_usual_kind_runs_again_with_the_same_key(desk: Desk) -> None:  # rules R14, C8
    await desk.dies("after")
    desk.options["at_most_once"] = False
    result = await desk.recover()
    assert result.status == "done"
    first, second = desk.ledger
    assert first == second


DECISIONS: list[tuple[Any, int, str]] = [
    (True, 2, "paid"),
    (Approve(), 2, "paid"),
    (Respond("it was paid, I looked"), 1, "it was paid, I looked"),
    (Reject("leave it"), 1, "Error: leave it"),
    (False, 1, "Error: it was running when its process died"),
    (Edit({"amount": 6}), 1, "Error: it was running when its process died"),
]


@pytest.mark.parametrize(("answer", "times", "text"), DECISIONS, ids=repr)
async def test_what_the_person_decides_is_done(desk: Desk, answer: Any, times: int, text: str) -> None:  # rule T6
    await desk.dies("after")
    asked = await desk.recover()
    result = await desk.runner().resume("s", {lone(asked): answer}, by="ann")
    assert (result.status, len(desk.ledger)) == ("done", times)
    assert results(result)[0].startswith(text)


async def test_after_each_further_crash_it_is_asked_anew(desk: Desk) -> None:  # rules T6, C8
    await desk.dies("after")
    ids: list[str] = []
    for number in range(2, 5):
        ids.append(lone(await desk.recover()))
        await desk.dies("after", "yes")
        assert len(desk.ledger) == number
    last = await desk.recover()
    assert len({*ids, lone(last)}) == 4
    assert len(desk.ledger) == 4
    assert results(await desk.runner().resume("s", {lone(last): Respond("enough")})) == ["enough"]
    assert len(desk.ledger) == 4
    assert len(set(desk.ledger)) == 1  # one key for all of them


async def test_its_own_questions_and_kept_calls_are_given_back(tmp_path: Path) -> None:  # rules T6, R5
    desk = Desk(tmp_path, "careful")
    asked = await desk.begin()
    assert (asked.interrupts[0].prompt, desk.ledger) == ("Really?", ["reserved"])
    await desk.dies("after", "yes")
    asked = await desk.recover()
    assert asked.interrupts[0].key == "at_most_once"
    result = await desk.runner().resume("s", {lone(asked): True})
    assert results(result) == ["paid with care"]
    assert [line.split()[0] for line in desk.ledger] == ["reserved", "paid", "paid"]
    await desk.store.close()


def slow(began: asyncio.Event, **options: Any) -> Any:
    @tool(at_most_once=True, **options)
    async def pay() -> str:
        """Pay, and hang at first."""
        ran.append(current().idempotency_key)
        if not began.is_set():
            began.set()
            await asyncio.get_running_loop().create_future()
        return "paid"

    return pay


async def test_cut_off_in_the_middle_it_is_asked_about_too(store: Store) -> None:  # rules T6, A12
    began = asyncio.Event()
    made = runner([slow(began)], call("pay"), store=store)
    run = made.run("go", session_id="s")
    ending = asyncio.ensure_future(run)
    await began.wait()
    await run.cancel()
    assert (await ending).status == "cancelled"
    asked = await made.recover("s")
    assert (asked.interrupts[0].key, len(ran)) == ("at_most_once", 1)
    assert results(await made.resume("s", {lone(asked): True})) == ["paid"]


async def test_asked_again_by_its_own_code_after_it_was_allowed_again(store: Store) -> None:  # rules T6, R5
    began = asyncio.Event()

    @tool(at_most_once=True)
    async def pay() -> str:
        """Hang at first, then ask."""
        if not began.is_set():
            began.set()
            await asyncio.get_running_loop().create_future()
        return f"{interrupt('Which?')} {interrupt('When?')} {interrupt('Who?', key='at_most_once')}"

    made = runner([pay], call("pay"), store=store)
    run = made.run("go", session_id="s")
    ending = asyncio.ensure_future(run)
    await began.wait()
    await run.cancel()
    await ending
    asked = await made.recover("s")
    for answer in (True, "this", "now"):
        asked = await runner([pay], store=store).resume("s", {lone(asked): answer})
    assert results(await runner([pay], store=store).resume("s", {lone(asked): "me"})) == ["this now me"]


async def test_a_pause_in_the_middle_is_no_crash(store: Store) -> None:  # rules T6, I1
    @tool(at_most_once=True, approval=True)
    def pay() -> str:
        """Ask twice."""
        ran.append("in")
        return f"{interrupt('Which?')} {interrupt('When?')}"

    made = runner([pay], call("pay"), store=store)
    asked = await made.run("go", session_id="s")
    for answer in (True, "this"):
        asked = await runner([pay], store=store).resume("s", {lone(asked): answer})
    assert results(await runner([pay], store=store).resume("s", {lone(asked): "now"})) == ["this now"]
    assert len(ran) == 3


@pytest.mark.parametrize("durability", ["step", "pause", "async"])
async def test_that_it_begins_is_on_record_before_it_does(store: Store, durability: Any) -> None:  # rule T6
    other = Runner(ChatModelAgent("A", model=ScriptedModel([])), store=store)

    @tool(at_most_once=True)
    async def pay() -> str:
        """Look at what is stored."""
        head = await store.read(GetHead(SessionRef("s")))
        ran.append(head)
        ran.append((await other.status("s")).status)
        return "paid"

    agent = ChatModelAgent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
    await Runner(agent, store=store, durability=durability).run("go", session_id="s")
    assert ran[0] is not None
    assert ran[1] == "running"
