"""The tools of an agent as a node: one task for each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from adjourn.calls.approval import must_ask
from adjourn.calls.using import Outcome, use
from adjourn.core.errors import LimitExceeded
from adjourn.core.events import ToolResult
from adjourn.graph.task import HANDLED, Task
from adjourn.messages import Message, ToolCall

from .frame import FULL, AgentFrame, number_of
from .transcript import Edited

if TYPE_CHECKING:
    from .chat import ChatModelAgent


async def use_tool(task: Task) -> object:
    """Run one call, and note its result."""
    frame, number = cast("AgentFrame", task.graph), number_of(task)
    call = frame.calls[number - 1]
    _check_limit(frame, number)
    assert frame.kit is not None
    _conclude(task, frame, call, await use(task, frame, frame.kit, call))
    return HANDLED


def asks_first(frame: AgentFrame, task: Task) -> bool:
    """Whether a person will be asked about a call, before any code of the user's has run."""
    assert frame.kit is not None
    tool = frame.kit.tools.get(frame.calls[number_of(task) - 1].name)
    return tool is not None and must_ask(frame, tool)


def _check_limit(frame: AgentFrame, number: int) -> None:
    """Refuse a tool call too many; those before it in its batch run."""
    limit = cast("ChatModelAgent", frame.agent).limits.tool_calls
    if limit is not None and frame.progress.tool_calls - len(frame.calls) + number > limit:
        raise LimitExceeded(frame.agent.name, "tool_calls", limit)


def _conclude(task: Task, frame: AgentFrame, call: ToolCall, outcome: Outcome) -> None:
    message = Message.tool(outcome.content, tool_call_id=call.id, name=call.name)
    if outcome.error is not None:
        message = message.with_finish("error")
    entries = [frame.entry(message)]
    if outcome.arguments is not None:
        edited = Edited(call_id=call.id, arguments=outcome.arguments, by=outcome.by)
        entries.insert(0, frame.edit_entry(edited))
    task.writes = [("entries", entries, True)]
    assert frame.kit is not None
    if call.name in frame.kit.return_directly and outcome.error is None:
        # It is told when all calls have results.
        if outcome.full is not None:
            task.write_value(FULL + call.id, outcome.full)
        return
    frame.tell(
        ToolResult(
            address=task.address,
            tool=call.name,
            call_id=call.id,
            result=message.text,
            error=outcome.error,
            full=outcome.full,
        )
    )
