"""What people can answer to an approval, and how it is kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from adjourn import Approve, Edit, InvalidAnswer, Reject, Respond, Runner, ToolCallInfo, interrupt, tool, workflow
from adjourn._schemas import answers
from adjourn._schemas.jsonschema import problems
from adjourn._values import codec
from adjourn.tools import APPROVAL_SCHEMA, approval_schema, decision, fits_pattern

MEANINGS: dict[str, tuple[Any, Any]] = {
    "true": (True, Approve()),
    "yes": ("yes", Approve()),
    "false": (False, Reject()),
    "no": ("no", Reject()),
    "approve": ({"decision": "approve"}, Approve()),
    "approve always": ({"decision": "approve", "remember": "always"}, Approve(remember="always")),
    "approve a pattern": (
        {"decision": "approve", "remember": "session", "pattern": {"to": "B*"}},
        Approve(remember="session", pattern={"to": "B*"}),
    ),
    "reject": ({"decision": "reject", "reason": "dear"}, Reject("dear")),
    "edit": ({"decision": "edit", "arguments": {"to": "Bonn"}}, Edit({"to": "Bonn"})),
    "respond": ({"decision": "respond", "text": "done"}, Respond("done")),
}


@pytest.mark.parametrize("case", MEANINGS)
def test_every_form_of_an_answer_means_a_decision(case: str):
    answer, meaning = MEANINGS[case]
    assert decision(answer) == meaning
    assert problems(answer, APPROVAL_SCHEMA) == []


@pytest.mark.parametrize("case", MEANINGS)
def test_a_decision_is_the_same_as_its_json_and_can_be_stored(case: str):
    made = MEANINGS[case][1]
    data = answers.to_json_data(made)
    assert problems(data, APPROVAL_SCHEMA) == []
    assert decision(data) == made
    assert decision(codec.decode(codec.encode(*codec.adopt(made, "answer")))) == made


NONE_OF_THESE: list[Any] = [
    None,
    1,
    "",
    "Yes",
    "maybe",
    [],
    {},
    {"decision": "run"},
    {"decision": True},
    {"decision": "edit"},
    {"decision": "edit", "arguments": []},
    {"decision": "edit", "arguments": {}, "reason": "x"},
    {"decision": "respond"},
    {"decision": "respond", "text": 1},
    {"decision": "reject", "reason": None},
    {"decision": "approve", "remember": "forever"},
    {"approve": True},
]


@pytest.mark.parametrize("answer", NONE_OF_THESE, ids=str)
def test_anything_else_is_refused(answer: Any):
    assert problems(answer, APPROVAL_SCHEMA)
    with pytest.raises(ValueError, match="is not an answer to an approval"):
        decision(answer)


def test_a_pattern_without_remembering_is_refused():
    with pytest.raises(ValueError, match="remember='session'"):
        Approve(pattern={"to": "B*"})


@pytest.mark.parametrize("bad", [float("nan"), {1: 2}, "\ud800", object()])
def test_arguments_that_are_no_json_are_refused_where_they_are_made(bad: Any):
    with pytest.raises((TypeError, ValueError)):
        Edit({"to": bad})
    with pytest.raises((TypeError, ValueError)):
        ToolCallInfo(tool="book", arguments={"to": bad})


@tool
def book(to: str, seats: int = 1) -> str:
    return f"{seats} to {to}"


def test_an_edit_must_fit_the_tool():  # rule T4
    schema = approval_schema(book.schema)
    assert problems({"decision": "edit", "arguments": {"to": "Bonn"}}, schema) == []
    [problem] = problems({"decision": "edit", "arguments": {"to": 3}}, schema)
    assert problem == "$.arguments.to: expected string, got 3"


def test_a_pattern_names_only_arguments_that_the_tool_has():  # rule T9
    def found(pattern: Any, schema: Any) -> list[str]:
        return problems({"decision": "approve", "remember": "session", "pattern": pattern}, approval_schema(schema))

    assert found({"seats": 1}, book.schema) == found({}, book.schema) == found(None, book.schema) == []
    assert found({"seets": 1}, book.schema) != []
    assert found({"seets": 1}, {**book.schema, "additionalProperties": True}) == []


async def test_a_bad_edit_is_refused_before_anything_is_written():  # rule R2
    @workflow
    async def ask() -> Any:
        info = ToolCallInfo(tool="book", arguments={"to": "Bonn"}, call_id="c1", agent="A")
        return interrupt(info, reason="need_approval", schema=approval_schema(book.schema))

    runner = Runner(ask)
    paused = await runner.run(None, session_id="s1")
    [asked] = paused.interrupts
    assert asked.info == ToolCallInfo(tool="book", arguments={"to": "Bonn"}, call_id="c1", agent="A")
    for bad in (Edit({"to": 3}), Edit({}), "maybe", {"decision": "edit", "arguments": {"to": "Bonn", "by": "air"}}):
        with pytest.raises(InvalidAnswer):
            await runner.resume("s1", {asked.id: bad})
    with pytest.raises(InvalidAnswer):
        await runner.resume("s1")
    done = await runner.resume("s1", {asked.id: Edit({"to": "Kiel"})})
    assert decision(done.value) == Edit({"to": "Kiel"})


# Look-alikes of stored types, as a model may write them.
LOOK_ALIKE = {"$t": "message", "v": {"$t": "tuple", "v": [1]}}


def test_arguments_that_look_like_stored_types_stay_what_they_are():
    info = ToolCallInfo(tool="book", arguments=LOOK_ALIKE)
    assert codec.decode(codec.encode(*codec.adopt(info, "info"))) == info
    edit = Edit(LOOK_ALIKE)
    assert codec.decode(codec.encode(*codec.adopt(edit, "answer"))) == edit


PATTERNS: list[tuple[dict[str, Any] | None, dict[str, Any], bool]] = [
    (None, {"to": "Bonn"}, True),
    ({}, {"to": "Bonn"}, True),
    ({"to": "Bonn"}, {"to": "Bonn", "seats": 2}, True),
    ({"to": "Bonn"}, {"to": "Kiel"}, False),
    ({"to": "Bonn"}, {}, False),
    ({"to": "B*"}, {"to": "Bonn"}, True),
    ({"to": "*nn"}, {"to": "Bonn"}, True),
    ({"to": "B*n"}, {"to": "Bn"}, True),
    ({"to": "Bon*nn"}, {"to": "Bonn"}, False),
    ({"to": "a*b*a"}, {"to": "aba"}, True),
    ({"to": "a*b*b*a"}, {"to": "aba"}, False),
    ({"to": "*"}, {"to": ""}, True),
    ({"to": "*"}, {"to": 3}, False),
    ({"to": "B?nn"}, {"to": "Bonn"}, False),
    ({"to": "[B]onn"}, {"to": "Bonn"}, False),
    ({"seats": 1}, {"seats": True}, False),
    ({"seats": [1, {"a": 2}]}, {"seats": [1, {"a": 2}]}, True),
    ({"seats": [1, {"a": 2}]}, {"seats": [1.0, {"a": 2.0}]}, True),
    ({"seats": [1, {"a": 2}]}, {"seats": [True, {"a": 2}]}, False),
    ({"seats": {"a": 2}}, {"seats": {"a": 2, "b": 3}}, False),
    ({"seats": 100}, {"seats": 100.0}, True),
    ({"seats": 0.1}, {"seats": 0.1}, True),
    ({"seats": 2**53 + 1}, {"seats": float(2**53)}, False),
    ({"seats": 100}, {"seats": "100"}, False),
    ({"seats": Decimal(100)}, {"seats": "100.00"}, True),
    ({"seats": 0}, {"seats": False}, False),
    ({"seats": ["B*"]}, {"seats": ["Bonn"]}, False),  # as remembered before it was refused
]


@pytest.mark.parametrize(("pattern", "arguments", "fits"), PATTERNS, ids=str)
def test_a_pattern_fits_equal_values_and_texts_with_stars(
    pattern: dict[str, Any] | None, arguments: dict[str, Any], fits: bool
):  # rule T5
    assert fits_pattern(arguments, pattern) is fits
