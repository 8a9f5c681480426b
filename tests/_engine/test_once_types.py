"""What cannot be stored is named by function and argument, and refused before the effect if annotations tell."""

from __future__ import annotations

import abc
import dataclasses
import threading
from pathlib import Path
from typing import Any, Literal, NewType, TypedDict

import pytest

from adjourn import Runner, once, stored, workflow
from adjourn.errors import NotStorable

made: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    made.clear()


class Connection:
    """Something that no store keeps."""


@dataclasses.dataclass
class Receipt:
    cents: int


@stored("once_types.Ticket")
@dataclasses.dataclass
class Ticket:
    to: str


class Animal(abc.ABC):
    @abc.abstractmethod
    def speak(self) -> str: ...


class Vehicle:
    """It cannot be stored itself, but one that can is derived from it."""


@stored("once_types.Car")
@dataclasses.dataclass
class Car(Vehicle):
    doors: int


class Fare(TypedDict):
    cents: int


Cents = NewType("Cents", int)


def connect() -> Connection:
    return made.append("connect") or Connection()


async def connect_later() -> Connection:
    return connect()


def connections() -> list[dict[str, Connection]]:
    return [{"a": connect()}]


def maybe() -> Connection | None:
    return connect()


def receipt() -> Receipt:
    return made.append("receipt") or Receipt(1)


def path() -> Path:
    return made.append("path") or Path("x")


async def run(call: Any) -> Any:
    @workflow
    async def flow() -> Any:
        result = call()
        return await result if hasattr(result, "__await__") else result

    return (await Runner(flow).run()).value


@pytest.mark.parametrize(
    ("fn", "named"),
    [
        (connect, "Connection"),
        (connect_later, "Connection"),
        (connections, "Connection"),
        (maybe, "Connection"),
        (receipt, "@stored"),
        (path, "Path"),
    ],
)
async def test_a_result_that_could_not_be_kept_is_refused_before_the_effect(fn: Any, named: str):  # rule R13
    with pytest.raises(NotStorable, match=named) as raised:
        await run(once(fn))
    assert f"'{fn.__name__}()'" in str(raised.value)
    assert made == []


def ticket() -> Ticket:
    return Ticket("Rome")


def animal() -> Animal | None:
    return None


def vehicle() -> Vehicle:
    return Car(4)


def fare() -> Fare:
    return {"cents": 1}


def cents() -> dict[str, Cents | Literal["free"]]:
    return {"a": Cents(1), "b": "free"}


def anything() -> object:
    return 1


def unknown() -> Nowhere:  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
    return 1


UNTOLD: list[Any] = [ticket, animal, vehicle, fare, cents, anything, unknown]


@pytest.mark.parametrize("fn", UNTOLD)
async def test_annotations_that_do_not_tell_refuse_nothing(fn: Any):  # rule R13
    assert await run(once(fn)) == fn()


async def test_outside_a_run_any_result_will_do():  # rule R13
    assert isinstance(once(connect)(), Connection)


async def test_a_result_without_annotation_is_named_by_its_function():  # rule R13
    @once
    def fetch() -> Any:
        return {"lock": [1, threading.Lock()]}

    with pytest.raises(NotStorable, match=r"'fetch\(\)\.lock\[1\]' holds a _thread\.lock"):
        await run(fetch)


async def test_an_argument_is_named_with_its_own_type():  # rule R13
    @once
    def pay(order: Any, cents: int) -> None:
        made.append(cents)

    with pytest.raises(NotStorable, match=r"'pay\(order\.by\)' holds a .*Connection, .*ignore=\['order'\]") as raised:
        await run(lambda: pay({"by": Connection()}, 5))
    assert raised.value.type_name.endswith("Connection")
    assert made == []
