"""Approval: asking a person whether a tool call may run, and remembering what they said."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from adjourn._engine.frame import UserFrame, decoded
from adjourn._engine.record import Question
from adjourn._schemas.answers import Checked
from adjourn._text import visible_line
from adjourn.errors import InvalidArguments, ProgramChanged
from adjourn.interrupts import interrupt
from adjourn.messages import ToolCall
from adjourn.tools import Approve, Decision, Edit, Reject, Tool, ToolCallInfo, approval_schema, decision

from .caller import Caller
from .remembered import in_session, is_remembered, remember

_SHOWN = b'{"$t":"tool_call_info"'
"""How the info of an approval begins where it is stored."""

KEY = "approval"
REASON = "need_approval"


class Decided(NamedTuple):
    """What a person decided about a call, who it was, and the converted arguments with which it may run."""

    decision: Decision
    by: str | None
    converted: dict[str, Any]


async def approved(
    task: UserFrame, caller: Caller, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> Decided | None:
    """What a person decided about a call; None when nobody needs to be asked.

    That a question was asked decides, not a predicate that is evaluated again.
    """
    arguments = tool.lower(converted)
    asked = _asked(task, call)
    if asked is None:
        needs = tool.needs_approval(converted)
        if needs is not True and not (await needs if inspect.isawaitable(needs) else needs):
            return None
        if await is_remembered(caller, tool.name, arguments):
            return None
        task.make_all_optional()  # What a predicate has kept: it is not evaluated again.
        _ask(caller, tool, call, arguments)
        asked = _asked(task, call)
        assert asked is not None
    question, shown = asked
    found = await _answer(task, caller, tool, call, arguments, question)
    if isinstance(found, Approve):
        # What the approver saw, whatever has become of the tool's defaults since.
        converted = converted if _are_same(arguments, shown.arguments) else _seen(task, tool, shown.arguments)
    elif isinstance(found, Edit):
        converted = tool.validate(found.arguments)
    return Decided(found, question.by, converted)


def must_ask(caller: Caller, tool: Tool) -> bool:
    """Whether a person is asked about any call of a tool: nobody needs to be asked whether that is so."""
    # What was approved for always is read from the store, which takes time and may come to a yes.
    return tool.approval is True and caller.scope.user_id is None and not in_session(caller)


def _seen(task: UserFrame, tool: Tool, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the approver saw, converted.

    Raises:
        ProgramChanged: the tool cannot be called with them any more.
    """
    try:
        found = tool.validate(seen)
    except InvalidArguments as error:
        raise ProgramChanged(task.address, f"what was approved does not fit the tool any more ({error})") from error
    if not _are_same(tool.lower(found), seen):
        raise ProgramChanged(task.address, "the tool makes something else of the arguments that were approved")
    return found


def _are_same(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether arguments are those that were seen, a default that the tool has got since included."""
    # As JSON, since to Python True is 1.
    return msgspec.json.encode(arguments, order="sorted") == msgspec.json.encode(seen, order="sorted")


def _asked(task: UserFrame, call: ToolCall) -> tuple[Question, ToolCallInfo] | None:
    """The question of the approval, and the call that it shows; the tool's own may have the same key."""
    for question in reversed(task.questions or ()):
        if question.key == KEY and question.reason == REASON and bytes(question.info).startswith(_SHOWN):
            info: ToolCallInfo = decoded(question.info)
            if info.call_id == call.id:
                return question, info
    return None


def _pass(task: UserFrame, question: Question) -> None:
    """Count the approval's question, and those of the predicate before it, as asked in this entry."""
    for each in task.questions or ():
        task.entry.passed(each)
        if each is question:
            return


def _ask(caller: Caller, tool: Tool, call: ToolCall, arguments: dict[str, Any], why: str = "") -> None:
    shown = visible_line(msgspec.json.encode(arguments).decode())
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=arguments, call_id=call.id, agent=caller.audience.name),
        key=KEY,
        reason=REASON,
        prompt=f"{why}May {caller.audience.name} call {tool.name} with {shown}?",
        schema=_schema(tool),
    )


@lru_cache(maxsize=256)
def _schema(tool: Tool) -> Checked:
    return Checked(approval_schema(tool.schema))


async def _answer(
    task: UserFrame,
    caller: Caller,
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    question: Question,
) -> Decision:
    _pass(task, question)
    if question.is_open:
        task.entry.wait_for(question)
    if question.how == "expired":
        return Reject("nobody decided in time")
    try:
        found = _read(tool, decoded(question.value))
    except (InvalidArguments, ValueError) as error:
        # It fitted the JSON Schema, or came past it, but cannot be done: ask again rather than fail for good.
        task.entry.refuse(question)
        what = "edited arguments do" if isinstance(error, InvalidArguments) else "answer does"
        _ask(caller, tool, call, arguments, f"The {what} not fit ({error}). ")
        raise  # never reached: it has been asked
    if isinstance(found, Approve) and found.remember is not None:
        await remember(caller, tool.name, found, question.by)
    return found


def _read(tool: Tool, answer: Any) -> Decision:
    found = decision(answer)
    if isinstance(found, Edit):
        tool.validate(found.arguments)
    return found
