"""Supervisor: an agent whose members hand back to it by themselves."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from adjourn._engine.program import ProgramFrame
from adjourn.errors import UsageError, text_of
from adjourn.graph._task import Send, Task
from adjourn.messages import Message
from adjourn.models import ChatModel

from ._frame import AgentFrame
from ._plan import AgentPlan, agent_node
from ._progress import Ending
from ._transfer import chain_of
from .agent import Agent
from .chat.agent import ChatModelAgent, ChatPlan

INSTRUCTION = (
    "You supervise the agents below. Hand over to the one that fits what is to be done, one at a time. When it has "
    "answered, you go on: hand over again, or answer the user."
)


class Supervisor(ChatModelAgent):
    """A model that hands work to members and gets it back when each has answered; further options are the model's.

    A member that fails is told to the model. A member that ends the run ends it.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        agents: Sequence[Agent],
        instruction: str = INSTRUCTION,
        **options: Any,
    ) -> None:
        if not agents:
            raise UsageError(f"Supervisor '{name}' has nobody to supervise. Give it agents=[...].")
        super().__init__(name, model=model, instruction=instruction, sub_agents=agents, **options)

    def make_plan(self) -> AgentPlan:
        return _SupervisorPlan(self)


class _SupervisorPlan(ChatPlan):
    """A chat-model agent's graph in which members lead back to the model."""

    def __init__(self, agent: ChatModelAgent) -> None:
        super().__init__(agent)
        for member in agent.sub_agents:
            spec = self.specs[agent_node(member.name)]
            spec.decide = partial(self._after, member.name)  # pyright: ignore[reportAttributeAccessIssue]  # an agent's frame
            spec.forgive = _forgive

    def first(self, frame: AgentFrame) -> list[Send]:
        self._take_back(frame)  # A turn begins here, whoever had the last one when that was given up.
        return super().first(frame)

    def _after(self, name: str, frame: AgentFrame) -> list[Send]:
        ending: Ending = frame.channels["endings"][name]
        self._take_back(frame)
        if ending.action in ("exit", "break_loop"):
            return frame.end(replace(ending, trail=()))
        frame.set_progress(trail=(*ending.trail, frame.agent.name))
        return [(self.model, None)]

    def _take_back(self, frame: AgentFrame) -> None:
        chain = chain_of(frame)
        if chain is not None:
            frame.owner.set_active(chain)


def _forgive(task: Task, child: ProgramFrame, error: Exception) -> None:
    """Tell the supervisor's model that a member has failed."""
    assert isinstance(child, AgentFrame)
    assert isinstance(task.graph, AgentFrame)
    name, graph = child.agent.name, task.graph
    told = Message.user(f"For context: {name} failed: {type(error).__name__}: {text_of(error)}")
    ending = Ending(action="failed", trail=child.progress.trail)
    # What the member has called gets results, real ones or none: it may have the turn again.
    left = graph.owner.whole(closing=True)[len(graph.owner.channels["entries"]) :]
    graph.owner.pass_ids(left)
    task.writes = [("endings", {name: ending}, True), ("entries", [*left, graph.entry(told)], True)]
