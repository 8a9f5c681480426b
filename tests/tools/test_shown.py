"""What people are shown of a call's arguments is all that the function gets, defaults at any depth included."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from adjourn import Tool, tool
from adjourn.errors import InvalidArguments, UsageError
from adjourn.middleware import ApprovalPolicy, ApprovalRule
from adjourn.tools import approved, reviewed


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Payment:
    to: str
    euros: float = 100
    cents: int = field(default=7, init=False)
    note: str | None = None
    _by: str = field(default="shop", compare=False, repr=False)


@dataclass
class Batch:
    payments: list[Payment] = field(default_factory=list[Payment])
    first: Payment | None = None
    by_name: dict[str, Payment] = field(default_factory=dict[str, Payment])


@dataclass(slots=True)
class Slotted:
    order: int
    limit: int = 3


class Order(msgspec.Struct, omit_defaults=True, rename="camel", tag="order"):
    order_id: int
    paid_to: str = "shop"
    batch: Batch | None = None


class Row(msgspec.Struct, omit_defaults=True, array_like=True, tag=True):
    order: int
    limit: int = 5
    more: Order | None = None


class Asked(TypedDict, total=False):
    limit: int
    row: Row


class Pair(NamedTuple):
    order: int
    limit: int = 5


class Model(BaseModel):
    order: int
    limit: float = 100
    again: Optional[Model] = None  # noqa: UP045  # a forward reference
    payment: Payment | None = None
    named: str = Field("x", alias="Named")


@pydantic_dataclass
class Checked:
    order: int
    limit: int = 5


class Counted(BaseModel):
    order: int = 1

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.order


class Models(RootModel[list[Model]]):
    pass


def of(type_: Any, default: Any = dataclasses.MISSING, **options: Any) -> Tool:
    """A tool with one parameter."""

    def look(it: Any = default) -> None: ...

    look.__annotations__["it"] = type_
    if default is dataclasses.MISSING:
        look.__defaults__ = None
    return tool(look, **options)


PAYMENT = {"to": "bob", "euros": 100, "cents": 7, "note": None, "_by": "shop"}
MODEL = {"order": 1, "limit": 100, "again": None, "payment": None, "Named": "x"}
INSIDE: list[tuple[Any, Any, Any]] = [
    (Payment, {"to": "bob"}, PAYMENT),
    (list[Payment], [{"to": "bob"}], [PAYMENT]),
    (dict[str, tuple[Payment, ...]], {"a": [{"to": "bob"}]}, {"a": [PAYMENT]}),
    (Payment | None, {"to": "bob"}, PAYMENT),
    (Batch, {"first": {"to": "bob"}}, {"payments": [], "first": PAYMENT, "by_name": {}}),
    (Batch, {"by_name": {"a": {"to": "bob"}}}, {"payments": [], "first": None, "by_name": {"a": PAYMENT}}),
    (Slotted, {"order": 1}, {"order": 1, "limit": 3}),
    (Order, {"type": "order", "orderId": 1}, {"type": "order", "orderId": 1, "paidTo": "shop", "batch": None}),
    (
        Order,
        {"type": "order", "orderId": 1, "batch": {"first": {"to": "bob"}}},
        {
            "type": "order",
            "orderId": 1,
            "paidTo": "shop",
            "batch": {"payments": [], "first": PAYMENT, "by_name": {}},
        },
    ),
    (Row, ["Row", 1], ["Row", 1, 5, None]),
    (Asked, {"row": ["Row", 1]}, {"row": ["Row", 1, 5, None]}),
    (Pair, [1], [1, 5]),
    (Model, {"order": 1}, MODEL),
    (Model, {"order": 1, "again": {"order": 1}}, {**MODEL, "again": MODEL}),
    (Model, {"order": 1, "payment": {"to": "bob"}}, {**MODEL, "payment": {**PAYMENT, "cents": 7}}),
    (Models, [{"order": 1}], [MODEL]),
    (Checked, {"order": 1}, {"order": 1, "limit": 5}),
    (Counted, {}, {"order": 1}),
    (list[Counted], [{}], [{"order": 1}]),
    (dict[Color, Slotted], {"red": {"order": 1}}, {"red": {"order": 1, "limit": 3}}),
]


@pytest.mark.parametrize(("type_", "written", "shown"), INSIDE)
def test_defaults_inside_are_shown_and_are_what_runs(type_: Any, written: Any, shown: Any):  # rule T1
    look = of(type_, approval=True)
    runs = look.validate({"it": written})
    assert look.show(runs) == look.lower(runs) == {"it": shown}
    assert look.show(look.validate({"it": shown})) == {"it": shown}


CONVERTED: list[tuple[Any, Any, Any, Any]] = [
    (float, 100, 100.0, 100.0),
    (float | None, 100, 100.0, 100.0),
    (Decimal, 100, Decimal(100), "100"),
    (Decimal, 0.1, Decimal("0.1"), "0.1"),
    (bool, 0, False, False),
    (bool | None, 1, True, True),
    (int, True, 1, 1),
    (float, False, 0.0, 0.0),
    (Color, "red", Color.RED, "red"),
    (Color, Color.RED, Color.RED, "red"),
    (Literal["a", "b"], "b", "b", "b"),
    (tuple[int, ...], [1, 2], (1, 2), [1, 2]),
    (tuple, [1], (1,), [1]),
    (list[float], (1, 2), [1.0, 2.0], [1.0, 2.0]),
    (list, (), [], []),
    (set[int], frozenset({3, 1}), {1, 3}, [1, 3]),
    (set, [1], {1}, [1]),
    (frozenset[str], {"b", "a"}, frozenset({"a", "b"}), ["a", "b"]),
    (dict[str, float], {"a": 1}, {"a": 1.0}, {"a": 1.0}),
    (dict[Color, int], {Color.RED: 1}, {Color.RED: 1}, {"red": 1}),
    (date, "2026-01-31", date(2026, 1, 31), "2026-01-31"),
    (UUID, "12345678-1234-5678-1234-567812345678", UUID(int=0x12345678123456781234567812345678), None),
    (int, None, None, None),
    (list[int], None, None, None),
    (Payment, Payment(to="bob"), Payment(to="bob"), PAYMENT),
    (Model, Model.model_validate({"order": 1}), Model.model_validate({"order": 1}), MODEL),
    (Row, Row(1), Row(1), ["Row", 1, 5, None]),
    (Any, [1, {"a": None}], [1, {"a": None}], [1, {"a": None}]),
]


@pytest.mark.parametrize(("type_", "default", "runs", "shown"), CONVERTED)
def test_a_default_is_of_its_type(type_: Any, default: Any, runs: Any, shown: Any):  # rule T1
    for look in (of(type_, default, approval=True), of(type_, default)):
        got = look.validate({})["it"]
        assert (got, type(got)) == (runs, type(runs))
        told = str(runs) if type_ is UUID else shown
        assert look.show({"it": got}) == look.lower({"it": got}) == {"it": told}
        assert look.schema["properties"]["it"]["default"] == told


HIDDEN: list[tuple[Any, Any]] = [
    (Any, Path("/tmp")),
    (Any, object()),
    (Any, Color.RED),
    (Any, date(2026, 1, 1)),
    (Any, {1: 2}),
    (int, "1"),
    (str, 5),
    (int, 1.5),
    (bool, 2),
    (float, float("nan")),
    (float, float("inf")),
    (str, "\ud800"),
    (Color, "green"),
    (list[int], ["1"]),
    (timedelta, 5),
    (Payment, {"to": "bob"}),
    (Slotted, Payment(to="bob")),
    (Any, Payment(to="bob")),
]


@pytest.mark.parametrize(("type_", "default"), HIDDEN)
def test_a_default_that_cannot_be_shown_is_refused_where_people_decide(type_: Any, default: Any):  # rule T1
    plain = of(type_, default)
    assert plain.validate({})["it"] is default
    assert plain.lower(plain.validate({})) == {}
    ways: list[Callable[[], Tool]] = [
        lambda: of(type_, default, approval=True),
        lambda: of(type_, default, approval=lambda: False),
        lambda: approved(plain),
        lambda: reviewed(plain),
    ]
    for way in ways:
        with pytest.raises(UsageError, match="the default of 'it' is"):
            way()


FIELDS: list[tuple[Any, Any]] = [
    (field(default=3), 3),
    (field(default=3, metadata={"unit": "EUR"}), 3),
    (field(default_factory=lambda: 4), 4),
    (msgspec.field(default=5), 5),
    (msgspec.field(default_factory=lambda: 6), 6),
    (Field(7), 7),
    (Field(default_factory=lambda: 8), 8),
]


@pytest.mark.parametrize(("made", "runs"), FIELDS)
def test_a_field_of_any_library_may_be_the_default(made: Any, runs: int):  # rule T1
    look = of(int, made, approval=True)
    assert look.validate({}) == look.show(look.validate({})) == {"it": runs}


@pytest.mark.parametrize("made", [field(), msgspec.field(), Field()])
def test_a_field_without_a_default_is_none(made: Any):  # rule T1
    look = of(int, made, approval=True)
    with pytest.raises(InvalidArguments):
        look.validate({})


def test_a_name_in_a_field_is_refused():
    with pytest.raises(UsageError, match="Leave `name` out"):
        of(int, msgspec.field(default=1, name="other"))


def test_a_default_cannot_be_changed_by_a_call():  # rule T1
    look = of(list[Any], [{"a": 1}])
    look.validate({})["it"][0]["a"] = 2
    assert look.validate({}) == {"it": [{"a": 1}]}


def test_a_default_beside_a_given_schema_is_shown():  # rule T1
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "euros": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["to"],
    }

    def pay(to: str, euros: int = 100, note: str = None, free: int = 3) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    look = tool(pay, schema=schema, approval=True)
    runs = look.validate({"to": "bob"})
    assert look.show(runs) == runs == {"to": "bob", "euros": 100, "note": None, "free": 3}
    assert look.validate(runs) == runs
    assert look.validate({"to": "bob", "euros": 5})["euros"] == 5
    with pytest.raises(InvalidArguments):
        look.validate({"to": "bob", "note": 5})

    def hidden(to: str, euros: Any = Path("/tmp"), note: str = "") -> None: ...

    assert tool(hidden, schema=schema).validate({"to": "bob"}) == {"to": "bob", "note": ""}
    with pytest.raises(UsageError, match="the default of 'euros' is"):
        tool(hidden, schema=schema, approval=True)


def closed(**properties: str) -> dict[str, Any]:
    named = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": named, "required": ["to"], "additionalProperties": False}


def test_a_default_that_a_closed_schema_does_not_name_is_refused_where_people_decide():  # rule T1
    def pay(to: str, euros: float = 100) -> float:
        return euros

    plain = tool(pay, schema=closed(to="string"))
    assert plain.validate({"to": "bob"}) == {"to": "bob"}
    assert plain.call({"to": "bob"}) == 100
    ways: list[Callable[[], Tool]] = [
        lambda: tool(pay, schema=closed(to="string"), approval=True),
        lambda: approved(plain),
        lambda: reviewed(plain),
        lambda: ApprovalPolicy([ApprovalRule(tool="pay", action="ask")]).guard_tool(plain),
        lambda: ApprovalPolicy([ApprovalRule(arguments={"euros": 100}, action="deny")]).guard_tool(plain),
    ]
    for way in ways:
        with pytest.raises(UsageError, match="'euros', whose default is 100, is not in the schema") as refused:
            way()
        assert "Add it to the schema's properties" in str(refused.value)
    named = tool(pay, schema=closed(to="string", euros="number"), approval=True)
    assert named.validate({"to": "bob"}) == {"to": "bob", "euros": 100}


def test_the_digest_covers_defaults():  # rule T5
    def digest(type_: Any, default: Any, **options: Any) -> str:
        return of(type_, default, **options).digest

    assert digest(float, 100) == digest(float, 100.0) != digest(float, 999)
    assert digest(Color, "red") != digest(Color, "blue")
    assert digest(int, None) != digest(int, 1)
    assert digest(Order, Order(1)) != digest(Order, Order(1, "thief"))
    schema = {"type": "object", "properties": {"it": {"type": "integer"}}}
    assert digest(int, 1, schema=schema) != digest(int, 2, schema=schema)


def test_the_digest_covers_plain_values_of_a_partial():  # rule T5
    def pay(to: str, euros: float, note: Any = None) -> None: ...

    def digest(*args: Any, **fixed: Any) -> str:
        return tool(partial(pay, *args, **fixed), name="pay", description="Pay.").digest

    assert digest(euros=100) == digest(euros=100) != digest(euros=999)
    assert digest("bob") != digest("eve")
    assert digest(euros=1, note=object()) == digest(euros=1, note=object())  # It has no JSON form: it is code.


@pytest.mark.parametrize("kind", [Payment, Order, Model])
def test_the_digest_covers_defaults_inside(kind: type[Any]):  # rule T5
    def made(limit: int) -> type[Any]:
        if kind is Payment:
            return dataclasses.make_dataclass("It", [("limit", int, limit)])
        if kind is Order:
            return msgspec.defstruct("It", [("limit", int, limit)], omit_defaults=True)
        return type("It", (BaseModel,), {"limit": limit, "__annotations__": {"limit": int}})

    assert of(made(1)).digest == of(made(1)).digest != of(made(2)).digest


# Properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.one_of(st.booleans(), st.integers(-1000, 1000), st.floats(allow_nan=False, allow_infinity=False, width=32))
DATA = st.recursive(
    st.none() | NUMBERS | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner)
)
TYPES = st.recursive(
    st.sampled_from([int, float, bool, str, Decimal, Color, date, Any, Payment, Slotted, Order, Row, Pair, Model]),
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),
        inner.map(lambda each: tuple[each, ...]),
        inner.map(lambda each: dict[str, each]),
        inner.map(lambda each: each if each is Any else Optional[each]),  # noqa: UP045
    ),
    max_leaves=3,
)
OBJECTS = st.one_of(
    st.fixed_dictionaries({"to": TEXT}),
    st.just({"order": 1}),
    st.just({"type": "order", "orderId": 1}),
    st.just(["Row", 1]),
    st.just([1]),
    st.sampled_from(
        [Payment(to="x"), Slotted(1), Order(1), Row(1), Pair(1), Model.model_validate({"order": 1}), Color.RED]
    ),
    st.sampled_from([Decimal("1.50"), (1, 2), {1}, frozenset({"a"}), date(2026, 1, 1)]),
)
DEFAULTS = st.one_of(DATA, OBJECTS, st.lists(OBJECTS, max_size=2), st.dictionaries(TEXT, OBJECTS, max_size=2))


@given(type_=TYPES, default=DEFAULTS, written=DEFAULTS)
def test_what_is_shown_is_what_runs(type_: Any, default: Any, written: Any):  # rule T1
    try:
        look = of(type_, default, approval=True)
    except UsageError:
        assert of(type_, default).validate({})["it"] is default
        return
    calls: list[dict[str, Any]] = [{}]
    try:
        look.validate({"it": written})
        calls.append({"it": written})
    except (InvalidArguments, TypeError):
        pass
    for call in calls:
        runs = look.validate(call)
        shown = look.show(runs)
        again = look.validate(shown)
        assert look.show(again) == shown
        assert again == runs
