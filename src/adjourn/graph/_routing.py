"""Where a step leads: breakpoints that stop it, and the nodes that run next."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from adjourn._engine.execution import PAUSED, execute, execute_inline
from adjourn._engine.questions import new_question
from adjourn._engine.values import decoded
from adjourn._schemas import answers
from adjourn._values import codec
from adjourn.errors import InterruptsDisabled, NodeNotFound, UsageError

from ._frame import Routing, StepFrame
from ._node import Node
from .commands import END, Overwrite
from .state import attributes, read


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
    before = [task.node.name for task in frame.tasks if task.node.options.interrupt_before and task.status != "done"]
    return list(dict.fromkeys(before)), list(dict.fromkeys(frame.routes.ended))


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
    nodes = frame.plan.nodes
    ended, coming = ([nodes[name].title for name in names if name in nodes] for names in (after, before))
    places = [f"after {', '.join(ended)}"] * bool(ended) + [f"before {', '.join(coming)}"] * bool(coming)
    return f"Graph '{frame.plan.name}' pauses {' and '.join(places)}. Go on? Keys that you give overwrite the state."


def _schema(frame: StepFrame) -> dict[str, Any]:
    schema = frame.plan.schema
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


def _is_answered(frame: StepFrame) -> bool:
    question = (frame.questions or [])[0]
    if question.is_open:
        return False
    answer: Mapping[str, Any] = {} if question.void else _given_state(frame, decoded(question.value))
    if answer:
        # This is repeated after a crash; overwriting a second time changes nothing.
        frame.edit({name: Overwrite(value) for name, value in answer.items()}, None)
        question.void = True
        frame.scope.questions.changed[question.id] = question
    return True


def _given_state(frame: StepFrame, answer: Any) -> Mapping[str, Any]:
    """Return the fields that an answer overwrites: those of a mapping, or of an instance of the schema's class."""
    schema = frame.plan.schema
    if isinstance(answer, Mapping):
        return cast("Mapping[str, Any]", answer)
    return attributes(schema, answer) if schema.cls is not None and isinstance(answer, schema.cls) else {}


async def decide(frame: StepFrame) -> bool:
    """Evaluate every condition of the finished nodes; return False if one of them waits for an answer."""
    if time.monotonic() > frame.scope.yield_deadline:
        await frame.scope.yield_to_loop()
    routings, decided = frame.routings or frame.routings_to_decide(), True
    for routing in routings:
        if routing.status in ("pending", "failed"):
            routing.exception = None
            if routing.condition.is_async:
                # Something else may write a record while it runs, which must have all questions and memos so far.
                _remember(frame, routings)
                await _evaluate(frame, routing)
            else:
                _evaluate_inline(frame, routing)
        decided = decided and routing.status == "done"
    if decided:
        _conclude(frame, routings)
        return True
    _remember(frame, routings)
    for routing in routings:
        if routing.exception is not None:
            raise routing.exception
    return False


def _conclude(frame: StepFrame, routings: list[Routing]) -> None:
    for routing in routings:
        for node in routing.targets:
            frame.routes.targets.append((node, None))
        if routing.written:
            frame.merge_values(routing.written)
        frame.scope.changes.dirty.pop(routing, None)
        if routing.recorded or routing.questions:
            routing.drop()
    frame.routings = []


async def _evaluate(frame: StepFrame, routing: Routing) -> None:
    state = read(frame.plan.schema, frame.fields.values)
    try:
        result = await execute(routing, routing.condition.call, state)
        _set_targets(frame, routing, result)
    except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep their decisions
        routing.status, routing.exception = "failed", error


def _evaluate_inline(frame: StepFrame, routing: Routing) -> None:
    state = read(frame.plan.schema, frame.fields.values)
    try:
        result = execute_inline(routing, routing.condition.call, state)
        _set_targets(frame, routing, result)
    except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep their decisions
        routing.status, routing.exception = "failed", error


def _set_targets(frame: StepFrame, routing: Routing, result: Any) -> None:
    if result is PAUSED:
        routing.status = "waiting"
        return
    routing.status = "done"
    known = routing.condition.known
    if type(result) is str and result in known:
        node = known[result]
        routing.targets = [] if node is None else [node]
    else:
        routing.targets = _targets(frame, routing, result)


def _targets(frame: StepFrame, routing: Routing, result: Any) -> list[Node]:
    mapping = routing.condition.mapping or {}
    if _mapped(mapping, result) is not result:
        names = [result]  # A key of the mapping, which may be None or a tuple.
    elif isinstance(result, list | tuple | set | frozenset):
        names = list(dict.fromkeys(cast("Iterable[Any]", result)))
    else:
        names = [] if result is None or result == "" else [result]
    found = [_lookup(frame, routing, _mapped(mapping, name)) for name in names]
    return [node for node in found if node is not None]


def _mapped(mapping: dict[Any, str], name: Any) -> Any:
    try:
        return mapping.get(name, name)
    except TypeError:
        return name  # Unhashable, so neither a key nor the name of a node.


def _lookup(frame: StepFrame, routing: Routing, name: Any) -> Node | None:
    keys = tuple(routing.condition.mapping or ())
    return None if name == END else node_named(frame, routing.node.name, name, keys=keys)


def node_named(frame: StepFrame, by: str, name: Any, *, keys: tuple[Any, ...] = (), ends: tuple[str, ...] = ()) -> Node:
    """Return the node that a command or condition names; `keys` and `ends` are what it could have named instead.

    Raises:
        NodeNotFound: the graph has no such node.
    """
    node = frame.plan.nodes.get(name) if isinstance(name, str) else None
    if node is None:
        raise NodeNotFound(name, by=by, known=(*frame.plan.nodes, END), keys=keys, ends=ends)
    return node


def _remember(frame: StepFrame, routings: list[Routing]) -> None:
    frame.routings = routings
    frame.scope.mark(frame)
    for routing in routings:
        frame.scope.mark(routing)
