from __future__ import annotations

from typing import Any, Literal

import pytest

from adjourn import Interrupt, InvalidAnswer
from adjourn._schemas.answers import choices_of, schema_of
from adjourn.cli._asking import parse


def asking(type_: Any, reason: str = "need_input") -> Interrupt:
    schema = schema_of(type_)
    return Interrupt(id="q", session_id="s", schema=schema, choices=choices_of(schema), reason=reason)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (None, "5", "5"),
        (None, "yes", "yes"),
        (None, '{"a": 1}', '{"a": 1}'),
        (bool, "Yes", True),
        (bool, "n", False),
        (bool, "false", False),
        (int, "5", 5),
        (int, " 5 ", 5),
        (str, "5", "5"),
        (str, '"quoted"', '"quoted"'),
        (int | str, "5", 5),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Literal["red", "green"], "red", "red"),
        (Literal["no", "yes"], "yes", "yes"),
        (Literal["a", "b"], "2", "b"),
        (Literal[3, 1, 2], "1", 1),
        (bool | None, "null", None),
    ],
)
def test_a_text_is_read_as_the_schema_wants_it(type_: Any, text: str, value: Any):
    answer = parse(text, asking(type_))
    assert answer == value
    assert type(answer) is type(value)


def test_an_approval_without_a_schema_takes_yes_and_no():
    assert parse("yes", asking(None, "need_approval")) is True


@pytest.mark.parametrize(("type_", "text"), [(bool, "perhaps"), (int, "many"), (Literal["a", "b"], "3"), (int, "NaN")])
def test_what_does_not_fit_is_refused(type_: Any, text: str):
    with pytest.raises(InvalidAnswer):
        parse(text, asking(type_))
