"""Answers are taken as they were meant, or refused: bytes are not text, and unknown keys are not dropped."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from adjourn import AnswerWith, InvalidAnswer, Runner, UsageError, interrupt, workflow
from adjourn.sessions import Sessions
from adjourn.stores import Store


@dataclasses.dataclass
class Room:
    name: str
    beds: int = 1


class Visit(TypedDict, total=False):
    room: Room
    notes: list[str]


class Bill(msgspec.Struct):
    cents: int
    data: bytes = b""


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("the number must be even")
        return number


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    number: int


def asking(schema: Any, **options: Any) -> Any:
    @workflow
    async def asks(_: str) -> Any:
        return repr(interrupt("?", key="q", schema=schema, **options))

    return asks


async def refused(store: Store, schema: Any, answer: Any) -> str:
    """What a person is told whose answer is refused; the question stays open."""
    runner = Runner(asking(schema), store=store)
    await runner.run("x", session_id="s", on_pending="abandon")
    with pytest.raises(InvalidAnswer) as told:
        await runner.resume("s", {"q": answer})
    with pytest.raises(InvalidAnswer):
        await Sessions(store).answer("s", {"q": answer})
    assert len(await runner.pending("s")) == 1
    return str(told.value)


async def taken(store: Store, schema: Any, answer: Any) -> str:
    """What the code was given, as Python writes it."""
    runner = Runner(asking(schema), store=store)
    await runner.run("x", session_id="s")
    return (await runner.resume("s", {"q": answer})).value


@pytest.mark.parametrize("data", [b"yes", bytearray(b"yes"), memoryview(b"yes"), b""])
async def test_bytes_are_not_text(store: Store, data: Any):  # rule R2
    assert "expected string, got bytes" in await refused(store, str, data)


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (list[str], ["a", b"b"]),
        (dict[str, str], {"a": b"b"}),
        (str | int, b"b"),
        (Room, {"name": b"b"}),
        (Room, Room(b"b")),  # pyright: ignore[reportArgumentType]  # that is the mistake
        ({"type": "string"}, b"b"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, b"b"),
    ],
    ids=str,
)
async def test_bytes_are_not_text_anywhere(store: Store, schema: Any, answer: Any):  # rule R2
    assert "does not fit" in await refused(store, schema, answer)


async def test_bytes_are_taken_where_they_are_asked_for(store: Store):  # rule R2
    assert await taken(store, bytes, b"\x00yes") == repr(b"\x00yes")


async def test_bytes_are_taken_within_what_is_asked_for(store: Store):
    bill = Bill(cents=1, data=b"\x00")
    assert await taken(store, Bill, bill) == repr(bill)


async def test_bytes_and_text_side_by_side_are_told_apart(store: Store):  # rule R2
    class Letter(msgspec.Struct):
        text: str
        picture: bytes

    assert "$.text" in await refused(store, Letter, {"text": b"x", "picture": b"x"})
    runner = Runner(asking(Letter), store=store)
    result = await runner.resume("s", {"q": {"text": "x", "picture": b"x"}})
    assert result.value == repr(Letter(text="x", picture=b"x"))


@pytest.mark.parametrize(
    ("schema", "answer", "key"),
    [
        (Room, {"name": "a", "bed": 2}, "bed"),
        (Visit, {"rooms": []}, "rooms"),
        (Visit, {"room": {"name": "a", "bed": 2}}, "bed"),
        (Bill, {"cents": 1, "Data": ""}, "Data"),
        (Even, {"number": 2, "odd": True}, "odd"),
        (list[Room], [{"name": "a", "bed": 2}], "bed"),
        (Room | None, {"name": "a", "bed": 2}, "bed"),
    ],
    ids=str,
)
async def test_an_unknown_key_is_named(store: Store, schema: Any, answer: Any, key: str):  # rule R2
    assert f"unknown key '{key}'" in await refused(store, schema, answer)


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        (Room, {"name": "a"}, Room("a")),
        (Room, Room("a", 2), Room("a", 2)),
        (dict[str, int], {"anything": 1}, {"anything": 1}),
        ({"type": "object", "properties": {"a": {}}}, {"b": 1}, {"b": 1}),
    ],
    ids=str,
)
async def test_what_fits_is_taken(store: Store, schema: Any, answer: Any, value: Any):  # rule R2
    assert await taken(store, schema, answer) == repr(value)


async def test_a_model_that_allows_more_keys_gets_them(store: Store):
    assert await taken(store, Loose, {"number": 1, "more": 2}) == "Loose(number=1, more=2)"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (int, "one"),
        (str, b"one"),
        (str, 1),
        (bool, "yes"),
        (Room, {"name": "a", "bed": 1}),
        (Room, {}),
        (Even, {"number": 3}),  # it fits the JSON Schema, and the type itself refuses it
        (Even, {"number": 2, "more": 1}),
        ({"type": "integer"}, 1.5),
    ],
    ids=str,
)
async def test_what_a_question_expires_with_must_fit(store: Store, schema: Any, value: Any):  # rules R2, R11
    runner = Runner(asking(schema, expires_in=60.0, on_expire=AnswerWith(value)), store=store)
    with pytest.raises(UsageError, match="on_expire=AnswerWith"):
        await runner.run("x", session_id="s")
    assert await runner.pending("s") == []  # nobody was asked
