"""Arguments: JSON to values and back, for any signature; and everything that is refused."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from adjourn import Tool, ToolCall, tool
from adjourn._values import codec
from adjourn.errors import InvalidArguments


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Line(msgspec.Struct):
    points: list[Point]
    color: Color | None = None


class Note(TypedDict):
    text: str


class Pair(NamedTuple):
    first: int
    second: str


class Person(BaseModel):
    name: str
    born: date | None = None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.builds(Point, x=st.integers(), y=FLOATS)
Typed = tuple[Any, st.SearchStrategy[Any]]
ATOMS: list[Typed] = [
    (int, st.integers()),
    (float, FLOATS),
    (str, TEXT),
    (bool, st.booleans()),
    (date, st.dates()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (UUID, st.uuids()),
    (bytes, st.binary(max_size=20)),
    (Color, st.sampled_from(Color)),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (int | str, st.integers() | TEXT),
    (Point, POINTS),
    (Line, st.builds(Line, points=st.lists(POINTS, max_size=3), color=st.sampled_from([None, Color.RED]))),
    (Note, st.builds(dict, text=TEXT)),
    (Pair, st.builds(Pair, st.integers(), TEXT)),
    (Person, st.builds(Person, name=TEXT, born=st.none() | st.dates())),
]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        inner.map(lambda typed: (list[typed[0]], st.lists(typed[1], max_size=3))),
        inner.map(lambda typed: (dict[str, typed[0]], st.dictionaries(TEXT, typed[1], max_size=3))),
        inner.map(lambda typed: (tuple[typed[0], int], st.tuples(typed[1], st.integers()))),
        inner.map(lambda typed: (typed[0] | None, st.none() | typed[1])),
    )


TYPES = st.recursive(st.sampled_from(ATOMS), nested, max_leaves=4)


def function(annotations: dict[str, Any], defaults: dict[str, Any]) -> Any:
    def look(**given: Any) -> Any:
        return given

    kinds = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=defaults.get(name, inspect.Parameter.empty),
        )
        for name, annotation in annotations.items()
    ]
    look.__signature__ = inspect.Signature(kinds)
    return look


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tool, dict[str, Any]]:
    """A tool of random types, and values of these."""
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    annotations = {f"p{i}": annotation for i, (annotation, _) in enumerate(types)}
    values = {f"p{i}": draw(strategy) for i, (_, strategy) in enumerate(types)}
    defaults = {f"p{i}": draw(strategy) for i, (_, strategy) in enumerate(types) if draw(st.booleans())}
    return tool(function(annotations, defaults), name="look"), values


@given(calls())
def test_values_of_any_types_become_json_and_the_same_values_again(call: tuple[Tool, dict[str, Any]]):  # rule T1
    made, values = call
    arguments = made.lower(values)
    sent = ToolCall(id="c1", name="look", arguments=arguments).arguments
    again = made.validate(msgspec.json.decode(msgspec.json.encode(sent)))
    assert again == values
    assert made.lower(again) == arguments
    assert made.call(again) == values


@given(calls())
def test_converted_arguments_can_be_stored(call: tuple[Tool, dict[str, Any]]):
    made, values = call
    converted = made.validate(made.lower(values))
    assert codec.decode(codec.encode(*codec.adopt(converted, "arguments"))) == converted


MISFITS: list[Any] = [{"no such": {"key": [True]}}, [[[[[[[[[[]]]]]]]]]], [{}, {}, {}]]


@given(calls(), st.data())
def test_what_does_not_fit_is_refused_by_name(call: tuple[Tool, dict[str, Any]], data: st.DataObject):  # rule T1
    made, values = call
    arguments = made.lower(values)
    name = data.draw(st.sampled_from(sorted(arguments)))
    # Nothing here is of a type that takes this, be it as an object, an array or a value.
    arguments[name] = data.draw(st.sampled_from(MISFITS))
    if "additionalProperties" in str(made.schema["properties"][name]):
        return  # a dict has any keys
    with pytest.raises(InvalidArguments) as caught:
        made.validate(arguments)
    assert any(problem.startswith(name) for problem in caught.value.problems)


@given(calls(), TEXT)
def test_arguments_that_nobody_knows_are_refused_by_name(call: tuple[Tool, dict[str, Any]], name: str):  # rule T1
    made, values = call
    if name in values:
        return
    with pytest.raises(InvalidArguments) as caught:
        made.validate({**made.lower(values), name: 1})
    assert f"has the unknown key '{name}'" in caught.value.problems[-1]


# Hostile arguments


@tool
def look(anything: Any, far: float = 1.0, count: int = 0, text: str = "", items: list[int] | None = None) -> None:
    """Look."""


def endless() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["anything"] = found
    return found


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


HOSTILE: dict[str, tuple[Any, str]] = {
    "NaN": ({"anything": float("nan")}, "anything is nan"),
    "infinite": ({"anything": 1, "far": float("inf")}, "far is inf"),
    "too large for a float": ({"anything": 1, "far": 10**400}, "far: expected number"),
    "too long to write": ({"anything": 1, "count": 10**5000}, "count is a number with more than 4300 digits"),
    "too long, in vain": ({"anything": 1, "other": -(10**5000)}, "other is a number with more than 4300 digits"),
    "half a character": ({"anything": "\ud800"}, "anything holds the lone surrogate"),
    "half a character in a key": ({"anything": {"\ud800": 1}}, "A key of $.anything holds the lone surrogate"),
    "a key that is no text": ({"anything": {1: 2}}, "anything has the key 1"),
    "an object": ({"anything": object()}, "anything is an object"),
    "itself": (endless(), "is nested more than 100 levels deep"),
    "very deep": ({"anything": deep(5000)}, "is nested more than 100 levels deep"),
    "a list": ([1], "expected object"),
    "nothing": (None, "expected object"),
    "text": ("{}", "expected object"),
    "a number as text": ({"anything": 1, "count": "1"}, "count: expected integer"),
    "a bool as a number": ({"anything": 1, "count": True}, "count: expected integer"),
    "half a number": ({"anything": 1, "count": 1.5}, "count: expected integer"),
    "one item": ({"anything": 1, "items": 3}, "items: expected array or null"),
    "a bad item": ({"anything": 1, "items": [1, "2"]}, "items[1]: expected integer"),
    "a missing one": ({}, "lacks 'anything'"),
    "null": ({"anything": None, "text": None}, "text: expected string"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_arguments_are_refused_in_words(case: str):  # rule T1
    arguments, words = HOSTILE[case]
    with pytest.raises(InvalidArguments) as caught:
        look.validate(arguments)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@dataclass
class Fragile:
    number: int

    def __post_init__(self) -> None:
        if self.number == 1:
            raise KeyError("one")
        if self.number == 2:
            raise ValueError("not two")


@pytest.mark.parametrize(("number", "words"), [(1, "KeyError: 'one'"), (2, "order: not two")])
def test_whatever_a_constructor_raises_is_told(number: int, words: str):
    @tool
    def take(order: Fragile) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        take.validate({"order": {"number": number}})
    assert caught.value.problems == (words,)


def test_what_the_function_gets_is_its_own():
    arguments = ToolCall(id="c1", name="look", arguments={"anything": {"a": [1]}}).arguments
    values = look.validate(arguments)
    values["anything"]["a"].append(2)
    assert arguments == {"anything": {"a": [1]}}
    given: dict[str, Any] = {"anything": {"a": [1]}}
    look.validate(given)["anything"]["a"].append(2)
    assert given == {"anything": {"a": [1]}}


def test_a_set_is_told_in_the_same_order_everywhere():
    @tool
    def tag(names: set[str], span: timedelta = timedelta(seconds=1)) -> None: ...

    assert tag.lower(tag.validate({"names": ["c", "a", "b"]})) == {"names": ["a", "b", "c"], "span": "PT1S"}
