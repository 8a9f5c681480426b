"""Tokens: an answer counts for exactly the question that was shown."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from adjourn import (
    AlreadyResumed,
    ChatModelAgent,
    Interrupt,
    InterruptExpired,
    InvalidAnswer,
    Runner,
    StaleCheckpoint,
    ToolCall,
    UsageError,
    interrupt,
    tool,
    workflow,
)
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.testing import FakeClock, FunctionModel, ScriptedModel

paid: list[int] = []


@tool(approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    paid.append(cents)
    return "paid"


def payer(*amounts: int, store: Store, **options: Any) -> Runner:
    paid.clear()
    calls = [ToolCall(id="c", name="pay", arguments={"cents": cents}) for cents in amounts]
    return Runner(ChatModelAgent("Payer", model=ScriptedModel([*calls, "done"]), tools=[pay]), store=store, **options)


@workflow
async def ask(input: str) -> Any:
    return interrupt({"for": input}, key="budget", prompt=f"{input}?", schema=bool)


async def test_a_token_is_the_same_wherever_the_question_is_shown(store: Store) -> None:  # rule I13
    runner = Runner(ask, store=store)
    (asked,) = (await runner.run("tea", session_id="s")).interrupts
    assert asked.token.startswith(f"{asked.id}~")
    assert len(asked.token.removeprefix(f"{asked.id}~")) == 32
    listed = [
        *await runner.pending("s"),
        *(await runner.status("s")).interrupts,
        *(await runner.checkpoint("s")).interrupts,
        *(await Runner(ask, store=store).checkpoint("s")).interrupts,
        *[entry.interrupt for entry in await Sessions(store).audit("s")],
    ]
    assert {each.token for each in listed} == {asked.token}


@pytest.mark.parametrize("name", ["token", "interrupt"])
@pytest.mark.parametrize("way", ["resume", "answer"])
async def test_a_question_is_answered_by_its_token_or_itself(store: Store, name: str, way: str) -> None:  # rule I13
    runner = Runner(ask, store=store, require_token=True)
    (asked,) = (await runner.run("tea", session_id="s")).interrupts
    answers: dict[Any, Any] = {asked.token if name == "token" else asked: True}
    if way == "answer":
        await Sessions(store).answer("s", answers)
        assert (await runner.recover("s")).value is True
    else:
        assert (await runner.resume("s", answers)).value is True
    with pytest.raises(AlreadyResumed):
        await runner.resume("s", answers)


async def test_the_same_place_with_other_arguments_is_another_question(store: Store) -> None:  # rule I13
    runner = payer(900, 1_000_000, store=store)
    first = await runner.run("pay", session_id="s")
    (shown,) = first.interrupts
    before = (await runner.history("s"))[1]
    again = await runner.run(None, session_id="s", checkpoint_id=before.id)  # "regenerate"
    (now,) = again.interrupts
    assert now.id == shown.id
    assert now.token != shown.token
    for way in (runner.resume("s", {shown: True}), runner.answer("s", {shown.token: True})):
        with pytest.raises(StaleCheckpoint) as caught:
            await way
        assert caught.value.open == (now.id,)
    assert [each.token for each in await runner.pending("s")] == [now.token]
    assert paid == []
    assert (await runner.resume("s", {now: True})).status == "done"
    assert paid == [1_000_000]


async def test_a_token_of_another_session_or_app_means_nothing_here(store: Store) -> None:  # rule I13
    runner = Runner(ask, store=store)
    (one,) = (await runner.run("tea", session_id="one")).interrupts
    (two,) = (await runner.run("tea", session_id="two")).interrupts
    (elsewhere,) = (await Runner(ask, store=store, app_name="b").run("tea", session_id="one")).interrupts
    assert len({one.id, two.id, elsewhere.id}) == 1
    assert len({one.token, two.token, elsewhere.token}) == 3
    for foreign in (two, elsewhere):
        with pytest.raises(StaleCheckpoint):
            await runner.resume("one", {foreign: True})
    assert (await runner.resume("one", {one: True})).value is True


async def test_an_expired_question_is_expired_by_its_token_too(store: Store) -> None:  # rule I13
    @workflow
    async def hurry(input: str) -> Any:
        return interrupt("now?", expires_in=10)

    clock = FakeClock()
    runner = Runner(hurry, clock=clock)
    (asked,) = (await runner.run("x", session_id="s")).interrupts
    clock.advance(11)
    with pytest.raises(InterruptExpired):
        await runner.resume("s", {asked: True})


async def test_approvals_can_be_refused_without_a_token(store: Store) -> None:  # rule I13
    runner = payer(1, store=store, require_token=True)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    strict = Sessions(store, require_token=True)
    for attempt in (runner.resume("s", {asked.id: True}), strict.answer("s", {asked.id: True})):
        with pytest.raises(InvalidAnswer, match="token"):
            await attempt
    assert paid == []
    assert (await runner.resume("s", {asked: True})).status == "done"
    data = Runner(ask, store=store, require_token=True)
    await data.run("tea", session_id="t")
    assert (await data.resume("t", {"budget": True})).value is True


async def test_what_names_no_question_is_refused(store: Store) -> None:
    runner = Runner(ask, store=store)
    (asked,) = (await runner.run("tea", session_id="s")).interrupts
    for wrong in ({1: True}, {asked: True, asked.token: False}, {asked.id: True, asked: False}, [], [None]):
        with pytest.raises(UsageError):
            await runner.resume("s", wrong)
    with pytest.raises(UsageError):
        Runner(ask, require_token="yes")  # pyright: ignore[reportArgumentType]


async def test_an_interrupt_can_be_a_key_whatever_it_shows() -> None:
    first = Interrupt(id="a", token="a~1", info={"list": []})
    assert {first: 1}[Interrupt(id="a", token="a~1", info={"list": []})] == 1


async def test_who_regenerates_while_somebody_answers_leaves_nothing_approved_unseen(store: Store) -> None:  # rule I13
    amounts = count(1)

    def model(request: Any) -> Any:
        return ToolCall(id="c", name="pay", arguments={"cents": next(amounts)})

    runner = Runner(ChatModelAgent("Payer", model=FunctionModel(model), tools=[pay]), store=store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    start = (await runner.history("s"))[-1].id

    async def regenerate() -> None:
        await runner.run(None, session_id="s", checkpoint_id=start)

    people = [Sessions(store).answer("s", {asked: True}) for _ in range(5)]
    await asyncio.gather(regenerate(), *people, return_exceptions=True)
    (now,) = await runner.pending("s")
    assert now.token != asked.token
    assert [entry.outcome for entry in await runner.audit("s")] == [None]
