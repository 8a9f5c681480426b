"""Stored bytes, answers and arguments never name code: types by which they could are refused when declared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel, BeforeValidator, ImportString
from pydantic.dataclasses import dataclass as pydantic_dataclass

from adjourn import tool
from adjourn._schemas.answers import schema_of
from adjourn._values.codec import decode
from adjourn._values.registry import register_types, stored
from adjourn.errors import CheckpointCorrupt, UsageError
from adjourn.graph import START, StateGraph

CANARY = "antigravity"
"""A module that nothing imports but what is told to."""


class Bare(BaseModel):
    handler: ImportString[Any]


class Typed(BaseModel):
    name: str = ""
    handler: ImportString[Callable[[int], int]] | None = None


class Called(BaseModel):
    handlers: list[Callable[[int], int]] = []


class Inside(BaseModel):
    inner: dict[str, Bare]


@pydantic_dataclass
class Data:
    handler: ImportString[Any]


class Own(BaseModel):
    text: Annotated[str, BeforeValidator(str.strip)]


@pytest.fixture(autouse=True)
def nothing_is_imported():
    yield
    assert CANARY not in sys.modules


@pytest.mark.parametrize("cls", [Bare, Typed, Called, Data])
def test_a_class_by_which_data_could_name_code_is_refused(cls: type[Any]):  # rule C10
    with pytest.raises(UsageError, match=r"Its field 'handlers?' is .*make it a"):
        stored(f"test.{cls.__name__}")(cls)
    with pytest.raises(UsageError, match=cls.__name__):
        register_types(list[cls])


def test_also_inside_of_other_classes():  # rule C10
    with pytest.raises(UsageError, match="'handler' is an ImportString"):
        register_types(Inside)


def test_a_graph_whose_state_holds_one_is_refused():  # rule C10
    class State(TypedDict):
        setting: Bare

    def same(state: State) -> State:
        return state

    graph = StateGraph(State).add_node("same", same).add_edge(START, "same")
    with pytest.raises(UsageError, match="'handler' is an ImportString"):
        graph.compile()


def test_a_class_that_is_resolved_late_is_refused_before_it_validates():  # rule C10
    class Late(BaseModel):
        handler: Handler  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    stored("test.ResolvedLate")(Late)
    body = b'{"$t":"test.ResolvedLate","v":{"handler":"%s.geohash"}}' % CANARY.encode()
    with pytest.raises(CheckpointCorrupt):
        decode(body)
    Late.model_rebuild(_types_namespace={"Handler": ImportString[Any]})
    with pytest.raises(CheckpointCorrupt):
        decode(body)


def test_answers_cannot_name_code():  # rule C10
    with pytest.raises(UsageError):
        schema_of(Bare)
    with pytest.raises(UsageError):
        schema_of(Inside)


def test_arguments_cannot_name_code():  # rule C10
    with pytest.raises(UsageError):

        @tool
        def run(handler: ImportString[Any]) -> str:
            """Run it."""
            return str(handler)

    with pytest.raises(UsageError):

        @tool
        def run_all(settings: Inside) -> str:
            """Run it."""
            return str(settings)


def test_validators_of_ones_own_are_fine():
    stored("test.OwnValidator")(Own)
    assert decode(b'{"$t":"test.OwnValidator","v":{"text":" x "}}') == Own(text="x")
