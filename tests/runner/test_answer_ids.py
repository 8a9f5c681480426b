"""Answers with an id: sent again, by whomever and to whichever process, they are the same answer."""

from __future__ import annotations

import asyncio

import pytest

from adjourn import AlreadyResumed, Runner, UsageError, interrupt, workflow
from adjourn.events import Done, Interrupted
from adjourn.stores import Store
from adjourn.testing import FaultStore


@workflow
async def two_questions(_: str) -> list[str]:
    return [interrupt("one?", key="one", schema=str), interrupt("two?", key="two", schema=str)]


def runner(store: Store) -> Runner[list[str]]:
    return Runner(two_questions, store=store)


async def test_the_same_id_is_the_same_answer(store: Store):  # rule R3
    await runner(store).run("x", session_id="s")
    first = [event async for event in runner(store).resume("s", {"one": "a"}, id="k1")]
    again = [event async for event in runner(store).resume("s", {"one": "a"}, id="k1")]
    stored = [event.seq for event in first if event.seq is not None]
    assert [event.seq for event in again] == stored
    assert isinstance(again[-1], Interrupted)
    with pytest.raises(AlreadyResumed):
        await runner(store).resume("s", {"one": "a"}, id="k2")
    with pytest.raises(AlreadyResumed):
        await runner(store).resume("s", {"one": "a"})
    assert (await runner(store).resume("s", {"two": "b"}, id="k3")).value == ["a", "b"]
    # What came after it is not part of what it led to.
    assert (await runner(store).resume("s", {"one": "a"}, id="k1")).status == "interrupted"
    entries = await runner(store).audit("s")
    assert [(entry.answer, entry.by) for entry in entries] == [("a", None), ("b", None)]


async def test_of_many_at_once_one_counts_and_the_others_follow_it(store: Store):  # rules R3, V13
    await runner(store).run("x", session_id="s")
    results = await asyncio.gather(*(runner(store).resume("s", {"one": "a"}, by="ann", id="k") for _ in range(5)))
    assert {result.status for result in results} == {"interrupted"}
    assert [entry.outcome for entry in await runner(store).audit("s")] == ["answered", None]


async def test_recorded_answers_have_ids_too(store: Store):  # rule V13
    await runner(store).run("x", session_id="s")
    for _ in range(2):
        await runner(store).answer("s", {"one": "a"}, id="k")
    with pytest.raises(AlreadyResumed):
        await runner(store).answer("s", {"one": "a"}, id="other")
    result = await runner(store).resume("s", {"one": "a"}, id="k")  # Nobody has gone on with it so far.
    assert result.status == "interrupted"
    assert [each.key for each in result.interrupts] == ["two"]


async def test_a_message_and_an_id_go_together(store: Store):
    failing = FaultStore(store, fail_at=1, mode="after")
    await runner(store).run("x", session_id="s")
    events = [event async for event in runner(failing).resume("s", {"one": "a"}, id="k")]
    assert isinstance(events[-1], Interrupted | Done)


async def test_what_is_not_an_id_is_refused(store: Store):
    await runner(store).run("x", session_id="s")
    with pytest.raises(UsageError, match="id"):
        await runner(store).resume("s", {"one": "a"}, id="\ud800")
