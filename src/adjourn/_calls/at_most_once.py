"""Tools that run at most once.

They never run again automatically, neither after a crash in the middle nor on another branch: a person is asked
instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from adjourn._engine.frame import UserFrame, decoded
from adjourn._engine.record import Question
from adjourn._values import codec
from adjourn.errors import ToolError
from adjourn.events import ToolCalled
from adjourn.interrupts import interrupt
from adjourn.messages import ToolCall
from adjourn.middleware.hooks import ToolRequest
from adjourn.sessions._log import logged_elsewhere
from adjourn.stores.protocol import SessionRef
from adjourn.tools import Approve, Edit, Reject, Respond, Tool, ToolCallInfo, approval_schema, decision

KEY = "at_most_once"
REASON = "need_decision"


CRASHED = "was running when its process died"
BRANCHED = "ran before, on a branch that this session has left"


@asynccontextmanager
async def begun(task: UserFrame, tool: Tool, request: ToolRequest) -> AsyncGenerator[str | None]:
    """Surround a call of a tool; yield a result if a person provided one instead."""
    number = next(each for each in count(1) if not task.is_noted("left", each))
    asked = _passed(task, request)
    crashed = task.is_noted("began", number)  # But not "left": its process died in between, or it was cancelled.
    if crashed or (number == 1 and await _is_repeated(task, request)):
        text = _decided(task, tool, request, asked, CRASHED if crashed else BRANCHED)
        if text is not None:
            yield text
            return
        task.note("again", number if crashed else 0)
    if crashed:
        task.note("left", number)
        number += 1
    task.note("began", number)
    call = ToolCall(id=request.call_id, name=tool.name, arguments=dict(request.arguments))
    task.scope.journal.emit(ToolCalled(address=task.address, call=call, muted=True))
    await task.scope.journal.durable()
    try:
        yield None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise  # It stopped in the middle.
    except BaseException:
        task.note("left", number)
        raise
    # It ended with a result, a failure or a pause: what it did is known, so it may be tried again.
    task.note("left", number)


async def _is_repeated(task: UserFrame, request: ToolRequest) -> bool:
    """Return whether the same tool ran with the same arguments on another branch, and no one has decided about it."""
    if task.is_noted("again", 0):
        return False
    scope, wanted = task.scope, codec.fingerprint(dict(request.arguments))
    elsewhere = logged_elsewhere(scope.journal.store, SessionRef(scope.session_id, scope.app), scope.branch)
    calls = [event.call async for event in elsewhere if isinstance(event, ToolCalled)]
    return any(call.name == request.tool and codec.fingerprint(call.arguments) == wanted for call in calls)


def _passed(task: UserFrame, request: ToolRequest) -> list[Question]:
    """Return the questions of this kind so far, and count them as asked in this entry: the tool's own come after."""
    asked = [question for question in task.questions or () if question.key == KEY and question.reason == REASON]
    mine = [question for question in asked if _is_about(question, request)]
    for question in mine:
        task.entry.passed(question)
    return mine


def _is_about(question: Question, request: ToolRequest) -> bool:
    info = decoded(question.info)
    return isinstance(info, ToolCallInfo) and info.call_id == request.call_id


def _decided(task: UserFrame, tool: Tool, request: ToolRequest, asked: list[Question], why: str) -> str | None:
    """Return the result that a person provided, or None to run the tool again."""
    earlier = task.count_notes("again")
    if earlier == len(asked):
        _ask(task, tool, request, why)
    question = asked[earlier]
    if question.is_open:
        task.entry.wait_for(question)
    match decision(decoded(question.value)):
        case Respond(text=text):
            return text
        case Reject(reason=reason):
            raise ToolError(reason or f"it {why}, and running it again was not approved")
        case Edit():
            raise ToolError(f"it {why}, and editing its arguments does not say whether it was done")
        case Approve():
            return None


def _ask(task: UserFrame, tool: Tool, request: ToolRequest, why: str) -> None:
    # This entry ends here: the tool reaches its other questions and memos when it runs again.
    task.entry.expect_nothing()
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=request.arguments, call_id=request.call_id, agent=request.agent),
        key=KEY,
        reason=REASON,
        prompt=f"'{tool.name}' {why}. Approve to run it again, or respond with its result.",
        schema=approval_schema(tool.schema),
    )
