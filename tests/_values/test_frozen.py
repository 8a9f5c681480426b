"""Frozen JSON data: reads and encodes like what it was made of, and never changes."""

import copy
import enum
import json
import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn._values.frozen import MAX_DEPTH, FrozenDict, freeze, left_out

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


class Colour(enum.StrEnum):
    RED = "red"


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_frozen_data_equals_and_encodes_as_its_source(data: dict[str, Any]) -> None:
    frozen = freeze(data, "arguments")
    assert frozen == data
    assert msgspec.json.encode(frozen) == msgspec.json.encode(data)
    assert json.dumps(frozen) == json.dumps(data)
    assert hash(frozen) == hash(freeze(copy.deepcopy(data), "arguments"))


def nested() -> FrozenDict:
    return freeze({"list": [1, {"deep": [2]}], "dict": {"k": "v"}, "tuple": (3,)}, "arguments")


DICT_CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda d: operator.setitem(d, "x", 1),
    "delete": lambda d: operator.delitem(d, "dict"),
    "merge": lambda d: d.__ior__({}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("dict"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("x", 1),
    "update": lambda d: d.update(x=1),
    "below": lambda d: operator.setitem(d["dict"], "k", 2),
}
LIST_CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda v: operator.setitem(v, 0, 1),
    "delete": lambda v: operator.delitem(v, 0),
    "add": lambda v: v.__iadd__([1]),
    "multiply": lambda v: v.__imul__(2),
    "append": lambda v: v.append(1),
    "clear": lambda v: v.clear(),
    "extend": lambda v: v.extend([1]),
    "insert": lambda v: v.insert(0, 1),
    "pop": lambda v: v.pop(),
    "remove": lambda v: v.remove(1),
    "reverse": lambda v: v.reverse(),
    "sort": lambda v: v.sort(),
    "below": lambda v: v[1]["deep"].append(1),
}


@pytest.mark.parametrize("change", DICT_CHANGES.values(), ids=DICT_CHANGES)
def test_a_frozen_dict_refuses_every_change(change: Callable[[Any], object]) -> None:
    frozen = nested()
    with pytest.raises(TypeError, match=r"is frozen.*deepcopy"):
        change(frozen)
    assert frozen == nested()


@pytest.mark.parametrize("change", LIST_CHANGES.values(), ids=LIST_CHANGES)
def test_a_frozen_list_refuses_every_change(change: Callable[[Any], object]) -> None:
    frozen = nested()
    with pytest.raises(TypeError, match=r"is frozen.*deepcopy"):
        change(frozen["list"])
    assert frozen == nested()


def test_copies_are_ordinary() -> None:
    frozen = nested()
    assert type(dict(frozen)) is type(frozen.copy()) is type(copy.copy(frozen)) is dict
    assert type(frozen | {"x": 1}) is dict
    deep = copy.deepcopy(frozen)
    deep["list"][1]["deep"].append(9)
    assert deep["list"][1]["deep"] == [2, 9]
    assert type(copy.copy(frozen["list"])) is type(copy.deepcopy(frozen["list"])) is list
    assert frozen == nested()


def test_the_source_is_left_alone_and_let_go() -> None:
    source: dict[str, Any] = {"list": [1]}
    frozen = freeze(source, "arguments")
    source["list"].append(2)
    assert frozen == {"list": [1]}


def test_frozen_data_is_not_copied_again() -> None:
    frozen = nested()
    assert freeze(frozen, "arguments") is frozen


def test_containers_of_a_subclass_become_plain_json() -> None:
    assert freeze(OrderedDict(a=(1, 2)), "arguments") == {"a": [1, 2]}


WRONG: list[tuple[Any, type[Exception], str]] = [
    ([1], TypeError, r"arguments is a list\. Give a dict"),
    (None, TypeError, "arguments is a NoneType"),
    ({1: 2}, TypeError, "arguments has the key 1, an int"),
    ({"a": {("b",): 1}}, TypeError, r"arguments\.a has the key \('b',\)"),
    ({"a": [0, {1}]}, TypeError, r"arguments\.a\[1\] is a set .*to_builtins"),
    ({"a": b"x"}, TypeError, r"arguments\.a is a bytes"),
    ({"a": Colour.RED}, TypeError, r"arguments\.a is a Colour"),
    ({Colour.RED: 1}, TypeError, "a Colour"),
    ({"a": float("nan")}, ValueError, r"arguments\.a is nan"),
    ({"a": [float("-inf")]}, ValueError, r"arguments\.a\[0\] is -inf"),
    ({"a": "x\ud800"}, ValueError, r"arguments\.a holds the lone surrogate '\\ud800' at 1"),
    ({"\udfff": 1}, ValueError, "A key of arguments holds the lone surrogate"),
]


@pytest.mark.parametrize(("data", "error", "message"), WRONG)
def test_what_is_no_json_is_refused_with_its_place(data: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        freeze(cast("dict[str, Any]", data), "arguments")


def test_depth_is_bounded_and_data_that_holds_itself_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    freeze(deep, "arguments")
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        freeze({"a": deep}, "arguments")
    endless: dict[str, Any] = {}
    endless["self"] = [endless]
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        freeze(endless, "arguments")


LEFT_OUT: dict[str, tuple[Any, Any, Any, list[str]]] = {
    "nothing": ({"a": 1}, {"a": 1}, {}, []),
    "another form": ({"a": 1}, {"a": "1.00"}, {}, []),
    "as it was seen": ({"a": {}}, {"a": {"b": 1}}, {"a": {"b": 1.0}}, []),
    "not as it was seen": ({"a": {}}, {"a": {"b": True}}, {"a": {"b": 1}}, ["a.b"]),
    "never seen": ({}, {"a": {"b": 1}}, {}, ["a"]),
    "in a list": ([{"b": 1}, {}], [{"b": 1}, {"b": 2}], [{"b": 3}, {"b": 2}], []),
    "in a new item": ([{"b": 1}, {}], [{"b": 1}, {"b": 2}], [{"b": 1}], ["[1].b"]),
    "at the end of a tuple": ([1], [1, 2], [1, 3], ["[1]"]),
    "in a set, which is sorted": (
        [{"b": 2}, {"b": 1, "c": 5}],
        [{"b": 1, "c": 5}, {"b": 2, "c": 9}],
        [{"b": 1, "c": 5}, {"b": 2, "c": 0}],
        ["[0].c"],
    ),
    "made of a text": ("x", {"b": 1}, {"b": 2}, [""]),
    "made of a text, as it was seen": ("x", {"b": 1}, {"b": 1}, []),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_left_out(case: str):  # rule T4
    written, made, seen, found = LEFT_OUT[case]
    assert list(left_out(written, made, seen)) == found
