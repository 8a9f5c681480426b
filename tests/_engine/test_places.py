"""The place of a question counts: an answer given at one address is never used at another (rules I3, I14)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from adjourn import Runner, address_segment, interrupt, workflow
from adjourn.errors import ReplayMismatch
from adjourn.stores import Store

files: list[str] = []


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("it must be even")


@pytest.fixture(autouse=True)
def _files() -> None:
    files[:] = ["draft.txt", "payroll.db"]


def may_delete(name: str, key: str | None) -> Any:
    with address_segment("file", name):
        return interrupt("Delete this file?", key=key)


@pytest.mark.parametrize("key", ["ok", None])
async def test_an_answer_stays_at_its_place_when_the_order_changes(store: Store, key: str | None):  # rules I3, R6
    deleted: list[str] = []

    @workflow
    async def clean(input: str) -> list[str]:
        deleted[:] = [name for name in files if may_delete(name, key) == "yes"]
        return deleted

    runner = Runner(clean, store=store)
    first = await runner.run("x", session_id="s")
    files.reverse()
    with pytest.raises(ReplayMismatch) as caught:
        await runner.resume("s", {first.interrupts[0].id: "yes"})
    assert "at 'runnable:clean;file:payroll.db'" in str(caught.value)
    assert deleted == []
    files.reverse()
    (asked,) = (await runner.recover("s")).interrupts
    assert asked.id == "runnable:clean;file:payroll.db"
    assert (await runner.resume("s", {asked.id: "no"})).value == ["draft.txt"]


async def test_answers_stay_at_their_places_whatever_flow_comes_first(store: Store):  # rules I3, R6
    async def check(name: str) -> str:
        await asyncio.sleep(0)
        return f"{name}: {may_delete(name, f'ok {name[0]}')}, {may_delete(name, f'sure {name[0]}')}"

    @workflow
    async def clean(input: str) -> list[str]:
        return sorted(await asyncio.gather(*(check(name) for name in files)))

    runner = Runner(clean, store=store)
    first = await runner.run("x", session_id="s")
    draft, payroll = [asked.id for asked in first.interrupts]
    files.reverse()
    second = await runner.resume("s", {draft: 1, payroll: 2})
    files.reverse()
    done = await runner.resume("s", {"sure d": 3, "sure p": 4})
    assert {asked.id for asked in second.interrupts} == {f"{draft}#2", f"{payroll}#2"}
    assert done.value == ["draft.txt: 1, 3", "payroll.db: 2, 4"]


async def test_equal_questions_at_one_place_keep_their_order(store: Store):  # rule R6
    @workflow
    async def clean(input: str) -> list[Any]:
        return [may_delete(name, "ok") for name in ("a", "b", "a", "b")]

    runner = Runner(clean, store=store)
    paused = await runner.run("x", session_id="s")
    seen: list[str] = []
    while paused.interrupts:
        seen.append(paused.interrupts[0].id.removeprefix("runnable:clean;file:"))
        paused = await runner.resume("s", {paused.interrupts[0].id: len(seen)})
    assert seen == ["a", "b", "a#2", "b#2"]
    assert paused.value == [1, 2, 3, 4]


async def test_a_refused_answer_is_asked_again_at_its_place(store: Store):  # rule I13
    def even(name: str) -> Any:
        with address_segment("file", name):
            return interrupt("How many?", key="n", schema=Even)

    @workflow
    async def count(input: str) -> list[int]:
        return [even(name).n for name in files]

    runner = Runner(count, store=store)
    await runner.run("x", session_id="s")
    await runner.resume("s", {"n": {"n": 3}})
    await runner.resume("s", {"n": {"n": 4}})
    await runner.resume("s", {"n": {"n": 5}})
    assert (await runner.resume("s", {"n": {"n": 6}})).value == [4, 6]
