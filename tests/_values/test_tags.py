"""Bytes that nobody wrote are refused; they never import, call or crash anything."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - as the poison, not as a format
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn._values.codec import MAX_BYTES, adopt, decode, encode
from adjourn.errors import CheckpointCorrupt, MissingKey
from tests._values.values import Color, Draft, Note, Order, Pair, Person, Point, keep, same, texts

CALLED: list[object] = []


def canary(*args: object, **kwargs: object) -> None:
    """What a poisoned checkpoint would like to call."""
    CALLED.append((args, kwargs))


class Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return canary, ("pickled",)


HERE = __name__
POISON: list[bytes] = [
    b"",
    b" ",
    b"\0",
    b"\xff\xfe",
    b"[1",
    b'{"a"',
    b'"\\ud800"',
    b"NaN",
    b"1e999",
    b"[1]]",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"$t":"tuple","v":[' * 20_000 + b"]}" * 20_000,
    pickle.dumps(Bomb()),
    b'{"$t":1,"v":1}',
    b'{"$t":null}',
    b'{"$t":["tuple"],"v":[]}',
    b'{"$t":"tuple"}',
    b'{"$t":"tuple","v":1}',
    b'{"$t":"tuple","v":[],"w":1}',
    b'{"$t":"set","v":[[1]]}',
    b'{"$t":"set","v":[1,true]}',
    b'{"$t":"set","v":{"a":1}}',
    b'{"$t":"dict","v":[["a",1],["a",2]]}',
    b'{"$t":"dict","v":[[[],1]]}',
    b'{"$t":"dict","v":["ab"]}',
    b'{"$t":"dict","v":[[1]]}',
    b'{"$t":"bytes","v":"*"}',
    b'{"$t":"bytes","v":1}',
    b'{"$t":"decimal","v":"NaN"}',
    b'{"$t":"decimal","v":"1e99999999999999999999"}',
    b'{"$t":"decimal","v":[0,[1],0]}',
    b'{"$t":"int","v":"1_0"}',
    b'{"$t":"int","v":"ten"}',
    b'{"$t":"datetime","v":"yesterday"}',
    b'{"$t":"datetime","v":["2024-01-01T00:00:00",7]}',
    b'{"$t":"timedelta","v":[1e300,0,0]}',
    b'{"$t":"uuid","v":"1"}',
    b'{"$t":"test.Draft"}',
    b'{"$t":"test.Draft","v":[]}',
    b'{"$t":"test.Draft","v":{"title":"a","__class__":"os.system"}}',
    b'{"$t":"test.Draft","v":{"title":"a","__init__":1}}',
    b'{"$t":"test.Person","v":{"name":1}}',
    b'{"$t":"test.Person","v":{"name":"a"},"unset":1}',
    b'{"$t":"test.Color","v":["RED"]}',
    b'{"$t":"test.Color","v":"__class__"}',
    b'{"$t":"test.Rights","v":"READ"}',
    b'{"$t":"test.Rights","v":99}',
    b'{"$t":"test-note"}',
    b'{"$t":"test-note","text":1}',
    *(
        json.dumps({"$t": name, "v": content}).encode()
        for name in (
            f"{HERE}.canary",
            f"{HERE}:canary",
            "os.system",
            "builtins.eval",
            "subprocess.Popen",
            "antigravity",
        )
        for content in (["echo"], {"args": ["echo"]}, "echo", None)
    ),
]
# Envelopes of other codecs mean nothing here: they are ordinary data and stay so.
HARMLESS: list[Any] = [
    {"lc": 2, "type": "constructor", "id": [*HERE.split("."), "canary"], "kwargs": {"x": 1}},
    {"py/object": f"{HERE}.canary", "py/reduce": [{"py/function": f"{HERE}.canary"}, {"py/tuple": ["x"]}]},
    {"__type__": f"{HERE}.canary", "__reduce__": [f"{HERE}.canary", ["x"]]},
    {"!!python/object/apply": f"{HERE}.canary"},
    {"__class__": "canary", "__module__": HERE, "$type": f"{HERE}.canary", "@class": f"{HERE}.canary"},
]


class NoImports:
    """A finder that notes whatever somebody tries to import."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.asked.append(name)


@pytest.fixture
def no_imports() -> Iterator[None]:
    finder = NoImports()
    sys.meta_path.insert(0, finder)
    CALLED.clear()
    yield
    sys.meta_path.remove(finder)
    assert finder.asked == []
    assert CALLED == []


@pytest.mark.usefixtures("no_imports")
@pytest.mark.parametrize("body", POISON, ids=range(len(POISON)))
def test_poisoned_bytes_are_refused_without_import_or_call(body: bytes) -> None:  # rule C10, failure 54, attack 1
    with pytest.raises(CheckpointCorrupt):
        decode(body)
    with pytest.raises(CheckpointCorrupt):
        decode(b"[0," + body + b"]")


@pytest.mark.usefixtures("no_imports")
@pytest.mark.parametrize("data", HARMLESS)
def test_envelopes_of_other_codecs_are_ordinary_data(data: Any) -> None:  # attack 1
    assert same(decode(json.dumps(data).encode()), data)
    assert same(keep(data), data)


RICH = encode(
    *adopt(
        {
            "draft": Draft("é", Decimal("1.50"), [(1, {2, 3}), b"bytes"]),
            "order": Order(id=2**70, lines=[Point(1), Pair(None)]),
            "note": [Note(text="n", data={"k": [1]})],
            "person": Person(name="p", extra={1: Color.RED}),
            "times": [datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), time(1), timedelta(1), uuid4()],
            "plain": {"$t": "x", "deep": [[[None, True, 1.5]]]},
        },
        "value",
    )
)


def read_or_refuse(body: bytes) -> None:
    for lenient in (False, True):
        with suppress(CheckpointCorrupt, MissingKey):  # The second for what looks encrypted.
            decode(body, lenient=lenient)


@given(st.data())
def test_altered_bytes_give_a_value_or_are_refused(data: st.DataObject) -> None:  # rule C10, failure 54
    body = bytearray(RICH)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["cut", "flip", "insert", "delete", "repeat"])):
            case "cut":
                body = body[: at + 1]
            case "flip":
                body[at] = data.draw(st.integers(0, 255))
            case "insert":
                body[at:at] = data.draw(
                    st.binary(min_size=1, max_size=4) | st.sampled_from([b'"$t"', b"[", b"null", b"{}"])
                )
            case "delete":
                del body[at : at + data.draw(st.integers(1, 20))]
            case _:
                body[at:at] = body[at : at + data.draw(st.integers(1, 40))]
        body = body or bytearray(b"0")
    read_or_refuse(bytes(body))


def test_every_truncation_is_refused() -> None:  # rule C10
    for end in range(len(RICH)):
        with pytest.raises(CheckpointCorrupt):
            decode(RICH[:end])


tagged = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts, inner, max_size=3),
        st.fixed_dictionaries(
            {
                "$t": st.sampled_from(["tuple", "set", "frozenset", "bytes", "decimal", "datetime", "date", "time"])
                | st.sampled_from(["timedelta", "uuid", "int", "dict", "test.Draft", "test.Pair", "test.Person"])
                | st.sampled_from(["test.Color", "test.Rights", "test-note", "nobody"]),
                "v": inner,
            }
        ),
    ),
    max_leaves=10,
)


@given(tagged)
def test_any_data_with_tags_gives_a_value_or_is_refused(data: Any) -> None:  # rule C10
    read_or_refuse(msgspec.json.encode(data))


@given(st.binary())
def test_random_bytes_give_a_value_or_are_refused(body: bytes) -> None:  # rule C10
    read_or_refuse(body)


def test_size_is_checked_before_anything_is_read() -> None:  # rule C10
    with pytest.raises(CheckpointCorrupt, match="larger"):
        decode(bytes(MAX_BYTES + 1))
