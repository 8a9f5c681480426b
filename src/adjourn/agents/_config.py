"""What an agent is: its name, its description and the agents below it, independent of how it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack, cast

from msgspec import Struct

from adjourn._engine.program import Program, ProgramFrame
from adjourn._engine.record import Image
from adjourn._engine.scope import Frame, Scope
from adjourn._generics import Deps_contra, Out_co
from adjourn._habits import OF_AGENTS, Explains, explains_run
from adjourn._schemas import answers
from adjourn._values.frozen import check_text, shorten
from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.events import Event
from adjourn.messages import Message
from adjourn.models import Chunk
from adjourn.tools import Tool

from ._transcript import Ending

Yielded: TypeAlias = Event | AsyncIterator[Chunk | str]
"""What the code of a custom agent yields: a `MessageEvent`, its pieces before it as `Delta`s, or a stream of pieces."""


class AgentInput(Struct, frozen=True, kw_only=True):
    """What an agent was given: the conversation as it sees it, and the last prompt, as text and with all its parts."""

    messages: tuple[Message, ...]
    text: str = ""
    message: Message | None = None


class ResumeInfo(Struct, frozen=True, kw_only=True):
    """The input of a custom agent that continues after a pause it raised with `raise_interrupt`."""

    input: AgentInput
    state: Any = None
    is_target: bool = False
    has_data: bool = False
    data: Any = None


class Sketch(Struct, frozen=True, kw_only=True):
    """How an agent is drawn: what kind it is, and the agents below it."""

    marks: Sequence[str]
    below: Sequence[AgentConfig]
    is_row: bool = False
    """Whether those below run one after another."""
    chooses: bool = False
    """Whether those below may run: a model hands over to one. Workflow agents run all of theirs."""


class AgentToolOptions(TypedDict, total=False):
    """The options of `AgentTool`, as keyword arguments."""

    name: str | None
    description: str | None
    input_schema: Any
    full_history: bool
    approval: bool | Callable[..., Any]
    emit_internal_events: bool


class AgentConfig(Explains, Program[Deps_contra, Out_co, Any, Out_co]):
    """What all agents have in common; it holds no data of any run. `Agent` adds how they run."""

    _instead = OF_AGENTS

    name: str = ""
    description: str = ""
    output_type: Any = None
    sub_agents: Sequence[AgentConfig] = ()
    """The agents that it can hand the conversation over to."""
    allows_return: bool = True
    """Whether it can hand back to the agent that handed over to it."""
    max_handovers: int = 100
    """How often a custom agent can hand over in one turn; after that, it is `LimitExceeded`."""
    kind = "agent"

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> ProgramFrame:
        """Return a frame for this agent, restored from its stored image if there is one."""
        raise NotImplementedError

    @explains_run
    def run(self, input: AgentInput, ctx: RunContext[Deps_contra]) -> AsyncIterator[Yielded]:
        """Run the agent."""
        raise NotImplementedError(f"Agent '{self.name}' has no `run`.")

    def resume(self, info: ResumeInfo, ctx: RunContext[Deps_contra]) -> AsyncIterator[Yielded]:
        """Continue after a pause; its events follow those yielded before. By default, `run` runs again."""
        return self.run(info.input, ctx)

    @property
    def steers_resume(self) -> bool:
        """Whether it has a custom `resume`."""
        return type(self).resume is not AgentConfig.resume

    @property
    def agents(self) -> Sequence[AgentConfig]:
        """The agents directly below this one."""
        return self.sub_agents

    def sketch(self) -> Sketch:
        """Return how this agent is drawn."""
        return Sketch(marks=[type(self).__name__], below=self.agents)

    def option_names(self) -> dict[str, str]:
        """Return which of this agent, those below it, and their tools can have options of their own in a turn."""
        return {name: own for agent in self.agents for name, own in agent.option_names().items()}

    def as_tool(self, **options: Unpack[AgentToolOptions]) -> Tool:
        """Return this agent as a tool for another one; the options are those of `AgentTool`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'name', '')}>"


def check_agent(agent: AgentConfig) -> None:
    """Raise if an agent has no name, or if two agents below it share a name.

    Raises:
        UsageError: naming it.
    """
    seen: dict[str, AgentConfig] = {}
    for each in _tree(agent, ()):
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"{type(each).__name__} has no name. Give it one: addresses and records contain it.")
        check_text(name, "An agent's name")
        if name in seen and seen[name] is not each:
            raise UsageError(f"Two agents below '{agent.name}' are called '{name}'. Give each its own name.")
        seen[name] = each


def _tree(agent: AgentConfig, above: tuple[AgentConfig, ...]) -> list[AgentConfig]:
    if agent in above:
        raise UsageError(f"Agent '{agent.name}' is below itself. The tree of an agent must not have cycles.")
    found = [agent]
    for child in agent.agents:
        if not isinstance(child, AgentConfig):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"'{agent.name}' has {child!r} among its agents, which is not an agent.")
        found += _tree(child, (*above, agent))
    return found


def value_of(agent: AgentConfig, ending: Ending) -> Any:
    """Return the result of an ending, converted to the output type of the agent that gave it."""
    if ending.value is None:
        return None
    author = _named(agent, ending.of)
    return answers.convert(ending.value, None if author is None else author.output_type)


def _named(agent: AgentConfig, name: str) -> AgentConfig | None:
    """Return the agent with this name, here or below."""
    if agent.name == name:
        return agent
    return next((found for child in agent.agents if (found := _named(child, name)) is not None), None)


def input_messages(input: object, agent: str) -> list[Message]:
    """Return an agent's input as messages.

    Raises:
        UsageError: it is neither text nor messages.
    """
    match input:
        case None:
            return []
        case str():
            return [Message.user(input)]
        case Message():
            return [input]
        case list() | tuple() if all(isinstance(each, Message | str) for each in cast("list[object]", input)):
            given = cast("list[str | Message]", input)
            return [Message.user(each) if isinstance(each, str) else each for each in given]
        case _:
            raise UsageError(f"Agent '{agent}' takes text, a Message or a list of them as input, not {shorten(input)}.")
