"""Asks the person at the terminal until the answer fits, or they leave it for later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from adjourn._schemas.jsonschema import problems
from adjourn._text import visible_line
from adjourn.cli.output.questions import is_yes_or_no, print_question, tool_request
from adjourn.errors import InvalidAnswer
from adjourn.events import Interrupt

from .deciding import decide, takes_decisions
from .forms import fields_of, kind_of, required_of
from .parsing import parse
from .terminal import LATER, choose, say


def ask(asked: Interrupt, number: str = "") -> Any:  # Any: what the schema takes
    """Show a question and read its answer; `LATER` if the person leaves it open.

    Raises:
        EOFError: nobody types any more.
    """
    print_question(asked, number)
    request = tool_request(asked)
    if request is not None and takes_decisions(asked, request):
        return decide(asked, request)
    fields = fields_of(asked)
    return _fill_in(asked, fields) if fields else _answer(asked)


def _answer(asked: Interrupt) -> Any:
    is_short = is_yes_or_no(asked)
    if not is_short:
        _print_choices(asked)
    while True:
        text = choose("[y]es  [n]o  [l]ater ?" if is_short else "Your answer, or /later:")
        if text == "/later" or (is_short and text.lower() in ("l", "later")):
            return LATER
        if not text:
            continue
        try:
            return parse(text, asked)
        except InvalidAnswer as error:
            _refuse(error.problems)


def _print_choices(asked: Interrupt) -> None:
    for position, choice in enumerate(asked.choices, 1):
        say(f"  {position}  {visible_line(choice if isinstance(choice, str) else json.dumps(choice))}")


def _refuse(problems: tuple[str, ...] | list[str]) -> None:
    say(visible_line(f"That does not fit: {'; '.join(problems)}"), "red")


def _fill_in(asked: Interrupt, fields: Mapping[str, Interrupt]) -> Any:
    required = required_of(asked)
    say("Type /later to leave it open.", "dim")
    while True:
        answer: dict[str, Any] = {}
        for name, field in fields.items():
            value = _field(name, field, is_required=name in required)
            if value is LATER:
                return LATER
            if value is not None:
                answer[name] = value
        found = problems(answer, asked.schema)
        if not found:
            return answer
        _refuse(found)


def _field(name: str, field: Interrupt, *, is_required: bool) -> Any:
    note = "" if is_required else ", optional"
    while True:
        text = choose(f"{visible_line(name)} ({visible_line(kind_of(field))}{note}):")
        if text == "/later":
            return LATER
        if not text and not is_required:
            return None
        try:
            return parse(text, field)
        except InvalidAnswer as error:
            _refuse(error.problems)
