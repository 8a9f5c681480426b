"""Handing over: which agents an agent can hand the conversation to, and whose turn it is then."""

# Overrides are documented on the base class.

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from adjourn._calls.caller import program_options
from adjourn._engine.address import segment_text
from adjourn._engine.scope import Request
from adjourn.errors import ToolError
from adjourn.events import Transfer
from adjourn.graph._node import Node, Send

from ._config import AgentConfig
from ._frame import AgentFrame
from ._nodes import AgentPlan, member_key
from ._sharing import TranscriptFrame, is_member
from ._transcript import Ending


def giver(frame: TranscriptFrame) -> HandoffFrame | None:
    """Return the agent that handed over to this one, if any."""
    above = _above(frame)
    return giver(above) if above is not None and above.is_transparent else above


def _above(frame: TranscriptFrame) -> HandoffFrame | None:
    above = frame.above
    return above if isinstance(above, HandoffFrame) and is_member(frame.parent) else None


def check_target(agents: Sequence[AgentConfig], name: str) -> None:
    """Raise if a target is not one of the agents to hand over to.

    Raises:
        ToolError: for the model to read.
    """
    names = [agent.name for agent in agents]
    if name not in names:
        raise ToolError(f"There is no agent '{name}' to hand over to. There are: {', '.join(names) or 'none'}.")


class HandoffPlan(AgentPlan):
    """The steps of an agent that can hand over, and the agents that it hands over to."""

    def add_sub_agents(self, agents: Sequence[AgentConfig]) -> None:
        """Add the agents that it can hand over to."""
        for agent in agents:
            self.add_member(agent, partial(_after_member, agent.name))


def _after_member(name: str, frame: HandoffFrame) -> list[Send]:
    return frame.after_handoff(name)


class HandoffFrame(AgentFrame):
    """A running agent that can hand over to its sub-agents, and back to the agent that handed over to it.

    `is_transparent`: it only gives another agent a different name, and is not seen by it.
    """

    is_transparent: bool = False

    def own_turn(self) -> list[Send]:
        """Return what its own turn begins with, when no agent below has it."""
        raise NotImplementedError

    @property
    def chain(self) -> list[str] | None:
        """The chain of handovers from the transcript's owner to this agent, or None if there is none."""
        if self.owner is self:
            return []
        above = _above(self)
        chain = None if above is None else above.chain
        if chain is None or above is None or above.is_transparent:
            return chain
        return [*chain, self.agent.name]

    @property
    def reachable(self) -> list[AgentConfig]:
        """The agents that it can hand over to: those below it, and the one that handed over to it."""
        back = giver(self) if self.agent.allows_return else None
        return [*self.agent.sub_agents, *([back.agent] if back is not None else [])]

    def first(self) -> list[Send]:
        chain = self.chain
        active: list[str] = self.owner.fields.values["active"]
        if program_options(self.scope).after_transfer == "root" and self.owner is self:
            self.set_active([])
        elif chain is not None and len(active) > len(chain):
            return [(self._member(active[len(chain)]), None)]
        return self.own_turn()

    def check_action(self, action: Request) -> None:
        if action.name == "transfer":
            check_target(self.reachable, action.arguments["target"])

    def hand_over(self, target: str) -> list[Send]:
        """Give the turn to a sub-agent, or back to the agent that it came from."""
        self.emit(Transfer(address=self.address, target=target))
        back = giver(self)
        if back is not None and target == back.agent.name:
            return self.end(Ending(action="transfer", target=target))
        chain = self.chain
        if chain is not None:
            self.owner.set_active([*chain, target])
        return [(self._member(target), None)]

    def _member(self, name: str) -> Node:
        """Return the node of a sub-agent."""
        return self.node_named(member_key(name), f"{self.path};{segment_text('agent', name)}")

    def after_handoff(self, name: str) -> list[Send]:
        """Return what follows when a sub-agent has ended, with the turn's result or by handing back."""
        ending = self.ending_of(name)
        if ending.action != "transfer":
            return self.end(replace(ending, trail=()))
        self.take_turn_back()
        self.set_progress(trail=(*ending.trail, self.agent.name))
        return self.own_turn()

    def take_turn_back(self) -> None:
        """Note that none of the agents below has the turn any more."""
        chain = self.chain
        if chain is not None:
            self.owner.set_active(chain)
