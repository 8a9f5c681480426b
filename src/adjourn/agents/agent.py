"""Agents: what they have in common, and how one writes an agent of one's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from typing import Any

from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn._values.frozen import check_text
from adjourn.context import RunContext
from adjourn.errors import ProgramChanged, UsageError
from adjourn.events import Event
from adjourn.tools import Tool

from ._frame import AgentFrame
from ._inputs import AgentInput, ResumeInfo
from ._plan import AgentPlan
from ._progress import Ending
from .agent_tool import AgentTool
from .custom import CustomPlan


class Agent:
    """An agent. Subclass it, give it a `name` and a `description`, and write `run`; it holds no run's data.

    `run` is an async generator: each `MessageEvent` it yields joins the conversation, and the last one's text is the
    result. It may ask with `interrupt`, keep results with `@once`, and run others with `ctx.run`. When it is run again
    after a pause, what it has yielded before is not told again.
    """

    name: str = ""
    description: str = ""
    kind = "agent"

    def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        """Do the work."""
        raise NotImplementedError(f"Agent '{self.name}' has no `run`.")

    def resume(self, info: ResumeInfo, ctx: RunContext) -> AsyncIterator[Event]:
        """Go on after a pause: what it yields comes after what was yielded before. By default, `run` runs again."""
        return self.run(info.input, ctx)

    @property
    def steers_resume(self) -> bool:
        """Whether it goes on after a pause in a way of its own."""
        return type(self).resume is not Agent.resume

    @property
    def agents(self) -> Sequence[Agent]:
        """The agents directly below this one."""
        return ()

    @cached_property
    def plan(self) -> AgentPlan:
        """What the engine runs of this agent."""
        check_agent(self)
        return self.make_plan()

    def make_plan(self) -> AgentPlan:
        """Put the agent's nodes together."""
        return CustomPlan(self)

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        """A frame for this agent, from its stored image if there is one."""
        frame = AgentFrame(self.plan, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what stands there is no agent, as '{self.name}' is")
        frame.restore(image)
        return frame

    def give(self, product: Any) -> Any:
        """What code that has run this agent gets for it: its text, or its typed value."""
        return self.plan.value_of(product) if isinstance(product, Ending) else product

    def as_tool(self, **options: Any) -> Tool:
        """This agent as a tool of another; the options are those of `AgentTool`."""
        return AgentTool(self, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        # An agent of one's own may keep a client or the like; of ours, all that counts is in the plan by then.
        if "plan" in vars(self) and type(self).make_plan is not Agent.make_plan:
            raise AttributeError(f"Agent '{self.name}' is in use and cannot be changed. Make another one.")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'name', '')}>"


def check_agent(agent: Agent) -> None:
    """Refuse an agent without a name, or with a name twice among those below it.

    Raises:
        UsageError: naming it.
    """
    seen: dict[str, Agent] = {}
    for each in _tree(agent, ()):
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"{type(each).__name__} has no name. Give it one: it stands in addresses and records.")
        check_text(name, "An agent's name")
        if name in seen and seen[name] is not each:
            raise UsageError(f"Two agents below '{agent.name}' are called '{name}'. Give each a name of its own.")
        seen[name] = each


def _tree(agent: Agent, above: tuple[Agent, ...]) -> list[Agent]:
    if agent in above:
        raise UsageError(f"Agent '{agent.name}' is below itself. An agent's tree has no circles.")
    found = [agent]
    for child in agent.agents:
        if not isinstance(child, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"'{agent.name}' has {child!r} among its agents, which is no agent.")
        found += _tree(child, (*above, agent))
    return found
