"""Breakpoints: pausing a graph before or after nodes, to inspect and edit its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from adjourn._engine.frame import decoded
from adjourn._engine.questions import new_question
from adjourn._schemas import answers
from adjourn._values import codec
from adjourn.errors import InterruptsDisabled, UsageError

from ._frame import StepFrame
from .commands import Overwrite


def at_breakpoint(frame: StepFrame) -> bool:
    """Return whether the graph must pause here and has not done so yet."""
    return bool(frame.plan.has_breakpoints and not frame.questions and any(_breakpoints(frame)))


def pause_at_breakpoint(frame: StepFrame) -> bool:
    """Ask whether to continue if there is a breakpoint here; return False once the graph may continue."""
    if frame.questions:
        return not _is_answered(frame)
    before, after = _breakpoints(frame)
    if not before and not after:
        return False
    _ask(frame, before, after)
    return True


def _breakpoints(frame: StepFrame) -> tuple[list[str], list[str]]:
    """Return the nodes before which and the nodes after which the graph must pause here."""
    before = [task.node.name for task in frame.tasks if task.node.options.interrupt_before]
    return list(dict.fromkeys(before)), list(dict.fromkeys(frame.ended))


def _ask(frame: StepFrame, before: list[str], after: list[str]) -> None:
    scope = frame.scope
    if not scope.interrupts:
        raise InterruptsDisabled(frame.address)
    state = {name: codec.copy(value) for name, value in frame.fields.values.items()}
    info = {"nodes": [*after, *before], "before": before, "after": after, "state": state}
    question = new_question(scope, info, reason="static", prompt=_prompt(frame, before, after), schema=_schema(frame))
    frame.questions = [question]
    scope.ask(frame, question, frame.address)


def _prompt(frame: StepFrame, before: list[str], after: list[str]) -> str:
    places = [f"after {', '.join(after)}"] * bool(after) + [f"before {', '.join(before)}"] * bool(before)
    return f"Graph '{frame.plan.name}' pauses {' and '.join(places)}. Go on? Keys that you give overwrite the state."


def _schema(frame: StepFrame) -> dict[str, Any]:
    schema = frame.plan.schema
    properties = {name: _field_schema(channel.type) for name, channel in schema.channels.items()}
    state = {"type": "object", "properties": properties, "additionalProperties": schema.extra}
    return {"anyOf": [{"type": "null"}, state]}


def _field_schema(type_: Any) -> dict[str, Any]:
    try:
        found = answers.schema_of(type_)
    except UsageError:
        return {}
    # Definitions that are referenced would have to be at the root of the schema.
    return {} if found is None or "$defs" in found else found


def _is_answered(frame: StepFrame) -> bool:
    question = (frame.questions or [])[0]
    if question.is_open:
        return False
    answer = None if question.void else decoded(question.value)
    if isinstance(answer, Mapping) and answer:
        # This is repeated after a crash; overwriting a second time changes nothing.
        overwrites = {name: Overwrite(value) for name, value in cast("Mapping[str, Any]", answer).items()}
        frame.edit(overwrites, None)
        question.void = True
        frame.scope.questions.changed[question.id] = question
    return True
