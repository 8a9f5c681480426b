"""Agents: what they have in common, and how custom agents are written."""

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
    """An agent. Subclass it, give it a `name` and a `description`, and write `run`; it holds no run's data.

    `run` is an async generator: each `MessageEvent` it yields joins the conversation, and the last one's text is the
    result. It may ask with `interrupt`, keep results with `@once`, and run others with `ctx.run`. When it is run again
    after a pause, what it has yielded before is not emitted again.
    """

    frame_type: ClassVar[type[AgentFrame]] = CustomFrame
    """What runs it."""

    @cached_property
    def plan(self) -> Plan:
        """What the engine runs of this agent."""
        check_agent(self)
        return self.make_plan()

    def make_plan(self) -> Plan:
        """Put the agent's nodes together."""
        return custom_plan(self.name)

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        """A frame for this agent, from its stored image if there is one."""
        frame = self.frame_type(self, self.plan, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what stands there is not an agent, as '{self.name}' is")
        frame.restore(image)
        return frame

    def convert_product(self, product: Any) -> Any:
        """What code that has run this agent gets for it: its text, or its typed value."""
        return value_of(self, product) if isinstance(product, Ending) else product

    def as_tool(self, **options: Any) -> Tool:
        """This agent as a tool of another; the options are those of `AgentTool`."""
        return AgentTool(self, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        # A custom agent may keep a client or the like; of ours, all that counts is in the plan by then.
        if "plan" in vars(self) and type(self).make_plan is not Agent.make_plan:
            raise AttributeError(f"Agent '{self.name}' is in use and cannot be changed. Make another one.")
        super().__setattr__(name, value)
