"""Wrappers: tools made from other tools, with a person in the loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._engine.child import layer
from adjourn._engine.frame import Entry, here
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
"""How often a reviewer may edit arguments so that they fit the schema but the tool still rejects them."""


def approved(wrapped: Tool[P, R] | Callable[P, R], approval: Approval = True) -> Tool[P, R]:
    """Return the same tool, where a person must approve every call (or those that a predicate selects)."""
    if approval is False:
        raise UsageError("approved(..., approval=False) asks nobody. Leave it out, or pass a predicate.")
    return replace(_tool_of(wrapped), approval=approval)


def reviewed(wrapped: Tool[P, R] | Callable[P, R]) -> Tool[P, R]:
    """Return the same tool, where a person accepts each call, edits its arguments, or rejects it with a reason.

    The question has the reason `need_review` and the address `wrap:reviewed` below the call. Edited arguments are
    validated and used for the call, and the model sees them with the result.
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
        entry = here("a tool").entry
        return await entry.frame.scope.in_thread(partial(_in_its_thread, entry, inside, values))
    result = inside.call(values)
    return await result if inside.kind == "async" else result


def _in_its_thread(entry: Entry, inside: Tool, values: Mapping[str, Any]) -> Any:
    entry.thread = threading.get_ident()
    return inside.call(values)


async def _review(inside: Tool, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the arguments to run with, and a note to the model if they were changed.

    Raises:
        ToolRefused: the reviewer rejected the call.
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
        # It fits the JSON Schema, but a type may have additional rules: ask again rather than fail.
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
