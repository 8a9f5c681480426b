"""A keyed question is the same only if it shows the same: what was approved is what was shown."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import pytest

from adjourn import Runner, StaleCheckpoint, interrupt, once, workflow
from adjourn.errors import ReplayMismatch
from adjourn.stores import Store

said: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    said.clear()
    said.update(a="one", b="other")


@workflow
async def twice(input: str) -> Any:
    """Ask two questions at once, the first of which shows what is outside of the run."""
    try:
        first = interrupt({"amount": said["a"]}, key="a", schema=bool)
    finally:
        second = interrupt(said["b"], key="b")
    return [first, second]


async def keys(runner: Runner) -> dict[str, Any]:
    return {asked.id.rpartition(":")[2]: asked.info for asked in await runner.pending("s")}


async def test_shown_differently_while_open_it_is_superseded(store: Store) -> None:  # rule I14
    runner = Runner(twice, store=store)
    first = await runner.run("x", session_id="s")
    old = next(asked for asked in first.interrupts if asked.key == "a")
    said["a"] = "a million"
    again = await runner.resume("s", {"b": "go"})
    (now,) = again.interrupts
    assert (now.info, now.id) == ({"amount": "a million"}, f"{first.interrupts[0].address}#3")
    with pytest.raises(StaleCheckpoint) as caught:
        await runner.resume("s", {old: True})
    assert caught.value.open == (now.id,)
    assert [(entry.interrupt.key, entry.outcome) for entry in await runner.audit("s")] == [
        ("a", "abandoned"),
        ("b", "answered"),
        ("a", None),
    ]
    assert (await runner.resume("s", {now: True})).value == [True, "go"]


@workflow
async def varying(input: str) -> Any:
    ok = interrupt({"amount": said["a"]}, key="a", schema=bool)
    return [said["a"], ok, interrupt("sure?", key="b")]


async def test_shown_differently_after_its_answer_it_is_asked_anew(store: Store) -> None:  # rule I14
    runner = Runner(varying, store=store)
    (old,) = (await runner.run("x", session_id="s")).interrupts
    said["a"] = "two"
    (now,) = (await runner.resume("s", {old: True})).interrupts
    assert (now.key, now.info) == ("a", {"amount": "two"})
    assert [(entry.outcome, entry.answer) for entry in await runner.audit("s")] == [("answered", True), (None, None)]
    (sure,) = (await runner.resume("s", {now: False})).interrupts
    assert (await runner.resume("s", {sure: "yes"})).value == ["two", False, "yes"]


@pytest.mark.parametrize("fresh", [False, True])
async def test_an_unused_answer_counts_when_the_code_comes_to_its_question_again(store: Store, fresh: bool) -> None:
    # rule I14
    kept = Runner(varying, store=store)

    def runner() -> Runner:
        return Runner(varying, store=store) if fresh else kept

    (old,) = (await runner().run("x", session_id="s")).interrupts
    said["a"] = "two"
    await runner().resume("s", {old: True})
    said["a"] = "one"
    (now,) = await runner().pending("s")
    (sure,) = (await runner().resume("s", {now: False})).interrupts
    assert sure.key == "b"
    assert (await runner().resume("s", {sure: "yes"})).value == ["one", True, "yes"]


async def test_three_unused_answers_in_a_row_are_a_mismatch(store: Store) -> None:  # rule I14
    clock = count(1)

    @workflow
    async def restless(input: str) -> Any:
        return interrupt({"at": next(clock)}, key="a")

    runner = Runner(restless, store=store)
    result = await runner.run("x", session_id="s")
    for _ in range(2):
        result = await runner.resume("s", {result.interrupts[0]: "yes"})
        assert result.status == "interrupted"
    with pytest.raises(ReplayMismatch, match=r'"at":3[^@]*"at":4[^@]*@once'):
        await runner.resume("s", {result.interrupts[0]: "yes"})


async def test_what_may_vary_goes_into_the_prompt(store: Store) -> None:  # rule I14
    clock = count(1)

    @workflow
    async def polite(input: str) -> Any:
        return interrupt("ok?", key="a", prompt=f"Asked {next(clock)} times")

    runner = Runner(polite, store=store)
    result = await runner.run("x", session_id="s")
    assert (await runner.resume("s", {result.interrupts[0]: "yes"})).value == "yes"


@pytest.mark.parametrize("what", ["schema", "reason"])
async def test_another_schema_or_reason_is_another_question(store: Store, what: Literal["schema", "reason"]) -> None:
    # rule I14
    options: dict[str, Any] = {"schema": bool, "reason": "need_input"}

    @workflow
    async def changing(input: str) -> Any:
        return interrupt("ok?", key="a", **options)

    runner = Runner(changing, store=store)
    result = await runner.run("x", session_id="s")
    options[what] = {"schema": int, "reason": "need_review"}[what]
    again = await runner.resume("s", {result.interrupts[0]: True})
    assert again.status == "interrupted"
    assert again.interrupts[0].id.endswith("#2")


async def test_equal_questions_with_one_key_are_told_apart_by_their_order(store: Store) -> None:  # rules I14, R6
    @workflow
    async def thrice(input: str) -> Any:
        return [interrupt("again?", key="q") for _ in range(3)]

    runner = Runner(thrice, store=store)
    result = await runner.run("x", session_id="s")
    for number in range(3):
        result = await runner.resume("s", {result.interrupts[0]: number})
    assert result.value == [0, 1, 2]


async def test_a_loop_that_shows_something_else_each_time_repeats_itself(store: Store) -> None:  # rules I14, R6
    paid: list[int] = []

    @once
    async def pay(number: int) -> int:
        paid.append(number)
        return number

    @workflow
    async def batch(input: str) -> Any:
        return [interrupt({"pay": await pay(number)}, key="pay", schema=bool) for number in range(4)]

    result = await Runner(batch, store=store).run("x", session_id="s")
    for number in range(4):
        assert result.interrupts[0].info == {"pay": number}
        result = await Runner(batch, store=store).resume("s", {result.interrupts[0]: number % 2 == 0})
    assert (result.value, paid) == ([True, False, True, False], [0, 1, 2, 3])
