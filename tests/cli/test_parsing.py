from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest

from adjourn import Interrupt, InvalidAnswer
from adjourn._schemas.answers import choices_of, problems, schema_of
from adjourn.cli._asking import parse
from adjourn.cli._printing import in_words
from tests.cli.shell import Shell


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


@pytest.mark.parametrize(
    ("schema", "answer", "said"),
    [
        (int, "many", 'it takes a whole number, not "many"'),
        (bool, 5, "it takes yes or no, not 5"),
        (date, "soon", 'it takes a date, such as 2026-12-31, not "soon"'),
        (int | None, "many", 'it takes a whole number or null, not "many"'),
        (list[int], [1, "x"], '[1]: it takes a whole number, not "x"'),
        (dict[str, bool], {"ok": 1}, "ok: it takes yes or no, not 1"),
        (Literal["red", "blue"], "green", 'it takes one of "red", "blue", not "green"'),
    ],
)
def test_a_misfit_is_told_in_words(schema: Any, answer: Any, said: str):
    (problem,) = problems(answer, schema_of(schema))
    assert in_words(problem) == said


def test_a_day_is_asked_for_with_an_example(shell: Shell):
    shell.ok("chat", "desk:when", "-m", "x", "--session", "s1")
    assert "answer  date, such as 2026-12-31" in shell.ok("pending", "s1").out
    refused = shell.run("answer", "s1", "soon")
    assert 'does not fit: it takes a date, such as 2026-12-31, not "soon".' in refused.err
    with shell.terminal("answer", "s1") as terminal:
        terminal.wait_for("answer  date, such as 2026-12-31")
        terminal.answer("/later:", "soon")
        terminal.wait_for("That does not fit: it takes a date")
        terminal.answer("/later:", "2026-11-20")
        assert terminal.end() == 0
    assert "on 2026-11-20" in shell.ok("resume", "desk:when", "s1").out
