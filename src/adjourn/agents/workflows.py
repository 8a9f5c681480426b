"""Workflow agents: agents that run others in sequence, in parallel or in a loop."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from adjourn._generics import Deps_contra, Out_co
from adjourn._habits import checks_options
from adjourn.errors import UsageError
from adjourn.graph._node import Send

from ._config import Sketch, check_agent
from ._frame import AgentFrame, AgentPlan
from ._transcript import Ending
from .agent import Agent


class _WorkflowAgent(Agent[Deps_contra, Out_co]):
    """An agent made of others."""

    @checks_options
    def __init__(self, name: str, *, agents: Sequence[Agent[Deps_contra, Any]], description: str = "") -> None:
        """Make an agent of others.

        name: used in addresses and records; it must be unique in the agent's tree.
        agents: the agents that it runs; the conversation has their order.
        description: describes this agent to other agents that can hand over to it or call it.
        """
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


class _Row(AgentPlan):
    """Agents in sequence: once, or in a loop."""

    def __init__(self, agent: _WorkflowAgent, rounds: int | None = 1, *, loops: bool = False) -> None:
        super().__init__(agent)
        self._rounds = rounds
        self._loops = loops
        self._row = [self.add_member(each, partial(self._after, number)) for number, each in enumerate(agent.agents)]

    def first(self, frame: AgentFrame) -> list[Send]:
        return [(self._row[0], None)]

    def _after(self, number: int, frame: AgentFrame) -> list[Send]:
        """Return what follows when the agent with this number, counted from 0, has ended."""
        ending = frame.ending_of(self._row[number].name)
        if ending.action == "break_loop" and self._loops:
            return frame.end(replace(ending, action=None, trail=()))
        if ending.action in ("exit", "break_loop"):
            return frame.end(replace(ending, trail=()))
        if number + 1 < len(self._row):
            return [(self._row[number + 1], None)]
        frame.set_progress(rounds=frame.progress.rounds + 1)
        if self._rounds is None or frame.progress.rounds < self._rounds:
            return [(self._row[0], None)]
        return frame.end(replace(ending, action=None, trail=()))


class _Parallel(AgentPlan):
    """Agents in parallel."""

    runs_apart = True

    def __init__(self, agent: _WorkflowAgent) -> None:
        super().__init__(agent)
        for each in agent.agents:
            self.add_member(each, self._after)

    def first(self, frame: AgentFrame) -> list[Send]:
        return [(node, None) for node in self.nodes.values()]

    def _after(self, frame: AgentFrame) -> list[Send]:
        if frame.progress.ending is not None:
            return []  # This is called for each of them, and the first call has ended the agent.
        endings: dict[str, Ending] = frame.fields.values["endings"]
        # An agent that was added to the program while the others waited takes no part in this turn.
        ordered = [endings[agent.name] for agent in self.agent.agents if agent.name in endings]
        action = next((each.action for each in ordered if each.action in ("exit", "break_loop")), None)
        output = "\n\n".join(each.output for each in ordered if each.output)
        return frame.end(Ending(output=output, action=action))


class SequentialAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in sequence; each sees what those before it said."""

    def make_plan(self) -> AgentPlan:
        return _Row(self)

    def sketch(self) -> Sketch:
        return replace(super().sketch(), is_row=True)


class LoopAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in a loop, until one breaks the loop or ends the run, or for `max_iterations` rounds."""

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        agents: Sequence[Agent[Deps_contra, Any]],
        max_iterations: int | None = None,
        description: str = "",
    ) -> None:
        """Make an agent that repeats others.

        max_iterations: how many rounds there are at most; None for no limit.
        """
        super().__init__(name, agents=agents, description=description)
        if max_iterations is not None and max_iterations < 1:
            raise UsageError(f"LoopAgent '{name}': max_iterations={max_iterations}. Give 1 or more, or None.")
        self.max_iterations = max_iterations

    def make_plan(self) -> AgentPlan:
        return _Row(self, self.max_iterations, loops=True)

    def sketch(self) -> Sketch:
        return replace(super().sketch(), is_row=True)


class ParallelAgent(_WorkflowAgent[Deps_contra, Out_co]):
    """Runs agents in parallel; their messages join the conversation in the agents' order when all have ended."""

    def make_plan(self) -> AgentPlan:
        return _Parallel(self)
