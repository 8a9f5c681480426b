"""Approval: asking a person whether a tool call may run, and remembering what they said."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from adjourn.core.errors import InvalidArguments, Pause, ShapeChanged
from adjourn.core.frame import BESIDE, LOOSE, UserFrame, decoded
from adjourn.core.interrupt import interrupt
from adjourn.core.jsonschema import JSONSchema
from adjourn.core.record import Question
from adjourn.core.visible import visible_line
from adjourn.messages import ToolCall
from adjourn.tools import Approve, Decision, Edit, Reject, Tool, ToolCallInfo, approval_schema, decision

from .caller import Caller
from .remembered import is_remembered, remember

_SHOWN = b'{"$t":"tool_call_info"'
"""How the info of an approval begins where it is stored."""

KEY = "approval"
REASON = "need_approval"


async def approved(
    task: UserFrame, caller: Caller, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> tuple[Decision, str | None] | None:
    """What a person decided about a call, and who; None when nobody needs to be asked.

    That a question was asked decides, not a predicate that is evaluated again.
    """
    if tool.approval is False and not task.questions:
        return None
    arguments = tool.lower(converted)
    if _asked(task, call) is None:
        needs = tool.needs_approval(converted)
        if not (await needs if inspect.isawaitable(needs) else needs):
            return None
        if await is_remembered(caller, tool.name, arguments):
            return None
        _let_go(task)
        _ask(caller, tool, call, arguments)
    return await _answer(task, caller, tool, call, arguments)


def as_approved(task: UserFrame, tool: Tool, call: ToolCall, converted: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the approver saw, whatever has become of the tool's defaults since.

    Raises:
        ShapeChanged: the tool cannot be called with them any more.
    """
    question = _asked(task, call)
    if question is None:
        return converted
    seen: Mapping[str, Any] = decoded(question.info).arguments
    try:
        found = converted if _has(tool.lower(converted), seen) else tool.validate(seen)
    except InvalidArguments as error:
        raise ShapeChanged(task.address, f"what was approved does not fit the tool any more ({error})") from error
    if not _has(tool.lower(found), seen):
        raise ShapeChanged(task.address, "the tool makes something else of the arguments that were approved")
    return found


def _has(arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether arguments are those that were seen, a default that the tool has got since included."""
    # As JSON, since to Python True is 1.
    return msgspec.json.encode(arguments, order="sorted") == msgspec.json.encode(seen, order="sorted")


def _asked(task: UserFrame, call: ToolCall) -> Question | None:
    """The question of the approval, which shows the call; the tool's own may have the same key."""
    for question in reversed(task.questions or ()):
        if question.key == KEY and question.reason == REASON and bytes(question.info).startswith(_SHOWN):
            info: ToolCallInfo = decoded(question.info)
            if info.call_id == call.id:
                return question
    return None


def _let_go(task: UserFrame) -> None:
    """What a predicate has kept need not come again: it is not evaluated again."""
    for memo in [memo for memo in task.memos or () if not memo.startswith((LOOSE, BESIDE))]:
        task.loosen(memo)


def _pass(task: UserFrame, question: Question) -> None:
    """Count the approval's question, and those of the predicate before it, as asked in this entry."""
    for each in task.questions or ():
        task.repeat(each.id)
        if each.how != "refused":
            task.occurrence(f"ask:{each.key or ''}")
        if each is question:
            return


def _ask(caller: Caller, tool: Tool, call: ToolCall, arguments: dict[str, Any], why: str = "") -> None:
    shown = visible_line(msgspec.json.encode(arguments).decode())
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=arguments, call_id=call.id, agent=caller.caller),
        key=KEY,
        reason=REASON,
        prompt=f"{why}May {caller.caller} call {tool.name} with {shown}?",
        schema=_schema(tool),
    )


@lru_cache(maxsize=256)
def _schema(tool: Tool) -> JSONSchema:
    return approval_schema(tool.schema)


async def _answer(
    task: UserFrame, caller: Caller, tool: Tool, call: ToolCall, arguments: dict[str, Any]
) -> tuple[Decision, str | None]:
    question = _asked(task, call)
    assert question is not None
    _pass(task, question)
    if question.is_open:
        task.pausing = True
        raise Pause(question.id)
    if question.how == "expired":
        return Reject("nobody decided in time"), None
    try:
        found = _read(tool, decoded(question.value))
    except (InvalidArguments, ValueError) as error:
        # It fitted the JSON Schema, or came past it, but cannot be done: ask again rather than fail for good.
        question.how = "refused"
        task.scope.mark(task)
        what = "edited arguments do" if isinstance(error, InvalidArguments) else "answer does"
        _ask(caller, tool, call, arguments, f"The {what} not fit ({error}). ")
        raise  # never reached: it has been asked
    if isinstance(found, Approve) and found.remember is not None:
        await remember(caller, tool.name, found, question.by)
    return found, question.by


def _read(tool: Tool, answer: Any) -> Decision:
    found = decision(answer)
    if isinstance(found, Edit):
        tool.validate(found.arguments)
    return found
