"""Plans of agents: the nodes that an agent consists of, on the graph engine, and how it goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from adjourn._engine.address import address_of, segment_text
from adjourn._engine.program import ProgramFrame
from adjourn._schemas import answers
from adjourn.errors import ProgramChanged, UsageError
from adjourn.graph._plan import Plan
from adjourn.graph._spec import NodeSpec
from adjourn.graph._task import Send, Task

from ._frame import HOOKS, SCHEMA, AgentFrame
from ._progress import Ending

if TYPE_CHECKING:
    from .agent import Agent


class AgentPlan(Plan):
    """What the engine runs of an agent.

    `runs_apart`: the agents below it run beside each other. `prompts`: what it says as a user is meant for them.
    """

    runs_apart = False
    prompts = False

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent.name, SCHEMA)
        self.agent = agent

    def add(self, name: str, call: Callable[[Task], Awaitable[Any]]) -> NodeSpec:
        """Add an inner node, which is called with its task and has no segment in addresses."""
        spec = NodeSpec(name, len(self.specs), "async", call)
        spec.segment, spec.is_inner, spec.is_plain = f"~{name}", True, True
        self.specs[name] = spec
        return spec

    def add_agent(self, agent: Agent, decide: Callable[[AgentFrame], list[Send]]) -> NodeSpec:
        """Add an agent as a node; `decide` says what follows when it has ended."""
        spec = NodeSpec(agent.name, len(self.specs), "graph")
        spec.segment, spec.is_inner, spec.is_plain = segment_text("agent", agent.name), True, True
        spec.begin = _nothing
        spec.graph, spec.hand_up, spec.decide = agent, _hand_up, decide  # pyright: ignore[reportAttributeAccessIssue]  # the frame is an agent's
        self.specs[agent_node(agent.name)] = spec
        return spec

    async def prepare(self, frame: AgentFrame) -> bool:
        """Get ready to run in this process; False when that waits for an answer."""
        return True

    def check_action(self, frame: AgentFrame, action: Mapping[str, str]) -> None:
        """Refuse what the agent cannot do."""
        if action["action"] == "transfer":
            raise UsageError(f"Agent '{self.name}' cannot hand over to '{action['target']}': it has no sub-agents.")

    def first(self, frame: AgentFrame) -> list[Send]:
        """What a turn begins with."""
        raise NotImplementedError

    def last(self, frame: AgentFrame, ending: Ending) -> list[Send]:
        """What follows when the agent has ended."""
        return []

    def value_of(self, ending: Ending) -> Any:
        """The typed result of an ending: of the type that the agent whose answer it is has promised."""
        if ending.value is None:
            return None
        author = _named(self.agent, ending.of)
        return answers.convert(ending.value, getattr(author, "output_type", None))

    def task_at(self, frame: AgentFrame, segment: str) -> Task | None:
        """The task that stands at a segment below the agent; None for its hooks, which are no task.

        Raises:
            ProgramChanged: the agent has no such place any more.
        """
        if segment == HOOKS:
            return None
        spec = next((spec for spec in self.specs.values() if spec.segment == segment), None)
        if spec is None:
            raise ProgramChanged(
                address_of(f"{frame.path};{segment}"), f"agent '{self.name}' has no '{segment}' any more"
            )
        return Task(frame, spec)

    def is_pausing(self, frame: AgentFrame) -> bool:
        """Whether the agent's next tasks do nothing but ask."""
        return False

    def stops_before(self, frame: AgentFrame, tasks: list[Task]) -> bool:
        """Whether a cancel of the run stops the agent before these tasks."""
        return True


def _named(agent: Agent, name: str) -> Agent | None:
    """The agent of this name, here or below."""
    if agent.name == name:
        return agent
    return next((found for child in agent.agents if (found := _named(child, name)) is not None), None)


def agent_node(name: str) -> str:
    """The name of an agent's node among the others of a plan."""
    return f"agent:{name}"


def _nothing(_: Task) -> None:
    """The input of an agent in another one's tree: it reads the transcript."""


def _hand_up(task: Task, child: ProgramFrame) -> None:
    """Leave how an agent ended to the one above it."""
    assert isinstance(child, AgentFrame)
    assert isinstance(task.graph, AgentFrame)
    ending = replace(child.progress.ending or Ending(), trail=child.progress.trail)
    task.writes = [("endings", {child.agent.name: ending}, True)]
