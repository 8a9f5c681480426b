"""Instances of registered classes come back as they were, or are refused when written."""

from __future__ import annotations

import json
import threading
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Semaphore
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

import pytest
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_validator

from adjourn._values.codec import Unknown, adopt, copy, decode, fingerprint
from adjourn._values.registry import stored
from adjourn.errors import CheckpointCorrupt, NotStorable
from tests._values.values import Draft, Order, Pair, Person, keep

T = TypeVar("T")


def test_fields_missing_in_the_store_take_their_default() -> None:
    assert decode(b'{"$t":"test.Draft","v":{"title":"a"}}') == Draft("a")
    assert decode(b'{"$t":"test.Order","v":{"id":1}}') == Order(id=1)
    assert decode(b'{"$t":"test.Pair","v":{"first":1}}') == Pair(1)
    assert decode(b'{"$t":"test.Person","v":{"name":"p"}}') == Person(name="p")


@pytest.mark.parametrize(
    ("name", "required"), [("Draft", "title"), ("Order", "id"), ("Pair", "first"), ("Person", "name")]
)
def test_fields_that_are_unknown_or_missing_without_default_are_named(name: str, required: str) -> None:  # failure 59
    with pytest.raises(CheckpointCorrupt, match=f"test.{name}.* has no field 'zz'"):
        decode(json.dumps({"$t": f"test.{name}", "v": {required: 1, "zz": 1}}).encode())
    with pytest.raises(CheckpointCorrupt, match=f"test.{name}.* needs the field '{required}'"):
        decode(json.dumps({"$t": f"test.{name}", "v": {}}).encode())


def test_an_enum_member_that_is_gone_is_named() -> None:
    with pytest.raises(CheckpointCorrupt, match=r"test\.Color.*has no member 'GREEN'"):
        decode(b'{"$t":"test.Color","v":"GREEN"}')


def test_a_constructor_that_counts_or_converts_does_not_change_what_was_stored() -> None:  # rule C3
    @stored("test.Counting")
    @dataclass
    class Counting:
        n: int
        seen: int = field(init=False, default=0)
        scale: InitVar[int] = 1

        def __post_init__(self, scale: int) -> None:
            self.n += scale

    value = Counting(1)
    value.seen = 7
    assert (value.n, value.seen) == (2, 7)
    kept = keep(keep(value))
    assert (kept.n, kept.seen) == (2, 7)
    assert (copy(kept).n, copy(kept).seen) == (2, 7)


def test_a_class_that_could_not_be_built_again_is_refused_when_written() -> None:
    @stored("test.Picky")
    @dataclass
    class Picky:
        n: int

        def __post_init__(self) -> None:
            if self.n > 5:
                raise ValueError("too much")

    picky = Picky(1)
    picky.n = 6
    with pytest.raises(NotStorable, match="constructor refuses"):
        adopt([picky], "value")


def test_a_pydantic_model_keeps_aliases_extras_and_what_was_set() -> None:
    @stored("test.Rich")
    class Rich(BaseModel):
        model_config = ConfigDict(extra="allow")

        name: str = Field(alias="fullName")
        when: datetime | None = None
        people: list[Person] = []

    value = Rich.model_validate({"fullName": "Ann", "people": [Person(name="p")], "more": (1, 2)})
    kept = keep(value)
    assert kept == value
    assert kept.model_fields_set == value.model_fields_set
    assert kept.model_dump(exclude_unset=True) == value.model_dump(exclude_unset=True)
    assert kept.model_extra == {"more": (1, 2)}


def test_a_pydantic_root_model_comes_back() -> None:
    @stored("test.Names")
    class Names(RootModel[list[str]]):
        pass

    assert keep(Names(["a"])) == Names(["a"])


def test_a_model_whose_validators_would_change_it_again_is_refused() -> None:
    @stored("test.Louder")
    class Louder(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def shout(cls, text: str) -> str:
            return text + "!"

    with pytest.raises(NotStorable, match="validators"):
        adopt(Louder(text="a"), "value")


def test_a_secret_in_a_model_is_refused() -> None:  # failure 60
    @stored("test.Login")
    class Login(BaseModel):
        password: SecretStr

    with pytest.raises(NotStorable, match="Secrets") as caught:
        adopt(Login(password=SecretStr("hush")), "login")
    assert caught.value.path == "login.password"
    assert "hush" not in str(caught.value)


def test_a_look_at_a_session_without_its_code_shows_unknown_values() -> None:
    body = b'[{"$t":"gone.Draft","v":{"title":"a","tags":{"$t":"set","v":[{"$t":"gone.Tag","v":{"n":[]}}]}}}]'
    with pytest.raises(CheckpointCorrupt, match=r"gone\.Draft.*import the module"):
        decode(body)
    [draft] = decode(body, lenient=True)
    assert draft == Unknown("gone.Draft", {"title": "a", "tags": {Unknown("gone.Tag", {"n": []})}})
    assert decode(b'{"$t":"test.Color","v":"GREEN"}', lenient=True) == Unknown("test.Color", "GREEN")
    with pytest.raises(CheckpointCorrupt):
        decode(b'{"$t":"tuple","v":1}', lenient=True)


@stored("test.Cached")
class Cached(BaseModel):
    text: str = ""
    _id: UUID = PrivateAttr(default_factory=uuid4)
    _seen: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _late: int = PrivateAttr()

    @cached_property
    def words(self) -> list[str]:
        return self.text.split()

    @property
    def id(self) -> UUID:
        return self._id

    def see(self, *words: str) -> dict[str, Any]:
        self._seen |= dict.fromkeys(words)
        return self._seen

    def hold(self, resource: object) -> None:
        self._lock = resource


@stored("test.Lazy")
class Lazy(BaseModel, extra="allow"):
    _handle: Any = None
    _role: str = PrivateAttr()

    def open(self) -> None:
        self._handle = Semaphore(3)


def test_private_attributes_of_a_model_are_stored_with_its_fields() -> None:  # rule S10
    value = Cached(text="a b")
    value.see("a")
    assert value.words == ["a", "b"]
    for kept in (keep(keep(value)), copy(keep(value))):
        assert (kept.see(), kept.id, kept.model_fields_set) == ({"a": None}, value.id, {"text"})
        assert not hasattr(kept, "_late")


def test_private_attributes_have_no_part_in_a_fingerprint() -> None:  # rule R6
    assert fingerprint(Cached(text="a")) == fingerprint(Cached(text="a"))


def test_a_private_attribute_that_cannot_be_stored_is_refused_unless_a_new_instance_has_its_like() -> None:  # rule I7
    value = Cached()
    value.hold(Semaphore(3))
    with pytest.raises(NotStorable, match=r"'s\[0\]\._lock' holds a threading\.Semaphore.*pass it in `deps`"):
        adopt([value], "s")


def test_a_private_attribute_that_was_empty_at_first_is_named_when_it_cannot_be_stored() -> None:  # rule I7
    value = Lazy()
    assert keep(value) == value
    value.open()
    with pytest.raises(NotStorable, match=r"'s\._handle' holds a threading\.Semaphore.*pass it in `deps`"):
        adopt(value, "s")


def test_input_cannot_set_a_private_attribute_through_a_model_that_takes_any_field() -> None:  # rule S10
    value = Lazy.model_validate({"_role": "admin"})
    with pytest.raises(NotStorable, match=r"'s\._role'"):
        adopt(value, "s")


@stored("test.Memo")
@dataclass
class Memo(Generic[T]):
    text: T

    def __post_init__(self) -> None:
        self.memo = dict[str, int]()
        self.lock = threading.Lock()

    @cached_property
    def size(self) -> int:
        return 1


@stored("test.Loose")
class Loose(Struct, dict=True):
    text: str


def test_attributes_that_are_no_fields_are_refused_unless_a_new_instance_has_their_like() -> None:  # rules S10, I7
    value = Memo[str]("a")
    assert value.size == 1
    assert keep(value) == value
    value.memo["a"] = 1
    loose = Loose("a")
    assert keep(loose) == loose
    loose.more = 1  # pyright: ignore[reportAttributeAccessIssue]
    for each, name in ((value, "memo"), (loose, "more")):
        with pytest.raises(NotStorable, match=rf"'s\.x\.{name}' .* not a field of its class.* make it one"):
            adopt({"x": each}, "s")
