"""What a frame costs that does much: work and records grow with what happens, not with what happened before."""

import asyncio
import contextlib
from typing import Any

import pytest

from adjourn import Runner, interrupt, once, workflow
from adjourn._engine.record import Record, decode
from adjourn.errors import AmbiguousInterrupt, Pause
from adjourn.stores import MemoryStore
from tests.counting import calls_of
from tests.runner.stores import WatchedStore


@once
async def charge(number: int) -> int:
    return number


@workflow
async def charging(count: int) -> int:
    total = sum([await charge(number) for number in range(count)])
    return total + interrupt("Go on?", key="q")


async def costs(count: int) -> tuple[float, float]:
    """The calls for one `@once` call: when it is made, and when it is given back to another runner."""
    store = MemoryStore()
    made = await calls_of(lambda: Runner(charging, store=store).run(count, session_id="s"))
    again = await calls_of(lambda: Runner(charging, store=store).resume("s", {"q": 1}))
    return made / count, again / count


async def test_a_kept_call_costs_the_same_however_many_came_before():  # rule R13
    await costs(10)  # What is made and imported once.
    few, many = await costs(100), await costs(1600)
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.2 * few[1]


async def test_a_kept_call_is_stored_the_same_however_many_came_before():  # rule R13
    async def bytes_of(count: int) -> float:
        store = WatchedStore(MemoryStore())
        await Runner(charging, store=store).run(count, session_id="s")
        return sum(len(write.body) for write in store.writes) / count

    assert await bytes_of(1600) < 1.2 * await bytes_of(400)


# Questions


def asking(count: int) -> Any:
    """A workflow that asks so many questions at once."""

    async def ask(number: int) -> Any:
        return interrupt(f"info {number}", key=str(number))

    @workflow(name="asking")
    async def run() -> Any:
        given = await asyncio.gather(*(ask(number) for number in range(count)), return_exceptions=True)
        return [each for each in given if not isinstance(each, Pause)]

    return run


async def partial_records(count: int) -> tuple[list[Record], list[bytes], Any]:
    """The partial records of a session whose questions are answered one by one, and its result."""
    store, program = WatchedStore(MemoryStore()), asking(count)
    result = await Runner(program, store=store).run(session_id="s")
    assert len(result.interrupts) == count
    for number in range(count):
        result = await Runner(program, store=store).resume("s", {str(number): number})
    bodies = [write.body for write in store.writes if not write.full]
    return [decode(body) for body in bodies], bodies, result.value


async def test_a_question_is_stored_once():  # rules R4, R6
    count = 60
    records, bodies, value = await partial_records(count)
    assert value == list(range(count))
    asked = [question for record in records for image in record.frames.values() for question in image.questions]
    assert len(asked) == len(set(asked)) <= count
    assert sum(body.count(b'"info ') for body in bodies) == 0  # rule I12: they are in their rows
    answered = [name for record in records for name in record.changed]
    assert len(answered) == len(set(answered)) <= count


async def test_a_record_with_an_answer_is_as_long_however_many_were_asked():  # rule R4
    async def longest(count: int) -> int:
        records, bodies, _ = await partial_records(count)
        return max(len(body) for record, body in zip(records, bodies, strict=True) if record.changed)

    assert await longest(80) < 1.2 * await longest(20)


async def test_asking_costs_the_same_however_many_were_asked():  # rule I1
    async def cost(count: int) -> float:
        return await calls_of(lambda: Runner(asking(count)).run(session_id="s")) / count

    await cost(10)
    assert await cost(800) < 1.3 * await cost(100)


async def test_a_question_that_is_withdrawn_is_gone_from_what_is_stored():  # rule R6
    mended = False

    @workflow
    async def wrong() -> Any:
        first = interrupt("first", key="a")
        if mended:
            return first
        with contextlib.suppress(BaseException):
            interrupt("second", key="b")
        return interrupt("third", key="b")  # Ambiguous: the entry fails.

    store = MemoryStore()
    await Runner(wrong, store=store).run(session_id="s")
    with pytest.raises(AmbiguousInterrupt):
        await Runner(wrong, store=store).resume("s", {"a": 1})
    assert [asked.key for asked in await Runner(wrong, store=store).pending("s")] == []
    mended = True
    assert (await Runner(wrong, store=store).recover("s")).value == 1


def reviewing(count: int, *, keyed: bool) -> Any:
    """A workflow that asks about one file after the other."""

    @workflow(name="reviewing")
    async def run() -> list[Any]:
        files = [f"file {number}" for number in range(count)]
        return [interrupt({"file": each, "text": "x" * 200}, key=each if keyed else None) for each in files]

    return run


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_frame_that_asks_again_and_again_stores_each_question_once(keyed: bool):  # rule C9
    async def stored(count: int) -> float:
        store, program = WatchedStore(MemoryStore()), reviewing(count, keyed=keyed)
        result = await Runner(program, store=store).run(session_id="s")
        for number in range(count):
            result = await Runner(program, store=store).resume("s", {result.interrupts[0].id: number})
        assert result.value == list(range(count))
        rows = sum(len(asked.body) for write in store.writes for asked in write.asks)
        return (rows + sum(len(write.body) + len(write.events) for write in store.writes)) / count

    assert await stored(240) < 1.4 * await stored(60)


@pytest.mark.parametrize("keyed", [False, True])
async def test_an_answer_given_again_costs_the_same_however_many_there_are(keyed: bool):  # rule R6
    async def cost(count: int) -> float:
        store, program = MemoryStore(), reviewing(count, keyed=keyed)
        result = await Runner(program, store=store).run(session_id="s")
        for number in range(count - 1):
            result = await Runner(program, store=store).resume("s", {result.interrupts[0].id: number})
        last = {result.interrupts[0].id: count - 1}
        return await calls_of(lambda: Runner(program, store=store).resume("s", last)) / count

    await cost(5)
    assert await cost(240) < 1.2 * await cost(60)
