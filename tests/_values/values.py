"""Classes of every kind that is stored, and values made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from enum import Enum, Flag, IntEnum, StrEnum, auto
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st
from pydantic import BaseModel

from adjourn._values.codec import adopt, decode, encode
from adjourn._values.registry import native, stored


@stored("test.Draft")
@dataclass
class Draft:
    title: str
    price: Any = 0
    notes: list[Any] = field(default_factory=list[Any])


@stored("test.Point")
@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


@stored("test.Order")
class Order(msgspec.Struct, kw_only=True):
    id: int
    lines: list[Any] = []


@stored("test.Pair")
class Pair(NamedTuple):
    first: Any
    second: Any = None


@stored("test.Person")
class Person(BaseModel):
    name: str
    age: int = 0
    extra: Any = None


@stored("test.Color")
class Color(Enum):
    RED = "r"
    BLUE = ("b", 2)


@stored("test.Level")
class Level(IntEnum):
    LOW = 1
    HIGH = 2


@stored("test.Word")
class Word(StrEnum):
    YES = "yes"


@stored("test.Rights")
class Rights(Flag):
    READ = auto()
    WRITE = auto()


class Note(msgspec.Struct, frozen=True, kw_only=True, tag_field="$t", tag="test-note"):
    text: str
    data: dict[str, Any] = {}


class Plain:
    """A class that nobody can store."""


native(Note)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types at every level."""
    return _exact(left) == _exact(right)


def _exact(value: Any) -> Any:
    kind = type(value).__name__
    match value:
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return kind, [(_exact(key), _exact(item)) for key, item in pairs]
        case list() | tuple():
            return kind, [_exact(item) for item in cast("list[Any]", value)]
        case set() | frozenset():
            return kind, sorted(repr(_exact(item)) for item in cast("set[Any]", value))
        case Draft() | Order() | Point() | Person():
            return kind, [_exact(getattr(value, name)) for name in type(value).__annotations__]
        case _:
            # hex, since repr refuses long numbers; repr tells -0.0 from 0.0, and Decimal("1.0") from Decimal("1.00")
            return kind, hex(value) if isinstance(value, int) else repr(value)


def keep(value: Any) -> Any:
    """The value as a later process would find it."""
    return decode(encode(*adopt(value, "value")))


offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
zones: st.SearchStrategy[tzinfo | None] = (
    st.none()
    | offsets.map(timezone)
    | st.builds(timezone, offsets, st.just("EST"))
    | st.just(ZoneInfo("Europe/Berlin"))
)
texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(["$t", "v", '"$t"', "tuple", "\0", "é", "𝄞"])
hashable_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**66),
    st.integers(min_value=-(2**66), max_value=-(2**62)),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*Color, *Level, *Word, Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]),
)
atoms = hashable_atoms | st.builds(Note, text=texts, data=st.dictionaries(texts, st.integers(-5, 5) | texts))
keys = st.recursive(
    hashable_atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Point, inner, inner),
    ),
    max_leaves=4,
)
values = st.recursive(
    atoms | st.sets(keys, max_size=4),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3),
        st.builds(Draft, texts, inner, st.lists(inner, max_size=2)),
        st.builds(Order, id=st.integers(), lines=st.lists(inner, max_size=2)),
        st.builds(Pair, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Person, name=texts, age=st.integers(0, 9), extra=inner),
    ),
    max_leaves=12,
)
