"""Which classes may be stored, under which names, and who finds them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest
from pydantic import BaseModel

from adjourn._values.codec import adopt, decode, encode
from adjourn._values.registry import BUILTIN_TAGS, kind_named, kind_of, native, register_types, stored
from adjourn.errors import NotStorable, UsageError

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

T = TypeVar("T")


class InTypedDict(Enum):
    A = 1


class InLiteral(Enum):
    A = 1


@dataclass
class InBound:
    pass


Bound = TypeVar("Bound", bound=InBound)


class InModel(BaseModel):
    pass


class InStruct(NamedTuple):
    x: int


class Tree(msgspec.Struct):
    children: list[Tree]
    leaf: InStruct | None = None


@dataclass
class InNewType:
    pass


@dataclass
class Box(Generic[T]):
    content: T


class Page(BaseModel):
    part: InModel
    next: Page | None = None


class State(TypedDict):
    color: NotRequired[InTypedDict]
    tree: Annotated[list[Tree], "a reducer"]
    page: dict[str, tuple[Page, ...]]
    box: Box[int] | None
    literal: Literal["x", InLiteral.A]
    bound: list[Bound]  # pyright: ignore[reportGeneralTypeIssues]
    new: Other
    call: Callable[[InNewType], None]


Other = NewType("Other", InNewType)


def keep(value: Any) -> Any:
    return decode(encode(*adopt(value, "value")))


def test_every_class_in_an_annotation_is_registered() -> None:  # rule S10
    register_types(State)
    for cls in (InTypedDict, Tree, InStruct, Page, InModel, Box, InLiteral, InBound, InNewType):
        kind = kind_of(cls)
        assert kind is not None, cls
        assert kind.name == f"{__name__}.{cls.__qualname__}"
        assert kind_named(kind.name) is kind
    assert kind_of(State) is None
    assert keep(Tree([Tree([], InStruct(1))])) == Tree([Tree([], InStruct(1))])
    assert keep(Page(part=InModel())) == Page(part=InModel())


def test_what_is_no_class_of_ours_is_passed_over() -> None:
    for annotation in (
        None,
        Any,
        int,
        "Unknown",
        ForwardRef("Nobody"),
        list[Any],
        Enum,
        msgspec.Struct,
        BaseModel,
        Callable[..., int],
        5,
    ):
        register_types(annotation)
    for cls in (Enum, msgspec.Struct, BaseModel, int, type(None)):
        assert kind_of(cls) is None


def test_an_annotation_that_cannot_be_resolved_does_not_hide_the_others() -> None:
    @dataclass
    class Half:
        missing: Missing
        tree: Sapling
        itself: Half | None = None

    register_types(Half)
    assert kind_of(Half) is not None
    assert kind_of(Sapling) is not None


@dataclass
class Sapling:
    pass


def test_a_name_given_by_hand_stays() -> None:
    @stored("test.Mine")
    @dataclass
    class Mine:
        x: int = 1

    register_types(list[Mine])
    kind = kind_of(Mine)
    assert kind is not None
    assert kind.name == "test.Mine"


def test_sessions_from_before_a_class_was_given_a_name_still_load() -> None:
    def define() -> type[Any]:
        @dataclass
        class Late:
            x: int = 1

        return Late

    before = define()
    register_types(before)
    body = encode(*adopt(before(2), "value"))
    after = define()
    stored("test.Late")(after)
    assert decode(body) == after(2)
    assert b"test.Late" in encode(*adopt(after(2), "value"))


def test_a_class_defined_again_takes_over_its_name() -> None:
    def define() -> type[Any]:
        @dataclass
        class Cell:
            x: int = 1

        return Cell

    first, second = define(), define()
    register_types(first)
    body = encode(*adopt(first(2), "value"))
    register_types(second)
    assert type(decode(body)) is second
    assert encode(*adopt(first(2), "value")) == body, "instances of the old class can still be stored"
    for cls in (define(), define()):
        stored("test.Cell")(cls)
    assert kind_named("test.Cell") is kind_of(cls)


def test_a_name_belongs_to_one_class() -> None:
    @stored("test.Taken")
    @dataclass
    class One:
        pass

    with pytest.raises(UsageError, match=r"test\.Taken.*One has this name"):

        @stored("test.Taken")
        @dataclass
        class Two:
            pass

    assert kind_named("test.Taken") is kind_of(One)


@pytest.mark.parametrize("name", ["", "a b", "$t", "é", "a/b", "a\n", *sorted(BUILTIN_TAGS)])
def test_names_that_would_be_mistaken_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        stored(name)


def test_only_classes_that_are_data_can_be_registered() -> None:
    with pytest.raises(UsageError, match="above @dataclass"):

        @stored("test.NoData")
        class NoData:
            pass

    with pytest.raises(UsageError, match="constructor"):

        @stored("test.NeedsMore")
        @dataclass
        class NeedsMore:
            x: int
            secret: InitVar[int]

    with pytest.raises(UsageError, match="also a dict"):

        @stored("test.AlsoDict")
        @dataclass
        class AlsoDict(dict[str, int]):
            x: int = 0


def test_a_class_that_cannot_be_built_again_is_refused_when_an_instance_is_stored() -> None:
    @dataclass
    class NeedsMore:
        x: int
        hint: InitVar[int]
        late: int = field(init=False)

    register_types(NeedsMore)
    with pytest.raises(NotStorable, match="hint"):
        adopt(NeedsMore(1, 2), "value")


def test_old_named_tuples_are_stored_too() -> None:
    Old = namedtuple("Old", ["x", "y"], defaults=[5])  # pyright: ignore[reportUntypedNamedTuple]
    stored("test.Old")(Old)
    assert keep(Old(1)) == Old(1, 5)
    assert type(keep(Old(1))) is Old


def test_a_subclass_is_not_its_base() -> None:
    @stored("test.Base")
    @dataclass
    class Base:
        x: int = 1

    @dataclass
    class Derived(Base):
        y: int = 2

    with pytest.raises(NotStorable, match="Derived"):
        adopt(Derived(), "value")


def test_a_native_must_be_frozen_and_carry_the_tag() -> None:
    class Loose(msgspec.Struct, tag_field="$t", tag="test-loose"):
        pass

    class Untagged(msgspec.Struct, frozen=True):
        pass

    class Greedy(msgspec.Struct, frozen=True, tag_field="$t", tag="tuple"):
        pass

    for cls in (Loose, Untagged, Greedy):
        with pytest.raises(UsageError, match="not native"):
            native(cls)


def test_a_proxy_that_poses_as_something_else_is_refused() -> None:
    class Proxy(SimpleNamespace):
        @property
        def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return str

    with pytest.raises(NotStorable):
        adopt(Proxy(), "value")


def test_a_script_and_its_module_agree_on_names(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(
        textwrap.dedent("""
            from dataclasses import dataclass
            from adjourn._values.registry import qualified_name
            @dataclass
            class Order:
                pass
            print(qualified_name(Order))
        """)
    )
    for command in (["orders.py"], ["-m", "orders"], ["-c", "import orders"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
        )
        assert done.stdout.strip() == "orders.Order"
