"""Handing over: which agents an agent can hand the conversation to, and whose turn it is then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from adjourn._calls.caller import program_options
from adjourn._engine.address import segment_text
from adjourn._engine.scope import Action
from adjourn.errors import ToolError
from adjourn.events import Transfer
from adjourn.graph._node import Node, Send

from ._config import AgentConfig
from ._frame import AgentFrame, AgentPlan, is_member
from ._nodes import member_key
from ._transcript import Ending


def giver(frame: AgentFrame) -> AgentFrame | None:
    """Return the agent that handed over to this one, if any."""
    above = _above(frame)
    return giver(above) if above is not None and above.plan.is_transparent else above


def _above(frame: AgentFrame) -> AgentFrame | None:
    above = frame.above
    return above if above is not None and above.plan.hands_over and is_member(frame.parent) else None


def check_target(agents: Sequence[AgentConfig], name: str) -> None:
    """Raise if a target is not one of the agents to hand over to.

    Raises:
        ToolError: for the model to read.
    """
    names = [agent.name for agent in agents]
    if name not in names:
        raise ToolError(f"There is no agent '{name}' to hand over to. There are: {', '.join(names) or 'none'}.")


def _chain(frame: AgentFrame) -> list[str] | None:
    """Return the chain of handovers from the transcript's owner to this agent, or None if there is none."""
    if frame.owns_transcript:
        return []
    above = _above(frame)
    chain = None if above is None else _chain(above)
    if chain is None or above is None or above.plan.is_transparent:
        return chain
    return [*chain, frame.agent.name]


def reachable(frame: AgentFrame) -> list[AgentConfig]:
    """Return the agents that an agent can hand over to: those below it, and the one that handed over to it."""
    back = giver(frame) if frame.agent.allows_return else None
    return [*frame.agent.sub_agents, *([back.agent] if back is not None else [])]


def take_turn_back(frame: AgentFrame) -> None:
    """Note that none of the agents below has the turn any more."""
    chain = _chain(frame)
    if chain is not None:
        frame.transcript.set_active(chain)


def hand_over(frame: AgentFrame, target: str) -> list[Send]:
    """Give the turn to a sub-agent, or back to the agent that it came from."""
    frame.emit(Transfer(address=frame.address, target=target))
    back = giver(frame)
    if back is not None and target == back.agent.name:
        return frame.end(Ending(action="transfer", target=target))
    chain = _chain(frame)
    if chain is not None:
        frame.transcript.set_active([*chain, target])
    return [(_member(frame, target), None)]


def _member(frame: AgentFrame, name: str) -> Node:
    """Return the node of a sub-agent."""
    return frame.plan.node_named(member_key(name), f"{frame.path};{segment_text('agent', name)}")


class HandoffPlan(AgentPlan):
    """The plan of an agent that can hand over to its sub-agents, and back to the agent that handed over to it."""

    hands_over = True

    def add_sub_agents(self, agents: Sequence[AgentConfig]) -> None:
        """Add the agents that it can hand over to."""
        for agent in agents:
            self.add_member(agent, partial(self.after_handoff, agent.name))

    def first(self, frame: AgentFrame) -> list[Send]:
        """Return what a turn begins with: the agent that has the turn, here or below."""
        chain, transcript = _chain(frame), frame.transcript
        active: list[str] = transcript.owner().fields.values["active"]
        if program_options(frame.scope).after_transfer == "root" and frame.owns_transcript:
            transcript.set_active([])
        elif chain is not None and len(active) > len(chain):
            return [(_member(frame, active[len(chain)]), None)]
        return self.own_turn(frame)

    def check_action(self, frame: AgentFrame, action: Action) -> None:
        """Raise if the agent cannot do this."""
        if action.name == "transfer":
            check_target(reachable(frame), action.arguments["target"])

    def after_handoff(self, name: str, frame: AgentFrame) -> list[Send]:
        """Return what follows when a sub-agent has ended, with the turn's result or by handing back."""
        ending = frame.ending_of(name)
        if ending.action != "transfer":
            return frame.end(replace(ending, trail=()))
        take_turn_back(frame)
        frame.set_progress(trail=(*ending.trail, self.name))
        return self.own_turn(frame)
