"""The base class of all agents, and custom agents: an async generator that runs again from the top after a pause."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, ClassVar, cast

from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn._engine.values import decoded
from adjourn._values.damage import Reading
from adjourn.context import RunContext, current
from adjourn.errors import ProgramChanged, UsageError
from adjourn.events import BreakLoop, Exit, MessageEvent
from adjourn.graph._frame import HANDLED, Task
from adjourn.graph._node import Plan, Send
from adjourn.tools import Tool

from ._config import AgentConfig, AgentInput, ResumeInfo, check_agent, value_of
from ._frame import SCHEMA, AgentFrame
from ._nodes import AgentPlan
from ._transcript import Ending
from .agent_tool import AgentTool

# Overrides are documented on the base class.
# ruff: noqa: D102


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


class Agent(AgentConfig):
    """An agent. To write a custom one, subclass it, set `name` and `description`, and write `run`.

    `run` is an async generator: each `MessageEvent` it yields joins the conversation, and the last one's text is the
    result. It can ask with `interrupt`, keep results with `@once`, and run other programs with `ctx.run`. When it runs
    again after a pause, events that it has already yielded are not emitted again. An agent holds no data of any run.
    """

    frame_type: ClassVar[type[AgentFrame]] = CustomFrame
    """The type of the frame that runs it."""

    @cached_property
    def plan(self) -> Plan:
        """The compiled nodes of this agent."""
        check_agent(self)
        return self.make_plan()

    def make_plan(self) -> Plan:
        """Compile the agent's nodes."""
        return custom_plan(self.name)

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        """Return a frame for this agent, restored from its stored image if there is one."""
        frame = self.frame_type(self, self.plan, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what is stored there is not an agent, but '{self.name}' is")
        with Reading(scope.session_id):
            frame.restore(image)
        return frame

    def convert_product(self, product: Any) -> Any:
        """Return what code that ran this agent gets: its text, or its typed value."""
        return value_of(self, product) if isinstance(product, Ending) else product

    def as_tool(self, **options: Any) -> Tool:
        """Return this agent as a tool for another one; the options are those of `AgentTool`."""
        return AgentTool(self, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        # A custom agent may set a client or the like; a built-in one has put everything that matters into its plan.
        if "plan" in vars(self) and type(self).make_plan is not Agent.make_plan:
            raise AttributeError(f"Agent '{self.name}' is in use and cannot be changed. Create another one.")
        super().__setattr__(name, value)
