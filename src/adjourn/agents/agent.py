"""The base class of all agents, also for custom ones."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn.errors import ProgramChanged
from adjourn.graph._node import Plan
from adjourn.tools import Tool

from ._config import AgentConfig, check_agent, value_of
from ._frame import AgentFrame
from ._transcript import Ending
from .agent_tool import AgentTool
from .custom import CustomFrame, custom_plan


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
