"""Tools that run at most once.

They never run again automatically, neither after a crash in the middle nor on another branch or fork: a person is
asked instead. That a call begins is stored under a digest that all branches and forks of a session have in common, and
that outlives them. It is stored before anybody looks: of two forks that begin at once, each finds the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import NoReturn

from adjourn._engine.entry import entry_of
from adjourn._engine.frame import UserFrame
from adjourn._engine.record import Question
from adjourn._engine.values import decoded
from adjourn._values import codec
from adjourn.errors import ToolError
from adjourn.interrupts import interrupt
from adjourn.middleware.hooks import ToolRequest
from adjourn.tools import Approve, Edit, Reject, Respond, Tool, ToolCallInfo, approval_schema, decision
from adjourn.tools.decisions import has_words

KEY = "at_most_once"
REASON = "need_decision"

CRASHED = "was running when its process died"
ELSEWHERE = "may have run before, on another branch or fork of this session"


@asynccontextmanager
async def begun(task: UserFrame, tool: Tool, request: ToolRequest) -> AsyncGenerator[str | None]:
    """Surround a call of a tool; yield a result if a person provided one instead."""
    number = next(each for each in count(1) if not task.is_noted("left", each))
    crashed = task.is_noted("began", number)  # But not "left": its process died in between, or it was cancelled.
    asked = _passed(task, request)
    waiting = next((each for each in asked if each.is_open or not _was_used(task, each)), None)
    if crashed or waiting is not None:
        text = _decided(task, tool, request, waiting, CRASHED if crashed else ELSEWHERE)
        if text is not None:
            yield text
            return
    if crashed:
        task.note("left", number)
        number += 1
    task.note("began", number)
    if await _has_begun_elsewhere(task, request) and not any(_was_used(task, each) for each in asked):
        task.note("left", number)
        _ask(task, tool, request, ELSEWHERE)
    try:
        yield None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise  # It stopped in the middle.
    except BaseException:
        task.note("left", number)
        raise
    # It ended with a result, a failure or a pause: what it did is known, so it may be tried again.
    task.note("left", number)


async def _has_begun_elsewhere(task: UserFrame, request: ToolRequest) -> bool:
    """Store that the call begins, and return whether it has begun in a place that does not lead here."""
    scope = task.scope
    digest = codec.fingerprint([scope.lineage, request.tool, dict(request.arguments)])
    begun = await scope.journal.note_begin(digest)
    return not all(scope.leads_here(each.place, each.number) for each in begun)


def _passed(task: UserFrame, request: ToolRequest) -> list[Question]:
    """Return the questions of this kind so far, and count them as asked in this entry: the tool's own come after."""
    asked = [question for question in task.questions or () if question.key == KEY and question.reason == REASON]
    mine = [question for question in asked if _is_about(question, request)]
    for question in mine:
        entry_of(task).passed(question)
    return mine


def _is_about(question: Question, request: ToolRequest) -> bool:
    info = decoded(question.info)
    return isinstance(info, ToolCallInfo) and info.call_id == request.call_id


def _was_used(task: UserFrame, question: Question) -> bool:
    """Return whether the answer that the question has on this branch was acted on."""
    return task.is_noted(_use_of(task, question))


def _use_of(task: UserFrame, question: Question) -> str:
    # On another branch or fork it is asked again, and has another answer.
    return f"used:{codec.fingerprint([task.scope.place, question.id])}"


def _decided(task: UserFrame, tool: Tool, request: ToolRequest, question: Question | None, why: str) -> str | None:
    """Return the result that a person provided, or None to run the tool again."""
    if question is None:
        _ask(task, tool, request, why)
    if question.is_open:
        entry_of(task).wait_for(question)
    found = decision(decoded(question.value))
    if has_words(found):
        task.scope.note_speaker(question.by)
    match found:
        case Respond(text=text):
            return text
        case Reject(reason=reason):
            raise ToolError(reason or f"it {why}, and running it again was not approved")
        case Edit():
            raise ToolError(f"it {why}, and editing its arguments does not say whether it was done")
        case Approve():
            task.note(_use_of(task, question))
            return None


def _ask(task: UserFrame, tool: Tool, request: ToolRequest, why: str) -> NoReturn:
    # This entry ends here: the tool reaches its other questions and memos when it runs again.
    entry_of(task).expect_nothing()
    interrupt(
        ToolCallInfo(tool=tool.name, arguments=request.arguments, call_id=request.call_id, agent=request.agent),
        key=KEY,
        reason=REASON,
        tags=tool.tags,
        prompt=f"'{tool.name}' {why}. Approve to run it again, or respond with its result.",
        schema=approval_schema(tool.schema),
    )
    raise AssertionError("asking pauses")
