"""Breakpoints: the question that a graph asks before or after a node.

The frames of graphs are above this module, so they are Any here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from adjourn._engine.questions import new_question
from adjourn._engine.record import Question
from adjourn._engine.values import decoded
from adjourn._schemas import answers
from adjourn._values import codec
from adjourn.errors import InterruptsDisabled, UsageError

from ._node import Plan
from .commands import Overwrite
from .schema import Schema
from .state import attributes


def breakpoints(frame: Any) -> tuple[list[str], list[str]]:
    """Return the nodes before which and the nodes after which a graph must pause here."""
    waiting = [task for task in frame.tasks if task.status != "done"]
    before = [task.node.name for task in waiting if task.node.options.interrupt_before]
    return list(dict.fromkeys(before)), list(dict.fromkeys(frame.routes.ended))


def pauses_at_breakpoint(frame: Any) -> bool:
    """Ask whether to continue if there is a breakpoint here; return False once the graph may continue."""
    if frame.questions:
        return not _may_continue(frame, frame.questions[0])
    before, after = breakpoints(frame)
    if not before and not after:
        return False
    scope, plan = frame.scope, frame.plan
    if not scope.interrupts:
        raise InterruptsDisabled(frame.address)
    state = {name: codec.copy(value) for name, value in frame.fields.values.items()}
    info = {"nodes": [*after, *before], "before": before, "after": after, "state": state}
    prompt, schema = _prompt_at(plan, before, after), _answer_schema(plan.schema)
    question = new_question(scope, info, reason="static", prompt=prompt, schema=schema)
    frame.questions = [question]
    scope.ask(frame, question, frame.address)
    return True


def _may_continue(frame: Any, question: Question) -> bool:
    if question.is_open:
        return False
    answer: Mapping[str, Any] = {}
    if not question.void:
        answer = _given_fields(frame.plan.schema, decoded(question.value))
    if answer:
        # This is repeated after a crash; overwriting a second time changes nothing.
        frame.edit({name: Overwrite(value) for name, value in answer.items()}, None)
        question.void = True
        frame.scope.questions.changed[question.id] = question
    return True


def _prompt_at(plan: Plan, before: list[str], after: list[str]) -> str:
    """Return the text that people read at a breakpoint before or after these nodes."""
    nodes = plan.nodes
    ended, coming = ([nodes[name].title for name in names if name in nodes] for names in (after, before))
    places = [f"after {', '.join(ended)}"] * bool(ended) + [f"before {', '.join(coming)}"] * bool(coming)
    return f"Graph '{plan.name}' pauses {' and '.join(places)}. Go on? Keys that you give overwrite the state."


def _answer_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema of an answer at a breakpoint: whether to go on, or fields of the state to overwrite."""
    properties = {name: _field_schema(channel.type) for name, channel in schema.channels.items()}
    state = {"type": "object", "properties": properties, "additionalProperties": schema.extra}
    # The prompt asks whether to go on, so yes is an answer, too.
    return {"anyOf": [{"type": "null"}, {"enum": [True, "yes"]}, state]}


def _field_schema(type_: Any) -> dict[str, Any]:
    try:
        found = answers.schema_of(type_)
    except UsageError:
        return {}
    # Definitions that are referenced would have to be at the root of the schema.
    return {} if found is None or "$defs" in found else found


def _given_fields(schema: Schema, answer: Any) -> Mapping[str, Any]:
    """Return the fields that an answer overwrites: those of a mapping, or of an instance of the schema's class."""
    if isinstance(answer, Mapping):
        return cast("Mapping[str, Any]", answer)
    return attributes(schema, answer) if schema.cls is not None and isinstance(answer, schema.cls) else {}
