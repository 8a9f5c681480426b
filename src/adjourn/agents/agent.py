"""The base class of all agents, and custom agents: an async generator that runs again from the top after a pause."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from msgspec.structs import replace

from adjourn._engine.entry import entry_of
from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Action, Frame, Scope
from adjourn._engine.values import decoded
from adjourn._generics import Deps_contra, Out_co
from adjourn._values.damage import Reading
from adjourn.context import RunContext, current
from adjourn.errors import LimitExceeded, ProgramChanged, ToolError, UsageError
from adjourn.events import BreakLoop, Exit
from adjourn.graph._frame import HANDLED, Task
from adjourn.graph._node import Send
from adjourn.graph.draw import notebook
from adjourn.tools import Tool

from ._config import AgentConfig, AgentInput, AgentToolOptions, ResumeInfo, check_agent, value_of
from ._frame import ENTRIES, AgentFrame, AgentPlan
from ._handoff import HandoffPlan, hand_over
from ._speaking import Speaking
from ._transcript import Ending
from .agent_tool import AgentTool
from .draw import draw_agent

# Overrides are documented on the base class.
# ruff: noqa: D102


SEEN = Key(Kind.NOTE, "seen")
"""The note that keeps how many messages the code was given."""


class CustomPlan(HandoffPlan):
    """The plan of a custom agent, which has one step, its code, and the agents that it hands over to.

    Raises:
        UsageError: the agent has middleware, which would surround nothing.
    """

    def __init__(self, agent: AgentConfig) -> None:
        if getattr(type(agent), "middleware", ()):
            raise UsageError(
                f"{type(agent).__name__} has `middleware`, which only agents with a model or a graph use: its own code "
                "can do this itself. Give it to those that it runs: ChatModelAgent(..., middleware=[...])."
            )
        super().__init__(agent)
        self.add("run", self.run_code, self.after_code)
        self.add_sub_agents(agent.sub_agents)

    def own_turn(self, frame: AgentFrame) -> list[Send]:
        frame.set_progress(start=len(frame.transcript.entries))
        return [(self.nodes["run"], None)]

    async def run_code(self, frame: AgentFrame, task: Task) -> object:
        """Run the agent's code, and record the messages that it yields."""
        speaking = Speaking(frame, entry_of(task))
        try:
            async for said in self._iterator(self._events(frame, task, current())):
                await speaking.say(said)
            speaking.check_whole()
        except BaseException:
            speaking.discard("it stopped")
            raise
        return HANDLED

    def _iterator(self, made: object) -> AsyncIterator[Any]:
        if isinstance(made, AsyncIterator):
            return cast("AsyncIterator[Any]", made)
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError(
            f"`run` of agent '{self.name}' is not an async generator. Write `async def run(self, input, ctx)` "
            "with a `yield` in it."
        )

    def _events(self, frame: AgentFrame, task: Task, context: RunContext) -> AsyncIterator[Any]:
        # A view that does not grow while the code runs: otherwise, which of its own messages it has would depend on
        # when the code was interrupted.
        seen, said = task.kept(SEEN), frame.seen()
        count: int = len(said) if seen is None else decoded(seen.result)
        if seen is None:
            task.keep(SEEN, count, optional=True)
        messages = tuple(said[:count])
        prompt = frame.view.last_prompt(frame.transcript.sources)
        given = AgentInput(messages=messages, text="" if prompt is None else prompt.text, message=prompt)
        if not context.was_interrupted or not self.agent.steers_resume:
            return self.agent.run(given, context)
        info = ResumeInfo(
            input=given,
            state=context.interrupt_state,
            is_target=context.is_resume_target,
            has_data=context.has_resume_data,
            data=context.resume_data,
        )
        entry_of(task).steer_by_hand()
        return self.agent.resume(info, context)

    def children_ended(self, frame: AgentFrame, task: Task) -> None:
        # Agents that the code runs one after the other speak in one conversation; those beside each other join later.
        for said in task.take_values(ENTRIES).values():
            frame.transcript.join(said)

    def after_code(self, frame: AgentFrame) -> list[Send]:
        """End the agent when its code has returned."""
        action, output = frame.turn.next_action(), self._last_text(frame)
        if action is None:
            return frame.end(Ending(output=output))
        if action.name == "exit":
            result = action.arguments["result"]
            frame.emit(Exit(address=frame.address, result=result))
            return frame.end(Ending(output=result or output, action="exit"))
        if action.name == "transfer":
            return hand_over(frame, action.arguments["target"])
        frame.emit(BreakLoop(address=frame.address))
        return frame.end(Ending(output=output, action="break_loop"))

    def check_action(self, frame: AgentFrame, action: Action) -> None:
        limit = self.agent.max_handovers
        if action.name == "transfer" and frame.progress.trail.count(self.name) > limit:
            raise LimitExceeded(self.name, "handovers", limit)
        try:
            super().check_action(frame, action)
        except ToolError as error:
            raise UsageError(
                f"Agent '{self.name}' cannot hand over. {error} Name the agents that it hands over to in its "
                "`sub_agents`."
            ) from None

    def _last_text(self, frame: AgentFrame) -> str:
        """Return the last text of this agent since it began; if it said nothing, what the last one it ran returned."""
        entries = frame.transcript.entries[frame.progress.start :]
        said = [each for each in entries if each.message is not None and each.message.role == "assistant"]
        own = [each for each in said if each.author == self.name]
        if not own and frame.turn.output_below:
            return frame.turn.output_below
        last = (own or said)[-1:]
        return last[0].message.text if last and last[0].message is not None else ""


class ShellPlan(HandoffPlan):
    """The plan of an agent that is another one under a different name."""

    is_transparent = True

    def __init__(self, agent: AgentConfig) -> None:
        super().__init__(agent)
        self.add_sub_agents(agent.sub_agents)

    def first(self, frame: AgentFrame) -> list[Send]:
        return self.own_turn(frame)

    def own_turn(self, frame: AgentFrame) -> list[Send]:
        return [(next(iter(self.nodes.values())), None)]

    def after_handoff(self, name: str, frame: AgentFrame) -> list[Send]:
        return frame.end(replace(frame.ending_of(name), trail=()))


class Agent(AgentConfig[Deps_contra, Out_co]):
    """An agent. To write a custom one, subclass it, set `name` and `description`, and write `run`.

    `run` is an async generator: each `MessageEvent` it yields joins the conversation, and the last one's text is the
    result; if it yields none, the result of the last agent that it ran. The pieces of a message may come before it, as
    `Delta`s; or it yields a stream of a model's chunks, or of texts, which becomes a message. It can ask with
    `interrupt`, keep results with `@once`, run other programs with `ctx.run`, and hand over to one of its `sub_agents`
    or back with `ctx.transfer_to`, at most `max_handovers` times in a turn. When it runs again after a pause, events
    that it has already yielded are not emitted again. An agent holds no data of any run.
    """

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **options: Any) -> None:
            if type(self) is Agent:
                raise UsageError(
                    "Agent is what custom agents inherit from. For a model with tools, write "
                    "ChatModelAgent('Name', model=..., instruction='...', tools=[...])."
                )
            if args or options:
                raise TypeError(f"{type(self).__name__}() takes no arguments: it has no `__init__` of its own.")

    @cached_property
    def plan(self) -> AgentPlan:
        """The compiled nodes of this agent."""
        check_agent(self)
        return self.make_plan()

    def make_plan(self) -> AgentPlan:
        """Compile the agent's nodes."""
        return CustomPlan(self)

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        """Return a frame for this agent, restored from its stored image if there is one."""
        frame = AgentFrame(self, self.plan, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what is stored there is not an agent, but '{self.name}' is")
        with Reading(scope.session_id):
            frame.restore(image)
        return frame

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Draw the agent, and those below it, in a notebook."""
        return notebook(partial(draw_agent, self))

    def convert_product(self, product: Any) -> Out_co:
        """Return what code that ran this agent gets: its text, or its typed value."""
        return value_of(self, product) if isinstance(product, Ending) else product

    def as_tool(self, **options: Unpack[AgentToolOptions]) -> Tool:
        """Return this agent as a tool for another one; the options are those of `AgentTool`."""
        return AgentTool(self, **options)

    def renamed(self, name: str, *, description: str | None = None) -> Agent:
        """Return this agent under another name, and with another description if one is given.

        It says what this one says, under this one's name, and hands over, exits and returns values as this one does.
        """
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"'{self.name}' cannot be renamed to {name!r}. Give the name that it gets, a text.")
        return _Shell(self, name, self.description if description is None else description)

    def __setattr__(self, name: str, value: Any) -> None:
        # A custom agent may set a client or the like; a built-in one has put everything that matters into its plan.
        if "plan" in vars(self) and type(self).make_plan is not Agent.make_plan:
            raise AttributeError(f"Agent '{self.name}' is in use and cannot be changed. Create another one.")
        super().__setattr__(name, value)


class _Shell(Agent):
    """An agent that is another one under a different name."""

    def __init__(self, inner: Agent, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.sub_agents = (inner,)
        self.output_type = inner.output_type
        self._inner = inner
        check_agent(self)

    def option_names(self) -> dict[str, str]:
        names = self._inner.option_names()
        return names | {self.name: names[self._inner.name]} if self._inner.name in names else names

    def make_plan(self) -> AgentPlan:
        return ShellPlan(self)
