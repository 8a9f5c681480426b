"""Wrappers: tools made from other tools, with a person in the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._engine.child import layer
from adjourn._engine.entry import here
from adjourn._engine.memos import Key, Kind
from adjourn._engine.questions import ask_for
from adjourn._engine.values import decoded
from adjourn._text import visible_line
from adjourn._values import codec
from adjourn.context import current
from adjourn.errors import InvalidArguments, ToolError, ToolRefused, UsageError

from .approval import Approval
from .decisions import Approve, Decision, Edit, Reject, ToolCallInfo, decision, review_schema
from .tool import Gate, Reviewed, Tool, gate_of, tool

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar
else:
    from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

KEY = "review"

MAX_ROUNDS = 100
"""How often a reviewer may edit arguments so that they fit the schema but the tool still rejects them."""


def approved(wrapped: Tool[P, R] | Callable[P, R], approval: Gate | Approval = True) -> Tool[P, R]:
    """Return the same tool, where a person must approve every call (or those that a predicate selects)."""
    if approval is False:
        raise UsageError("approved(..., approval=False) asks nobody. Leave it out, or pass a predicate.")
    asks = approval if isinstance(approval, Approval) else None
    return replace(_tool_of(wrapped), approval=gate_of(approval), asks=asks)


def reviewed(wrapped: Tool[P, R] | Callable[P, R]) -> Tool[P, R]:
    """Return the same tool, where a person accepts each call, edits its arguments, or rejects it with a reason.

    The question has the reason `need_review` and the address `wrap:reviewed` below the call. Edited arguments are
    validated, are what runs, and are what events and messages show.
    """
    inside = _tool_of(wrapped)
    return replace(inside, review=partial(_review, inside))


def _tool_of(wrapped: Tool[P, R] | Callable[P, R]) -> Tool[P, R]:
    return cast("Tool[P, R]", wrapped) if isinstance(wrapped, Tool) else tool(wrapped)


async def _review(inside: Tool, values: Mapping[str, Any]) -> Reviewed:
    """Return what the reviewer made of a call, and then the one inside, if the tool had a reviewer before.

    Raises:
        InvalidArguments: the call cannot be shown as it is.
        ToolRefused: the reviewer rejected it.
    """
    found, by = await layer("wrap", "reviewed", partial(_ask, inside, inside.show(values)))
    match found:
        case Reject(reason=reason):
            raise ToolRefused(inside.name, reason)
        case Edit(arguments=arguments):
            values = inside.validate(arguments)
            made = Reviewed(arguments=values, edited=inside.show(values), by=by)
        case _:
            made = Reviewed(arguments=values)
    if inside.review is None:
        return made
    last = await inside.review(made.arguments)
    return last if last.edited is not None else made


async def _ask(inside: Tool, arguments: Mapping[str, Any]) -> tuple[Decision, str | None]:
    """Return the reviewer's decision, and who it was; of an edit that another person had to accept, its author."""
    edited: tuple[Decision, str | None] | None = None
    editor, why, scope = None, "", here("reviewed").frame.scope
    for number in range(MAX_ROUNDS):
        shown = visible_line(msgspec.json.encode(arguments).decode())
        answer, question = ask_for(
            editor,
            _info(inside, arguments),
            key=KEY,  # If a changed tool would get something else, it is asked anew (rule I14).
            reason="need_review",
            prompt=f"{why}Review the call of {inside.name} with {shown}: accept, edit or refuse.",
            schema=review_schema(inside.schema),
            **inside.asking(arguments),
        )
        found, problem = _whole(inside, decision(answer), arguments, number)
        if problem:
            # It fits the JSON Schema, but a type may have additional rules: ask again rather than fail.
            editor, why = None, f"The edited arguments do not fit ({problem}). "
        elif isinstance(found, Edit) and scope.needs_another(question):
            # It is a request of its author, which another person has to accept (rule V19).
            edited, editor = (found, question.by), question.by or ""
            arguments, why = found.arguments, f"{visible_line(editor)} edited the call. "
        elif edited is not None and isinstance(found, Approve):
            scope.note_editors(question)
            return edited
        else:
            return found, question.by
    raise ToolError(f"its arguments were edited {MAX_ROUNDS} times and never fitted")


def _whole(inside: Tool, found: Decision, seen: Mapping[str, Any], number: int) -> tuple[Decision, str]:
    """Return a decision, an edit with all its arguments, and why these do not fit; in each entry the same."""
    if not isinstance(found, Edit):
        return found, ""
    frame = here("reviewed").frame
    key = Key(Kind.NOTE, f"edited:{codec.fingerprint([dict(found.arguments), dict(seen)])}", number=number)
    if (memo := frame.kept(key)) is None:
        try:
            made, problem = inside.edit(found.arguments, seen), ""
        except InvalidArguments as error:
            made, problem = {}, "; ".join(error.problems)
        # Kept, since a default may be another one when this runs again, and the code would take another path.
        frame.keep(key, [made, problem], optional=True)
    else:
        made, problem = decoded(memo.result)
    return Edit(made), problem


def _info(inside: Tool, arguments: Mapping[str, Any]) -> ToolCallInfo:
    calls, agents = [""], [""]
    for segment in current().address:
        if segment.type == "tool":
            calls.append(segment.sub_id or "")
        elif segment.type == "agent":
            agents.append(segment.id)
    return ToolCallInfo(tool=inside.name, arguments=dict(arguments), call_id=calls[-1], agent=agents[-1])
