"""Workflow agents: agents that run others in a row, side by side, or again and again."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from adjourn.errors import UsageError
from adjourn.graph._task import Send

from ._frame import AgentFrame
from ._plan import AgentPlan
from ._progress import Ending
from .agent import Agent, check_agent


class _WorkflowAgent(Agent):
    """An agent made of others."""

    def __init__(self, name: str, *, agents: Sequence[Agent], description: str = "") -> None:
        self.name = name
        self.description = description
        self._agents = tuple(agents)
        if not self._agents:
            raise UsageError(f"'{name}' has no agents to run. Give it some: agents=[...].")
        check_agent(self)
        names = [agent.name for agent in self._agents]
        if len(set(names)) < len(names):
            raise UsageError(f"'{name}' has two agents of one name among {', '.join(names)}.")

    @property
    def agents(self) -> Sequence[Agent]:
        return self._agents


class SequentialAgent(_WorkflowAgent):
    """Runs agents in a row; each sees what those before it have said."""

    def make_plan(self) -> AgentPlan:
        return _RowPlan(self)


class LoopAgent(_WorkflowAgent):
    """Runs agents in a row, again and again, until one leaves the loop or ends the run, or `max_iterations` rounds."""

    def __init__(
        self, name: str, *, agents: Sequence[Agent], max_iterations: int | None = None, description: str = ""
    ) -> None:
        super().__init__(name, agents=agents, description=description)
        if max_iterations is not None and max_iterations < 1:
            raise UsageError(f"LoopAgent '{name}': max_iterations={max_iterations}. Give 1 or more, or None.")
        self.max_iterations = max_iterations

    def make_plan(self) -> AgentPlan:
        return _RowPlan(self, rounds=self.max_iterations, loops=True)


class ParallelAgent(_WorkflowAgent):
    """Runs agents side by side; what they say joins the conversation in their order, when all have ended."""

    def make_plan(self) -> AgentPlan:
        return _SidePlan(self)


class _RowPlan(AgentPlan):
    """Agents in a row, once or in rounds."""

    def __init__(self, agent: Agent, *, rounds: int | None = 1, loops: bool = False) -> None:
        super().__init__(agent)
        self._rounds = rounds
        self._loops = loops
        self._row = [self.add_agent(child, partial(self._after, number)) for number, child in enumerate(agent.agents)]

    def first(self, frame: AgentFrame) -> list[Send]:
        return [(self._row[0], None)]

    def _after(self, number: int, frame: AgentFrame) -> list[Send]:
        ending: Ending = frame.channels["endings"][self._row[number].name]
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


class _SidePlan(AgentPlan):
    """Agents side by side."""

    runs_apart = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        for child in agent.agents:
            self.add_agent(child, self._after)

    def first(self, frame: AgentFrame) -> list[Send]:
        return [(spec, None) for spec in self.specs.values()]

    def _after(self, frame: AgentFrame) -> list[Send]:
        if frame.progress.ending is not None:
            return []  # Each of them asks what follows, and the first has ended it for all.
        endings: dict[str, Ending] = frame.channels["endings"]
        # An agent that was added while the others waited takes no part in this turn.
        ordered = [endings[agent.name] for agent in self.agent.agents if agent.name in endings]
        action = next((each.action for each in ordered if each.action in ("exit", "break_loop")), None)
        output = "\n\n".join(each.output for each in ordered if each.output)
        return frame.end(Ending(output=output, action=action))
