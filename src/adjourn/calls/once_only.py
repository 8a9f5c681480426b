"""Tools that run at most once: after a crash in the middle a person is asked, and nothing runs again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from adjourn.core.errors import Pause, ToolError
from adjourn.core.frame import UserFrame, decoded
from adjourn.core.interrupt import interrupt
from adjourn.core.record import Question
from adjourn.middleware.hooks import ToolRequest
from adjourn.tools import Approve, Edit, Reject, Respond, Tool, ToolCallInfo, approval_schema, decision

KEY = "at_most_once"
REASON = "need_decision"


@asynccontextmanager
async def begun(task: UserFrame, tool: Tool, request: ToolRequest) -> AsyncGenerator[str | None]:
    """Surround a call of a tool: gives a result, if a person gave one in its place."""
    number = next(each for each in count(1) if not task.is_loose(f"left:{each}"))
    asked = _passed(task, request)
    if task.is_loose(f"began:{number}"):
        # It is on record that it began, and not that it left: its process died in between, or it was cut off.
        text = _decided(task, tool, request, asked)
        if text is not None:
            yield text
            return
        task.loosen(f"again:{number}")
        task.loosen(f"left:{number}")
        number += 1
    task.loosen(f"began:{number}")
    await task.scope.journal.durable()
    try:
        yield None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise  # In the middle of what it did.
    except BaseException:
        task.loosen(f"left:{number}")
        raise
    # By a result, a failure or a pause: what it did is known, so it may be tried again.
    task.loosen(f"left:{number}")


def _passed(task: UserFrame, request: ToolRequest) -> list[Question]:
    """The questions about crashes so far, one for each, counted as asked in this entry: the tool's own come after."""
    asked = [question for question in task.questions or () if question.key == KEY and question.reason == REASON]
    mine = [question for question in asked if _is_about(question, request)]
    for question in mine:
        task.repeat(question.id)
        task.occurrence(f"ask:{KEY}")
    return mine


def _is_about(question: Question, request: ToolRequest) -> bool:
    info = decoded(question.info)
    return isinstance(info, ToolCallInfo) and info.call_id == request.call_id


def _decided(task: UserFrame, tool: Tool, request: ToolRequest, asked: list[Question]) -> str | None:
    """The result that a person gives, or None to run it again."""
    earlier = sum(memo.startswith("loose:again:") for memo in task.memos or ())
    if earlier == len(asked):
        _ask(task, tool, request)
    question = asked[earlier]
    if question.is_open:
        task.pausing = True
        raise Pause(question.id)
    match decision(decoded(question.value)):
        case Respond(text=text):
            return text
        case Reject(reason=reason):
            raise ToolError(reason or "it was running when its process died, and nobody knows whether it was done")
        case Edit():
            raise ToolError("it was running when its process died, and other arguments cannot tell whether it was done")
        case Approve():
            return None


def _ask(task: UserFrame, tool: Tool, request: ToolRequest) -> None:
    # This entry ends here: what else the tool has asked and kept, it comes to when it runs again.
    task.forgo()
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=request.arguments, call_id=request.call_id, agent=request.agent),
        key=KEY,
        reason=REASON,
        prompt=f"'{tool.name}' was running when its process died. Approve to run it again, or respond with its result.",
        schema=approval_schema(tool.schema),
    )
