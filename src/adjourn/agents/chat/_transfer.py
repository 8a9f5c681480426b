"""Transfer: handing the turn to another agent, down to a sub-agent or back up."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.agents._config import AgentConfig
from adjourn.agents._transcript_frame import TranscriptFrame
from adjourn.context import current
from adjourn.errors import ToolError
from adjourn.graph._frame import Task
from adjourn.tools import Tool, tool

from ._config import ChatConfig

TRANSFER = "transfer_to_agent"


def reachable(frame: TranscriptFrame, agent: ChatConfig) -> list[AgentConfig]:
    """Return the agents that an agent can hand over to: those below it, and the one that handed over to it."""
    back = giver(frame) if agent.allows_return else None
    return [*agent.sub_agents, *([back.agent] if back is not None else [])]


def giver(frame: TranscriptFrame) -> TranscriptFrame | None:
    """Return the agent that handed over to this one, if any."""
    above = frame.above
    if above is None or not isinstance(frame.parent, Task) or not isinstance(above.agent, ChatConfig):
        return None
    return above


def chain_of(frame: TranscriptFrame) -> list[str] | None:
    """Return the chain of handovers from the transcript's owner to this agent, or None if there is none."""
    if frame.owner is frame:
        return []
    above = giver(frame)
    chain = None if above is None else chain_of(above)
    return None if chain is None else [*chain, frame.agent.name]


def check_target(agents: Sequence[AgentConfig], name: str) -> None:
    """Raise if a target is not one of the agents to hand over to.

    Raises:
        ToolError: for the model to read.
    """
    names = [agent.name for agent in agents]
    if name not in names:
        raise ToolError(f"There is no agent '{name}' to hand over to. There are: {', '.join(names) or 'none'}.")


def transfer_tool(agents: Sequence[AgentConfig]) -> Tool:
    """Return the tool with which a model hands over to one of these agents."""

    def hand_over(agent_name: str) -> str:
        current().transfer_to(agent_name)
        return f"Handed over to {agent_name}."

    schema = {
        "type": "object",
        "properties": {"agent_name": {"type": "string", "description": "The name of the agent."}},
        "required": ["agent_name"],
        "additionalProperties": False,
    }
    names = ", ".join(agent.name for agent in agents)
    return tool(
        hand_over,
        name=TRANSFER,
        description=f"Hand the conversation over to another agent. Agents: {names}.",
        schema=schema,
        thread=False,
    )


def transfer_instruction(agents: Sequence[AgentConfig]) -> str:
    """Return the part of the instruction that lists the agents to hand over to."""
    lines = [f"- {agent.name}: {agent.description or 'no description'}" for agent in agents]
    return "\n".join(
        [f"You can hand the conversation over to another agent by calling `{TRANSFER}` with its name:", *lines]
    )
