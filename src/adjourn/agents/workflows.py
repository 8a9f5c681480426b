"""Workflow agents: agents that run others in sequence, in parallel or in a loop."""

# Overrides are documented on the base class.

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace

from adjourn._generics import Deps_contra, Out_co
from adjourn._habits import checks_options
from adjourn.errors import UsageError
from adjourn.graph._node import Plan, Send

from ._config import check_agent
from ._frame import SCHEMA, AgentFrame
from ._nodes import AgentPlan
from ._transcript import Ending
from .agent import Agent


class _WorkflowAgent(Agent[Deps_contra, Out_co]):
    """An agent made of others."""

    @checks_options
    def __init__(self, name: str, *, agents: Sequence[Agent[Deps_contra, Any]], description: str = "") -> None:
        self.name = name
        self.description = description
        self._agents = tuple(agents)
        if not self._agents:
            raise UsageError(f"'{name}' has no agents to run. Give it some: agents=[...].")
        check_agent(self)
        names = [agent.name for agent in self._agents]
        if len(set(names)) < len(names):
            raise UsageError(f"'{name}' has two agents with the same name among {', '.join(names)}.")

    @property
    def agents(self) -> Sequence[Agent[Any, Any]]:
        return self._agents

    def make_plan(self) -> Plan:
        plan = AgentPlan(self.name, SCHEMA)
        for number, agent in enumerate(self._agents):
            plan.add_member(agent, partial(_after_member, number))
        return plan


def _after_member(number: int, frame: _WorkflowFrame) -> list[Send]:
    return frame.after_member(number)


class _WorkflowFrame(AgentFrame):
    """A running workflow agent."""

    agent: _WorkflowAgent

    def after_member(self, number: int) -> list[Send]:
        """Return what follows when the agent with this number, counted from 0, has ended."""
        raise NotImplementedError


class _RowFrame(_WorkflowFrame):
    """Agents in sequence, once."""

    loops = False

    @property
    def rounds(self) -> int | None:
        """The number of rounds; None for no limit."""
        return 1

    def first(self) -> list[Send]:
        return [(next(iter(self.plan.nodes.values())), None)]

    def after_member(self, number: int) -> list[Send]:
        row = list(self.plan.nodes.values())
        ending = self.ending_of(row[number].name)
        if ending.action == "break_loop" and self.loops:
            return self.end(replace(ending, action=None, trail=()))
        if ending.action in ("exit", "break_loop"):
            return self.end(replace(ending, trail=()))
        if number + 1 < len(row):
            return [(row[number + 1], None)]
        self.set_progress(rounds=self.progress.rounds + 1)
        if self.rounds is None or self.progress.rounds < self.rounds:
            return [(row[0], None)]
        return self.end(replace(ending, action=None, trail=()))


class _LoopFrame(_RowFrame):
    """Agents in sequence, in a loop."""

    loops = True

    @property
    def rounds(self) -> int | None:
        assert isinstance(self.agent, LoopAgent)
        return self.agent.max_iterations


class _ParallelFrame(_WorkflowFrame):
    """Agents in parallel."""

    runs_apart = True

    def first(self) -> list[Send]:
        return [(node, None) for node in self.plan.nodes.values()]

    def after_member(self, number: int) -> list[Send]:
        if self.progress.ending is not None:
            return []  # This is called for each of them, and the first call has ended the agent.
        endings: dict[str, Ending] = self.fields.values["endings"]
        # An agent that was added to the program while the others waited takes no part in this turn.
        ordered = [endings[agent.name] for agent in self.agent.agents if agent.name in endings]
        action = next((each.action for each in ordered if each.action in ("exit", "break_loop")), None)
        output = "\n\n".join(each.output for each in ordered if each.output)
        return self.end(Ending(output=output, action=action))


class SequentialAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in sequence; each sees what those before it said."""

    frame_type: ClassVar[type[AgentFrame]] = _RowFrame


class LoopAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in a loop, until one breaks the loop or ends the run, or for `max_iterations` rounds."""

    frame_type: ClassVar[type[AgentFrame]] = _LoopFrame

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        agents: Sequence[Agent[Deps_contra, Any]],
        max_iterations: int | None = None,
        description: str = "",
    ) -> None:
        super().__init__(name, agents=agents, description=description)
        if max_iterations is not None and max_iterations < 1:
            raise UsageError(f"LoopAgent '{name}': max_iterations={max_iterations}. Give 1 or more, or None.")
        self.max_iterations = max_iterations


class ParallelAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in parallel; their messages join the conversation in the agents' order when all have ended."""

    frame_type: ClassVar[type[AgentFrame]] = _ParallelFrame
