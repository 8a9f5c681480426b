"""What an agent is: its name, its description and the agents below it, apart from what runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from msgspec import Struct

from adjourn._engine.program import ProgramFrame
from adjourn._engine.record import Image
from adjourn._engine.scope import Frame, Scope
from adjourn._schemas import answers
from adjourn._values.frozen import check_text, shorten
from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.events import Event
from adjourn.messages import Message
from adjourn.tools import Tool

from ._transcript import Ending


class AgentInput(Struct, frozen=True, kw_only=True):
    """What a custom agent is given: the conversation as it sees it, and what it was told last."""

    messages: tuple[Message, ...]
    text: str = ""


class ResumeInfo(Struct, frozen=True, kw_only=True):
    """What a custom agent is told when it goes on after a pause that it raised with `raise_interrupt`."""

    input: AgentInput
    state: Any = None
    is_target: bool = False
    has_data: bool = False
    data: Any = None


class AgentConfig:
    """What all agents have; it holds no run's data. `Agent` adds how they are run."""

    name: str = ""
    description: str = ""
    output_type: Any = None
    kind = "agent"

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> ProgramFrame:
        """A frame for this agent, from its stored image if there is one."""
        raise NotImplementedError

    def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        """Do the work."""
        raise NotImplementedError(f"Agent '{self.name}' has no `run`.")

    def resume(self, info: ResumeInfo, ctx: RunContext) -> AsyncIterator[Event]:
        """Go on after a pause: what it yields comes after what was yielded before. By default, `run` runs again."""
        return self.run(info.input, ctx)

    @property
    def steers_resume(self) -> bool:
        """Whether it goes on after a pause in a way of its own."""
        return type(self).resume is not AgentConfig.resume

    @property
    def agents(self) -> Sequence[AgentConfig]:
        """The agents directly below this one."""
        return ()

    def as_tool(self, **options: Any) -> Tool:
        """This agent as a tool of another; the options are those of `AgentTool`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'name', '')}>"


def check_agent(agent: AgentConfig) -> None:
    """Refuse an agent without a name, or with a name twice among those below it.

    Raises:
        UsageError: naming it.
    """
    seen: dict[str, AgentConfig] = {}
    for each in _tree(agent, ()):
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"{type(each).__name__} has no name. Give it one: it stands in addresses and records.")
        check_text(name, "An agent's name")
        if name in seen and seen[name] is not each:
            raise UsageError(f"Two agents below '{agent.name}' are called '{name}'. Give each a name of its own.")
        seen[name] = each


def _tree(agent: AgentConfig, above: tuple[AgentConfig, ...]) -> list[AgentConfig]:
    if agent in above:
        raise UsageError(f"Agent '{agent.name}' is below itself. An agent's tree has no circles.")
    found = [agent]
    for child in agent.agents:
        if not isinstance(child, AgentConfig):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"'{agent.name}' has {child!r} among its agents, which is not an agent.")
        found += _tree(child, (*above, agent))
    return found


def value_of(agent: AgentConfig, ending: Ending) -> Any:
    """The typed result of an ending: of the type that the agent whose answer it is has promised."""
    if ending.value is None:
        return None
    author = _named(agent, ending.of)
    return answers.convert(ending.value, None if author is None else author.output_type)


def _named(agent: AgentConfig, name: str) -> AgentConfig | None:
    """The agent of this name, here or below."""
    if agent.name == name:
        return agent
    return next((found for child in agent.agents if (found := _named(child, name)) is not None), None)


def input_messages(input: object, agent: str) -> list[Message]:
    """What an agent is given, as messages.

    Raises:
        UsageError: it is something else than text and messages.
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
            raise UsageError(
                f"Agent '{agent}' takes a text, a Message or a list of them as input, not {shorten(input)}."
            )
