"""What enters the state is its own, what is read is a copy, and what cannot be stored is refused at once."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from pydantic import SecretStr

from adjourn._values.codec import MAX_BYTES, MAX_DEPTH, adopt, copy, decode, encode
from adjourn._values.frozen import freeze
from adjourn._values.registry import native
from adjourn.errors import NotStorable
from tests._values.values import Draft, Note, Order, Pair, Person, Plain, Point, keep, same, values


def test_nobody_else_holds_what_was_owned() -> None:  # rule S6
    draft, order, person = Draft("a", notes=[1]), Order(id=1, lines=[1]), Person(name="p", extra=[1])
    given_value: dict[str, Any] = {
        "list": [[1]],
        "draft": draft,
        "order": order,
        "person": person,
        "frozen": Point([1]),
    }
    owned, _ = adopt(given_value, "value")
    before = encode(owned, False)
    given_value["list"][0].append(2)
    draft.notes.append(2)
    order.lines.append(2)
    person.extra.append(2)
    given_value["frozen"].x.append(2)
    assert encode(owned, False) == before


@given(values)
def test_a_copy_is_the_same_value(value: Any) -> None:
    owned, _ = adopt(value, "value")
    assert same(copy(owned), owned)


def test_changing_a_copy_leaves_the_state_alone() -> None:  # rule S6
    owned, _ = adopt({"rows": [{"n": [1]}], "draft": Draft("a", notes=[1]), "pair": Pair([1]), "set": {1}}, "value")
    before = encode(owned, False)
    read = copy(owned)
    read["rows"][0]["n"].append(2)
    read["draft"].notes.append(2)
    read["draft"].title = "b"
    read["pair"].first.append(2)
    read["set"].add(2)
    assert encode(owned, False) == before


def test_what_cannot_be_changed_is_shared() -> None:
    note, point = Note(text="n"), Point(1, (2, 3))
    owned, plain = adopt([note], "value")
    assert owned[0] is note
    assert plain
    assert copy([note])[0] is note
    assert copy(point) is point
    assert copy((point, "a")) == (point, "a")
    assert copy({"k": point})["k"] is point
    mixed = Point([1])
    assert copy(mixed) is not mixed


# What is refused ------------------------------------------------------------------------------------------------------


@dataclass
class Unregistered:
    x: int = 1


class Text(str):
    __slots__ = ()


class Size(int):
    pass


def numbers() -> Iterator[int]:
    yield 1


REFUSED: list[tuple[Any, str]] = [
    (float("nan"), "NaN"),
    (float("inf"), "infinities"),
    (Decimal("NaN"), "NaN"),
    (Decimal("-Infinity"), "infinities"),
    ("\ud800", "surrogates"),
    ("abc\udfffdef", "surrogates"),
    (numbers, "Code is not stored"),
    (lambda: 1, "Code is not stored"),
    (Plain, "Code is not stored"),
    (Plain(), "@stored"),
    (threading.Lock(), "`deps`"),
    (numbers(), "`deps`"),
    (Unregistered(), '@stored("Unregistered")'),
    (defaultdict(list), "dict(value)"),
    (OrderedDict(), "dict(value)"),
    (Counter("a"), "dict(value)"),
    (deque([1]), "list(value)"),
    (Text("a"), "str(value)"),
    (Size(1), "int(value)"),
    (bytearray(b"a"), "bytes(value)"),
    (Path("a"), "str(value)"),
    (ValueError("a"), "str(value)"),
    (SecretStr("hush"), "Secrets"),
    (1j, "@stored"),
    (MappingProxyType({"a": 1}), "@stored"),
]


@pytest.mark.parametrize(("value", "remedy"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_stored_is_refused_with_its_place_and_a_remedy(value: Any, remedy: str) -> None:  # rules C10, I7
    for whole, path in (
        (value, "drafts"),
        ([0, 0, 0, {"price": value}], "drafts[3].price"),
        ({"a b": (value,)}, "drafts['a b'][0]"),
        ([Draft("x", price=value)], "drafts[0].price"),
        ({1: value}, "drafts[1]"),
        (Order(id=1, lines=[value]), "drafts.lines[0]"),
    ):
        with pytest.raises(NotStorable) as caught:
            adopt(whole, "drafts")
        assert caught.value.path == path
        assert caught.value.type_name.endswith(type(value).__qualname__)
        assert remedy in str(caught.value)
        assert "hush" not in str(caught.value)


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(NotStorable, match="deps"):
        adopt([file], "files")


def test_bad_members_of_sets_and_bad_keys_are_refused() -> None:
    with pytest.raises(NotStorable, match="tags"):
        adopt({Plain()}, "tags")
    with pytest.raises(NotStorable, match="keys"):
        adopt({Plain(): 1}, "table")
    with pytest.raises(NotStorable, match="surrogates"):
        adopt({"\ud800": 1}, "table")
    with pytest.raises(NotStorable, match="use tuples"):
        adopt(set[Any]([freeze({"a": 1}, "x")]), "tags")


def test_a_path_from_nowhere_starts_with_the_key() -> None:
    with pytest.raises(NotStorable) as caught:
        adopt({"drafts": [Plain()]}, "")
    assert caught.value.path == "drafts[0]"


Wrap = Callable[[Any], Any]
WRAPS: dict[str, Wrap] = {
    "list": lambda value: [value],
    "dict": lambda value: {"a": value},
    "tuple": lambda value: (value,),
    "pairs": lambda value: {1: value},
    "class": Point,
}


def nested(depth: int, wrap: Wrap) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_depth_has_a_limit_within_which_all_goes_well(wrap: Wrap) -> None:
    depth = MAX_DEPTH
    while depth:
        try:
            value, plain = adopt(nested(depth, wrap), "value")
            break
        except NotStorable:
            depth -= 1
    else:
        pytest.fail("nothing can be nested")
    assert depth >= MAX_DEPTH // 3
    assert encode(copy(value), plain) == encode(*adopt(decode(encode(value, plain)), "value"))
    with pytest.raises(NotStorable, match="levels deep"):
        adopt(nested(MAX_DEPTH + 1, wrap), "value")


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    table: dict[str, Any] = {}
    table["self"] = [table]
    draft = Draft("me")
    draft.notes.append(draft)
    for value in (ring, table, draft):
        with pytest.raises(NotStorable, match="contains itself") as caught:
            adopt(value, "value")
        assert len(caught.value.path) <= 200


def test_what_takes_too_many_bytes_is_refused() -> None:
    with pytest.raises(NotStorable, match="limit"):
        encode("x" * MAX_BYTES, True, "essay")


def test_a_native_may_check_itself_and_names_the_whole_path() -> None:
    class Checked(msgspec.Struct, frozen=True, tag_field="$t", tag="test-checked"):
        ok: bool

    def check(value: Checked, path: str) -> None:
        if not value.ok:
            raise NotStorable(f"{path}.ok", value.ok, "Make it true.")

    native(Checked, check)
    assert keep([Checked(True)]) == [Checked(True)]
    with pytest.raises(NotStorable, match="Make it true") as caught:
        adopt({"notes": [Checked(True), Checked(False)]}, "state")
    assert caught.value.path == "state.notes[1].ok"
