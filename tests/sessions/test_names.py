"""Names that answer nothing: odd ids, malformed tokens, questions that were given up."""

from __future__ import annotations

import pytest

from adjourn import Runner, StaleCheckpoint, UnknownInterrupt, interrupt, workflow
from adjourn.sessions import Sessions
from adjourn.stores import Store


@workflow
async def asks(count: int) -> list[object]:
    """Ask so many times, one after the other, at one place."""
    return [interrupt(number, schema=int) for number in range(count)]


PLACE = "runnable:asks"
ODD = [
    f"{PLACE}#",
    f"{PLACE}#0",
    f"{PLACE}#1",
    f"{PLACE}#01",
    f"{PLACE}#002",
    f"{PLACE}#+2",
    f"{PLACE}#-1",
    f"{PLACE}#2 ",
    f"{PLACE}#2#2",
    f"{PLACE}##2",
    f"{PLACE}#two",
    f"{PLACE}#²",
    f"{PLACE}#٢",
    f"{PLACE}#२",
    f"{PLACE}#1_0",
    f"{PLACE}#2.0",
    f"{PLACE}#{'9' * 400}",
    f"{PLACE}#{'9' * 5000}",
    "#",
    "#2",
    "##",
    "",
    "~",
    f"~{'0' * 32}",
    f"{PLACE}~",
    f"{PLACE}~{'0' * 31}",
    f"{PLACE}~{'0' * 33}"[:-1] + "g",
    f"{PLACE}~{'A' * 32}",
    "\ud800",
    f"{PLACE}#\udfff",
    f"{PLACE}\x00",
    f"{PLACE};",
    "%zz",
]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
async def test_an_odd_name_is_unknown(store: Store, name: str):  # rules I3, I13, R1
    runner = Runner(asks, store=store)
    await runner.run(4, session_id="s")
    await runner.resume("s", {PLACE: 1})
    await runner.resume("s", {f"{PLACE}#2": 2})  # two have ended, so that a number could name one of them
    for fresh in (runner, Runner(asks, store=store)):
        with pytest.raises(UnknownInterrupt) as unknown:
            await fresh.resume("s", {name: 3})
        assert unknown.value.open == (f"{PLACE}#3",)
        with pytest.raises(UnknownInterrupt):
            await fresh.resume("s", [name])
    with pytest.raises(UnknownInterrupt):
        await Sessions(store).answer("s", {name: 3})
    assert (await runner.resume("s", {f"{PLACE}#3": 3})).status == "interrupted"


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
async def test_an_odd_name_is_unknown_on_a_branch_too(store: Store, name: str):  # rules I3, C4
    runner = Runner(asks, store=store)
    await runner.run(3, session_id="s")
    second = await runner.resume("s", {PLACE: 1})
    await runner.resume("s", {f"{PLACE}#2": 2})
    await runner.run(None, session_id="s", checkpoint_id=second.checkpoint_id)
    with pytest.raises(UnknownInterrupt):
        await runner.resume("s", {name: 3})


async def test_a_question_that_was_given_up_is_stale_by_any_name(store: Store):  # rules R1, I13
    runner = Runner(asks, store=store)
    (given_up,) = (await runner.run(2, session_id="s")).interrupts
    (now,) = (await runner.run(2, session_id="s", on_pending="abandon")).interrupts
    for name in (given_up.id, given_up.token):
        for answers in (runner.resume("s", {name: 1}), Sessions(store).answer("s", {name: 1})):
            with pytest.raises(StaleCheckpoint, match="no longer") as stale:
                await answers
            assert stale.value.open == (now.id,)
