"""From the asker's type to a schema, from an answer to data, and from data to the asker's value."""

import contextlib
import dataclasses
import datetime as dt
import enum
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Required, TypedDict, TypeVar, cast

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from adjourn._schemas.answers import as_meant, choices_of, convert, problems, schema_of, to_json_data
from adjourn.errors import UsageError

T = TypeVar("T")
Cents = NewType("Cents", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Card(Struct, tag="card", frozen=True):
    number: Annotated[str, Meta(min_length=2, pattern="^[0-9]*$")]
    expires: dt.date


class Cash(Struct, tag="cash", frozen=True, forbid_unknown_fields=True):
    coins: dict[str, Annotated[int, Meta(ge=0)]] = {}


class Pair(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    first: int
    second: dt.datetime | None = None


class Holder(Struct, Generic[T], frozen=True):
    held: T


class Row(NamedTuple):
    x: int
    when: Annotated[dt.time, Meta(tz=False)] = dt.time()


class Where(TypedDict, total=False):
    city: Required[str]
    at: dt.datetime


@dataclasses.dataclass(frozen=True)
class Tree:
    name: str
    children: "tuple[Tree, ...]" = ()


class Refund(Struct, frozen=True, rename="camel"):
    order_id: uuid.UUID
    amount: Decimal
    by_card: Card | Cash | None
    colours: list[Colour]
    due: Annotated[dt.datetime, Meta(tz=True)]
    wait: dt.timedelta = dt.timedelta()
    note: Annotated[str | None, Meta(description="shown to the customer")] = None


DIGITS = st.text("0123456789", min_size=2, max_size=6)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
AWARE = st.datetimes(timezones=st.just(dt.UTC))
NAIVE = st.datetimes()
COUNT = st.integers(0, 9)
CARDS = st.builds(Card, number=DIGITS, expires=st.dates())
CASHES = st.builds(Cash, coins=st.dictionaries(TEXT, COUNT, max_size=2))
TREES = st.recursive(st.builds(Tree, TEXT), lambda inner: st.builds(Tree, TEXT, st.lists(inner, max_size=2).map(tuple)))

# A type, and values of it. What msgspec takes and the schema refuses on purpose has its own test below.
FAMILY: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": (bool, st.booleans()),
    "int": (int, st.integers()),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "text": (str, TEXT),
    "bytes": (bytes, st.binary(max_size=6)),
    "any": (Any, st.none() | COUNT | TEXT),
    "limited int": (Annotated[int, Meta(gt=-3, le=6, multiple_of=3)], st.sampled_from([0, 3, 6])),
    "limited float": (Annotated[float, Meta(ge=0, lt=1)], st.floats(0, 0.9)),
    "newtype": (Cents, COUNT),
    "literal": (Literal[1, "a", None], st.sampled_from([1, "a", None])),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "union": (int | str | list[bool] | None, st.none() | COUNT | TEXT | st.lists(st.booleans(), max_size=3)),
    "list": (Annotated[list[int], Meta(min_length=1, max_length=3)], st.lists(COUNT, min_size=1, max_size=3)),
    "tuple": (tuple[int, str], st.tuples(COUNT, TEXT)),
    "tuples": (tuple[float, ...], st.lists(st.floats(-1, 1), max_size=3).map(tuple)),
    "dict": (
        dict[Annotated[str, Meta(max_length=3)], bool],
        st.dictionaries(DIGITS.map(lambda d: d[:3]), st.booleans()),
    ),
    "dict of literals": (dict[Literal["a", "b"], int], st.dictionaries(st.sampled_from("ab"), COUNT)),
    "dict of enums": (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), COUNT)),
    "date": (dt.date, st.dates()),
    "datetime": (dt.datetime, NAIVE | AWARE),
    "aware": (Annotated[dt.datetime, Meta(tz=True)], AWARE),
    "naive": (Annotated[dt.datetime, Meta(tz=False)], NAIVE),
    "time": (dt.time, st.times()),
    "aware time": (Annotated[dt.time, Meta(tz=True)], st.times(timezones=st.just(dt.UTC))),
    "timedelta": (dt.timedelta, st.timedeltas()),
    "uuid": (uuid.UUID, st.uuids()),
    "decimal": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    "struct": (Holder[list[int]], st.builds(Holder[list[int]], held=st.lists(COUNT))),
    "array struct": (Pair, st.builds(Pair, first=COUNT, second=st.none() | NAIVE)),
    "union of structs": (Card | Cash | int | None, st.none() | COUNT | CARDS | CASHES),
    "namedtuple": (Row, st.builds(Row, COUNT, st.times())),
    "typed dict": (Where, st.fixed_dictionaries({"city": TEXT}, optional={"at": NAIVE | AWARE})),
    "recursive dataclass": (Tree, TREES),
    "everything": (
        Refund,
        st.builds(
            Refund,
            order_id=st.uuids(),
            amount=st.decimals(allow_nan=False, allow_infinity=False),
            by_card=st.none() | CARDS | CASHES,
            colours=st.lists(st.sampled_from(Colour), max_size=2),
            due=AWARE,
            wait=st.timedeltas(),
            note=st.none() | TEXT,
        ),
    ),
}

# Near misses of all kinds: what people and other programs send by mistake.
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, False, 0, 1, 3, 7, -4, 1.0, 2.5, 1e300, 2**70, "", "a", "b", "red", "1", "12"),
        *("2026-01-01", "2026-13-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01t00:00:00+0100"),
        *("2026-01-01 00:00:00-01:00", "10:00:00", "10:00:00Z", "10:00", "P1D", "P1M", "aGk=", "aGk", "nan", "1e5"),
        *("c582e25279db48819ffe0deaa21015d7", "{c582e252-79db-4881-9ffe-0deaa21015d7}", [], [1], ["a"], [1, "a"]),
        *([1, "2026-01-01T00:00:00"], {}, {"a": 1}, {"city": "x"}, {"name": "x"}, {"type": "cash"}, {"held": [1]}),
    ]
)


def mutated(draw: Callable[[st.SearchStrategy[Any]], Any], data: Any) -> Any:
    """The data with one thing changed somewhere inside it."""
    if isinstance(data, dict) and data and draw(st.booleans()):
        items = cast("dict[str, Any]", data)
        key: str = draw(st.sampled_from(sorted(items)))
        rest = {name: value for name, value in items.items() if name != key}
        change = draw(st.sampled_from(["drop", "rename", "add", "inside", "inside", "inside"]))
        if change == "inside":
            return {**items, key: mutated(draw, items[key])}
        return {"drop": rest, "rename": {**rest, "zzzz": items[key]}, "add": {**items, "more": 1}}[change]
    if isinstance(data, list) and data and draw(st.booleans()):
        values = cast("list[Any]", data)
        at: int = draw(st.integers(0, len(values) - 1))
        change = draw(st.sampled_from(["drop", "add", "inside", "inside", "inside"]))
        inside = [*values[:at], mutated(draw, values[at]), *values[at + 1 :]] if change == "inside" else []
        return {"drop": values[:at] + values[at + 1 :], "add": [*values, values[at]], "inside": inside}[change]
    return draw(ODD)


def converts(data: Any, type_: Any) -> bool:
    with contextlib.suppress(ValueError):
        convert(data, type_)
        return True
    return False


@pytest.mark.parametrize("name", FAMILY)
@given(data=st.data())
def test_a_value_has_no_problems_and_comes_back(name: str, data: st.DataObject) -> None:
    type_, values = FAMILY[name]
    value = data.draw(values)
    lowered = to_json_data(value)
    assert msgspec.json.decode(msgspec.json.encode(lowered)) == lowered
    assert problems(lowered, schema_of(type_)) == []
    assert convert(lowered, type_) == value


@pytest.mark.parametrize("name", FAMILY)
@given(data=st.data())
def test_an_answer_is_refused_by_the_schema_exactly_when_it_cannot_be_converted(  # rule R2
    name: str, data: st.DataObject
) -> None:
    type_, values = FAMILY[name]
    answer = mutated(data.draw, to_json_data(data.draw(values)))
    assert converts(answer, type_) == (problems(answer, schema_of(type_)) == [])


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("yes", bool, True),
        (" No ", bool, False),
        ("5", int, 5),
        ("-1.5", float, -1.5),
        ("5", float, 5),
        ("5", str, "5"),
        ("yes", str, "yes"),
        ("yes", bool | str, "yes"),
        ("5", None, "5"),
        ("5", bool, "5"),
        ("yes", int, "yes"),
        ("1e999", float, "1e999"),
        ("[" * 100_000, list[int], "[" * 100_000),
        ("[1]", list[int], "[1]"),
        ("", int, ""),
    ],
    ids=lambda value: str(value)[:10],
)
def test_what_somebody_types_is_read_as_the_schema_wants_it(text: str, type_: Any, value: object) -> None:
    read = as_meant(text, schema_of(type_))
    assert (read, type(read)) == (value, type(value))


def test_the_schema_is_stricter_than_msgspec_where_that_would_lose_something() -> None:
    assert problems([1, 1], schema_of(set[int])) == ["$: expected no duplicate items, got [1,1]"]
    assert convert([1, 2], set[int]) == {1, 2}
    assert problems({"coins": {}}, schema_of(Cash)) == ["$: lacks 'type'"]


def test_problems_name_the_place_and_what_was_expected() -> None:
    answer = {
        "orderId": "x",
        "amount": 3,
        "byCard": {"type": "card", "number": "1"},
        "colours": ["green"],
        "due": "now",
    }
    assert problems(answer, schema_of(Refund)) == [
        '$.orderId: expected the format uuid, got "x"',
        '$.byCard.number: expected at least 2 characters, got "1"',
        "$.byCard: lacks 'expires'",
        '$.colours[0]: expected one of "red", "blue", got "green"',
        '$.due: expected the format date-time, got "now"',
        '$.due: expected text that matches ([Zz]|[+-][0-9]{2}:?[0-9]{2})$, got "now"',
    ]


# Pydantic


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    city: str = pydantic.Field(alias="City", min_length=1)
    since: dt.datetime | None = None


class Person(pydantic.BaseModel):
    kind: Literal["person"] = "person"
    name: str
    level: Level
    tags: set[int] = set()
    home: Address
    friends: "list[Person]" = []


class Firm(pydantic.BaseModel):
    kind: Literal["firm"] = "firm"
    born: dt.date


class Party(pydantic.BaseModel):
    party: Annotated[Person | Firm, pydantic.Field(discriminator="kind")]


ANN = Person(name="Ann", level=Level.HIGH, tags={1}, home=Address(City="Rome", since=dt.datetime(2026, 1, 1)))  # noqa: DTZ001


@given(data=st.data())
def test_what_fits_a_models_schema_can_be_made_into_the_model(data: st.DataObject) -> None:  # rule R2
    party = Party(party=data.draw(st.sampled_from([ANN, Firm(born=dt.date(2000, 1, 1))])))
    lowered = to_json_data(party)
    assert problems(lowered, schema_of(Party)) == []
    assert convert(lowered, Party) == party
    answer = mutated(data.draw, lowered)
    assert problems(answer, schema_of(Party)) != [] or converts(answer, Party)


def test_a_models_own_rules_speak_when_it_is_made() -> None:
    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def is_even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("n is odd")
            return n

    assert problems({"n": 1}, schema_of(Even)) == []
    with pytest.raises(ValueError, match="n is odd"):
        convert({"n": 1}, Even)


# Schemas


def test_a_schema_given_as_a_dict_is_checked_copied_and_needs_no_conversion() -> None:
    given_: dict[str, Any] = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    schema = schema_of(given_)
    assert schema == given_
    assert schema is not given_
    assert convert({"cents": 1.0}, given_) == {"cents": 1.0}
    with pytest.raises(UsageError, match=r"\$: has the unknown key 'if'.*Use only the keywords"):
        schema_of({"if": {}})


def test_without_a_schema_anything_goes() -> None:
    assert schema_of(None) is None
    assert problems({"a": 1}, schema_of(None)) == []
    assert convert({"a": 1}, None) == {"a": 1}


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (object, "'object'"),
        (3, "3"),
        ("int", "'int'"),
        (list[Person], "Person"),
        (dict[int, str], "keys that are not str"),
        (dict[uuid.UUID, str], "use dict[str, ...]"),
        (Annotated[float, Meta(multiple_of=0.1)], "multiples of 0.1"),
        (Annotated[bytes, Meta(max_length=2)], "length of bytes"),
        (list[msgspec.Raw], "RawType is not a type"),
        (Annotated[complex, Meta(extra_json_schema={"type": "string"})], "complex is not a type"),
        (Annotated[int, Meta(extra_json_schema={"x-unit": "cents"})], "the unknown key 'x-unit'"),
        (Tree | Where, "not supported"),
    ],
)
def test_a_type_that_cannot_be_checked_exactly_is_refused(type_: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        schema_of(type_)


def test_a_model_that_cannot_be_described_is_refused() -> None:
    class Calls(pydantic.BaseModel):
        back: Callable[[], None]

    with pytest.raises(UsageError, match="cannot describe an answer: Cannot generate a JsonSchema"):
        schema_of(Calls)


def test_equal_types_keep_their_own_schemas() -> None:
    assert int | str == str | int
    assert schema_of(int | str) == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema_of(str | int) == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


def test_a_schema_may_be_changed_by_its_receiver() -> None:
    cast("dict[str, Any]", schema_of(bool))["type"] = "changed"
    assert schema_of(bool) == {"type": "boolean"}


def test_a_type_that_cannot_be_hashed_is_described() -> None:
    assert schema_of(Annotated[int, ["a note"]]) == {"type": "integer"}


def test_tags_that_are_numbers_are_described() -> None:
    class One(Struct, tag=1, frozen=True): ...

    class Two(Struct, tag=2, frozen=True):
        at: dt.datetime

    assert problems({"type": 1}, schema_of(One | Two)) == []
    assert problems({"type": 2, "at": "x"}, schema_of(One | Two)) == ['$.at: expected the format date-time, got "x"']
    assert convert({"type": 1}, One | Two) == One()


# Answers as data


class Loud(str):
    __slots__ = ()


def test_answers_are_lowered_to_plain_data() -> None:
    answer = {
        "when": dt.date(2026, 1, 1),
        "models": (ANN, Firm(born=dt.date(2000, 1, 1))),
        "struct": Card(number="12", expires=dt.date(2026, 1, 1)),
        Colour.RED: Loud("x"),
    }
    lowered = to_json_data(answer)
    assert lowered == {
        "when": "2026-01-01",
        "models": [
            {
                "kind": "person",
                "name": "Ann",
                "level": 2,
                "tags": [1],
                "home": {"City": "Rome", "since": "2026-01-01T00:00:00"},
                "friends": [],
            },
            {"kind": "firm", "born": "2000-01-01"},
        ],
        "struct": {"type": "card", "number": "12", "expires": "2026-01-01"},
        "red": "x",
    }
    assert type(lowered["red"]) is str
    assert type(lowered["models"]) is list


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"a": object()}, TypeError, "The answer holds an object"),
        (Person, TypeError, "The answer holds a ModelMetaclass"),
        ([float("inf")], ValueError, r"\$\[0\] is inf"),
        ("\ud800", ValueError, "lone surrogate"),
    ],
)
def test_an_answer_without_a_form_in_json_is_refused(answer: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_json_data(answer)


# Choices


@pytest.mark.parametrize(
    ("type_", "choices"),
    [
        (None, ()),
        (str, ()),
        (bool, (True, False)),
        (bool | None, (True, False, None)),
        (Literal["b", "a"], ("b", "a")),
        (Colour, ("red", "blue")),
        (Colour | None, ("red", "blue", None)),
        (Colour | int, ()),
        (Tree, ()),
        ({"const": "x"}, ("x",)),
        ({"anyOf": [{"enum": list(range(600))}, {"enum": list(range(600))}]}, ()),
    ],
)
def test_choices_are_what_can_be_listed(type_: object, choices: tuple[Any, ...]) -> None:
    assert choices_of(schema_of(type_)) == choices


def test_choices_of_doubled_references_are_not_listed() -> None:  # attack 16
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": defs | {"d60": {"type": "boolean"}}}
    assert choices_of(schema) == ()
    defs["d60"] = {"$ref": "#/$defs/d0"}  # as only a damaged store has it
    assert choices_of({"$ref": "#/$defs/d0", "$defs": defs}) == ()
