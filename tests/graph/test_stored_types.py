"""What comes back from a store: values in the types that the schema names."""

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast

import msgspec
import pydantic
import pytest

from adjourn import interrupt
from adjourn.errors import NotStorable
from adjourn.graph import Command, CompiledGraph, Message, StateGraph, add_messages, append
from adjourn.stores import Store
from tests.graph.shapes import chain, giving


class Color(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Inner:
    at: datetime
    tags: set[str]


class Record(msgspec.Struct, frozen=True):
    amount: Decimal
    inner: Inner | None = None


class Person(pydantic.BaseModel):
    name: str
    born: date


class Nested(TypedDict):
    ids: tuple[int, ...]
    who: Person


class Rich(TypedDict, total=False):
    color: Color
    level: Level
    point: Point
    record: Record
    records: Annotated[list[Record], append]
    person: Person | None
    by_number: dict[int, Inner]
    nested: Nested
    money: Decimal
    when: datetime
    took: timedelta
    raw: bytes
    pair: tuple[int, str]
    tags: set[str]
    frozen: frozenset[int]
    id: uuid.UUID
    mode: Literal["a", "b"]
    ratio: float
    messages: Annotated[list[Message], add_messages]


INNER = Inner(at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), tags={"x", "y"})
RICH: dict[str, Any] = {
    "color": Color.RED,
    "level": Level.LOW,
    "point": Point(1, 2),
    "record": Record(Decimal("1.10"), INNER),
    "records": [Record(Decimal(2)), Record(Decimal(3), INNER)],
    "person": Person(name="Ann", born=date(2000, 2, 29)),
    "by_number": {1: INNER, -2: INNER},
    "nested": {"ids": (1, 2), "who": Person(name="Bob", born=date(1999, 1, 1))},
    "money": Decimal("0.10"),
    "when": INNER.at,
    "took": timedelta(days=1, microseconds=1),
    "raw": b"\x00\xff",
    "pair": (1, "one"),
    "tags": {"a", "b"},
    "frozen": frozenset({1, 2}),
    "id": uuid.UUID(int=5),
    "mode": "a",
    "ratio": 1.0,
}


def kinds(value: Any) -> Any:
    """The types inside a value, at all levels."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return (items.__class__, [kinds(item) for item in items])
    return value.__class__


def rich(way: str, store: Store) -> tuple[CompiledGraph, Any]:
    """A graph that gets the values in one of several ways and then asks, and its input."""

    def ask(state: Any) -> dict[str, Any]:
        interrupt("?")
        return {"messages": [Message.assistant("done")]}

    first: Any = giving(RICH if way == "node" else None)
    graph = StateGraph(Rich, name="g").add_node("first", first).add_node("ask", ask, thread=False)
    graph.set_entry_point("first").add_edge("first", "ask")
    return graph.compile(store=store), RICH if way == "input" else {}


@pytest.mark.parametrize("way", ["input", "node"])
async def test_values_come_back_in_the_types_of_the_schema(way: str, store: Store) -> None:  # rule S10
    graph, start = rich(way, store)
    await graph.run({**start, "messages": [Message.user("hi")]}, session_id="s")
    again, _ = rich(way, store)
    result = await again.resume("s", {"runnable:g;node:ask": None})
    for state in (result.state, await again.state("s"), (await again.history("s"))[0].state):
        values = {key: value for key, value in state.items() if key != "messages"}
        assert values == RICH
        assert kinds(values) == kinds(RICH)
        assert [message.text for message in state["messages"]] == ["hi", "done"]


async def test_a_fan_outs_values_come_back_in_their_types(store: Store) -> None:  # rules S10, G5
    def worker(state: Any) -> dict[str, Any]:
        interrupt(state["point"].x, key=str(state["point"].x))
        return {"records": [Record(Decimal(state["point"].x), INNER)]}

    def build() -> CompiledGraph:
        sends = [Command(update={"point": Point(x, 0), "person": RICH["person"]}, goto="w") for x in (1, 2)]
        graph = StateGraph(Rich, name="g").add_node("spread", giving(sends)).add_node("w", worker)
        return graph.set_entry_point("spread").compile(store=store)

    await build().run({}, session_id="s")
    await build().resume("s", {"2": None})
    result = await build().resume("s", {"1": None})
    assert result.state["records"] == [Record(Decimal(1), INNER), Record(Decimal(2), INNER)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), lambda: 1, object(), type("Odd", (), {})()])
async def test_what_cannot_come_back_is_refused_where_it_is_written(value: Any) -> None:  # rule S10
    class Loose(TypedDict):
        field: Any

    with pytest.raises(NotStorable, match="field"):
        await chain(Loose, giving({"field": value})).invoke({})
    with pytest.raises(NotStorable, match="field"):
        await chain(Loose, giving(None)).invoke({"field": value})
