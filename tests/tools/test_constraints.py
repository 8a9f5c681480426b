"""Limits and descriptions in `Annotated`, whoever's they are, are told to the model and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypedDict, TypeVar

import annotated_types as at
import msgspec
import pydantic
import pytest
from msgspec import Meta, Struct
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from typing_extensions import Doc

from adjourn import Tool, UsageError, tool
from adjourn.errors import InvalidArguments


def of_type(annotation: Any, **options: Any) -> Tool:
    def look(order: Any) -> Any:
        return order

    look.__annotations__["order"] = annotation
    return tool(look, **options)


def told(annotation: Any) -> dict[str, Any]:
    return of_type(annotation).schema["properties"]["order"]


def takes(annotation: Any, value: Any) -> bool:
    """Whether a value is taken; a refusal counts only when it names the argument."""
    try:
        of_type(annotation).validate({"order": value})
    except InvalidArguments as error:
        return "order" not in error.problems[0]
    return True


LIMITED: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "Meta": (Annotated[int, Meta(gt=0)], {"type": "integer", "exclusiveMinimum": 0}, 1, 0),
    "Gt": (Annotated[int, at.Gt(0)], {"type": "integer", "exclusiveMinimum": 0}, 1, 0),
    "Interval": (
        Annotated[int, at.Interval(ge=1, lt=3)],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 3},
        2,
        3,
    ),
    "Len": (Annotated[str, at.Len(1, 2)], {"type": "string", "minLength": 1, "maxLength": 2}, "ab", ""),
    "MultipleOf": (Annotated[int, at.MultipleOf(5)], {"type": "integer", "multipleOf": 5}, 10, 11),
    "Field": (Annotated[float, Field(le=1)], {"type": "number", "maximum": 1}, 0.5, 1.5),
    "pattern": (Annotated[str, Field(pattern="^a")], {"type": "string", "pattern": "^a"}, "ab", "ba"),
    "StringConstraints": (
        Annotated[str, StringConstraints(max_length=1)],
        {"type": "string", "maxLength": 1},
        "a",
        "ab",
    ),
    "PositiveInt": (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}, 1, 0),
    "several": (
        Annotated[pydantic.PositiveInt, at.Gt(-5), Meta(le=2), Field(le=9)],
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 2},
        2,
        3,
    ),
    "in a list": (
        list[Annotated[int, at.Gt(0)]],
        {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}},
        [1],
        [0],
    ),
    "in a dict": (
        dict[str, Annotated[int, at.Gt(0)]],
        {"type": "object", "additionalProperties": {"type": "integer", "exclusiveMinimum": 0}},
        {"a": 1},
        {"a": 0},
    ),
    "in a tuple": (
        tuple[Annotated[int, at.Gt(0)], str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
            "items": False,
        },
        [1, "a"],
        [0, "a"],
    ),
    "of a list": (
        Annotated[list[int], at.MinLen(1)],
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        [1],
        [],
    ),
    "or None": (
        Annotated[int | None, at.Gt(0)],
        {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]},
        None,
        0,
    ),
    "of a union": (
        Annotated[int | str, at.Ge(1), at.MinLen(1)],
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}]},
        "a",
        "",
    ),
    "a validator": (
        Annotated[str, AfterValidator(str.upper), Field(max_length=2)],
        {"type": "string", "maxLength": 2},
        "ab",
        "abc",
    ),
}

Count = NewType("Count", Annotated[int, at.Gt(0)])  # pyright: ignore[reportGeneralTypeIssues]  # Python takes it
LIMITED["a new type"] = (Count, {"type": "integer", "exclusiveMinimum": 0}, 1, 0)
LIMITED["in a list of new types"] = (
    list[Count],
    {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}},
    [1],
    [0],
)


@pytest.mark.parametrize("case", LIMITED)
def test_a_limit_is_told_and_checked(case: str):  # rule T1
    annotation, schema, good, bad = LIMITED[case]
    assert told(annotation) == schema
    assert takes(annotation, good)
    assert not takes(annotation, bad)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, "How many"],
        Annotated[int, Doc("How many")],
        Annotated[int, Meta(description="How many")],
        Annotated[int, Field(description="How many")],
        Annotated[Annotated[int, "How few"], "How many"],
    ],
    ids=str,
)
def test_a_description_is_told(annotation: Any):
    assert told(annotation) == {"type": "integer", "description": "How many"}


def test_an_annotation_knows_better_than_the_docstring():
    @tool
    def look(order: Annotated[int, "By number"]) -> None:
        """Look.

        Args:
            order: Something.
        """

    assert look.schema["properties"]["order"]["description"] == "By number"


def test_a_field_may_be_the_default():
    which: Any = Field(3, ge=1, description="Which")
    more: Any = Field(default_factory=list)

    @tool
    def look(order: int = which, more: list[int] = more) -> None: ...

    assert look.schema["properties"] == {
        "order": {"type": "integer", "minimum": 1, "description": "Which", "default": 3},
        "more": {"type": "array", "items": {"type": "integer"}, "default": []},
    }
    first, second = look.validate({}), look.validate({})
    assert first == {"order": 3, "more": []}
    assert first["more"] is not second["more"]


def test_a_field_without_a_default_makes_a_parameter_required():
    which: Any = Field(description="Which")

    @tool
    def look(order: int = which) -> None: ...

    assert look.schema["required"] == ["order"]


def test_a_default_that_is_another_each_time_is_refused():  # rule T1
    anew: Any = Field(default_factory=object)

    def look(order: Any = anew) -> None: ...

    with pytest.raises(UsageError, match="another default each time"):
        tool(look)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, at.Predicate(bool)],
        Annotated[dict[str, int], at.Gt(3)],
        Annotated[str | None, at.Gt(3)],
        Annotated[float, at.MultipleOf(0.1)],
        Annotated[bytes, at.MinLen(3)],
        Annotated[str, Field(pattern="^a"), Field(pattern="b$")],
        Annotated[int, at.Gt(1), at.Ge(1)],
    ],
    ids=str,
)
def test_a_limit_that_cannot_be_told_is_refused(annotation: Any):
    with pytest.raises(UsageError, match="parameter 'order'"):
        of_type(annotation)


# Nested classes


@dataclass
class Line:
    count: Annotated[int, at.Gt(0)]
    what: Annotated[str, "What it is"] = ""


class Shelf(TypedDict):
    lines: NotRequired[Annotated[list[Line], at.MinLen(1)]]


class Store(Struct, rename="camel"):
    top_shelf: Annotated[Shelf | None, Field(description="Out of reach")] = None
    codes: list[Annotated[str, StringConstraints(max_length=2)]] = []


class Ware(BaseModel):
    price: Annotated[int, Field(gt=0)]
    line: Line | None = None


@dataclass
class Offer:
    ware: Ware
    since: date


def test_limits_in_the_fields_of_nested_classes_are_told_and_checked():  # rule T1
    made = of_type(Store)
    defs = made.schema["$defs"]
    assert defs["Line"]["properties"] == {
        "count": {"type": "integer", "exclusiveMinimum": 0},
        "what": {"type": "string", "description": "What it is", "default": ""},
    }
    assert defs["Store"]["properties"]["topShelf"]["description"] == "Out of reach"
    values = made.validate({"order": {"topShelf": {"lines": [{"count": 1}]}, "codes": ["ab"]}})
    assert values["order"] == Store(top_shelf={"lines": [Line(1)]}, codes=["ab"])
    with pytest.raises(InvalidArguments) as caught:
        made.validate({"order": {"topShelf": {"lines": [{"count": 0}]}, "codes": ["abc"]}})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "order.topShelf.lines[0].count",
        "order.codes[0]",
    ]
    assert not takes(Store, {"topShelf": {"lines": []}})


class Checked(Struct):
    number: Annotated[int, AfterValidator(abs)]


Item = TypeVar("Item")


class Box(Struct, Generic[Item]):
    item: Annotated[Item, "What is in it"]


@pytest.mark.parametrize("annotation", [Checked, Box[int]])
def test_limits_that_a_nested_class_cannot_have_are_refused(annotation: Any):
    with pytest.raises(UsageError, match=r"msgspec\.Meta"):
        of_type(annotation)


@pytest.mark.parametrize("annotation", [Store, Shelf, Line, Ware, Offer])
def test_fields_that_a_nested_class_does_not_have_are_refused(annotation: Any):  # rule T1
    good: dict[Any, dict[str, Any]] = {
        Line: {"count": 1},
        Ware: {"price": 1},
        Offer: {"ware": {"price": 1}, "since": "2026-01-01"},
    }
    assert takes(annotation, good.get(annotation, {}))
    assert not takes(annotation, {**good.get(annotation, {}), "other": 1})


# Pydantic


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Picky(BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _check(cls, value: int) -> int:
        if value > 5:
            raise ValueError("too much")
        return value


class Open(BaseModel, extra="allow"):
    pass


class Family(BaseModel):
    name: str
    children: list[Family] = []


CONVERTED: dict[str, tuple[Any, Any, Any]] = {
    "a model": (Cat, {"kind": "cat", "lives": 9}, Cat(kind="cat", lives=9)),
    "or None": (Cat | None, None, None),
    "in a list": (list[Dog], [{"kind": "dog"}], [Dog(kind="dog")]),
    "a union": (Cat | Dog, {"kind": "dog"}, Dog(kind="dog")),
    "a tagged union": (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, Dog(kind="dog")),
    "in a list of unions": (list[Cat | Dog | None], [{"kind": "dog"}, None], [Dog(kind="dog"), None]),
    "with others": (Cat | int | None, 3, 3),
    "in a dataclass": (Offer, {"ware": {"price": 1}, "since": "2026-01-01"}, Offer(Ware(price=1), date(2026, 1, 1))),
    "with a dataclass": (Ware, {"price": 1, "line": {"count": 1}}, Ware(price=1, line=Line(1))),
    "recursive": (Family, {"name": "a", "children": [{"name": "b"}]}, Family(name="a", children=[Family(name="b")])),
    "open": (Open, {"any": 1}, Open(any=1)),  # pyright: ignore[reportCallIssue]
    "a validator": (Annotated[str, AfterValidator(str.upper)], "a", "A"),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_types_of_pydantic_are_converted_and_told_again(case: str):
    annotation, data, value = CONVERTED[case]
    made = of_type(annotation)
    values = made.validate({"order": data})
    assert values == {"order": value}
    assert type(values["order"]) is type(value)
    assert made.validate(made.lower(values)) == values


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (Cat, {"kind": "cat", "lives": "9"}),
        (Cat, {"kind": "cat", "lives": True}),
        (Cat, {"kind": "cow", "lives": 1}),
        (Cat, {"kind": "cat", "lives": 9, "tail": 1}),
        (Cat | Dog, {"kind": "cow"}),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"tricks": []}),
        (Cat, []),
        (list[Cat], {}),
        (Picky, {"number": 6}),
    ],
)
def test_pydantic_is_as_strict_as_everything_else(annotation: Any, data: Any):  # rule T1
    assert not takes(annotation, data)


def test_a_rule_that_no_schema_tells_is_told_in_its_own_words():
    with pytest.raises(InvalidArguments) as caught:
        of_type(list[Picky]).validate({"order": [{"number": 1}, {"number": 6}]})
    assert caught.value.problems == ("order[1]: number: Value error, too much",)


def test_two_classes_of_one_name_are_told_apart():
    class Line(BaseModel):
        other: int

    def look(first: Any, second: Any, third: Any) -> None: ...

    look.__annotations__.update(first=globals()["Line"], second=Line, third=list[Line])
    made = tool(look)
    values = made.validate({"first": {"count": 1}, "second": {"other": 2}, "third": [{"other": 3}]})
    assert [values["first"].count, values["second"].other, values["third"][0].other] == [1, 2, 3]
    with pytest.raises(InvalidArguments, match="second"):
        made.validate({"first": {"count": 1}, "second": {"count": 2}, "third": []})


def test_a_schema_is_the_same_in_every_process():
    def make() -> Callable[..., Any]:
        def look(order: Annotated[str, AfterValidator(lambda text: text)], pet: Cat | Dog) -> None: ...

        look.__annotations__["pet"] = Cat | Dog
        return look

    assert "0x" not in msgspec.json.encode(tool(make()).schema).decode()
    assert tool(make()).schema == tool(make()).schema


# Everything else


class Color(Enum):
    RED = "red"
    BLUE = "blue"


PLAIN: dict[str, tuple[Any, Any, Any]] = {
    "enum": (Color, "red", Color.RED),
    "literal": (Literal["a", 1], 1, 1),
    "decimal": (Decimal, "1.50", Decimal("1.50")),
    "bytes": (bytes, "aGk=", b"hi"),
    "set": (set[str], ["b", "a"], {"a", "b"}),
    "tuple": (tuple[int, ...], [1, 2], (1, 2)),
    "float of int": (float, 1, 1.0),
    "int of whole float": (int, 2.0, 2),
    "anything": (Any, {"a": [1, None]}, {"a": [1, None]}),
    "a large int": (int, 10**30, 10**30),
}


@pytest.mark.parametrize("case", PLAIN)
def test_json_is_converted_to_the_type_and_back(case: str):  # rule T1
    annotation, data, value = PLAIN[case]
    made = of_type(annotation)
    values = made.validate({"order": data})
    assert values == {"order": value}
    assert type(values["order"]) is type(value)
    assert made.validate(made.lower(values)) == values


# Patterns


@dataclass
class Named:
    """A class whose field has a pattern that `re` would need years for."""

    name: Annotated[str, Meta(pattern="^(a+)+$")]


async def by_text(name: Annotated[str, Meta(pattern="^(a+)+$")]) -> None:
    """Take a text."""


async def by_class(named: Named) -> None:
    """Take a class."""


@pytest.mark.parametrize(
    ("fn", "arguments"), [(by_text, {"name": "a" * 60 + "!"}), (by_class, {"named": {"name": "a" * 60 + "!"}})]
)
def test_no_text_stalls_a_tool_with_a_pattern(fn: Any, arguments: dict[str, Any]) -> None:  # attack 16
    with pytest.raises(InvalidArguments, match="expected text that matches"):
        tool(fn).validate(arguments)


def test_a_pattern_that_cannot_be_checked_is_refused_when_the_tool_is_made() -> None:  # attack 16
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a)\1$"}}}

    async def take(a: str) -> None:
        """Take a text."""

    with pytest.raises(UsageError, match="refers back to a group, which cannot be searched for in bounded time"):
        tool(take, schema=schema)
