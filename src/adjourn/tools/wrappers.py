"""Wrappers: tools made of other tools, with a person in between."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._engine.concurrency import in_thread
from adjourn._engine.frame import Entry, here
from adjourn._engine.layer import layer
from adjourn._text import visible_line
from adjourn.context import current
from adjourn.errors import InvalidArguments, ToolError, ToolRefused, UsageError
from adjourn.interrupts import interrupt

from ._arguments import result_text
from .decisions import Decision, Edit, Reject, ToolCallInfo, decision, review_schema
from .tool import Approval, Tool, tool

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar
else:
    from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MAX_ROUNDS = 100
"""How often a reviewer may give arguments that fit the schema and that the tool refuses all the same."""


def approved(wrapped: Tool[P, R] | Callable[P, R], approval: Approval = True) -> Tool[P, R]:
    """The same tool, of which every call (or those that a predicate names) must be approved by a person."""
    if approval is False:
        raise UsageError("approved(..., approval=False) asks nobody. Leave it out, or give a predicate.")
    return replace(_tool_of(wrapped), approval=approval)


def reviewed(wrapped: Tool[P, R] | Callable[P, R]) -> Tool[P, R]:
    """The same tool, with a person who accepts each call, edits its arguments, or refuses it with a reason.

    The question has the reason `need_review` and stands at `wrap:reviewed` below the call. Edited arguments are
    validated, are what runs, and are told to the model with the result.
    """
    inside = _tool_of(wrapped)
    if inside.kind == "stream":
        return replace(inside, around=partial(_stream_reviewed, inside))
    return replace(inside, around=partial(_call_reviewed, inside), kind="async")


def _tool_of(wrapped: Tool[P, R] | Callable[P, R]) -> Tool[P, R]:
    return cast("Tool[P, R]", wrapped) if isinstance(wrapped, Tool) else tool(wrapped)


async def _call_reviewed(inside: Tool, values: Mapping[str, Any]) -> Any:
    values, note = await _review(inside, values)
    result = await _run(inside, values)
    return f"{note}{result_text(result)}" if note else result


async def _stream_reviewed(inside: Tool, values: Mapping[str, Any]) -> AsyncIterator[Any]:
    values, note = await _review(inside, values)
    if note:
        yield note
    async for piece in inside.call(values):
        yield piece


async def _run(inside: Tool, values: Mapping[str, Any]) -> Any:
    if inside.kind == "sync":
        return await in_thread(partial(_in_its_thread, here("a tool").entry, inside, values))
    result = inside.call(values)
    return await result if inside.kind == "async" else result


def _in_its_thread(entry: Entry, inside: Tool, values: Mapping[str, Any]) -> Any:
    entry.thread = threading.get_ident()
    return inside.call(values)


async def _review(inside: Tool, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """What is to run, and what the model is told of a change.

    Raises:
        ToolRefused: nothing is to run.
    """
    found = await layer("wrap", "reviewed", partial(_ask, inside, inside.lower(values)))
    match found:
        case Reject(reason=reason):
            raise ToolRefused(inside.name, reason)
        case Edit(arguments=arguments):
            values = inside.validate(arguments)
            shown = msgspec.json.encode(inside.lower(values)).decode()
            return values, "" if inside.return_directly else f"A person changed the arguments to {shown}. Result: "
        case _:
            return values, ""


async def _ask(inside: Tool, arguments: Mapping[str, Any]) -> Decision:
    info, why = _info(inside, arguments), ""
    shown = visible_line(msgspec.json.encode(arguments).decode())
    for _ in range(MAX_ROUNDS):
        answer = interrupt(
            info,
            reason="need_review",
            prompt=f"{why}Review the call of {inside.name} with {shown}: accept, edit or refuse.",
            schema=review_schema(inside.schema),
        )
        found = decision(answer)
        problem = _problem(inside, found)
        if not problem:
            return found
        # It fitted the JSON Schema, but a type has rules of its own: ask again rather than fail.
        why = f"The edited arguments do not fit ({problem}). "
    raise ToolError(f"its arguments were edited {MAX_ROUNDS} times and never fitted")


def _info(inside: Tool, arguments: Mapping[str, Any]) -> ToolCallInfo:
    calls, agents = [""], [""]
    for segment in current().address:
        if segment.type == "tool":
            calls.append(segment.sub_id or "")
        elif segment.type == "agent":
            agents.append(segment.id)
    return ToolCallInfo(tool=inside.name, arguments=dict(arguments), call_id=calls[-1], agent=agents[-1])


def _problem(inside: Tool, found: Decision) -> str:
    try:
        if isinstance(found, Edit):
            inside.validate(found.arguments)
    except InvalidArguments as error:
        return "; ".join(error.problems)
    return ""
