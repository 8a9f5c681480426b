"""Reading an answer again by its key, with its type."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from adjourn import Runner, has_resume_value, interrupt, resume_value, workflow
from adjourn.stores import Store


class Booking(msgspec.Struct):
    seats: int
    day: dt.date


@workflow
async def booking(_: str) -> list[Any]:
    if not has_resume_value("booking"):
        assert resume_value("booking", None) is None
    interrupt("Which?", key="booking", schema=Booking)
    found = resume_value("booking", schema=Booking)
    return [found.seats, found.day.year, resume_value("other", 5, schema=int)]


async def test_an_answer_has_the_type_of_its_question(store: Store) -> None:
    runner = Runner(booking, store=store)
    await runner.run("go", session_id="s")
    result = await runner.resume("s", {"booking": {"seats": 2, "day": "2026-11-16"}})
    assert result.value == [2, 2026, 5]


async def test_another_type_is_refused(store: Store) -> None:
    @workflow
    async def asking(_: str) -> str:
        interrupt("?", key="q", schema=str)
        with pytest.raises(ValueError, match="int"):
            resume_value("q", schema=int)
        with pytest.raises(KeyError):
            resume_value("other", schema=int)
        return "checked"

    runner = Runner(asking, store=store)
    await runner.run("go", session_id="s")
    assert (await runner.resume("s", {"q": "text"})).value == "checked"
