"""Typed answers: `schema` decides what fits, and what the asker gets."""

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from adjourn import InvalidAnswer, interrupt
from adjourn.graph import CompiledGraph
from adjourn.stores import Store
from tests._engine.asking import ids, lone


@dataclasses.dataclass
class Booking:
    city: str
    nights: int = 1


class Address(msgspec.Struct, forbid_unknown_fields=True):
    street: str
    number: int


class Person(msgspec.Struct):
    name: str
    home: Address
    aliases: list[str] = []


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(gt=0)


class Even(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int


class Shape(TypedDict):
    sides: int


class Card(msgspec.Struct, tag="card"):
    number: str


class Cash(msgspec.Struct, tag="cash"):
    coins: bool


JSON = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

Case = tuple[Any, list[tuple[Any, Any]], list[Any]]
CASES: dict[str, Case] = {
    "any": (None, [(1, 1), ("x", "x"), (None, None), ([1, {"a": 2}], [1, {"a": 2}]), ((1, 2), (1, 2))], []),
    "bool": (bool, [(True, True), (False, False)], ["yes", 1, 0, None, [], {}]),
    "int": (int, [(3, 3), (3.0, 3), (-(2**63), -(2**63))], ["3", 3.5, True, None]),
    "float": (float, [(3.5, 3.5), (3, 3.0)], ["3.5", None, float("nan"), float("inf")]),
    "str": (str, [("", ""), ("ä😀", "ä😀")], [1, None, True, ["x"]]),
    "optional": (int | None, [(1, 1), (None, None)], ["x"]),
    "union": (int | str, [(1, 1), ("x", "x")], [None, 1.5, []]),
    "list": (list[int], [([], []), ([1, 2], [1, 2]), ((1, 2), [1, 2])], [["x"], "12", {"0": 1}, None]),
    "tuple": (tuple[int, str], [([1, "a"], (1, "a")), ((1, "a"), (1, "a"))], [[1], [1, "a", 2], ["a", 1]]),
    "dict": (dict[str, int], [({"a": 1}, {"a": 1}), ({}, {})], [{"a": "x"}, [1], None]),
    "set": (set[int], [([1, 2], {1, 2}), ({1, 2}, {1, 2})], [["x"], 1]),
    "literal": (Literal["yes", "no"], [("yes", "yes"), ("no", "no")], ["maybe", True, None, "YES"]),
    "literals": (Literal[1, 2, None], [(1, 1), (None, None)], [3, "1"]),
    "enum": (Colour, [("red", Colour.RED), (Colour.BLUE, Colour.BLUE)], ["green", "RED", 1, None]),
    "int enum": (Level, [(1, Level.LOW), (Level.HIGH, Level.HIGH)], [3, "LOW"]),
    "constrained": (Annotated[int, msgspec.Meta(ge=1, le=5)], [(1, 1), (5, 5)], [0, 6, "3"]),
    "dataclass": (
        Booking,
        [
            ({"city": "Rome"}, Booking("Rome")),
            ({"city": "Rome", "nights": 3}, Booking("Rome", 3)),
            (Booking("Rome", 3), Booking("Rome", 3)),
        ],
        [{}, {"nights": 3}, {"city": 1}, {"city": "Rome", "nights": "3"}, "Rome", None],
    ),
    "struct": (
        Person,
        [
            (
                {"name": "Ann", "home": {"street": "A", "number": 1}},
                Person(name="Ann", home=Address(street="A", number=1)),
            ),
            (
                Person(name="Ann", home=Address(street="A", number=1), aliases=["B"]),
                Person(name="Ann", home=Address(street="A", number=1), aliases=["B"]),
            ),
        ],
        [{"name": "Ann"}, {"name": "Ann", "home": {"street": "A", "number": 1, "extra": 2}}, []],
    ),
    "pydantic": (
        Order,
        [
            ({"item": "tea", "count": 2}, Order(item="tea", count=2)),
            (Order(item="a", count=1), Order(item="a", count=1)),
        ],
        [{"item": "tea"}, {"item": "tea", "count": 0}, {"item": "tea", "count": "x"}, "tea"],
    ),
    "named tuple": (Point, [([1, 2], Point(1, 2)), (Point(1, 2), Point(1, 2))], [[1], [1, "a"]]),
    "typed dict": (Shape, [({"sides": 3}, {"sides": 3})], [{}, {"sides": "x"}]),
    "tagged union": (
        Card | Cash,
        [({"type": "card", "number": "1"}, Card(number="1")), (Cash(coins=True), Cash(coins=True))],
        [{"type": "cheque"}, {"number": "1"}, {"type": "cash", "number": "1"}],
    ),
    "datetime": (
        datetime,
        [("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))],
        ["yesterday", "2026-13-01T00:00:00Z", 5],
    ),
    "date": (date, [("2026-01-02", date(2026, 1, 2)), (date(2026, 1, 2), date(2026, 1, 2))], ["2026-02-30", 5]),
    "timedelta": (timedelta, [("P1D", timedelta(days=1)), (timedelta(days=1), timedelta(days=1))], ["a day"]),
    "uuid": (UUID, [(str(UUID(int=7)), UUID(int=7)), (UUID(int=7), UUID(int=7))], ["7", 7]),
    "decimal": (Decimal, [("1.50", Decimal("1.50")), (Decimal("1.50"), Decimal("1.50"))], ["a lot"]),
    "json schema": (JSON, [({"n": 1}, {"n": 1}), ({"n": 1, "m": 2}, {"n": 1, "m": 2})], [{}, {"n": "x"}, 1]),
    "nested": (list[Booking | None], [([{"city": "A"}, None], [Booking("A"), None])], [[{"city": 1}], [1]]),
}

got: list[Any] = []


def asking(schema: Any, store: Store | None = None) -> CompiledGraph:
    def node(state: Any) -> Any:
        got.append(interrupt("q", key="q", schema=schema))

    return lone(node, store=store)


@pytest.mark.parametrize("name", CASES)
async def test_what_fits_arrives_in_the_askers_type(name: str, store: Store):  # rules R2, I12
    schema, fitting, _ = CASES[name]
    for number, (answer, value) in enumerate(fitting):
        await asking(schema, store).run({}, session_id=f"s{number}")
        got.clear()
        await asking(schema, store).resume(f"s{number}", {"q": answer})
        assert got == [value]
        assert type(got[0]) is type(value)


@pytest.mark.parametrize("name", CASES)
async def test_what_does_not_fit_is_refused_and_leaves_the_question_open(name: str, store: Store):  # rule R2
    schema, fitting, wrong = CASES[name]
    graph = asking(schema, store)
    before = await graph.run({}, session_id="s")
    for answer in wrong:
        with pytest.raises(InvalidAnswer) as raised:
            await graph.resume("s", {"q": answer})
        assert raised.value.problems
        assert (await graph.recover("s")).interrupts == before.interrupts
    assert (await graph.resume("s", {"q": fitting[0][0]})).status == "done"


@pytest.mark.parametrize("name", [name for name in CASES if name != "any"])
async def test_a_stranger_can_check_an_answer_with_what_is_stored(name: str):  # rule I12
    schema, _, _ = CASES[name]
    (asked,) = (await asking(schema).run({})).interrupts
    assert isinstance(asked.schema, dict)
    assert msgspec.json.decode(msgspec.json.encode(asked.schema)) == asked.schema


async def test_choices_are_what_the_schema_lists():  # rule I2
    expected: dict[str, set[Any]] = {
        "literal": {"yes", "no"},
        "literals": {1, 2, None},
        "enum": {"red", "blue"},
        "int enum": {1, 2},
        "bool": {True, False},
        "int": set(),
        "dataclass": set(),
    }
    for name, choices in expected.items():
        (asked,) = (await asking(CASES[name][0]).run({})).interrupts
        assert set(asked.choices) == choices


async def test_what_the_type_itself_refuses_is_asked_again(store: Store):  # rules R2, I3
    await asking(Even, store).run({}, session_id="s")
    got.clear()
    result = await asking(Even, store).resume("s", {"q": {"n": 3}})
    (asked,) = result.interrupts
    assert asked.id == "runnable:g;node:ask#2"
    assert asked.prompt is not None
    assert "3 is odd" in asked.prompt
    result = await asking(Even, store).resume("s", {"q": {"n": 5}})
    assert ids(result) == ["runnable:g;node:ask#3"]
    assert "5 is odd" in (result.interrupts[0].prompt or "")
    assert "3 is odd" not in (result.interrupts[0].prompt or "")
    assert (await asking(Even, store).resume("s", {"q": {"n": 4}})).status == "done"
    assert got == [Even(n=4)]


async def test_a_refused_answer_is_followed_by_further_questions(store: Store):  # rules R2, R6
    def node(state: Any) -> Any:
        first = interrupt("first", schema=Even)
        second = interrupt("second", schema=Even)
        got.append((first.n, second.n))

    await lone(node, store=store).run({}, session_id="s")
    got.clear()
    result = None
    for n in (1, 2, 3, 4):
        (asked,) = await lone(node, store=store).pending("s")
        result = await lone(node, store=store).resume("s", {asked.id: {"n": n}})
    assert result is not None
    assert result.status == "done"
    assert got == [(2, 4)]


async def test_a_schema_that_says_the_same_in_other_words_matches(store: Store):  # rule R6
    await asking(int, store).run({}, session_id="s")
    described = Annotated[int, msgspec.Meta(description="how many")]
    assert (await asking(described, store).resume("s", {"q": 1})).status == "done"


@pytest.mark.parametrize(
    ("first", "second"),
    [(int, str), (int, None), (None, int), (bool, int), (Literal["a"], Literal["b"]), (Booking, Person)],
    ids=repr,
)
async def test_another_schema_is_another_question(first: Any, second: Any, store: Store):  # rules R6, I14
    await asking(first, store).run({}, session_id="s")
    answer = {int: 1, None: 1, bool: True, Literal["a"]: "a", Booking: {"city": "A"}}[first]
    got.clear()
    again = await asking(second, store).resume("s", {"q": answer})
    assert [asked.id.partition("#")[2] for asked in again.interrupts] == ["2"]
    assert got == []
