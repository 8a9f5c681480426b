"""Agents of one's own: an async generator in a frame, which is run again from its top."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from adjourn._engine.frame import decoded
from adjourn.context import RunContext, current
from adjourn.errors import UsageError
from adjourn.events import BreakLoop, Exit, MessageEvent
from adjourn.graph._task import HANDLED, Send, Task

from ._frame import AgentFrame
from ._inputs import AgentInput, ResumeInfo
from ._plan import AgentPlan
from ._progress import Ending

if TYPE_CHECKING:
    from .agent import Agent


class CustomPlan(AgentPlan):
    """The graph of an agent of one's own: one node, its code."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.code = self.add("run", run)
        self.code.decide = after_run  # pyright: ignore[reportAttributeAccessIssue]  # the frame is an agent's

    def first(self, frame: AgentFrame) -> list[Send]:
        frame.set_progress(start=len(frame.owner.channels["entries"]))
        return [(self.code, None)]


async def run(task: Task) -> object:
    """Run the agent's code, and take what it yields."""
    frame = cast("AgentFrame", task.graph)
    context = current()
    async for event in _iterator(frame, _events(frame, task, context)):
        if not isinstance(event, MessageEvent):
            raise UsageError(
                f"Agent '{frame.agent.name}' yielded {event!r}. Yield MessageEvent(message=...); for anything else "
                "there are ctx.emit, ctx.exit and ctx.break_loop."
            )
        if task.sends_next():
            message = frame.owner.identified(event.message)
            frame.owner.extend([frame.entry(message)])
            frame.emit(MessageEvent(address=frame.address, message=message))
            frame.scope.journal.soon()
    return HANDLED


def _iterator(frame: AgentFrame, made: object) -> AsyncIterator[Any]:
    if isinstance(made, AsyncIterator):
        return cast("AsyncIterator[Any]", made)
    if inspect.iscoroutine(made):
        made.close()
    raise UsageError(
        f"`run` of agent '{frame.agent.name}' is no async generator. Write `async def run(self, input, ctx)` with a "
        "`yield` in it."
    )


def _events(frame: AgentFrame, task: Task, context: RunContext) -> AsyncIterator[Any]:
    # A view that does not grow while the code runs: its own messages would be missing or there, as it was cut off.
    if "seen" not in (task.memos or {}):
        task.keep("seen", len(frame.view.update(frame.sources)))
        task.loosen("seen")
    count: int = decoded((task.memos or {})["seen"])
    messages = tuple(frame.view.update(frame.sources)[:count])
    told = frame.told_last()
    given = AgentInput(messages=messages, text="" if told is None else told.text)
    if not context.was_interrupted or not frame.agent.steers_resume:
        return frame.agent.run(given, context)
    info = ResumeInfo(
        input=given,
        state=context.interrupt_state,
        is_target=context.is_resume_target,
        has_data=context.has_resume_data,
        data=context.resume_data,
    )
    return frame.agent.resume(info, context)


def after_run(frame: AgentFrame) -> list[Send]:
    """The agent's code has returned."""
    actions, frame.actions = frame.actions, []
    output = last_text(frame)
    for action in actions[:1]:
        if action["action"] == "exit":
            frame.emit(Exit(address=frame.address, result=action["result"]))
            return frame.end(Ending(output=action["result"] or output, action="exit"))
        frame.emit(BreakLoop(address=frame.address))
        return frame.end(Ending(output=output, action="break_loop"))
    return frame.end(Ending(output=output))


def last_text(frame: AgentFrame) -> str:
    """What this agent has said last since it began."""
    for entry in reversed(frame.owner.channels["entries"][frame.progress.start :]):
        if entry.author == frame.agent.name and entry.message is not None and entry.message.role == "assistant":
            return entry.message.text
    return ""
