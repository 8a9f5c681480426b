"""Static interrupts: pausing the graph itself before or after nodes, to look at its state and edit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from adjourn._engine.frame import decoded
from adjourn._engine.questions import new_question
from adjourn._engine.record import NONE
from adjourn._schemas import answers
from adjourn._values import codec
from adjourn.errors import InterruptsDisabled, UsageError

from .commands import Overwrite

if TYPE_CHECKING:
    from ._frame import GraphFrame


def hit(frame: GraphFrame) -> bool:
    """Whether the graph is to pause here, and has not yet."""
    return bool(frame.graph.halts and not frame.questions and any(_hits(frame)))


def passed(frame: GraphFrame) -> bool:
    """Whether the graph may go on: nothing to pause for, or the pause is over. Asks when it is not."""
    if frame.questions:
        return _resumed(frame)
    before, after = _hits(frame)
    if not before and not after:
        return True
    _ask(frame, before, after)
    return False


def _hits(frame: GraphFrame) -> tuple[list[str], list[str]]:
    before = [task.spec.name for task in frame.tasks if task.spec.interrupt_before]
    return list(dict.fromkeys(before)), list(dict.fromkeys(frame.ended))


def _ask(frame: GraphFrame, before: list[str], after: list[str]) -> None:
    scope = frame.scope
    if not scope.interrupts:
        raise InterruptsDisabled(frame.address)
    state = {name: codec.copy(value) for name, value in frame.channels.items()}
    info = {"nodes": [*after, *before], "before": before, "after": after, "state": state}
    question = new_question(scope, info, reason="static", prompt=_prompt(frame, before, after), schema=_schema(frame))
    frame.questions = [question]
    scope.ask(frame, question, frame.address)


def _prompt(frame: GraphFrame, before: list[str], after: list[str]) -> str:
    places = [f"after {', '.join(after)}"] * bool(after) + [f"before {', '.join(before)}"] * bool(before)
    return f"Graph '{frame.graph.name}' pauses {' and '.join(places)}. Go on? Keys that you give overwrite the state."


def _schema(frame: GraphFrame) -> dict[str, Any]:
    schema = frame.graph.schema
    properties = {name: _field_schema(channel.type) for name, channel in schema.channels.items()}
    state = {"type": "object", "properties": properties, "additionalProperties": schema.extra}
    return {"anyOf": [{"type": "null"}, state]}


def _field_schema(type_: Any) -> dict[str, Any]:
    try:
        found = answers.schema_of(type_)
    except UsageError:
        return {}
    # A definition by reference would have to stand at the root of the schema.
    return {} if found is None or "$defs" in found else found


def _resumed(frame: GraphFrame) -> bool:
    question = (frame.questions or [])[0]
    if question.is_open:
        return False
    answer = decoded(question.value)
    if isinstance(answer, Mapping) and answer:
        # After a crash it is done again: overwriting a second time changes nothing.
        overwrites = {name: Overwrite(value) for name, value in cast("Mapping[str, Any]", answer).items()}
        frame.edit(overwrites, None)
        question.value = NONE
        frame.scope.questions.changed[question.id] = question
    return True
