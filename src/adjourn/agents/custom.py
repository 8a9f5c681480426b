"""Custom agents: an async generator in a frame, which runs again from the top after a pause."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, cast

from adjourn._engine.frame import decoded
from adjourn._engine.memos import Key, Kind
from adjourn.context import RunContext, current
from adjourn.errors import UsageError
from adjourn.events import BreakLoop, Exit, MessageEvent
from adjourn.graph._frame import HANDLED, Task
from adjourn.graph._node import Plan, Send

from ._config import AgentInput, ResumeInfo
from ._frame import SCHEMA, AgentFrame
from ._nodes import AgentPlan
from ._transcript import Ending

SEEN = Key(Kind.NOTE, "seen")
"""The note that keeps how many messages the code was given."""


class CustomFrame(AgentFrame):
    """A running custom agent: its code is its only step."""

    def first(self) -> list[Send]:
        self.set_progress(start=len(self.owner.fields.values["entries"]))
        return [(self.plan.nodes["run"], None)]

    async def run_code(self, task: Task) -> object:
        """Run the agent's code, and record the events that it yields."""
        context = current()
        async for event in self._iterator(self._events(task, context)):
            if not isinstance(event, MessageEvent):
                raise UsageError(
                    f"Agent '{self.agent.name}' yielded {event!r}. Yield MessageEvent(message=...); for anything else, "
                    "use ctx.emit, ctx.exit and ctx.break_loop."
                )
            if task.entry.emits_next():
                message = self.owner.identified(event.message)
                self.owner.extend([self.entry(message)])
                self.emit(MessageEvent(address=self.address, message=message))
                self.scope.journal.soon()
        return HANDLED

    def _iterator(self, made: object) -> AsyncIterator[Any]:
        if isinstance(made, AsyncIterator):
            return cast("AsyncIterator[Any]", made)
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError(
            f"`run` of agent '{self.agent.name}' is not an async generator. Write `async def run(self, input, ctx)` "
            "with a `yield` in it."
        )

    def _events(self, task: Task, context: RunContext) -> AsyncIterator[Any]:
        # A view that does not grow while the code runs: otherwise, which of its own messages it has would depend on
        # when the code was interrupted.
        seen, said = task.kept(SEEN), self.view.update(self.sources)
        count: int = len(said) if seen is None else decoded(seen.result)
        if seen is None:
            task.keep(SEEN, count, optional=True)
        messages = tuple(said[:count])
        prompt = self.last_prompt()
        given = AgentInput(messages=messages, text="" if prompt is None else prompt.text)
        if not context.was_interrupted or not self.agent.steers_resume:
            return self.agent.run(given, context)
        info = ResumeInfo(
            input=given,
            state=context.interrupt_state,
            is_target=context.is_resume_target,
            has_data=context.has_resume_data,
            data=context.resume_data,
        )
        task.entry.steer_by_hand()
        return self.agent.resume(info, context)

    def after_code(self) -> list[Send]:
        """End the agent when its code has returned."""
        action, output = self.next_action(), self._last_text()
        if action is None:
            return self.end(Ending(output=output))
        if action.name == "exit":
            result = action.arguments["result"]
            self.emit(Exit(address=self.address, result=result))
            return self.end(Ending(output=result or output, action="exit"))
        self.emit(BreakLoop(address=self.address))
        return self.end(Ending(output=output, action="break_loop"))

    def _last_text(self) -> str:
        """Return the last text of this agent since it began."""
        for entry in reversed(self.owner.fields.values["entries"][self.progress.start :]):
            if entry.author == self.agent.name and entry.message is not None and entry.message.role == "assistant":
                return entry.message.text
        return ""


def custom_plan(name: str) -> Plan:
    """Return the plan of a custom agent, which has one step."""
    plan = AgentPlan(name, SCHEMA)
    plan.add("run", CustomFrame.run_code, CustomFrame.after_code)
    return plan
