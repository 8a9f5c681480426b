"""Which values fit which annotations, and how a misfit is told."""

import collections
import dataclasses
import datetime as dt
import enum
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    Union,
    cast,
)

import msgspec
import pydantic
import pytest
import typing_extensions

from adjourn._schemas.fits import exact_types, is_checked, misfit, partial_type, quick_check
from adjourn.messages import Message

T = TypeVar("T")
UserId = NewType("UserId", int)
Alias = typing_extensions.TypeAliasType("Alias", int)
# Any: pyright would have generic aliases written as statements, which Python 3.11 does not know.
of_type: Any = TypeVar
aliased: Any = typing_extensions.TypeAliasType
X, Y = of_type("X"), of_type("Y")
Listed = aliased("Listed", list[X], type_params=(X,))
Swapped = aliased("Swapped", dict[Y, X], type_params=(X, Y))
Itself = aliased("Itself", X, type_params=(X,))


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int


class Box(Generic[T]):
    pass


class Row(NamedTuple):
    x: int


class Model(pydantic.BaseModel):
    x: int


class Tree(TypedDict):
    name: Required[str]
    children: NotRequired["list[Tree]"]


class Newer(typing_extensions.TypedDict, total=False):
    name: typing_extensions.ReadOnly[str]
    size: Annotated[int, "bytes"]


class Quacks(Protocol):
    def quack(self) -> None: ...


FITS: list[tuple[object, Any]] = [
    (object(), Any),
    (object(), object),
    (None, None),
    (None, type(None)),
    (1, int),
    (Level.LOW, int),
    (1, float),
    (1.5, float),
    (1, complex),
    (True, bool),
    (True, Hashable),
    ("a", str),
    (b"a", bytes),
    ("a", Literal["a", 1]),
    (None, Literal["a", None]),
    (None, Optional[int]),  # noqa: UP045
    (1, Union[int, str]),  # noqa: UP007
    ("a", int | str | None),
    ([], list),
    ([1, "a"], list),
    ([1, 2], list[int]),
    ({"a": [1.0, 2]}, dict[str, list[float]]),
    (collections.defaultdict(int, a=1), dict[str, int]),
    (collections.deque([1]), collections.deque[int]),
    ({1}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ((), tuple),
    ((1, "a"), tuple),
    ((), tuple[()]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[int, ...]),
    ((1,), Sequence[int]),
    ("abc", Sequence[str]),
    ({"a": 1}, Mapping[str, int]),
    (iter("not looked at"), Iterator[int]),
    ([1], Iterable[int]),
    ({"name": "a"}, Tree),
    ({"name": "a", "children": [{"name": "b", "children": []}]}, Tree),
    ({"name": "a", "more": 1}, Tree),
    ({}, Newer),
    (Point(x=1), Point),
    (Message.user("a"), Message),
    (Model(x=1), Model),
    (Row(1), Row),
    (Colour.RED, Colour),
    (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.date),
    (1, Annotated[int, msgspec.Meta(ge=5)]),
    (1, UserId),
    ([1], list[UserId]),
    (1, Alias),
    ([1], Listed[int]),
    (["a"], Listed),
    ({"a": 1}, Swapped[int, str]),
    (1, Itself[int]),
    ("x", T),
    ("x", "a name that is not resolved"),
    (["x"], list["Unresolved"]),  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    (Box[int](), Box[int]),
    (object(), Quacks),
    (len, Callable[[str], int]),
    (int, type[int]),
]

MISFITS: list[tuple[object, Any, str]] = [
    (0, None, "expected None, got 0 (int)"),
    (True, int, "expected int, got True (bool)"),
    (True, float, "expected float, got True (bool)"),
    (1.0, int, "expected int, got 1.0 (float)"),
    (1, bool, "expected bool, got 1 (int)"),
    ("1", int, "expected int, got '1' (str)"),
    (None, str, "expected str, got None (NoneType)"),
    (True, Literal[1], "expected Literal[1], got True (bool)"),
    ("b", Literal["a", 1], "expected Literal['a', 1], got 'b' (str)"),
    (1.5, int | None, "expected int | None, got 1.5 (float)"),
    ("ab", list[str], "expected list[str], got 'ab' (str)"),
    ((1,), list[int], "expected list[int], got (1,) (tuple)"),
    ([1, "a"], list[int], "[1]: expected int, got 'a' (str)"),
    ([1, "a"], list[int] | None, "[1]: expected int, got 'a' (str)"),
    ({"a": ["b", 3]}, dict[str, list[str]], "['a'][1]: expected str, got 3 (int)"),
    ({1: "a"}, dict[str, str], "[1]: expected str, got 1 (int)"),
    ({"a": 1}, Mapping[str, str], "['a']: expected str, got 1 (int)"),
    ({"a"}, set[int], "[0]: expected int, got 'a' (str)"),
    ((1,), tuple[int, str], "expected tuple[int, str], got (1,) (tuple)"),
    ((1,), tuple[()], "expected tuple[()], got (1,) (tuple)"),
    ((1, 2), tuple[int, str], "[1]: expected str, got 2 (int)"),
    ((1, "a"), tuple[int, ...], "[1]: expected int, got 'a' (str)"),
    ({}, Tree, "expected the keys of Tree, but 'name' is missing"),
    ([], Tree, "expected Tree, got [] (list)"),
    ({"name": 1}, Tree, "['name']: expected str, got 1 (int)"),
    ({"name": "a", "children": [{}]}, Tree, "['children'][0]: expected the keys of Tree, but 'name' is missing"),
    ({"size": "a"}, Newer, "['size']: expected int, got 'a' (str)"),
    ({"x": 1}, Point, "expected Point, got {'x': 1} (dict)"),
    ({"x": 1}, Model, "expected Model, got {'x': 1} (dict)"),
    ({"role": "user"}, Message, "expected Message, got {'role': 'user'} (dict)"),
    ("red", Colour, "expected Colour, got 'red' (str)"),
    ("a", Annotated[int, "metadata"], "expected int, got 'a' (str)"),
    ("a", Alias, "expected int, got 'a' (str)"),
    (["a"], Listed[int], "[0]: expected int, got 'a' (str)"),
    ({1: 1}, Swapped[int, str], "[1]: expected str, got 1 (int)"),
    ("a", Itself[int], "expected int, got 'a' (str)"),
    ("a", UserId, "expected int, got 'a' (str)"),
    (object, Box[int], "expected Box[int], got <class 'object'> (type)"),
    (3, Callable[[str], int], "expected Callable[[str], int], got 3 (int)"),
]


@pytest.mark.parametrize(("value", "type_"), FITS, ids=itertools.count())
def test_a_fitting_value_is_no_misfit(value: object, type_: Any) -> None:  # rule S5
    assert misfit(value, type_) is None


@pytest.mark.parametrize(("value", "type_", "reason"), MISFITS, ids=itertools.count())
def test_a_misfit_names_what_was_expected_and_what_came(value: object, type_: Any, reason: str) -> None:  # rule S5
    assert (misfit(value, type_) or "").replace(f"{__name__}.", "test_fits.") == reason


VALUES = [value for value, *_ in (*FITS, *MISFITS)]
TYPES = [each[1] for each in (*FITS, *MISFITS)]
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str")


@pytest.mark.parametrize("type_", [*TYPES, Json, list[Json]], ids=itertools.count())
def test_a_quick_check_accepts_nothing_that_does_not_fit(type_: Any) -> None:  # rule S5
    check, exact, checked = quick_check(type_), exact_types(type_), is_checked(type_)
    for value in VALUES:
        if check(value) or type(value) in exact or not checked:
            assert misfit(value, type_) is None


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, int),
        (2, float | None),
        (["a", "b"], list[str]),
        ([1, None], list[int | None]),
        ({"a": [1.0, 2]}, dict[str, list[float]]),
        ([{"a": object()}], list[dict[str, Any]]),
        ([Message.user("a")], list[Message]),
        ({1, 2}, set[int] | None),
    ],
)
def test_a_quick_check_accepts_what_is_common(value: object, type_: Any) -> None:
    assert quick_check(type_)(value)


def test_a_part_of_a_typed_dict_needs_no_key() -> None:
    assert misfit({"children": []}, partial_type(Tree)) is None
    assert misfit({"children": 1}, partial_type(Tree)) == "['children']: expected list[Tree], got 1 (int)"
    assert partial_type(dict[str, int]) == dict[str, int]


def test_long_values_are_shortened() -> None:
    assert len(cast("str", misfit("x" * 10_000, int))) < 120
